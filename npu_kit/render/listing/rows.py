"""Rows of a program: each instruction with its tile, its place and its time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.plan.ir import Plan
from npu_kit.plan.listing import place_of_row
from npu_kit.render.format import format_count, number_of, shorten
from npu_kit.render.listing.columns import aligned, preformatted
from npu_kit.render.listing.folded_text import moves
from npu_kit.trace.events import CAUSES, ENGINES, KINDS, TIERS

_HEADINGS = ("step", "tile", "instruction", "where", "node", "engine", "moves", "bytes", "start", "end", "waits for")
_IS_NUMBER = (True, True, False, False, True, False, False, True, True, True, False)
_HTML_ROWS = 200
_NAME_CHARACTERS = 32


@dataclass(frozen=True, eq=False)
class ProgramRows:
    """Rows of a plan's program: data, and a text that a notebook shows too."""

    plan: Plan
    rows: NDArray[np.void]  # plan.listing.ROW_DTYPE: the columns of an event, then what, at and offset
    names: tuple[str, ...]  # what the column "what" counts

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, window: slice) -> ProgramRows:
        """A window of the rows."""
        return ProgramRows(self.plan, self.rows[window], self.names)

    def __str__(self) -> str:
        return "\n".join(aligned([_HEADINGS, *map(self._cells, self.rows)], _IS_NUMBER))

    def __repr__(self) -> str:
        return f"ProgramRows({number_of(len(self), 'row')})"

    def _repr_html_(self) -> str:
        left = len(self) - _HTML_ROWS
        note = f"\n{number_of(left, 'other row')} not shown." if left > 0 else ""
        return preformatted(str(self[:_HTML_ROWS]) + note)

    def _cells(self, row: Any) -> tuple[str, ...]:
        kind, start = KINDS[row["kind"]], int(row["start"])
        ends = TIERS[row["src"]], TIERS[row["dst"]]
        return (
            str(row["step"]),
            str(row["tile"]) if row["tile"] >= 0 else "",
            f"{kind} {shorten(self.names[row['what']], _NAME_CHARACTERS)}".rstrip(),
            self._where(row),
            str(row["node"]),
            ENGINES[row["engine"]],
            moves(kind, self.names[row["what"]], ends, int(row["offset"])) if row["nbytes"] else "",
            format_count(int(row["nbytes"])),
            format_count(start),
            format_count(start + int(row["cycles"])),
            CAUSES[row["cause"]],
        )

    def _where(self, row: Any) -> str:
        """The spans of the axes that are cut: ``y 5:10, x 0:6``; an axis in one piece says nothing."""
        axes = self.plan.steps[row["step"]].axes
        place = place_of_row(self.plan.steps[row["step"]], int(row["at"]))
        spans = [(axis.name, axis.span(i)) for axis, i in zip(axes, place, strict=False) if i >= 0 and axis.count > 1]
        return ", ".join(f"{name} {start}:{stop}" for name, (start, stop) in spans)
