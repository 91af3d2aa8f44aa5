"""Runs sample models on the kit, on TVM's LLVM build and in float64, and compares the three."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from float64_reference import KIT, LLVM, Approximate, Arithmetic, evaluate
from llvm_oracle import run_on_llvm
from sample_model import HOST_OPS, Array, Model
from tvm.relax.backend.pattern_registry import get_patterns_with_prefix

import npu_kit
from npu_kit.errors import NpuKitError
from npu_kit.hw.presets import load_spec
from npu_kit.hw.spec import NpuSpec
from npu_kit.runtime.reference import run_graph


@dataclass(frozen=True)
class Options:
    """How a model is compiled."""

    bind_constants: bool = False
    merge: str = "safe"
    mode: str = "fast"
    tile: int | tuple[int, int] | None = None
    spec: str = "example"  # a preset, or "small": the example with little memory, where things are spilled or refused
    has_upstream_patterns: bool = False

    @property
    def may_refuse(self) -> bool:
        """Upstream's patterns take all that they match, and not every machine has each dtype, or the memory."""
        return self.has_upstream_patterns or self.spec != "example"


@dataclass(frozen=True)
class Agreement:
    """How much was compared: a bound that is infinite or as large as the values says nothing."""

    npu_calls: int
    compared: float  # share of the result's elements with a finite bound
    tightness: float  # the largest finite bound, relative to the largest value
    with_llvm: bool


class Mismatch(AssertionError):
    """The kit differs from one of the others by more than rounding explains."""


@dataclass(frozen=True)
class Observation:
    """What the kit made of a model, and was found to agree with float64."""

    model: Model
    found: tuple[Array, ...]
    wanted: list[Approximate]
    npu_calls: int


def check(model: Model, options: Options = Options()) -> Agreement | None:
    """Compile and run ``model`` and compare with both; None where it was refused with a clear error, and may be.

    Raises:
        Mismatch: a dtype, a shape or a value.
    """
    observation = observe(model, options)
    if observation is None:
        return None
    if is_in_parity(observation):
        try:
            theirs = run_on_llvm([model])[0]
        except tvm.error.InternalError as error:
            # TVM vectorises a silu of some shapes into a module that LLVM's verifier refuses: float64 alone decides.
            if "LLVM module verification failed" not in str(error):
                raise
        else:
            compare_with_llvm(observation, theirs)
    return agreement(observation)


def observe(model: Model, options: Options) -> Observation | None:
    """Compile and run ``model`` and compare with float64; None where it is refused, and may be."""
    try:
        compiled = npu_kit.compile(
            model.module(),
            _small_machine() if options.spec == "small" else options.spec,
            patterns=get_patterns_with_prefix("example_npu") if options.has_upstream_patterns else None,
            merge=options.merge,
            bind_constants=options.bind_constants,
            tile=options.tile,
            mode=options.mode,
        )
    except NpuKitError:
        if not options.may_refuse:
            raise
        return None
    except ValueError:
        # What the host is left with, TVM cannot always build: a broadcast of nothing, for one.
        if not options.may_refuse or _is_right_on_llvm(model):
            raise
        return None
    report = compiled.partition.report
    if not options.may_refuse:
        _check_report(report)
    found = _tuple(compiled.run(*model.inputs))
    # What the host computes for want of a pattern or a dtype, it computes as TVM does.
    arithmetic = LLVM if options.may_refuse and report.on_host else KIT
    if arithmetic is LLVM and not _is_right_on_llvm(model):
        return None
    wanted = evaluate(model, arithmetic)
    _check_types(model, found)
    _compare("float64", found, [a.value for a in wanted], [a.error for a in wanted])
    if not options.may_refuse:
        _check_reference(model, compiled, found, wanted)
    _check_runs(model, compiled, found, arithmetic)
    return Observation(model, found, wanted, len(report.on_npu))


@functools.cache
def _small_machine() -> NpuSpec:
    return load_spec("example").replace(capacity_bytes={"L1": 16 * 1024, "L2": 32 * 1024})


def is_in_parity(observation: Observation) -> bool:
    """Whether TVM's LLVM build has to give the same: it computes what Relax declares, and no int32 overflowed."""
    return _is_right_on_llvm(observation.model) and not any(a.has_wrapped for a in observation.wanted)


def compare_with_llvm(observation: Observation, theirs: Sequence[Array]) -> None:
    """Raise Mismatch where the two differ by more than both may be wrong."""
    bounds = evaluate(observation.model, LLVM)
    errors = [a.error + b.error for a, b in zip(observation.wanted, bounds, strict=True)]
    _compare("TVM's LLVM build", observation.found, theirs, errors)


