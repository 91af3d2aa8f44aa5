"""Time planning, running and compiling. ``make bench`` runs it; bench/README.md says what the cases are for."""

from __future__ import annotations

import os
import sys

SLOWING = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
if any(name in os.environ for name in SLOWING):  # OpenBLAS has read them before Python can change them: start again
    os.execve(sys.executable, [sys.executable, *sys.argv], {k: v for k, v in os.environ.items() if k not in SLOWING})

import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

import npu_kit
from npu_kit.graph.ir import Entry, Graph, Node, TensorType
from npu_kit.graph.verify import verify_graph
from npu_kit.plan.planner import make_plan
from npu_kit.runtime.execute import execute

SECONDS = 1.5  # spent on each case, at least three runs


@dataclass(frozen=True)
class Timing:
    """One case: times in milliseconds, and what happened per second where ``rate_unit`` says so."""

    case: str
    median_ms: float
    fastest_ms: float
    runs: int
    rate: float = 0.0
    rate_unit: str = ""

    def __str__(self) -> str:
        rate = f"{self.rate:10.1f} {self.rate_unit}" if self.rate_unit else ""
        return f"{self.case:18}{self.median_ms:10.2f} ms{self.fastest_ms:10.2f} ms{self.runs:6}{rate}"


def measure(case: str, function: Callable[[], Any], macs: int = 0) -> Timing:
    """Time ``function`` again and again, after one run that is not counted."""
    function()
    times: list[float] = []
    while len(times) < 3 or sum(times) < SECONDS:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    median = statistics.median(times)
    rate = (macs / median / 1e9, "GMAC/s") if macs else (0.0, "")
    return Timing(case, 1e3 * median, 1e3 * min(times), len(times), *rate)


def one_kernel(name: str, inputs: dict[str, tuple[int, ...]], output: tuple[int, ...], **attrs: Any) -> Graph:
    """A graph of one float32 operation."""
    nodes = [Node("input", key, (TensorType(shape, "float32"),)) for key, shape in inputs.items()]
    entries = tuple(map(Entry, range(len(nodes))))
    kernel = Node("kernel", name, (TensorType(output, "float32"),), entries, attrs, f"example_npu.{name}#0")
    graph = Graph(name, (*nodes, kernel), tuple(range(len(nodes))), (Entry(len(nodes)),))
    verify_graph(graph)
    return graph


def square_matmul(size: int) -> Graph:
    return one_kernel("matmul", {"a": (size, size), "b": (size, size)}, (size, size))


def convolution() -> Graph:
    """3x3, 64 to 64 channels, 56 x 56: a layer of ResNet-18."""
    return one_kernel(
        "conv2d",
        {"x": (1, 56, 56, 64), "w": (3, 3, 64, 64)},
        (1, 56, 56, 64),
        strides=(1, 1),
        padding=(1, 1, 1, 1),
        dilation=(1, 1),
        groups=1,
        data_layout="NHWC",
        kernel_layout="HWIO",
    )


def arrays_for(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(graph.nodes[i].outputs[0].shape, dtype=np.float32) for i in graph.arg_nodes]


def cases() -> Iterator[Timing]:
    """Run every case, the cheap ones first."""
    spec = npu_kit.load_spec("example")
    matmul, small, conv = square_matmul(1024), square_matmul(256), convolution()
    conv_macs = 56 * 56 * 64 * 64 * 9

    a, b = arrays_for(matmul)
    yield measure("numpy matmul", lambda: np.matmul(a, b), 1024**3)
    for name, graph, macs in (("matmul", matmul, 1024**3), ("conv", conv, conv_macs)):
        plan, arrays = make_plan(graph, spec), arrays_for(graph)
        yield measure(f"plan {name}", lambda graph=graph: make_plan(graph, spec))
        yield measure(f"run {name} fast", lambda plan=plan, arrays=arrays: execute(plan, arrays), macs)
    plan, arrays = make_plan(small, spec), arrays_for(small)
    yield measure("run matmul step", lambda: execute(plan, arrays, mode="step"), 256**3)

    yield from digits()
    command = [sys.executable, "-c", "import npu_kit"]
    yield measure("import npu_kit", lambda: subprocess.run(command, check=True))


def digits() -> Iterator[Timing]:
    from npu_kit import zoo
    from npu_kit.data import load_digits_data

    module = zoo.build("digits")
    yield measure("compile digits", lambda: npu_kit.compile(module, bind_constants=True))
    compiled = npu_kit.compile(module, bind_constants=True)
    image = load_digits_data().test_images[:1]
    yield measure("run digits", lambda: compiled.run(image))


def blas() -> str:
    """Name and kernel of the BLAS that NumPy uses."""
    libraries = [info for info in threadpoolctl.threadpool_info() if info["user_api"] == "blas"]
    return ", ".join(f"{i['internal_api']} {i['version']} {i.get('architecture', '')}".strip() for i in libraries)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time planning, running and compiling on this machine.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the timings as JSON")
    options = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, NumPy {np.__version__}, {blas()}, {os.cpu_count()} cores")
    print(f"{'case':18}{'median':>13}{'fastest':>13}{'runs':>6}")
    timings = []
    for timing in cases():
        print(timing, flush=True)
        timings.append(timing)
    if options.json:
        options.json.write_text(json.dumps([asdict(timing) for timing in timings], indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
