"""Runs a sample model on the kit, on TVM's LLVM build and in float64, and compares the three."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm.relax.backend.contrib.example_npu
from float64_reference import KIT, LLVM, Approximate, evaluate
from sample_model import HOST_OPS, Array, Model
from tvm import relax
from tvm.relax.backend.pattern_registry import get_patterns_with_prefix

import npu_kit
from npu_kit.errors import NpuKitError
from npu_kit.runtime.reference import run_graph


@dataclass(frozen=True)
class Options:
    """How a model is compiled."""

    bind_constants: bool = False
    merge: str = "safe"
    mode: str = "fast"
    tile: int | tuple[int, int] | None = None
    has_upstream_patterns: bool = False


@dataclass(frozen=True)
class Agreement:
    """How much was compared: a bound that is infinite or as large as the values says nothing."""

    npu_calls: int
    compared: float  # share of the result's elements with a finite bound
    tightness: float  # the largest finite bound, relative to the largest value
    with_llvm: bool


class Mismatch(AssertionError):
    """The kit differs from one of the others by more than rounding explains."""


def check(model: Model, options: Options = Options()) -> Agreement | None:
    """Compile and run ``model`` and compare; None where upstream's patterns were refused with a clear error.

    Raises:
        Mismatch: a dtype, a shape or a value.
    """
    mod = model.module()
    upstream = get_patterns_with_prefix("example_npu") if options.has_upstream_patterns else None
    try:
        compiled = npu_kit.compile(
            mod,
            patterns=upstream,
            merge=options.merge,
            bind_constants=options.bind_constants,
            tile=options.tile,
            mode=options.mode,
        )
    except NpuKitError:
        if upstream is None:
            raise
        return None
    if upstream is None:
        _check_report(compiled.partition.report)
    found = _tuple(compiled.run(*model.inputs))
    # Upstream has no pattern for some operations of the kit: the host computes them, as TVM does.
    ours = evaluate(model, LLVM if upstream is not None and compiled.partition.report.on_host else KIT)
    _check_types(model, found)
    _compare("float64", found, [a.value for a in ours], [a.error for a in ours])
    if upstream is None:
        _check_reference(model, compiled, found, ours)
    is_in_parity = _is_in_parity(model) and not any(a.has_wrapped for a in ours)
    if is_in_parity:
        theirs = evaluate(model, LLVM)
        errors = [a.error + b.error for a, b in zip(ours, theirs, strict=True)]
        _compare("TVM's LLVM build", found, _run_on_llvm(mod, model.inputs), errors)
    return _agreement(len(compiled.partition.report.on_npu), ours, is_in_parity)


def _check_report(report: Any) -> None:
    """Everything that the strategies draw is something that the NPU computes, but for what they mean for the host."""
    for call in report.on_host:
        if call.op.removeprefix("relax.") not in HOST_OPS:
            raise Mismatch(f"{call.op} of {call.type} is on the host: {call.reason}")


def _check_types(model: Model, found: Sequence[Array]) -> None:
    wanted = [model.type_of(i) for i in model.results]
    if [(x.shape, x.dtype.name) for x in found] != wanted:
        raise Mismatch(f"results {[(x.shape, x.dtype.name) for x in found]}, and {wanted} declared")


def _check_reference(model: Model, compiled: Any, found: Sequence[Array], ours: Sequence[Approximate]) -> None:
    """Where one region is the whole model, the kit's own untiled definition of its graph."""
    report, graphs = compiled.partition.report, compiled.graphs
    if len(graphs) != 1 or report.on_host or len(graphs[0].inputs) != len(model.inputs) or graphs[0].constants:
        return
    graph = graphs[0]
    by_name = {f"leaf{i}": array for i, array in enumerate(model.arrays)}
    if not all(graph.nodes[i].name in by_name for i in graph.inputs):
        return
    results = run_graph(graph, [by_name[graph.nodes[i].name] for i in graph.inputs])
    if len(results) == len(found):
        _compare("the kit's reference", found, results, [2 * a.error for a in ours])


def _is_in_parity(model: Model) -> bool:
    """Whether TVM's LLVM build computes what Relax declares: a float16 batch norm comes out of it in float32."""
    return not any(step.op == "batch_norm" and step.dtype == "float16" for step in model.steps)


def _run_on_llvm(mod: Any, inputs: Sequence[Array]) -> tuple[Array, ...]:
    machine = relax.VirtualMachine(relax.build(mod, tvm.target.Target("llvm")).mod, tvm.cpu())
    return _to_arrays(machine["main"](*map(tvm.runtime.tensor, inputs)))


def _to_arrays(value: Any) -> tuple[Array, ...]:
    return (value.numpy(),) if isinstance(value, tvm.runtime.Tensor) else tuple(item.numpy() for item in value)


def _tuple(value: Any) -> tuple[Array, ...]:
    return value if isinstance(value, tuple) else (value,)


def _compare(other: str, found: Sequence[Array], wanted: Sequence[Array], errors: Sequence[Array]) -> None:
    for number, (x, y, error) in enumerate(zip(found, wanted, errors, strict=True)):
        with np.errstate(invalid="ignore"):
            distance = np.abs(x.astype(np.float64) - y.astype(np.float64))
        is_far = ~(distance <= error) & np.isfinite(error)
        if is_far.any():
            place = tuple(int(i) for i in np.argwhere(is_far)[0])
            raise Mismatch(
                f"result {number} at {place}: {x[place]} here, {y[place]} in {other}, {distance[place]:.3g} apart, "
                f"and {error[place]:.3g} allowed; {int(is_far.sum())} of {is_far.size} elements differ"
            )


def _agreement(npu_calls: int, results: Sequence[Approximate], with_llvm: bool) -> Agreement:
    finite = [np.isfinite(a.error) for a in results]
    count = sum(mask.size for mask in finite)
    compared = sum(int(mask.sum()) for mask in finite) / count if count else 1.0
    tightness = 0.0
    for a, mask in zip(results, finite, strict=True):
        if mask.any() and (largest := np.abs(a.value[mask]).max()) > 0:
            tightness = max(tightness, float(a.error[mask].max() / largest))
    return Agreement(npu_calls, compared, tightness, with_llvm)
