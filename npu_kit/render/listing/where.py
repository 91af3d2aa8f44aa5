"""Which instructions of a program are shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npu_kit.errors import RenderError
from npu_kit.hw.spec import ENGINE_NAMES, TIER_NAMES
from npu_kit.plan.folding import FoldedLine
from npu_kit.plan.ir import Plan
from npu_kit.render.format import number_of
from npu_kit.trace.events import ENGINES, KINDS, TIERS


@dataclass(frozen=True)
class Where:
    """What an instruction has to fit; None fits all."""

    engine: str | None = None
    tier: str | None = None  # one end of what is moved
    node: int | str | None = None  # id, or name
    step: int | None = None
    kind: str | None = None
    tile: int | None = None

    def verify(self, plan: Plan) -> None:
        """Raise RenderError if a name or number is none of the plan's."""
        _one_of("engine", self.engine, ENGINE_NAMES)
        _one_of("tier", self.tier, TIER_NAMES)
        _one_of("kind of instruction", self.kind, (*KINDS, "clear"))
        if self.step is not None and not 0 <= self.step < len(plan.steps):
            why = f"the plan has {number_of(len(plan.steps), 'step')}, counted from 0"
            raise RenderError(f"no step {self.step}", why)
        if self.node is not None and not self._nodes(plan):
            used = {plan.graph.nodes[node].name for step in plan.steps for node in step.nodes}
            raise RenderError(
                f"no node {self.node!r:.80}",
                f"the graph has nodes 0 to {len(plan.graph.nodes) - 1}; operations are {', '.join(sorted(used))}",
            )

    def fits(self, plan: Plan, line: FoldedLine) -> bool:
        """Whether a folded line is shown; the step and the tile are not asked here."""
        return (
            self.engine in (None, line.engine)
            and (self.tier is None or self.tier in line.ends)
            and self.kind in (None, line.kind)
            and (self.node is None or line.node in self._nodes(plan))
        )

    def mask(self, plan: Plan, rows: NDArray[np.void]) -> NDArray[np.bool_]:
        """Which rows are shown."""
        chosen = np.ones(len(rows), np.bool_)
        if self.engine is not None:
            chosen &= rows["engine"] == ENGINES.index(self.engine)
        if self.tier is not None:
            chosen &= (rows["src"] == TIERS.index(self.tier)) | (rows["dst"] == TIERS.index(self.tier))
        if self.kind is not None:
            chosen &= rows["kind"] == (KINDS.index(self.kind) if self.kind in KINDS else len(KINDS))
        for column, wanted in (("step", self.step), ("tile", self.tile)):
            if wanted is not None:
                chosen &= rows[column] == wanted
        if self.node is not None:
            chosen &= np.isin(rows["node"], sorted(self._nodes(plan)))
        return chosen

    def _nodes(self, plan: Plan) -> set[int]:
        nodes = plan.graph.nodes
        return {i for i, node in enumerate(nodes) if self.node in (i, node.name)}


def _one_of(what: str, name: str | None, known: Iterable[str]) -> None:
    if name is not None and name not in tuple(known):
        raise RenderError(f"no {what} {name!r:.80}", f"there are {', '.join(known)}")
