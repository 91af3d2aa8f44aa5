"""Holds the kit against one ONNX case: what TVM's importer makes of it, where it runs, and whether it is right."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from conformance_report import OUTCOMES
from onnx import numpy_helper
from onnx_cases import Array, Case, DataSet
from tvm.relax.frontend.onnx import from_onnx

import npu_kit
from npu_kit.byoc.run.host import build_for_host
from npu_kit.errors import NpuKitError
from npu_kit.graph.ops import OPS

# Calls that move elements or count them, and compute nothing: an operator is on the NPU though one of these is not.
_MOVES = frozenset(
    {
        *("relax.astype", "relax.broadcast_to", "relax.concat", "relax.expand_dims", "relax.flatten"),
        *("relax.permute_dims", "relax.reshape", "relax.shape_of", "relax.shape_to_tensor", "relax.split"),
        *("relax.squeeze", "relax.strided_slice", "relax.tensor_to_shape", "call_tir pad"),
    }
)
_OF_THE_KIT = frozenset(definition.relax_name for definition in OPS.values())


@dataclasses.dataclass(frozen=True)
class Verdict:
    """How one case ended."""

    outcome: str  # a key of OUTCOMES
    npu_calls: int = 0
    calls: int = 0
    kit_calls: int = 0  # calls of operations of the kit, whatever their dtype
    reason: str = ""  # why it is not simply right, in one line

    def __post_init__(self) -> None:
        assert self.outcome in OUTCOMES


# Right or wrong by chance, so it is not tried.
_UNWRITTEN = "a reduction of nothing: TVM returns memory that it never wrote"


class _NotImported(Exception):
    pass


def judge(case: Case, bindings: Sequence[bool] = (False, True)) -> Verdict:
    """Import, partition, compile and run one case, and compare with its expectation.

    ``bindings``: the values of ``bind_constants`` that it is tried with; a model without constants needs only one.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            mod, inputs = import_case(case)
        except _NotImported as error:
            return Verdict("not imported", reason=_one_line(error))
        found = Verdict("failed")
        try:
            for bind_constants in bindings:
                compiled = npu_kit.compile(mod, bind_constants=bind_constants)
                found = _placement(compiled.partition.report)
                if found.outcome != "right" and any(map(_makes_something_of_nothing, case.data_sets)):
                    return dataclasses.replace(found, outcome="wrong in TVM", reason=_UNWRITTEN)
                for given, (_, expected) in zip(inputs, case.data_sets, strict=True):
                    difference = compare(compiled.run(*given), expected, case.rtol, case.atol)
                    if difference:
                        return _blame(mod, given, expected, case, found, difference)
                if not found.npu_calls or not _has_constants(mod):
                    break
        except NpuKitError as error:
            return dataclasses.replace(found, outcome="refused", reason=_one_line(error))
        except Exception as error:
            return _blame_error(mod, inputs, found, error)
    return found


def import_case(case: Case) -> tuple[Any, list[list[Array]]]:
    """The Relax module of a case, and what to run it with: the inputs of each data set that are left.

    Where the importer cannot read a model whose shapes, axes or bounds arrive as inputs (many cases of the package are
    written so), those inputs become constants and it tries again: that is how models in files have them.
    """
    first = None
    for model, kept in _readings(case):
        try:
            with _quiet():
                mod = from_onnx(model, keep_params_in_input=False)
        except Exception as error:
            first = first or error
            continue
        return mod, [[data[0][i] for i in kept if data[0][i] is not None] for data in case.data_sets]
    raise _NotImported(f"{type(first).__name__}: {_one_line(first)}")


def _readings(case: Case) -> Iterator[tuple[onnx.ModelProto, list[int]]]:
    given = case.data_sets[0][0] if case.data_sets else []
    everything = list(range(len(given)))
    small = [i for i in everything[1:] if isinstance(given[i], np.ndarray) and _is_parameter(given[i])]
    if small and len(case.data_sets) == 1:
        # Clip is a chain of isnan and where as long as its bounds are not known, so bounds are constants at once.
        ops = {node.op_type for node in case.model.graph.node}
        bound = (_with_constants(case.model, given, small), [i for i in everything if i not in small])
        yield from (bound, (case.model, everything)) if "Clip" in ops else ((case.model, everything), bound)
    else:
        yield case.model, everything


def _is_parameter(value: Array) -> bool:
    return value.dtype == np.int64 or value.ndim == 0


