"""A plan of a graph as it stands: steps, places and reasons, before chains are weighed and anything is verified."""

from __future__ import annotations

import functools
import operator
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

from npu_kit.graph.ir import Entry, Graph
from npu_kit.plan.choose import Chooser
from npu_kit.plan.estimate import Cost
from npu_kit.plan.fusion import Group, group_nodes
from npu_kit.plan.ir import Buffer, Reason, Step
from npu_kit.plan.steps import StepBuilder
from npu_kit.plan.storage import homes
from npu_kit.plan.tensors import Places, copied_heads, place_tensors


@dataclass(frozen=True)
class Draft:
    """What is decided so far."""

    graph: Graph
    groups: tuple[Group, ...]
    steps: tuple[Step, ...]
    buffers: tuple[Buffer, ...]
    reasons: tuple[Reason, ...]
    costs: tuple[Cost, ...]  # of each group's step, with what it spills

    @property
    def cost(self) -> Cost:
        """That of all groups."""
        return total_cost(self.costs)


def total_cost(costs: Iterable[Cost]) -> Cost:
    """The sum."""
    return functools.reduce(operator.add, costs, Cost(0, 0))


def draft_plan(
    graph: Graph, chooser: Chooser, outside: Mapping[Entry, str] | None = None, l2_bytes: int | None = None
) -> Draft:
    """Plan the graph as it stands, with spills where that turns out to be better.

    Args:
        graph: the graph.
        chooser: chooses each step.
        outside: tensors that have a place already, and its tier.
        l2_bytes: how much of L2 is free; None for all of it.

    Raises:
        PlanError: a tensor that does not fit DRAM, a step of which no tile fits L0 and L1.
    """
    groups, outside = group_nodes(graph), outside or {}
    places = place_tensors(graph, chooser.spec, groups, outside, l2_bytes)
    draft = _draft(graph, chooser, groups, outside, places)
    if not places.spills:
        return draft
    places = place_tensors(graph, chooser.spec, groups, outside, l2_bytes, may_spill=False)
    return min(draft, _draft(graph, chooser, groups, outside, places), key=lambda one: one.cost)


def _draft(
    graph: Graph, chooser: Chooser, groups: tuple[Group, ...], outside: Mapping[Entry, str], places: Places
) -> Draft:
    dram, on_chip, reasons = places.dram, places.on_chip, list(places.reasons)
    owner = homes(graph)
    tier = {buffer.entry: buffer.tier for buffer in (*dram.buffers, *on_chip.buffers)} | dict(outside)
    tiers = {entry: tier[home] for entry, home in owner.items() if home in tier}
    steps: list[Step] = []
    costs: list[Cost] = []
    first_of: dict[Hashable, Step] = {}
    for index, group in enumerate(groups):
        # All stripes of a layer take the loop order of the first, so that what they share can stay in L2.
        layer = _layer(graph, group)
        choice = chooser.choose(graph, index, group, tiers, on_chip, like=first_of.get(layer))
        first_of.setdefault(layer, choice.step)
        reasons.extend(choice.reasons)
        spilled = places.spills.get(index, ())
        tiers |= dict.fromkeys(spilled, "L3")
        steps.append(replace(choice.step, spills=tuple(spilled)) if spilled else choice.step)
        costs.append(choice.cost + total_cost(chooser.spill_cost(graph.type_of(entry).nbytes) for entry in spilled))
    for index, entry in enumerate(copied_heads(graph), start=len(steps)):
        builder = StepBuilder(graph, chooser.spec, index, Group((entry.node,)), tiers)
        steps.append(next(builder.candidates(double_buffer=chooser.double_buffer)))
    buffers = (*dram.buffers, *on_chip.buffers)
    different = {str(reason): reason for reason in reasons}  # the stripes of one layer have the same
    return Draft(graph, groups, tuple(steps), buffers, tuple(different.values()), tuple(costs))


def _layer(graph: Graph, group: Group) -> Hashable:
    """What all stripes of one layer have in common, and no other group of the graph has."""
    anchor = graph.nodes[group.nodes[0]]
    if anchor.composite and len(anchor.inputs) > 1:
        return anchor.composite, anchor.name, anchor.inputs[1:]
    return group
