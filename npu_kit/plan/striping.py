"""Which chains of steps go in stripes.

A chain is weighed on its own: the cost of its steps in the plan as it stands, against a plan of the chain alone, cut
into as few stripes as fit, in the L2 that the tensors around it leave. So the work grows with the number of steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from npu_kit.graph.ir import Entry, Graph
from npu_kit.plan.chains import Link, RowSpan, chains, excerpt, fewest_stripes
from npu_kit.plan.choose import Chooser
from npu_kit.plan.draft import Draft, draft_plan, total_cost
from npu_kit.plan.estimate import Cost
from npu_kit.plan.ir import Reason
from npu_kit.plan.steps import label
from npu_kit.plan.stripes import cut

L2_SHARE = 0.6  # of L2 for the tensors of a stripe; the rest is for weights. Illustrative
WHOLE = "whole tensors"


@dataclass(frozen=True)
class Weighed:
    """A chain, its stripes, and what it costs either way."""

    links: Sequence[Link]
    stripes: Sequence[Sequence[RowSpan]]
    striped: Cost
    whole: Cost

    @property
    def is_better(self) -> bool:
        """Whether it goes in stripes."""
        return self.striped < self.whole

    @property
    def gain(self) -> tuple[int, int]:
        """Cycles and bytes that the stripes save."""
        return self.whole.cycles - self.striped.cycles, self.whole.dram_bytes - self.striped.dram_bytes

    def reason(self, graph: Graph) -> Reason:
        """Why the chain goes in stripes, or why it does not."""
        names = ", ".join(label(graph, link.group.nodes) for link in self.links)
        better, worse = sorted((self.striped, self.whole))
        numbers = {
            "cycles": self.striped.cycles,
            "whole_cycles": self.whole.cycles,
            "dram_bytes": self.striped.dram_bytes,
            "whole_dram_bytes": self.whole.dram_bytes,
        }
        chosen = f"{len(self.stripes)} stripes" if self.is_better else WHOLE
        because = (
            f"it is a tie, {better} either way" if better == worse else f"that takes {better}, the other way {worse}"
        )
        return Reason("chain", names, chosen, because, numbers)


def in_stripes(whole: Draft, chooser: Chooser) -> Draft:
    """Cut chains of steps whose tensors go through DRAM into stripes, where that is faster or moves less."""
    graph = whole.graph
    weighed = list(_weighed(whole, chooser))
    reasons = tuple(one.reason(graph) for one in weighed)
    cuts = [(one.links, one.stripes) for one in weighed if one.is_better]
    whole = replace(whole, reasons=(*whole.reasons, *reasons))
    if not cuts:
        return whole
    striped = draft_plan(cut(graph, cuts), chooser, whole=whole)
    if striped.cost < whole.cost:
        return replace(striped, reasons=(*striped.reasons, *reasons))
    because = f"with all chains in stripes it takes {striped.cost}, without {whole.cost}"
    return replace(whole, reasons=(*whole.reasons, Reason("chain", f"region {graph.symbol}", WHOLE, because)))


def _weighed(whole: Draft, chooser: Chooser) -> Iterator[Weighed]:
    """The chains that are better in stripes, and of each run of steps that has none the one that came closest."""
    scale = _Scale(whole, chooser)
    far = {buffer.entry for buffer in whole.buffers if buffer.role == "intermediate" and buffer.tier == "L3"}
    for run in chains(whole.graph, whole.groups, far):
        refused, accepted, start = [], 0, 0
        while start < len(run) - 1:
            best = scale.best(run[start:])
            if best is not None and best.is_better:
                yield best
                accepted += 1
                start += len(best.links)
                continue
            refused += [] if best is None else [best]
            start += 1
        if refused and not accepted:
            yield max(refused, key=lambda one: one.gain)


class _Scale:
    """Weighs chains of one plan."""

    def __init__(self, whole: Draft, chooser: Chooser) -> None:
        self.whole, self.chooser = whole, chooser
        self._step_of = {group: number for number, group in enumerate(whole.groups)}
        self._l2_bytes = chooser.spec.tier("L2").capacity_bytes
        self._taken = [0] * len(whole.steps)  # bytes of L2, per step
        self._in_l2 = {b.entry: b for b in whole.buffers if b.tier == "L2" and b.role != "resident"}
        for buffer in self._in_l2.values():
            for step in range(buffer.first_step, buffer.last_step + 1):
                self._taken[step] += buffer.nbytes

    def _tier_of(self, entry: Entry, step: int) -> str:
        """Where a tensor is during a step: it may have been spilled before."""
        buffer = self._in_l2.get(entry)
        return "L2" if buffer is not None and step <= buffer.last_step else "L3"

    def best(self, run: Sequence[Link]) -> Weighed | None:
        """The start of a run that gains most in stripes; None if no rows of it fit L2."""
        best: Weighed | None = None
        for length in range(2, len(run) + 1):
            stripes = fewest_stripes(self.whole.graph, run[:length], int(L2_SHARE * self._l2_bytes))
            if not stripes:
                break
            weighed = self.weigh(run[:length], stripes)
            if best is not None and weighed.gain < best.gain:
                break  # a longer chain has a longer halo
            best = weighed
        return best

    def weigh(self, links: Sequence[Link], stripes: Sequence[Sequence[RowSpan]]) -> Weighed:
        """What a chain costs in stripes and in whole tensors."""
        steps = [self._step_of[link.group] for link in links]
        part, inside, arguments = excerpt(self.whole.graph, links)
        part = cut(part, [(inside, stripes)])
        outside = {Entry(i): self._tier_of(entry, steps[0]) for i, entry in enumerate(arguments)}
        outside[part.heads[0]] = self._tier_of(Entry(links[-1].group.nodes[-1]), steps[-1])
        left = self._l2_bytes - max(self._taken[step] for step in steps)
        striped = draft_plan(part, self.chooser, outside, left, self.whole).cost
        return Weighed(links, stripes, striped, total_cost(self.whole.costs[step] for step in steps))
