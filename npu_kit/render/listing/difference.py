"""What differs between two plans, as data and as text."""

from __future__ import annotations

from dataclasses import dataclass

from npu_kit.plan.compare import Change, Fact, compare_plans
from npu_kit.plan.ir import Plan
from npu_kit.render.format import clean, format_count, number_of, shorten
from npu_kit.render.listing.columns import Cells, aligned, preformatted

_HEADINGS = ("", "one", "other", "difference")
_IS_NUMBER = (False, True, True, True)
_CELL_CHARACTERS = 48


@dataclass(frozen=True)
class PlanDifference:
    """All changes between two plans; falsy if there are none. ``str`` gives a text that a notebook shows too."""

    changes: tuple[Change, ...]

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __str__(self) -> str:
        if not self.changes:
            return "The plans are equal in everything that is executed."
        rows: list[Cells] = [_HEADINGS]
        where = ""
        for change in self.changes:
            if change.where != where:
                where = change.where
                rows.append((clean(where),))
            gap = change.difference
            numbers = "" if gap is None else f"{gap:+,}"
            rows.append(
                (f"  {shorten(change.what, _CELL_CHARACTERS)}", _cell(change.one), _cell(change.other), numbers)
            )
        return "\n".join(aligned(rows, _IS_NUMBER))

    def __repr__(self) -> str:
        return f"PlanDifference({number_of(len(self.changes), 'change')})"

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def difference(one: Plan, other: Plan) -> PlanDifference:
    """What ``other`` has that ``one`` has not, or has differently: machine, totals, then each step."""
    return PlanDifference(compare_plans(one, other))


def _cell(fact: Fact) -> str:
    return format_count(fact) if isinstance(fact, int) else shorten(fact, _CELL_CHARACTERS) or "-"
