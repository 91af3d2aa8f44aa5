"""The planner: graph and machine in, plan out. Arithmetic only: nothing is allocated and nothing runs.

Greedy, in four moves: group nodes into steps; keep the tensors between steps in L2 where they fit; choose each step's
tile and loop order by the cycles of its transfers; copy to L2 what a step would otherwise fetch from DRAM many times.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from npu_kit.errors import PlanError
from npu_kit.graph.ir import Entry, Graph
from npu_kit.hw.spec import NpuSpec
from npu_kit.plan.cost import DATAFLOWS, CostModel
from npu_kit.plan.estimate import estimate_cycles
from npu_kit.plan.fusion import Group, group_nodes
from npu_kit.plan.geometry import Contraction
from npu_kit.plan.ir import Buffer, Operand, Plan, Reason, Step
from npu_kit.plan.placement import TensorMemory
from npu_kit.plan.steps import StepBuilder, label
from npu_kit.plan.storage import homes
from npu_kit.plan.stripes import Link, cut, stripe_bytes, stripe_rows
from npu_kit.plan.stripes import chains as chains_of
from npu_kit.plan.traffic import aligned_bytes, operand_loads, step_counters


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
    choices = _Choices(dataflow, double_buffer, CostModel(spec, mode))
    best = _plan(graph, spec, mode, choices)
    return _in_stripes(best, choices).plan if chains else best.plan


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

    @property
    def dram_bytes(self) -> int:
        return sum(step_counters(self.plan.graph, step).dram_bytes for step in self.plan.steps)


def _plan(graph: Graph, spec: NpuSpec, mode: str, choices: _Choices) -> _Planned:
    """Plan the graph as it stands."""
    groups = group_nodes(graph)
    dram, on_chip, reasons = _place_tensors(graph, spec, groups)
    owner = homes(graph)
    tier = {buffer.entry: buffer.tier for buffer in (*dram.buffers, *on_chip.buffers)}
    tiers = {entry: tier[home] for entry, home in owner.items() if home in tier}
    steps: list[Step] = []
    cycles = 0
    known: dict[Hashable, Step] = {}
    for index, group in enumerate(groups):
        builder = StepBuilder(graph, spec, index, group, tiers)
        # Steps that look the same (equal layers, stripes) get the loop order that the first of them got.
        alike = _alike(graph, group, tiers)
        candidates = builder.candidates(choices.dataflow, choices.double_buffer, like=known.get(alike))
        choice = _choose_step(builder, tuple(candidates), on_chip, choices.cost)
        known.setdefault(alike, choice.step)
        for resident in choice.residents:
            if on_chip.extended(resident.entry, index) is None:
                on_chip.buffers.append(resident)
        reasons.extend(choice.reasons)
        steps.append(choice.step)
        cycles += choice.cycles
    for index, entry in enumerate(_copied_heads(graph), start=len(steps)):
        builder = StepBuilder(graph, spec, index, Group((entry.node,)), tiers)
        steps.append(next(builder.candidates(double_buffer=choices.double_buffer)))
    buffers = (*dram.buffers, *on_chip.buffers)
    return _Planned(Plan(graph, spec, mode, tuple(steps), buffers, tuple(reasons)), groups, cycles)


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


def _copied_heads(graph: Graph) -> tuple[Entry, ...]:
    """Inputs and constants that the region returns: nothing computes them, so a step copies them."""
    return tuple(dict.fromkeys(entry for entry in graph.heads if entry.node in graph.arg_nodes))


def _place_tensors(
    graph: Graph, spec: NpuSpec, groups: tuple[Group, ...]
) -> tuple[TensorMemory, TensorMemory, list[Reason]]:
    """A place for every tensor that exists between steps."""
    copies = _copied_heads(graph)
    last = len(groups) + len(copies) - 1
    reasons: list[Reason] = []
    dram = TensorMemory("L3", spec.tier("L3").capacity_bytes)
    on_chip = TensorMemory("L2", spec.tier("L2").capacity_bytes)

    def place_in_dram(name: str, entry: Entry, role: str) -> None:
        nbytes = graph.type_of(entry).nbytes
        if dram.place(name, entry, role, nbytes, 0, last) is None:
            raise PlanError(
                f"tensor {name} ({graph.type_of(entry)}) does not fit {spec.tier('L3')}",
                f"it needs {nbytes} bytes beside {sum(b.nbytes for b in dram.buffers)} already there, "
                f"and the tier has {dram.capacity_bytes}",
                "a smaller batch, or a machine with more memory",
            )

    for node_id in graph.arg_nodes:
        node = graph.nodes[node_id]
        place_in_dram(node.name, Entry(node_id), "argument" if node.kind == "input" else "constant")
    owner = homes(graph)
    readers_of: dict[Entry, list[int]] = {}
    for index, group in enumerate(groups):
        for node_id in group.nodes:
            for entry in graph.nodes[node_id].inputs:
                readers_of.setdefault(owner[entry], []).append(index)
    placed: set[Entry] = set()
    for index, group in enumerate(groups):
        entry = owner[Entry(group.nodes[-1])]
        if entry in placed:
            continue  # another piece of the same join
        placed.add(entry)
        name, nbytes = label(graph, group.nodes), graph.type_of(entry).nbytes
        readers = [reader for reader in readers_of.get(entry, []) if reader > index]
        if entry in graph.heads:
            place_in_dram(name, entry, "output")
            reasons.append(Reason("tier", name, "L3", "the region returns it", {"bytes": nbytes}))
            continue
        buffer = on_chip.place(name, entry, "intermediate", nbytes, index, max(readers, default=index))
        numbers = {"bytes": nbytes, "capacity": on_chip.capacity_bytes}
        if buffer is None:
            place_in_dram(name, entry, "intermediate")
            because = f"it needs {nbytes} bytes and L2 has no gap of that size among {on_chip.capacity_bytes}"
            reasons.append(Reason("tier", name, "L3", because, numbers))
        else:
            because = f"it is read by step {readers[0] if readers else index} and fits: {nbytes} bytes never go to DRAM"
            reasons.append(Reason("tier", name, "L2", because, numbers))
    return dram, on_chip, reasons


CLEARLY_BETTER = 0.85  # the estimate was within 13 % of the exact cycles on the layers of ResNet-18


@dataclass(frozen=True)
class _Choice:
    step: Step
    residents: tuple[Buffer, ...]
    reasons: tuple[Reason, ...]
    cycles: int


@dataclass(frozen=True)
class _Candidate:
    step: Step
    residents: tuple[Buffer, ...]
    cycles: int  # an estimate
    dram_bytes: int

    @property
    def rank(self) -> tuple[int, int]:
        return self.cycles, self.dram_bytes


def _choose_step(builder: StepBuilder, steps: Sequence[Step], on_chip: TensorMemory, cost: CostModel) -> _Choice:
    """The candidate that takes the fewest cycles, then the one that moves the fewest bytes to and from DRAM."""
    graph, name = builder.graph, label(builder.graph, builder.group.nodes)
    compared = []
    for candidate in steps:
        step, residents = _make_resident(builder, candidate, on_chip)
        cycles = estimate_cycles(graph, step, cost)
        compared.append(_Candidate(step, residents, cycles, step_counters(graph, step).dram_bytes))
    best = _best(compared)
    reasons = _step_reasons(builder, best.step, name) + _comparisons(name, best, compared)
    for resident in best.residents:
        loads = _loads(builder, best.step)[resident.entry]
        because = f"its tiles are read {loads} bytes in all, the tensor has {resident.nbytes}: DRAM is read once"
        numbers = {"loads_bytes": loads, "tensor_bytes": resident.nbytes}
        reasons.append(Reason("resident", resident.name, "L2", because, numbers))
    return _Choice(best.step, best.residents, tuple(reasons), best.cycles)


def _best(candidates: Sequence[_Candidate]) -> _Candidate:
    """The best with single slots, or its twin with double ones; another one with double slots if clearly better.

    A twin has the same tiles in the same order, so it is never slower. Against any other the estimate decides, which is
    a few percent off, so it has to be ahead by more than that.
    """
    single = [one for one in candidates if not one.step.is_double_buffered]
    double = [one for one in candidates if one.step.is_double_buffered]
    if not single or not double:
        return min(candidates, key=lambda one: one.rank)
    anchor = min(single, key=lambda one: one.rank)
    twins = [one for one in double if _is_twin(one.step, anchor.step)]
    best, ahead = (twins or [anchor])[0], min(double, key=lambda one: one.rank)
    return ahead if ahead.cycles < CLEARLY_BETTER * best.cycles else best


def _is_twin(step: Step, other: Step) -> bool:
    """Whether two steps differ in nothing but the copies of their slots."""
    kept = [operand.is_panel for operand in step.operands] == [operand.is_panel for operand in other.operands]
    return kept and step.axes == other.axes and step.prefetch == other.prefetch


def _comparisons(name: str, best: _Candidate, compared: Sequence[_Candidate]) -> list[Reason]:
    """Why this loop order, and why this buffering: the best of those that were not chosen, with its cycles."""
    reasons = []
    chosen = _order(best.step)
    others = sorted((one for one in compared if one is not best), key=lambda one: one.rank)
    for other in others:
        if _order(other.step) != chosen:
            because = f"it takes about {best.cycles} cycles, and {_order(other.step)} {other.cycles}"
            numbers = {"cycles": best.cycles, "other_cycles": other.cycles}
            reasons.append(Reason("order", name, chosen, because, numbers))
            break
    for other in others:
        if _order(other.step) == chosen and other.step.is_double_buffered != best.step.is_double_buffered:
            words = ("double", "single") if best.step.is_double_buffered else ("single", "double")
            because = f"it takes about {best.cycles} cycles, and {words[1]} slots {other.cycles}"
            numbers = {"cycles": best.cycles, "other_cycles": other.cycles}
            reasons.append(Reason("buffering", name, f"{words[0]} slots", because, numbers))
            break
    return reasons


def _order(step: Step) -> str:
    """The loop order of a contraction in words; all others have one."""
    if not step.dataflow:
        return ""
    names = [axis.name for axis in step.axes]
    outside = "inputs" if names.index("n") > names.index("x") else "weights"
    return f"{step.dataflow.replace('_', ' ')} with {outside} outside"


def _step_reasons(builder: StepBuilder, step: Step, name: str) -> list[Reason]:
    spec, problem = builder.spec, builder.problem
    reasons = []
    if len(step.nodes) > 1:
        because = "they come from one composite and nothing else reads the values between them"
        reasons.append(Reason("fuse", name, f"{len(step.nodes)} operations in one tile", because))
    shape = " x ".join(f"{axis.name} {axis.tile}/{axis.extent}" for axis in step.axes if axis.extent > 1)
    limit = spec.tile.rows * spec.tile.columns
    because = f"the accumulator in L0 holds {spec.tile.rows}x{spec.tile.columns} = {limit} elements"
    used = {tier: sum(s.nbytes for s in step.slots if s.tier == tier) for tier in ("L0", "L1")}
    numbers = {"L0_bytes": used["L0"], "L1_bytes": used["L1"], "L1_capacity": spec.tier("L1").capacity_bytes}
    reasons.append(Reason("tile", name, shape or "one element", because, numbers))
    because = {
        "matrix": "a matrix product fills the array",
        "conv": "a convolution is a matrix product over patches, which this engine gathers itself",
        "vector": "each element (or channel) is computed on its own, lane by lane",
        "pooling": "a window is reduced channel by channel",
        "activation": "a nonlinear function of each element",
        "dma": "nothing is computed",
    }[step.engine]
    reasons.append(Reason("engine", name, step.engine, because, {"lanes": spec.engine(step.engine).lanes}))
    if isinstance(problem, Contraction):
        chunk = [axis for axis in step.axes if axis.name in ("c", "kh", "kw")]
        chosen = " x ".join(f"{axis.name} {axis.tile}/{axis.extent}" for axis in chunk)
        reasons.append(Reason("chunk", name, chosen, "the depth of one pass never depends on memory, nor do the bits"))
    return reasons


def _loads(builder: StepBuilder, step: Step) -> dict[Entry, int]:
    """Bytes that the step's tiles read of each tensor."""
    loads: dict[Entry, int] = {}
    for operand in step.operands:
        _, nbytes = operand_loads(builder.problem, step.axes, operand)
        loads[operand.entry] = loads.get(operand.entry, 0) + nbytes
    for node_id, operands in zip(step.nodes[1:], step.epilogue_operands, strict=True):
        for position, beside in enumerate(operands):
            if beside is not None:
                nbytes = aligned_bytes(builder.graph, node_id, position, builder.problem, step.axes)
                loads[beside.entry] = loads.get(beside.entry, 0) + nbytes
    return loads


