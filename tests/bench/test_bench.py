"""The benchmarks compare like with like: the peers compute the same, and times are told as they were taken."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("threadpoolctl")
tvm = pytest.importorskip("tvm")

NAMES = ("comparisons", "memory", "numpy_layers", "onnx_layers", "report", "timing", "tvm_peers")
SIZE = 64  # of an image: both networks shrink it to 2x2


@pytest.fixture(autouse=True)
def folder_on_path(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """``bench`` is a folder of scripts, so its modules are found beside each other and forgotten afterwards."""
    monkeypatch.syspath_prepend(str(repository / "bench"))
    yield
    for name in NAMES:
        sys.modules.pop(name, None)


def networks() -> ModuleType:
    from npu_kit.zoo import networks

    return networks


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
@pytest.mark.parametrize("fold", [True, False], ids=["folded", "batch norm"])
def test_all_peers_compute_the_same_network(name: str, fold: bool) -> None:
    pytest.importorskip("onnxruntime")
    import onnx_layers
    from numpy_layers import numpy_network
    from tvm.relax.frontend.onnx import from_onnx

    import npu_kit

    topology = getattr(networks(), name)
    image = np.random.default_rng(3).standard_normal((1, 3, SIZE, SIZE), dtype=np.float32)
    model = onnx_layers.onnx_model(topology, SIZE, fold=fold)
    module = from_onnx(model, keep_params_in_input=False)
    (wanted,) = onnx_layers.session(model, 1, image=image)()
    found = {
        "numpy": numpy_network(topology, SIZE).run(image),
        "kit, from ONNX": npu_kit.compile(module, bind_constants=True).run(image),
        "kit, from Relax": npu_kit.compile(getattr(networks(), f"{name}_model")(SIZE), bind_constants=True).run(image),
    }
    assert wanted.shape == (1, 1000) and wanted.std() > 0.1
    for peer, result in found.items():
        np.testing.assert_allclose(result, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max(), err_msg=peer)


def test_the_clips_of_mobilenet_go_to_the_npu() -> None:
    pytest.importorskip("onnx")
    from onnx_layers import onnx_model
    from tvm.relax.frontend.onnx import from_onnx

    from npu_kit import partition

    module = from_onnx(onnx_model(networks().mobilenet_v2, SIZE), keep_params_in_input=False)
    report = partition(module, bind_constants=True).report
    assert not report.on_host
    assert sum(call.op == "relax.clip" for call in report.calls) == 35


def test_the_ten_lines_compute_a_matmul() -> None:
    import tvm_peers

    a, b = (np.random.default_rng(i).standard_normal((128, 128), dtype=np.float32) for i in range(2))
    for function in (tvm_peers.matmul_function(128), tvm_peers.scheduled(tvm_peers.matmul_function(128))):
        library = tvm.compile(function, target="llvm")
        out = tvm.runtime.tensor(np.zeros((128, 128), np.float32))
        library["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), out)
        np.testing.assert_allclose(out.numpy(), a @ b, rtol=1e-4, atol=1e-4)


def test_functions_run_in_alternation_and_the_slow_ones_a_few_times() -> None:
    from timing import FEW, Comparison, alternate

    order: list[str] = []
    functions = {name: lambda name=name: order.append(name) for name in ("a", "b", "slow")}
    result = alternate(Comparison("c", "why?", functions, "a", ["slow"]), seconds=0.01)
    assert order[:5] == ["a", "a", "b", "b", "slow"]
    counted = order[5:]
    assert counted[: 3 * FEW] == ["a", "b", "slow"] * FEW
    assert counted[3 * FEW :] == ["a", "b"] * (len(counted[3 * FEW :]) // 2)
    runs = {name: timing.runs for name, timing in result.timings.items()}
    assert runs == {name: counted.count(name) for name in functions} and runs["slow"] == FEW < runs["a"]


def sample() -> Any:
    from timing import Result, Timing

    timings = {"plain <b>": Timing(2.0, 1.0, 9), "kit": Timing(3.0, 2.0, 9), "slow": Timing(2000.0, 1800.0, 3)}
    return Result("net", "how long?", "plain <b>", timings, ("untuned",))


def test_ratios_are_times_the_baseline() -> None:
    import report

    result = sample()
    assert (result.ratio("kit"), result.fastest_ratio("kit"), result.ratio("slow")) == (1.5, 2.0, 1000.0)
    text = report.lines(result)
    assert text[0] == "net: how long?" and "untuned" in text[-1]
    assert [line.split()[0] for line in text[2:5]] == ["plain", "kit", "slow"]
    assert text[3].split()[-2:] == ["1.50", "2.00"]


def test_results_are_written_as_json_and_as_a_picture(tmp_path: Path) -> None:
    import report

    machine = {"processor": "a & b", "threads used": "1"}
    report.write(tmp_path, machine, [sample()], {"planning MiB": 1.5})
    document = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert document["machine"] == machine and document["memory"] == {"planning MiB": 1.5}
    (comparison,) = document["comparisons"]
    assert comparison["ratios"] == {"plain <b>": 1.0, "kit": 1.5, "slow": 1000.0}
    assert comparison["timings"]["kit"] == {"median_ms": 3.0, "fastest_ms": 2.0, "runs": 9}
    root = ElementTree.parse(tmp_path / "results.svg").getroot()
    words = [element.text or "" for element in root.iter() if element.tag.endswith("text")]
    assert "plain <b>" in words and any("1000.00" in word and "cut" in word for word in words)


def test_the_matmuls_that_are_timed_are_right() -> None:
    import comparisons

    a, b = comparisons.square(48)
    graph = comparisons.one_operation("matmul", (a.shape, b.shape))
    (found,) = comparisons.runner(graph, [a, b], tile=16)()
    np.testing.assert_allclose(found, a @ b, rtol=1e-4, atol=1e-5)
    a, b = comparisons.square(48, "int8")
    graph = comparisons.one_operation("matmul", (a.shape, b.shape), "int8")
    (found,) = comparisons.runner(graph, [a, b])()
    np.testing.assert_array_equal(found, a.astype(int) @ b.astype(int))


def test_tensor_bytes_count_what_a_region_holds() -> None:
    import comparisons
    import memory

    import npu_kit
    from npu_kit.plan.planner import make_plan

    plan = make_plan(comparisons.one_operation("matmul", ((4, 8), (8, 2))), npu_kit.load_spec("example"))
    assert memory.tensor_bytes(plan) == 4 * (4 * 8 + 8 * 2 + 4 * 2)
    assert memory.peak_bytes(lambda: np.zeros(1 << 20, np.uint8)) >= 1 << 20
