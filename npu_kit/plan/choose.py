"""Which candidate of a step is taken, what is copied to L2 for it, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from npu_kit.graph.ir import Entry
from npu_kit.plan.cost import CostModel
from npu_kit.plan.estimate import estimate_cycles
from npu_kit.plan.geometry import Contraction
from npu_kit.plan.ir import Buffer, Operand, Reason, Step
from npu_kit.plan.placement import TensorMemory
from npu_kit.plan.steps import StepBuilder, label
from npu_kit.plan.traffic import aligned_bytes, operand_loads, step_counters

CLEARLY_BETTER = 0.85  # the estimate was within 13 % of the exact cycles on the layers of ResNet-18


@dataclass(frozen=True)
class Choice:
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


def choose_step(builder: StepBuilder, steps: Sequence[Step], on_chip: TensorMemory, cost: CostModel) -> Choice:
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
    return Choice(best.step, best.residents, tuple(reasons), best.cycles)


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
