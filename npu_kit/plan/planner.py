"""The planner: graph and machine in, plan out. Arithmetic only: nothing is allocated and nothing runs.

Greedy, in five moves: group nodes into steps; keep the tensors between steps in L2 where they fit; choose each step's
loop order and buffering by its cycles; copy to L2 what a step would otherwise fetch from DRAM many times; and where
tensors between steps still go through DRAM, try to carry a few rows at a time through all of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from npu_kit.errors import PlanError
from npu_kit.graph.ir import Entry, Graph
from npu_kit.hw.spec import NpuSpec
from npu_kit.plan.choose import choose_step
from npu_kit.plan.cost import DATAFLOWS, CostModel
from npu_kit.plan.fusion import Group, group_nodes
from npu_kit.plan.ir import Plan, Reason, Step
from npu_kit.plan.no_room import NoRoomError, with_ways_out
from npu_kit.plan.steps import StepBuilder, label
from npu_kit.plan.storage import homes
from npu_kit.plan.stripes import Link, cut, stripe_bytes, stripe_rows
from npu_kit.plan.stripes import chains as chains_of
from npu_kit.plan.tensors import copied_heads, place_tensors
from npu_kit.plan.verify import verify_plan


def make_plan(
    graph: Graph,
    spec: NpuSpec,
    *,
    tile: int | tuple[int, int] | None = None,
    dataflow: str | None = None,
    double_buffer: bool = True,
    chains: bool = True,
    power_mode: str | None = None,
) -> Plan:
    """Decide tiles, tiers, engines and order for one region.

    Args:
        graph: a verified graph.
        spec: the machine.
        tile: rows and columns of the output tile, instead of the spec's.
        dataflow: what stays on the array in every contraction, "output_stationary", "weight_stationary" or
            "input_stationary"; None chooses for each by cost.
        double_buffer: whether slots may have a second copy, which the dma engine fills while an engine reads the first.
        chains: whether steps whose tensors do not fit L2 may be cut into stripes, which then do. The plan's graph is
            then the graph in stripes.
        power_mode: a name from the spec; None for its default.

    Raises:
        PlanError: a tensor larger than DRAM, a tile that fits no memory, partial sums that do not fit L1; the message
            has the numbers.
        SpecError: a tile that the machine cannot hold, an unknown power mode.
    """
    if tile is not None:
        spec = spec.replace(tile=tile)
    mode = spec.power_mode(power_mode).name
    if dataflow not in (None, *DATAFLOWS):
        raise PlanError(f"no dataflow {dataflow!r}", f"there are {', '.join(DATAFLOWS)}")

    def trial(machine: NpuSpec, flow: str | None) -> _Planned:
        return _plan(graph, machine, mode, _Choices(flow, double_buffer, CostModel(machine, mode)))

    try:
        best = trial(spec, dataflow)
    except NoRoomError as error:
        raise with_ways_out(error, spec, dataflow, lambda machine, flow: trial(machine, flow).plan) from None
    plan = _in_stripes(best, _Choices(dataflow, double_buffer, CostModel(spec, mode))).plan if chains else best.plan
    verify_plan(plan)
    return plan


@dataclass(frozen=True)
class _Choices:
    """What the learner asked for, and what it costs."""

    dataflow: str | None
    double_buffer: bool
    cost: CostModel


@dataclass(frozen=True)
class _Planned:
    plan: Plan
    groups: tuple[Group, ...]
    cycles: int  # an estimate
    dram_bytes: int


def _plan(graph: Graph, spec: NpuSpec, mode: str, choices: _Choices) -> _Planned:
    """Plan the graph as it stands."""
    groups = group_nodes(graph)
    dram, on_chip, reasons = place_tensors(graph, spec, groups)
    owner = homes(graph)
    tier = {buffer.entry: buffer.tier for buffer in (*dram.buffers, *on_chip.buffers)}
    tiers = {entry: tier[home] for entry, home in owner.items() if home in tier}
    steps: list[Step] = []
    cycles = dram_bytes = 0
    known: dict[Hashable, Step] = {}
    for index, group in enumerate(groups):
        builder = StepBuilder(graph, spec, index, group, tiers)
        # Steps that look the same (equal layers, stripes) get the loop order that the first of them got.
        alike = _alike(graph, group, tiers)
        candidates = builder.candidates(choices.dataflow, choices.double_buffer, like=known.get(alike))
        choice = choose_step(builder, tuple(candidates), on_chip, choices.cost)
        known.setdefault(alike, choice.step)
        reasons.extend(choice.reasons)
        steps.append(choice.step)
        cycles += choice.cycles
        dram_bytes += choice.dram_bytes
    for index, entry in enumerate(copied_heads(graph), start=len(steps)):
        builder = StepBuilder(graph, spec, index, Group((entry.node,)), tiers)
        steps.append(next(builder.candidates(double_buffer=choices.double_buffer)))
    buffers = (*dram.buffers, *on_chip.buffers)
    return _Planned(Plan(graph, spec, mode, tuple(steps), buffers, tuple(reasons)), groups, cycles, dram_bytes)


def _alike(graph: Graph, group: Group, tiers: Mapping[Entry, str]) -> Hashable:
    """What a step's costs depend on."""
    nodes = [graph.nodes[node] for node in group.nodes]
    inputs = tuple((graph.type_of(entry), tiers.get(entry)) for node in nodes for entry in node.inputs)
    attrs = tuple(tuple(sorted(node.attrs.items())) for node in nodes)
    return tuple(node.name for node in nodes), group.running, inputs, attrs, tiers[Entry(group.nodes[-1])]


