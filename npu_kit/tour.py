"""The whole flow once, in the terminal: a trained digits classifier through all four stages, every value checked.

It runs on real held-out images, in float32, or on a machine of integers in 8 bits. The checks compare with TVM's own
build of the same model, with the labels, and the kit's two ways of running with each other.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import npu_kit
from npu_kit.byoc.run.host import build_for_host
from npu_kit.data import load_digits_data
from npu_kit.errors import UnsupportedError
from npu_kit.graph.serialize import from_json, to_json
from npu_kit.hw import NpuSpec, load_spec
from npu_kit.plan.steps import label
from npu_kit.plan.traffic import plan_counters
from npu_kit.render.format import format_bytes, format_count, number_of, shorten
from npu_kit.runtime.record import Trace
from npu_kit.trace.counters import total
from npu_kit.zoo import build

# Probabilities are at most 1, and no sum here is longer than 360 terms: c * K * eps with c = 1 is 4.3e-5.
TOLERANCE = 360 * float(np.finfo(np.float32).eps)
STEP_MODE_IMAGES = 4  # tile by tile in Python: slow, and the same for every image
LEAST_ACCURACY = 0.95  # the weights reach 0.992, and 0.989 in 8 bits; npu_kit/data/README.md


@dataclass(frozen=True)
class Check:
    """One thing that has to hold, and the numbers it was judged by."""

    what: str
    is_right: bool
    numbers: str

    def __str__(self) -> str:
        return f"  {'ok' if self.is_right else 'WRONG':7}{self.what}: {self.numbers}"


def run_tour(spec: str | NpuSpec = "example") -> int:
    """Print the report stage by stage; return 0 when every check holds, else 1.

    Raises:
        NpuKitError: a stage failed on this machine (PlanError, for one, where a tier is too small), or it computes
            neither in float32 nor in int8.
    """
    started = time.perf_counter()
    machine = load_spec(spec)
    data = load_digits_data()
    images, labels = data.test_images, data.test_labels
    name, why = choose_model(machine)
    print(f"Digits classifier, {number_of(len(images), 'held-out image')}, machine {machine.name!r}")
    print(f"Model {name!r}: {why}")
    model = build(name, batch=len(images))
    compiled = npu_kit.compile(model, machine, bind_constants=True)

    _heading(1, "partition", "which calls of the model go to the NPU")
    print("\n".join(_partition_lines(compiled.partition)))
    _heading(2, "codegen", "each region as a JSON graph")
    print("\n".join(_codegen_lines(compiled)))
    _heading(3, "plan", "engines, tiers, and tiles as axis=tile/extent")
    print("\n".join(_plan_lines(compiled)))

    _heading(4, "run", f"{number_of(len(images), 'image')} in one batch")
    with npu_kit.record() as trace:
        found = compiled.run(images)
    print("\n".join(_trace_lines(trace)))

    print("\nChecks", flush=True)
    checks = []
    for check in (
        *_check_stages(compiled, trace),
        *_check_values(model, images, labels, found),
        _check_modes(name, machine),
    ):
        print(check, flush=True)
        checks.append(check)
    passed = all(check.is_right for check in checks)
    print(f"\n{'PASS' if passed else 'FAIL'} after {time.perf_counter() - started:.1f} s")
    return 0 if passed else 1


def choose_model(machine: NpuSpec) -> tuple[str, str]:
    """The digits classifier of the zoo that the machine has dtypes for, and why.

    Raises:
        UnsupportedError: the machine has neither float32 nor int8.
    """
    dtypes = ", ".join(machine.dtypes)
    if "float32" in machine.dtypes:
        return "digits", "in float32, as it was trained"
    if "int8" in machine.dtypes:
        return "digits_int8", f"quantized after training, since the machine computes in {dtypes}"
    raise UnsupportedError(
        f"no digits classifier for machine {machine.name!r}",
        f"there is one in float32 and one in int8, and the machine computes in {dtypes}",
        "a machine with one of them: npu-kit tour --spec example",
    )


def _heading(number: int, stage: str, question: str) -> None:
    print(f"\n{number} {stage}: {question}", flush=True)


def _partition_lines(partition: Any) -> Iterator[str]:
    yield f"  {partition.report.summary}"
    for region in partition.regions:
        yield f"  {region.label}: {', '.join(composite.split('.')[-1] for composite in region.composites)}"
    for call in partition.report.on_host:
        yield f"  host: {call.op}, {shorten(call.reason, 160)}"


def _codegen_lines(compiled: Any) -> Iterator[str]:
    for region, graph in zip(compiled.partition.regions, compiled.graphs, strict=True):
        counts = f"{number_of(len(graph.nodes), 'node')}, {number_of(len(graph.kernels), 'operation')}"
        constants = number_of(len(graph.constants), "constant")
        yield f"  {region.label}: {counts}, {constants}, {format_bytes(len(to_json(graph)))} of JSON"


def _plan_lines(compiled: Any) -> Iterator[str]:
    for region, plan in zip(compiled.partition.regions, compiled.plans, strict=True):
        for step, counters in zip(plan.steps, plan_counters(plan), strict=True):
            tile = " ".join(f"{axis.name}={axis.tile}/{axis.extent}" for axis in step.axes if axis.count > 1)
            yield (
                f"  {region.label} step {step.index}: {label(plan.graph, step.nodes)}; {step.engine} engine, "
                f"{number_of(counters.tiles, 'tile')}, to {step.output_tier}; {tile or 'all axes in one tile'}"
            )


def _trace_lines(trace: Trace) -> Iterator[str]:
    counters = trace.counters
    for (source, target), nbytes in sorted(counters.nbytes.items(), reverse=True):
        transfers = number_of(counters.transfers[source, target], "transfer")
        yield f"  {source} to {target}: {format_bytes(nbytes):>8} in {transfers}"
    intensity = f", {counters.macs / counters.dram_bytes:.1f} for each byte of DRAM traffic" if trace.runs else ""
    yield f"  {format_count(counters.macs)} MACs{intensity}"


def _check_stages(compiled: Any, trace: Trace) -> Iterator[Check]:
    report = compiled.partition.report
    is_right = bool(report.on_npu) and all(call.reason for call in report.on_host)
    numbers = f"{number_of(len(report.on_npu), 'call')}, {len(report.on_host)} on the host"
    yield Check("the NPU computes, and what it does not has a reason", is_right, numbers)
    again = [from_json(to_json(graph)) for graph in compiled.graphs]
    same = sum(one == other for one, other in zip(again, compiled.graphs, strict=True))
    yield Check("graphs read back from their text the same", same == len(again), f"{same} of {len(again)}")
    planned, counted = total(c for plan in compiled.plans for c in plan_counters(plan)), trace.counters
    numbers = f"{format_bytes(planned.dram_bytes)} of DRAM traffic planned, {format_bytes(counted.dram_bytes)} counted"
    yield Check("the run moved and computed what was planned", planned == counted, numbers)


def _check_values(model: Any, images: NDArray[Any], labels: NDArray[Any], found: NDArray[Any]) -> Iterator[Check]:
    expected = build_for_host(model).run(images)
    # fmax, unlike max, would hide a NaN; a NaN here must fail.
    difference = float(np.max(np.abs(found - expected)))
    numbers = f"largest difference {difference:.1e}, limit {TOLERANCE:.1e}"
    yield Check("probabilities as TVM's own build gives them", difference <= TOLERANCE, numbers)
    npu, host = (np.argmax(probabilities, axis=1) for probabilities in (found, expected))
    yield Check("the same digit for every image", bool((npu == host).all()), f"{(npu == host).sum()} of {len(images)}")
    right, right_on_host = int((npu == labels).sum()), int((host == labels).sum())
    numbers = f"NPU {right} of {len(labels)} ({right / len(labels):.1%}), host {right_on_host}"
    is_right = right == right_on_host and right >= math.ceil(LEAST_ACCURACY * len(labels))
    yield Check("digits read right", is_right, numbers)


def _check_modes(name: str, machine: NpuSpec) -> Check:
    images = load_digits_data().test_images[:STEP_MODE_IMAGES]
    model = build(name, batch=len(images))
    fast, step = (npu_kit.compile(model, machine, bind_constants=True, mode=m).run(images) for m in ("fast", "step"))
    differ = int((fast.view(np.uint32) != step.view(np.uint32)).sum())
    numbers = f"{differ} of {fast.size} values differ, {number_of(len(images), 'image')}"
    return Check("tile by tile in real buffers, the same bits", differ == 0, numbers)
