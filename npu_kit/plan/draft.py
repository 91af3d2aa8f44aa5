"""A plan of a graph as it stands: steps, places and reasons, before chains are weighed and anything is verified."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from npu_kit.graph.ir import Entry, Graph
from npu_kit.plan.choose import Chooser
from npu_kit.plan.estimate import Cost
from npu_kit.plan.fusion import Group, group_nodes
from npu_kit.plan.ir import Buffer, Reason, Step
from npu_kit.plan.step_builder import StepBuilder
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

    @functools.cached_property
    def layers(self) -> dict[tuple[str, str], Step]:
        """The steps by composite and operation; those that are in no composite are left out."""
        by_layer = {_layer(self.graph, step.nodes[0]): step for step in self.steps}
        return {layer: step for layer, step in by_layer.items() if layer[0]}


def total_cost(costs: Iterable[Cost]) -> Cost:
    """The sum."""
    return functools.reduce(operator.add, costs, Cost(0, 0))


def draft_plan(
    graph: Graph,
    chooser: Chooser,
    outside: Mapping[Entry, str] | None = None,
    l2_bytes: int | None = None,
    whole: Draft | None = None,
) -> Draft:
    """Plan the graph as it stands, without spills.

    Args:
        graph: the graph.
        chooser: chooses each step.
        outside: tensors that have a place already, and its tier.
        l2_bytes: how much of L2 is free; None for all of it.
        whole: the draft of which some steps go in stripes here; they keep their loop orders.

    Raises:
        PlanError: a tensor that does not fit DRAM, a step of which no tile fits L0 and L1.
    """
    groups = group_nodes(graph)
    places = place_tensors(graph, chooser.spec, groups, outside or {}, l2_bytes, may_spill=False)
    return _draft(graph, chooser, groups, places, outside or {}, whole)


def with_spills(draft: Draft, chooser: Chooser) -> Draft:
    """The same steps with tensors moved out of L2 for others, where that is better."""
    places = place_tensors(draft.graph, chooser.spec, draft.groups)
    if not places.moved:
        return draft
    chains = tuple(reason for reason in draft.reasons if reason.decision == "chain")
    moved = _draft(draft.graph, chooser, draft.groups, places, {}, None)
    return replace(moved, reasons=(*moved.reasons, *chains)) if moved.cost < draft.cost else draft


def _draft(
    graph: Graph,
    chooser: Chooser,
    groups: tuple[Group, ...],
    places: Places,
    outside: Mapping[Entry, str],
    whole: Draft | None,
) -> Draft:
    dram, on_chip, reasons = places.dram, places.on_chip, list(places.reasons)
    owner = homes(graph)
    tier = {buffer.entry: buffer.tier for buffer in (*dram.buffers, *on_chip.buffers)} | dict(outside)
    tiers = {entry: tier[home] for entry, home in owner.items() if home in tier}
    steps: list[Step] = []
    costs: list[Cost] = []
    layers = {} if whole is None else whole.layers
    for index, group in enumerate(groups):
        choice = chooser.choose(graph, index, group, tiers, on_chip, like=layers.get(_layer(graph, group.nodes[0])))
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


def _layer(graph: Graph, node_id: int) -> tuple[str, str]:
    """What a step and its stripes have in common: composite and operation of the anchor."""
    node = graph.nodes[node_id]
    return node.composite, node.name
