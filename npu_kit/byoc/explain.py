"""Builds the report of a partition: where each call went, and one sentence why."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir
from tvm.ir import IRModule

from npu_kit.byoc.model.calls import describe_type, dtype_of, relax_name, span_label
from npu_kit.byoc.model.walk import composites_of, model_functions, region_functions, walk_calls
from npu_kit.byoc.patterns.pattern_operators import named_operators
from npu_kit.byoc.patterns.watch import Recorder
from npu_kit.byoc.report import CallReport, Refusal, Region, Report, decisive
from npu_kit.graph.shapes import FLOATS

# Refusals of longer patterns that are worth a word where a shorter one was taken: the others only say "another kind".
_SURPRISES = ("leak", "cycle", "memory", "dtype")
_SUMS = ("relax.matmul", "relax.nn.conv1d", "relax.nn.conv2d")


class NarrowSumWarning(RuntimeWarning):
    """Products of integers are summed in int32, and the model keeps fewer bits of the sums, as TVM's LLVM code does."""


@dataclass(frozen=True)
class _Place:
    region: str
    composite: str
    pattern: str
    others: tuple[str, ...]  # operators of the other calls of the composite, in order


@dataclass(frozen=True)
class _Refused:
    here: tuple[tuple[str, Refusal], ...]  # of matches whose root the call is
    around: tuple[str, ...]  # patterns that refused a match with the call inside


def explain(
    prepared: IRModule, partitioned: IRModule, patterns: Sequence[Any], recorder: Recorder
) -> tuple[Report, tuple[Region, ...]]:
    """The report and the regions.

    Args:
        prepared: the model with numbered calls, before matching.
        partitioned: the same model after matching and merging.
        patterns: the FusionPatterns that were matched, in order.
        recorder: what the checks said meanwhile.
    """
    places: dict[str, _Place] = {}
    regions = []
    before = {symbol for symbol, _ in region_functions(prepared)}  # of other backends
    new = [(symbol, function) for symbol, function in region_functions(partitioned) if symbol not in before]
    for number, (symbol, function) in enumerate(new):
        label = f"region{number}"
        composites = composites_of(function)
        indices = []
        for composite, body in composites:
            calls = [call for call, _ in walk_calls(body)]
            indices += [int(call.span.line) for call in calls]
            for call in calls:
                others = tuple(relax_name(other) for other in calls if other is not call)
                places[span_label(call)] = _Place(label, composite, str(body.attrs["Composite"]), others)
        names = tuple(composite for composite, _ in composites)
        regions.append(Region(label, symbol, function, names, tuple(sorted(indices))))
    named = frozenset().union(*(named_operators(pattern.pattern) for pattern in patterns))
    rows, losses = [], []
    for _, function in model_functions(prepared):
        for call, bound in walk_calls(function):
            span = span_label(call)
            refused = _Refused(recorder.of(span), recorder.around(span))
            rows.append(_row(call, bound, span, places.get(span), refused, named))
            losses += _lost_bits(call, rows[-1])
    if losses:
        more = f" So do {len(losses) - 1} more." if len(losses) > 1 else ""
        warnings.warn(losses[0] + more, NarrowSumWarning, stacklevel=3)
    return Report(tuple(rows), (*_notes(rows), *losses)), tuple(regions)


def _lost_bits(call: Any, row: CallReport) -> list[str]:
    """One sentence where sums of integers are kept in a dtype as narrow as the factors'."""
    dtype = dtype_of(call)
    if not row.is_on_npu or row.op not in _SUMS or dtype in (*FLOATS, "int32"):
        return []
    return [f"{row.op} {row.name} keeps sums of products in {dtype}, where they wrap: out_dtype='int32' does not."]


def _row(
    call: Any, bound: Any, span: str, place: _Place | None, refused: _Refused, named: frozenset[str]
) -> CallReport:
    return CallReport(
        index=int(call.span.line),
        span=span,
        op=relax_name(call),
        name=str(bound.var.name),
        type=describe_type(call.ty),
        where="npu" if place else "host",
        pattern=place.pattern if place else "",
        composite=place.composite if place else "",
        region=place.region if place else "",
        refusals=refused.here,
        reason=_why_on_npu(place, refused.here) if place else _why_on_host(call, bound, refused, named),
    )


def _why_on_npu(place: _Place, refusals: tuple[tuple[str, Refusal], ...]) -> str:
    others = ", ".join(op.removeprefix("relax.") for op in place.others)
    company = f"fused with {others}" if others else "alone in its composite"
    for pattern, refusal in refusals:
        if refusal.rule in _SURPRISES and pattern != place.pattern:
            return f"{company}, not {pattern}: {refusal}"
    return company


def _why_on_host(call: Any, bound: Any, refusals: _Refused, named: frozenset[str]) -> str:
    op = relax_name(call)
    if op.startswith("call_tir"):
        return "it is a TensorIR function already, and patterns name Relax operators"
    if not isinstance(call.op, ir.Op):
        return f"it calls {op if len(op) < 80 else 'a function'}, which is no operator"
    if op not in named:
        return f"no pattern names {op}"
    if not bound.is_dataflow:
        return "it stands outside a dataflow block, where nothing is matched"
    refused = decisive(refusals.here)
    if refused is None and refusals.around:
        return f"{refusals.around[-1]} refused the match that it is part of; the reason stands at the last call of that"
    if refused is None:
        return f"patterns name {op}, but none has this combination of operators"
    pattern, said = refused
    return f"{pattern} refused it, {'; '.join(map(str, said))}"


def _notes(rows: Sequence[CallReport]) -> list[str]:
    if not rows:
        return ["Nothing to offload: the model has no call."]
    lowered = sum(row.op.startswith("call_tir") for row in rows)
    if lowered == len(rows):
        return [
            "Every call is a call_tir: LegalizeOps ran before partition, and patterns name operators. Partition first."
        ]
    notes = []
    if 2 * lowered >= len(rows):
        notes.append(f"{lowered} of {len(rows)} calls are call_tir, which patterns never name: partition first.")
    if not any(row.is_on_npu for row in rows):
        notes.append("Nothing matched: the last column says why, call by call.")
    return notes