def _make_resident(builder: StepBuilder, step: Step, on_chip: TensorMemory) -> tuple[Step, tuple[Buffer, ...]]:
    """Copy to L2, for the time of this step, what its tiles would read from DRAM more than once; most saved first."""
    graph = builder.graph
    room = TensorMemory(on_chip.tier, on_chip.capacity_bytes, list(on_chip.buffers))
    loads = _loads(builder, step)
    saved = {entry: nbytes - graph.type_of(entry).nbytes for entry, nbytes in loads.items()}
    residents: list[Buffer] = []
    for entry in sorted(saved, key=lambda one: (-saved[one], one)):
        if saved[entry] <= 0 or builder.tiers[entry] != "L3":
            continue
        nbytes = graph.type_of(entry).nbytes
        name = graph.nodes[entry.node].name
        buffer = room.extended(entry, step.index)
        if buffer is None:
            buffer = room.place(name, entry, "resident", nbytes, step.index, step.index)
        if buffer is not None:
            residents.append(buffer)
    near = {buffer.entry: "L2" for buffer in residents}
    fresh = tuple(buffer.entry for buffer in residents if buffer.first_step == step.index)
    return _with_tiers(step, near, fresh), tuple(residents)


def _with_tiers(step: Step, near: Mapping[Entry, str], fresh: tuple[Entry, ...]) -> Step:
    """The step with the operands in ``near`` loaded from there, those in ``fresh`` after a copy."""
    if not near:
        return step

    def moved(operand: Operand) -> Operand:
        return replace(operand, tier=near.get(operand.entry, operand.tier))

    return replace(
        step,
        operands=tuple(moved(operand) for operand in step.operands),
        epilogue_operands=tuple(
            tuple(None if operand is None else moved(operand) for operand in group) for group in step.epilogue_operands
        ),
        prefetch=fresh,
    )