def _with_constants(model: onnx.ModelProto, given: Sequence[Any], positions: Sequence[int]) -> onnx.ModelProto:
    model = onnx.ModelProto.FromString(model.SerializeToString())
    chosen = [model.graph.input[i] for i in positions]
    model.graph.initializer.extend(
        numpy_helper.from_array(given[i], value.name) for i, value in zip(positions, chosen, strict=True)
    )
    for value in chosen:
        model.graph.input.remove(value)
    return model


def _makes_something_of_nothing(data: DataSet) -> bool:
    inputs, outputs = ([value for value in side if isinstance(value, np.ndarray)] for side in data)
    return any(value.size == 0 for value in inputs[:1]) and any(value.size for value in outputs)


def _placement(report: Any) -> Verdict:
    """The verdict of a model that is right, by where its calls are."""
    host = [call for call in report.on_host if call.op not in _MOVES] or list(report.on_host)
    refused = [call for call in host if call.op in _OF_THE_KIT]
    reasons = "; ".join(list(dict.fromkeys(map(_why_on_host, [*refused, *host])))[:3])
    outcome = "right in part"
    if not report.on_npu:
        outcome, reasons = "right on the host", reasons or "it returns an input: no call is left"
    elif all(call.op in _MOVES for call in host):
        outcome, reasons = "right", ""
    return Verdict(outcome, len(report.on_npu), len(report), sum(call.op in _OF_THE_KIT for call in report), reasons)


def _why_on_host(call: Any) -> str:
    if not call.refusals:
        return f"no pattern for {call.op.removeprefix('relax.')}"
    pattern, refusal = call.refusals[-1]
    return f"{pattern.removeprefix('example_npu.')} refused: {refusal.rule}, found {refusal.found}"


def _has_constants(mod: Any) -> bool:
    return "metadata" in mod.script(show_meta=False)


def compare(found: Any, expected: Sequence[Any], rtol: float, atol: float) -> str:
    """What differs, as the package's own runner compares: dtype, shape, values; "" if nothing does."""
    results = list(found) if isinstance(found, tuple) else [found]
    if len(results) < len(expected):
        return f"{len(results)} results, {len(expected)} expected"
    for number, (value, wanted) in enumerate(zip(results, expected, strict=False)):
        if isinstance(wanted, list):
            difference = compare(tuple(value), wanted, rtol, atol)
        else:
            difference = _compare_arrays(np.asarray(value), np.asarray(wanted), rtol, atol)
        if difference:
            return f"result {number}: {difference}"
    return ""


def _compare_arrays(value: Array, wanted: Array, rtol: float, atol: float) -> str:
    if (value.shape, value.dtype) != (wanted.shape, wanted.dtype):
        return f"{value.shape} {value.dtype}, and {wanted.shape} {wanted.dtype} expected"
    if wanted.dtype.kind not in "fc":
        different = int((value != wanted).sum())
        return f"{different} of {wanted.size} values differ" if different else ""
    value, wanted = value.astype(np.float64), wanted.astype(np.float64)
    far = ~np.isclose(value, wanted, rtol, atol, equal_nan=True)
    if not far.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(far)[0])
    return f"{int(far.sum())} of {far.size} values differ, at {place} {value[place]:g} for {wanted[place]:g}"


def _blame(mod: Any, given: Any, expected: Any, case: Case, found: Verdict, difference: str) -> Verdict:
    """Whether TVM's own build of the imported model is wrong in the same way."""
    try:
        theirs = compare(build_for_host(mod).run(*given), expected, case.rtol, case.atol)
    except Exception as error:
        theirs, difference = "", f"{difference}; TVM's own build raised {type(error).__name__}"
    if theirs:  # without the values: some of these results are memory that TVM never wrote
        theirs = f"{theirs.split(':')[0]}: values differ" if "values differ" in theirs else theirs
        return dataclasses.replace(found, outcome="wrong in TVM", reason=theirs)
    return dataclasses.replace(found, outcome="wrong", reason=difference)


def _blame_error(mod: Any, inputs: Any, found: Verdict, error: Exception) -> Verdict:
    try:
        model = build_for_host(mod)
        for given in inputs:
            model.run(*given)
    except Exception as theirs:
        reason = f"{type(theirs).__name__}: {_one_line(theirs)}"
        return dataclasses.replace(found, outcome="not built", reason=reason)
    return dataclasses.replace(found, outcome="failed", reason=f"{type(error).__name__}: {_one_line(error)}")


def _one_line(error: BaseException | None) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("#")]
    return lines[-1] if lines else type(error).__name__


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The importer prints what it cannot convert."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
