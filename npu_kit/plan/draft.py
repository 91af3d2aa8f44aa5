"""A plan of a graph as it stands: steps, places and reasons, before chains are weighed and anything is verified."""

from __future__ import annotations

import functools
import operator
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from npu_kit.graph.ir import Entry, Graph
from npu_kit.plan.choose import Chooser
from npu_kit.plan.estimate import Cost
from npu_kit.plan.fusion import Group, group_nodes
from npu_kit.plan.ir import Buffer, Reason, Step
from npu_kit.plan.steps import StepBuilder
from npu_kit.plan.storage import homes
from npu_kit.plan.tensors import copied_heads, place_tensors


@dataclass(frozen=True)
class Draft:
    """What is decided so far."""

    graph: Graph
    groups: tuple[Group, ...]
    steps: tuple[Step, ...]
    buffers: tuple[Buffer, ...]
    reasons: tuple[Reason, ...]
    costs: tuple[Cost, ...]  # of each group's step

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
    """Plan the graph as it stands.

    Args:
        graph: the graph.
        chooser: chooses each step.
        outside: tensors that have a place already, and its tier.
        l2_bytes: how much of L2 is free; None for all of it.

    Raises:
        PlanError: a tensor that does not fit DRAM, a step of which no tile fits L0 and L1.
    """
    groups = group_nodes(graph)
    outside = outside or {}
    dram, on_chip, reasons = place_tensors(graph, chooser.spec, groups, outside, l2_bytes)
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
        steps.append(choice.step)
        costs.append(choice.cost)
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
