"""A plan as a program to read: one instruction a line, repeated tiles folded into loops, or unfolded row by row.

Folding visits no tile, so the program of a large network opens at once. Start cycles need the timeline of all that came
before; a folded program has them where that is short.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from npu_kit.plan.folding import FoldedItem, FoldedLine, Repeat, fold_step
from npu_kit.plan.forecast import step_bounds
from npu_kit.plan.ir import Plan, Step
from npu_kit.plan.listing import list_program
from npu_kit.plan.nest import instruction_count
from npu_kit.render.format import format_count
from npu_kit.render.listing.columns import preformatted
from npu_kit.render.listing.difference import PlanDifference, difference
from npu_kit.render.listing.folded_text import folded_lines, head
from npu_kit.render.listing.rows import ProgramRows
from npu_kit.render.listing.where import Where
from npu_kit.render.wanted import shows
from npu_kit.trace.events import KINDS

TIMED_INSTRUCTIONS = 50_000  # the timeline of so many takes about a second


@dataclass(frozen=True)
class Program:
    """The program of a plan; ``str`` gives the folded text, and a notebook shows it. See ``render.program``."""

    plan: Plan
    where: Where = field(default_factory=Where)

    def filter(
        self,
        *,
        engine: str | None = None,
        tier: str | None = None,
        node: int | str | None = None,
        step: int | None = None,
        kind: str | None = None,
        tile: int | None = None,
    ) -> Program:
        """Only the instructions that fit all that is given, here and before.

        Args:
            engine: "matrix", "conv", "vector", "pooling", "activation" or "dma".
            tier: one end of what is moved: "L0", "L1", "L2" or "L3".
            node: id of a graph node, the one computed or the one whose tensor is moved; or the name of such nodes.
            step: index of a step.
            kind: "prefetch", "load", "compute", "epilogue", "drain", "store", "fill", "spill" or "clear".
            tile: number of an output tile within its step. One tile has nothing to fold: its rows are shown.

        Raises:
            RenderError: there is no such engine, tier, node, step or kind.
        """
        wanted = {"engine": engine, "tier": tier, "node": node, "step": step, "kind": kind, "tile": tile}
        given: dict[str, Any] = {key: value for key, value in wanted.items() if value is not None}
        where = replace(self.where, **given)
        where.verify(self.plan)
        return Program(self.plan, where)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps that are shown."""
        return tuple(step for step in self.plan.steps if self.where.step in (None, step.index))

    @cached_property
    def folded(self) -> tuple[tuple[FoldedItem, ...], ...]:
        """The loops of each step that is shown."""
        return tuple(tuple(self._chosen(fold_step(self.plan, step))) for step in self.steps)

    @cached_property
    def rows(self) -> ProgramRows:
        """The instructions one by one: what a run in step mode leaves as its events, row by row.

        An instruction that moves and computes nothing, such as a clear, takes no cycle and has no row. A row takes 69
        bytes, and about 30 microseconds to make.
        """
        listing = list_program(self.plan, [step.index for step in self.steps])
        return ProgramRows(self.plan, listing.rows[self.where.mask(self.plan, listing.rows)], listing.names)

    def __getitem__(self, window: slice) -> ProgramRows:
        """A window of the rows."""
        return self.rows[window]

    def diff(self, other: Program | Plan) -> PlanDifference:
        """What differs between this plan and another, whatever is shown of them."""
        return difference(self.plan, other.plan if isinstance(other, Program) else other)

    def __str__(self) -> str:
        if self.where.tile is not None:
            return str(self.rows)
        count = instruction_count(self.plan)
        timeline = _Timeline(self.plan, self.steps) if count <= TIMED_INSTRUCTIONS else None
        loops = tuple(zip(self.steps, self.folded, strict=True))
        if timeline is None:
            body = folded_lines(self.plan, loops, lambda step, line: "", None)
            note = ["", "Too long to be timed here: filter(step=...).rows has every start of one step."]
            return "\n".join([head(self.plan, count, None), "", *body, *note])
        body = folded_lines(self.plan, loops, timeline.start, timeline.begins)
        return "\n".join([head(self.plan, count, timeline.cycles), "", *body])

    def __repr__(self) -> str:
        return f"Program({head(self.plan, instruction_count(self.plan), None)})"

    def _repr_html_(self) -> str:
        return self.rows._repr_html_() if self.where.tile is not None else preformatted(str(self))

    def _chosen(self, items: Sequence[FoldedItem]) -> Iterator[FoldedItem]:
        for item in items:
            if isinstance(item, Repeat):
                body = tuple(self._chosen(item.body))
                if body:
                    yield Repeat(item.axes, body)
            elif self.where.fits(self.plan, item):
                yield item


class _Timeline:
    """When the steps of a short program begin, and each of its lines for the first time."""

    def __init__(self, plan: Plan, shown: Sequence[Step]) -> None:
        listing = list_program(plan)
        rows = listing.rows
        keys, firsts = np.unique(rows[["step", "kind", "what", "node"]], return_index=True)
        self._starts = {
            (step, KINDS[kind], listing.names[what], node): int(rows["start"][first])
            for (step, kind, what, node), first in zip(keys.tolist(), firsts, strict=True)
        }
        bounds = step_bounds(rows, len(plan.steps))
        self.cycles = bounds[-1]
        self.begins = [(bounds[step.index], bounds[step.index + 1]) for step in shown]

    def start(self, step: int, line: FoldedLine) -> str:
        """The first start of a line; what comes in several passes has it at the first of them."""
        found = self._starts.pop((step, line.kind, line.what, line.node), None)
        return "" if found is None else format_count(found)


@shows(Plan)
def program(plan: Plan) -> Program:
    """The program of a plan, to be read, filtered, sliced and compared.

    ``print(program(plan))`` shows it folded; ``program(plan).filter(step=0, engine="dma")`` a part of it;
    ``program(plan).rows`` and ``program(plan)[10:20]`` the instructions one by one.
    """
    return Program(plan)
