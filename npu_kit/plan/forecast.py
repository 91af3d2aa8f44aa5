"""The events that running a plan will leave, by arithmetic alone: what a view shows before anything runs.

Step mode records the same columns from the copies it really makes; tests hold the two equal row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from npu_kit.errors import PlanError
from npu_kit.graph.ir import DTYPE_BYTES, Entry, Graph
from npu_kit.plan.cost import CostModel
from npu_kit.plan.geometry import (
    Box,
    Contraction,
    Elementwise,
    Movement,
    Reduction,
    Rows,
    Window,
    aligned_operand,
    problem_of,
    spans_of,
)
from npu_kit.plan.ir import Plan, Step
from npu_kit.plan.nest import instruction_count
from npu_kit.plan.program import WHOLE, Instruction, copied_tensor, copies_after, copies_before, instructions
from npu_kit.plan.schedule import Timeline, operands_read
from npu_kit.trace.events import EVENT_DTYPE, Events

MAX_INSTRUCTIONS = 10_000_000  # of a timeline: some three minutes, and 490 MB

Row = tuple[int, ...]
Moved = tuple[int, int, int]  # bytes, MACs, cycles


class Effect(NamedTuple):
    """What one instruction moves or computes."""

    node: int  # the graph node computed, or whose tensor is moved
    engine: str
    ends: tuple[str, str]  # the tiers that the bytes come from and go to
    moved: Moved
    entry: Entry | None = None  # the tensor that a load or a copy reads


def forecast(plan: Plan, steps: tuple[int, ...] | None = None) -> Events:
    """The events of a plan, or of some of its steps, one after the other.

    Cost: one row per instruction, about 20 microseconds each; ``plan.traffic`` has the totals in closed form.

    Raises:
        PlanError: there are more than ``MAX_INSTRUCTIONS``.
    """
    return np.fromiter((row for _, _, row in scheduled(plan, steps)), EVENT_DTYPE)


def scheduled(plan: Plan, steps: tuple[int, ...] | None = None) -> Iterator[tuple[Step, Instruction, Row]]:
    """Each instruction that moves or computes something, in order, with its step and its event."""
    count = instruction_count(plan, steps)
    if count > MAX_INSTRUCTIONS:
        raise PlanError(
            f"a timeline of {count:,} instructions",
            f"each takes 20 microseconds and 49 bytes, and the limit is {MAX_INSTRUCTIONS:,}",
            "some of the steps, a larger tile, or npu_kit.plan.traffic.plan_counters, which has the totals at once.",
        )
    chosen = plan.steps if steps is None else tuple(plan.steps[i] for i in steps)
    cost = CostModel(plan.spec, plan.power_mode)
    timeline = Timeline()
    for step in chosen:
        timeline = Timeline(timeline.end)
        effects = StepEffects(plan.graph, step, cost)
        for instruction in effects.instructions():
            effect = effects.of(instruction)
            if effect is not None:
                node, engine, ends, moved, entry = effect
                yield step, instruction, timeline.record(step, instruction, node, engine, ends, moved, entry)


class StepEffects:
    """What the instructions of one step move and compute, by arithmetic."""

    def __init__(self, graph: Graph, step: Step, cost: CostModel) -> None:
        self.graph, self.step, self.cost = graph, step, cost
        self.problem = problem_of(graph, step.nodes[0])
        self.layouts = self.problem.layouts(step.axes)
        self.operands = {operand.name: operand for operand in step.operands}
        self.epilogue = {operand.name: (operand, node, position) for node, position, operand in step.epilogue_reads}
        self._effects: dict[str, Callable[[Instruction], Effect | None]] = {
            "clear": lambda _: None,  # clearing the accumulator takes no cycle of its own
            "load": self._load,
            "fill": self._fill,
            "spill": self._spill,
            "compute": self._compute,
            "epilogue": self._run_epilogue,
            "drain": self._drain,
            "store": self._store,
        }

    def instructions(self) -> Iterator[Instruction]:
        """The program of the step, with the copies of whole tensors before and after it."""
        yield from copies_before(self.graph, self.step)
        yield from instructions(self.step, self.problem)
        yield from copies_after(self.step)

    def of(self, instruction: Instruction) -> Effect | None:
        """What an instruction moves or computes; None if that is nothing."""
        if instruction.tile == WHOLE:
            return self._copy(instruction)
        return self._effects[instruction.kind](instruction)

    def _copy(self, instruction: Instruction) -> Effect:
        entry = copied_tensor(self.step, instruction)
        nbytes = self.graph.type_of(entry).nbytes
        ends = ("L2", "L3") if instruction.kind == "spill" else ("L3", "L2")
        return Effect(entry.node, "dma", ends, (nbytes, 0, self.cost.transfer(*ends, nbytes) if nbytes else 0), entry)

    def _load(self, instruction: Instruction) -> Effect | None:
        name = instruction.operand
        operand = self.epilogue[name][0] if name in self.epilogue else self.operands[name]
        nbytes = self._operand_bytes(name, instruction)
        if not nbytes:
            return None
        moved = (nbytes, 0, self.cost.transfer(operand.tier, "L1", nbytes))
        return Effect(operand.entry.node, "dma", (operand.tier, "L1"), moved, operand.entry)

    def _fill(self, instruction: Instruction) -> Effect:
        return self._partial(instruction, ("L1", "L0"))

    def _spill(self, instruction: Instruction) -> Effect:
        return self._partial(instruction, ("L0", "L1"))

    def _partial(self, instruction: Instruction, ends: tuple[str, str]) -> Effect:
        """A partial sum leaves the accumulator, or comes back, as four bytes an element."""
        nbytes = self._out_box(instruction).elements * DTYPE_BYTES["float32"]
        return Effect(self.step.nodes[0], self.step.engine, ends, (nbytes, 0, self.cost.transfer(*ends, nbytes)))

    def _operand_bytes(self, name: str, instruction: Instruction) -> int:
        if name in self.epilogue:
            operand, node_id, position = self.epilogue[name]
            box = aligned_operand(self.graph, node_id, position).box(self.layouts["out"], self._out_box(instruction))
        else:
            operand = self.operands[name]
            box = self.problem.box(name, self.step.axes, spans_of(self.step.axes, instruction.inside))
        return box.elements * DTYPE_BYTES[self.graph.type_of(operand.entry).dtype]

    def _compute(self, instruction: Instruction) -> Effect | None:
        moved = self._computed(instruction)
        return None if moved is None else Effect(self.step.nodes[0], self.step.engine, ("L1", "L0"), moved)

    def _computed(self, instruction: Instruction) -> Moved | None:
        problem, engine = self.problem, self.step.engine
        size = {name: stop - start for name, (start, stop) in spans_of(self.step.axes, instruction.at).items()}
        if isinstance(problem, Contraction):
            m, n, k = size["y"] * size["x"], size["n"], size["c"] * size["kh"] * size["kw"]
            x, w, _ = self.cost.array_accesses(engine, m, n, k, self.step.dataflow, instruction.refills)
            nbytes = x * DTYPE_BYTES[problem.x.dtype] + w * DTYPE_BYTES[problem.w.dtype]
            return nbytes, m * n * k, self.cost.array(engine, m, n, k, self.step.dataflow, instruction.refills)
        box = self._out_box(instruction)
        elements = box.elements
        if isinstance(problem, Window):
            if instruction.stage == "finish":
                return None
            taps = size["kh"] * size["kw"]
            nbytes = elements * taps * DTYPE_BYTES[problem.x.dtype]
            if problem.w is not None:
                nbytes += taps * size["c"] * DTYPE_BYTES[problem.w.dtype]
            macs = elements * taps if problem.w is not None else 0
            return nbytes, macs, self.cost.lanes(engine, box.lengths, taps)
        if isinstance(problem, Reduction):
            if instruction.stage == "finish":
                return None
            read = problem.box("x", self.step.axes, spans_of(self.step.axes, instruction.inside))
            nbytes = read.elements * DTYPE_BYTES[problem.x.dtype]
            return nbytes, 0, self.cost.lanes(engine, read.lengths)
        assert isinstance(problem, Elementwise | Movement | Rows)
        operands = operands_read(self.step, instruction)
        nbytes = sum(self._operand_bytes(operand.name, instruction) for operand in operands)
        if engine == "dma":
            return nbytes, 0, self.cost.copying(elements * DTYPE_BYTES[problem.out.dtype])
        return nbytes, 0, self.cost.lanes(engine, box.lengths)

    def _run_epilogue(self, instruction: Instruction) -> Effect:
        number = instruction.part
        names = [operand.name for operand in self.step.epilogue_operands[number] if operand is not None]
        nbytes = sum(self._operand_bytes(name, instruction) for name in names)
        engine = self.step.epilogue_engines[number]
        moved = (nbytes, 0, self.cost.lanes(engine, self._out_box(instruction).lengths))
        return Effect(self.step.nodes[1 + number], engine, ("L1", "L0"), moved)

    def _drain(self, instruction: Instruction) -> Effect:
        return self._out(instruction, self.step.engine, ("L0", "L1"))

    def _store(self, instruction: Instruction) -> Effect:
        return self._out(instruction, "dma", ("L1", self.step.output_tier))

    def _out(self, instruction: Instruction, engine: str, ends: tuple[str, str]) -> Effect:
        nbytes = self._out_box(instruction).elements * DTYPE_BYTES[self.graph.type_of(self.step.output).dtype]
        return Effect(self.step.nodes[-1], engine, ends, (nbytes, 0, self.cost.transfer(*ends, nbytes)))

    def _out_box(self, instruction: Instruction) -> Box:
        return self.problem.box("out", self.step.axes, spans_of(self.step.axes, instruction.inside))


def total_cycles(events: Events) -> int:
    """The cycle in which the last event ends."""
    return int((events["start"] + events["cycles"]).max(initial=0))


def step_bounds(events: Events, steps: int) -> list[int]:
    """The cycles in which so many steps begin, and that in which the last ends: one begins where another has ended."""
    ends = events["start"] + events["cycles"]
    return [int(ends[events["step"] < index].max(initial=0)) for index in range(steps + 1)]
