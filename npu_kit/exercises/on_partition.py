"""Exercises of lesson 02: where a model is cut, and what a cut costs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

from npu_kit.byoc.compile import compile as compile_model
from npu_kit.byoc.model.walk import composites_of, region_functions
from npu_kit.byoc.partition import partition
from npu_kit.byoc.report import Partition
from npu_kit.exercises.compare import describe, first_difference
from npu_kit.exercises.exercise import Exercise, function_exercise, is_stub, refuse_stub, value_exercise
from npu_kit.graph.ir import Entry, Graph
from npu_kit.hw.presets import load_spec
from npu_kit.plan.traffic import plan_counters
from npu_kit.trace.counters import total
from npu_kit.zoo import build

_FILTERS = 32  # of the convolution in the lesson
_MODELS = ("conv_relu_pool", "residual_block", "sin_between", "digits")
_PLANNED = ("conv_relu_pool", "residual_block", "shared_conv")  # one region each


def _small(name: str) -> Any:
    return build(name, channels=16, size=32, filters=_FILTERS) if name == "conv_relu_pool" else build(name)


@cache
def _cut(name: str) -> Partition:
    return partition(_small(name), bind_constants=True)


def _composites(module: Any) -> list[list[str]]:
    """Pattern names of the composites of each region, in order."""
    return [
        [label.partition("#")[0] for label, _ in composites_of(function)] for _, function in region_functions(module)
    ]


def _judge_cut(cut: Any) -> str:
    for name in _MODELS:
        module = cut(_small(name))
        if is_stub(module):
            refuse_stub(cut, module, f"cut({name})")
        if not hasattr(module, "get_global_vars"):
            return f"it returns {describe(module)}, expected an IRModule"
        found, expected = _composites(module), _composites(_cut(name).module)
        if len(found) != len(expected):
            return f"{name} has {len(found)} regions, expected {len(expected)}"
        if difference := first_difference(found, expected):
            return f"composites of the regions of {name}: {difference}"
    return ""


def _places(module: Any) -> dict[str, str]:
    (known,) = (_cut(name) for name in _MODELS if _cut(name).module.same_as(module))
    return {call.span: call.composite for call in known.report.on_npu}


def _saved_bytes() -> int:
    merged, apart = (_dram_bytes(merge) for merge in ("safe", "never"))
    return apart - merged


def _dram_bytes(merge: str) -> int:
    plans = compile_model(_small("conv_relu_pool"), merge=merge, bind_constants=True).plans
    return total(counters for plan in plans for counters in plan_counters(plan)).dram_bytes


def _largest_size() -> int:
    """The largest square image whose filtered version fits L2 in float32."""
    return math.isqrt(load_spec().tier("L2").capacity_bytes // (4 * _FILTERS))


def _bytes_kept(graph: Graph) -> int:
    return sum(2 * graph.type_of(entry).nbytes for entry in _between(graph))


def _between(graph: Graph) -> Iterator[Entry]:
    for node in graph.kernels:
        users = graph.consumers(Entry(node))
        if any(graph.nodes[user].composite != graph.nodes[node].composite for user in users):
            yield Entry(node)


def _graphs() -> list[tuple[Any]]:
    return [(graph,) for name in _PLANNED for graph in compile_model(_small(name), bind_constants=True).graphs]


EXERCISES = (
    Exercise("partition.cut", _judge_cut, hint="annotate_codegen=False, and the merge after the fuse"),
    function_exercise(
        "partition.places",
        _places,
        lambda: [(_cut(name).module,) for name in _MODELS],
        hint="three loops: regions, composites, calls",
        labels=[f"module of {name}" for name in _MODELS],
    ),
    value_exercise("partition.saved_bytes", _saved_bytes, hint="written once and read once, 4 bytes for each number"),
    value_exercise("partition.largest_size", _largest_size, hint="filters * size * size * 4 bytes"),
    function_exercise(
        "partition.bytes_kept",
        _bytes_kept,
        _graphs,
        hint="a tensor counts once, however many composites read it",
        labels=[f"graph of {name}" for name in _PLANNED],
    ),
)