def check_symbolic(model: Model, batches: Sequence[int]) -> None:
    """The model with a symbol as its batch: what the NPU refuses for that runs on the host, right for every batch."""
    compiled = npu_kit.compile(model.module(has_symbolic_batch=True))
    for call in compiled.partition.report.on_host:
        if "sizes that are numbers" not in call.reason:
            raise Mismatch(f"{call.op} of {call.type} is on the host: {call.reason}")
    for batch in batches:
        fixed = _with_batch(model, batch)
        wanted = evaluate(fixed, LLVM)
        found = _tuple(compiled.run(*fixed.inputs))
        _check_types(fixed, found)
        _compare(f"float64, of batch {batch}", found, [a.value for a in wanted], [a.error for a in wanted])


def _with_batch(model: Model, batch: int) -> Model:
    """The same model for a batch of another size."""
    leaves = (dataclasses.replace(model.leaves[0], shape=(batch, *model.leaves[0].shape[1:])), *model.leaves[1:])
    steps = tuple(dataclasses.replace(step, shape=(batch, *step.shape[1:])) for step in model.steps)
    return dataclasses.replace(model, leaves=leaves, steps=steps)


def _check_report(report: Any) -> None:
    """Everything that is drawn is something that the NPU computes, but for what is meant for the host.

    A reshape that has no part of the NPU before it, or none behind it, costs nothing on the host.
    """
    for call in report.on_host:
        is_free = call.op == "relax.reshape" and "the NPU has made" in call.reason
        if not is_free and call.op.removeprefix("relax.") not in HOST_OPS:
            raise Mismatch(f"{call.op} of {call.type} is on the host: {call.reason}")


def _check_types(model: Model, found: Sequence[Array]) -> None:
    wanted = [model.type_of(i) for i in model.results]
    if [(x.shape, x.dtype.name) for x in found] != wanted:
        raise Mismatch(f"results {[(x.shape, x.dtype.name) for x in found]}, and {wanted} declared")


def _check_runs(model: Model, compiled: Any, found: Sequence[Array], arithmetic: Arithmetic) -> None:
    """Nothing of one run lives on in the next: other inputs give their own results, and the first ones theirs again."""
    before = [array.copy() for array in found]
    other = dataclasses.replace(model, run=model.run + 1)
    results = evaluate(other, arithmetic)
    second = _tuple(compiled.run(*other.inputs))
    _compare("float64, of a second run", second, [a.value for a in results], [a.error for a in results])
    for array, kept, again in zip(found, before, _tuple(compiled.run(*model.inputs)), strict=True):
        if not np.array_equal(array, kept, equal_nan=True):
            raise Mismatch("a result changed while the model ran on other inputs")
        if not np.array_equal(again, kept, equal_nan=True):
            raise Mismatch("the same inputs gave another result in a third run")


def _check_reference(model: Model, compiled: Any, found: Sequence[Array], wanted: Sequence[Approximate]) -> None:
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
        _compare("the kit's reference", found, results, [2 * a.error for a in wanted])


def _is_right_on_llvm(model: Model) -> bool:
    """Whether TVM's LLVM build computes what Relax declares.

    A float16 batch norm comes out of it in float32, and a quantize of float16 by a float16 scale saturates in float16,
    which has no 32,767 and no 65,535. A layer norm has gamma and beta whatever its attributes say. An rms norm along
    another axis than the last, or of one axis, is not built, nor is some of what moves tensors that hold nothing.
    """
    for step in model.steps:
        if step.op == "layer_norm" and not (step.attrs["center"] and step.attrs["scale"]):
            return False
        last = len(step.shape) - 1
        if step.op == "rms_norm" and (last == 0 or step.attrs["axis"] not in (-1, last)):
            return False
        if step.op in ("permute_dims", "broadcast_to", "strided_slice") and 0 in step.shape:
            return False
        if step.op == "batch_norm" and step.dtype == "float16":
            return False
        if step.op == "quantize" and {model.type_of(i)[1] for i in step.args[:2]} == {"float16"}:
            return False
    return True


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


def agreement(observation: Observation) -> Agreement:
    """How much the comparison with float64 was worth."""
    finite = [np.isfinite(a.error) for a in observation.wanted]
    count = sum(mask.size for mask in finite)
    compared = sum(int(mask.sum()) for mask in finite) / count if count else 1.0
    tightness = 0.0
    for a, mask in zip(observation.wanted, finite, strict=True):
        if mask.any() and (largest := np.abs(a.value[mask]).max()) > 0:
            tightness = max(tightness, float(a.error[mask].max() / largest))
    return Agreement(observation.npu_calls, compared, tightness, is_in_parity(observation))
