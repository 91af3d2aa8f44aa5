"""What partitioning decided, as types: one row per call of the model, with the reason for where it went.

Nothing here needs TVM: a stored report can be read where TVM is missing or broken.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from npu_kit.hw.spec import NpuSpec
from npu_kit.render.format import clean, number_of, shorten

# What a refusal is about; "check" is a check of one's own that says no without a reason.
RULES = ("dtype", "attribute", "shape", "memory", "scale", "leak", "cycle", "operand", "check")


@dataclass(frozen=True)
class Refusal:
    """A typed reason why a match was not taken: what is needed, what was found, what to try."""

    rule: str  # one of RULES
    needed: str
    found: str
    hint: str

    def __str__(self) -> str:
        sentence = f"{self.rule}: needs {self.needed}, found {self.found}"
        return f"{sentence} (try: {self.hint})" if self.hint else sentence


def decisive(refusals: Sequence[tuple[str, Refusal]]) -> tuple[str, tuple[Refusal, ...]] | None:
    """The pattern that was asked last, and what it said; None where nothing was refused.

    The table has its most general pattern for an operation last. It asks for the least, so what it says is what keeps
    the call on the host.
    """
    if not refusals:
        return None
    last, _ = refusals[-1]
    return last, tuple(refusal for pattern, refusal in refusals if pattern == last)


@dataclass(frozen=True)
class CallReport:
    """One call of the prepared model: where it went, and why."""

    index: int  # position among the calls of the prepared model, in order
    span: str  # "main:3", also Node.span of the JSON graph node lowered from this call
    op: str  # "relax.nn.conv2d"; "call_tir conv2d" for a call that was legalised
    name: str  # the variable it is bound to
    type: str  # "1x16x30x30 float32"
    where: str  # "npu" or "host"
    pattern: str  # "example_npu.conv2d_relu_fused", "" on the host
    composite: str  # composite label within the region, "" on the host
    region: str  # short region label "region0", "" on the host
    refusals: tuple[tuple[str, Refusal], ...]  # (pattern, refusal) of each pattern that matched but was refused
    reason: str  # one sentence

    @property
    def is_on_npu(self) -> bool:
        return self.where == "npu"


@dataclass(frozen=True)
class Report:
    """The rows in the order of the model, and sentences about the model as a whole."""

    calls: tuple[CallReport, ...]
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[CallReport]:
        return iter(self.calls)

    def __len__(self) -> int:
        return len(self.calls)

    def __getitem__(self, index: int) -> CallReport:
        return self.calls[index]

    @property
    def on_npu(self) -> tuple[CallReport, ...]:
        """The calls that the NPU computes."""
        return tuple(call for call in self.calls if call.is_on_npu)

    @property
    def on_host(self) -> tuple[CallReport, ...]:
        """The calls that stay with TVM's own build."""
        return tuple(call for call in self.calls if not call.is_on_npu)

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of calls per place: ``{"npu": 3, "host": 1}``."""
        return {"npu": len(self.on_npu), "host": len(self.on_host)}

    @property
    def summary(self) -> str:
        """One sentence with the counts."""
        regions = len({call.region for call in self.on_npu})
        composites = len({(call.region, call.composite) for call in self.on_npu})
        where = f"in {number_of(composites, 'composite')} and {number_of(regions, 'region')}"
        calls = number_of(len(self.calls), "call")
        return f"{len(self.on_npu)} of {calls} on the NPU, {where}; {len(self.on_host)} on the host."

    def __str__(self) -> str:
        rows = [_HEADINGS, *(_cells(call) for call in self.calls)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([self.summary, *(shorten(note, _REASON_CHARACTERS) for note in self.notes), "", *lines])

    def _repr_html_(self) -> str:
        head = "".join(f'<th style="text-align:left">{html.escape(cell)}</th>' for cell in _HEADINGS)
        body = "".join(f"<tr>{''.join(map(_html_cell, _cells(call)))}</tr>" for call in self.calls)
        notes = "".join(f"<p>{html.escape(clean(note))}</p>" for note in (self.summary, *self.notes))
        return f"{notes}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


@dataclass(frozen=True)
class Region:
    """One outer external function: what one call of the NPU computes."""

    label: str  # "region0": short, for views
    symbol: str  # TVM's global_symbol, which can be 1,000 characters long
    function: Any  # relax.Function
    composites: tuple[str, ...]  # labels "example_npu.dense#1", in order of execution
    calls: tuple[int, ...]  # indices of the CallReports inside

    def __repr__(self) -> str:
        composites, calls = number_of(len(self.composites), "composite"), number_of(len(self.calls), "call")
        return f"Region({shorten(self.label, _NAME_CHARACTERS)}, {composites}, {calls})"


@dataclass(frozen=True)
class Partition:
    """A model cut into what the NPU computes and what the host computes."""

    original: Any  # IRModule as given
    prepared: Any  # IRModule after normalising: the calls of this one are the rows of the report
    module: Any  # IRModule after partitioning: what RunCodegen takes
    spec: NpuSpec
    regions: tuple[Region, ...]
    report: Report
    merged: bool  # adjacent composites share a region
    merge_reason: str  # one sentence: why merged or not

    def __repr__(self) -> str:
        return f"Partition({self.report.summary} merged={self.merged})"

    def _repr_html_(self) -> str:
        return f"{self.report._repr_html_()}<p>{html.escape(clean(self.merge_reason))}</p>"


_NAME_CHARACTERS = 60
_REASON_CHARACTERS = 600
_HEADINGS = ("#", "operator", "variable", "result", "where", "composite", "why")


def _html_cell(text: str) -> str:
    """A cell whose long names may break at each underscore, so that in a narrow window the reasons keep their room."""
    return f'<td style="text-align:left">{html.escape(text).replace("_", "_<wbr>")}</td>'


def _cells(call: CallReport) -> tuple[str, ...]:
    where = call.region if call.is_on_npu else call.where
    composite = call.composite.split(".", 1)[-1]  # the backend's name is the same in every row
    names = (shorten(text, _NAME_CHARACTERS) for text in (call.op, call.name, call.type, where, composite))
    return (str(call.index), *names, shorten(call.reason, _REASON_CHARACTERS))