L2_SHARE = 0.6  # of L2 for the tensors of a stripe; the rest is for weights. Illustrative


def _in_stripes(planned: _Planned, choices: _Choices) -> _Planned:
    """Cut each chain of steps whose tensors go through DRAM into stripes, where that is faster or moves less."""
    place = 0
    while True:
        graph, spec = planned.plan.graph, planned.plan.spec
        far = {b.entry for b in planned.plan.buffers if b.role == "intermediate" and b.tier == "L3"}
        found = chains_of(graph, planned.groups, far)
        if place >= len(found):
            return planned
        chain = found[place]
        place += 1
        cut_graph, count = _cut(graph, chain, int(L2_SHARE * spec.tier("L2").capacity_bytes))
        if cut_graph is None:
            continue
        striped = _plan(cut_graph, spec, planned.plan.power_mode, choices)
        names = ", ".join(label(graph, link.group.nodes) for link in chain)
        numbers = {
            "cycles": striped.cycles,
            "whole_cycles": planned.cycles,
            "dram_bytes": striped.dram_bytes,
            "whole_dram_bytes": planned.dram_bytes,
        }
        is_better = (striped.cycles, striped.dram_bytes) < (planned.cycles, planned.dram_bytes)
        chosen, other = (striped, planned) if is_better else (planned, striped)
        because = (
            f"the region takes about {chosen.cycles} cycles and {chosen.dram_bytes} bytes of DRAM traffic that way, "
            f"and {other.cycles} and {other.dram_bytes} the other way"
        )
        reason = Reason("chain", names, f"{count} stripes" if is_better else "whole tensors", because, numbers)
        # A chain that was cut has no tensor in DRAM any more, so it is not found again.
        place -= is_better
        planned = replace(chosen, plan=replace(chosen.plan, reasons=(*chosen.plan.reasons, reason)))


def _cut(graph: Graph, chain: Sequence[Link], limit_bytes: int) -> tuple[Graph | None, int]:
    """The graph with the chain in as few stripes as fit; None if not even single rows do."""
    height = graph.type_of(Entry(chain[-1].group.nodes[-1])).shape[chain[-1].axis]
    for size in _stripe_sizes(height):
        stripes = stripe_rows(graph, chain, -(-height // size))
        reads = [chain[0].needs(rows[0]) for rows in stripes]
        if any(stop <= start for rows in (*stripes, reads) for start, stop in rows):
            return None, 0  # a stripe of nothing but padding
        if max(stripe_bytes(graph, chain, rows) for rows in stripes) <= limit_bytes:
            return cut(graph, chain, stripes), len(stripes)
    return None, 0


def _stripe_sizes(height: int) -> list[int]:
    """Heights of a stripe to try, the largest first."""
    sizes = {-(-height // count) for count in range(2, height + 1)}
    return sorted(sizes, reverse=True)
