"""The events that running a plan will leave, by arithmetic alone: what a view shows before anything runs.

Step mode records the same columns from the copies it really makes; tests hold the two equal row by row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

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
from npu_kit.plan.ir import Operand, Plan, Step
from npu_kit.plan.program import Instruction, instructions
from npu_kit.plan.schedule import Timeline, operands_read
from npu_kit.trace.events import ENGINES, EVENT_DTYPE, Events

Row = tuple[int, ...]
Moved = tuple[int, int, int]  # bytes, MACs, cycles


def forecast(plan: Plan, steps: tuple[int, ...] | None = None) -> Events:
    """The events of a plan, or of some of its steps, one after the other.

    Cost: one row per instruction, about 20 microseconds each; ``plan.traffic`` has the totals in closed form.
    """
    chosen = plan.steps if steps is None else tuple(plan.steps[i] for i in steps)
    timeline = Timeline()
    rows: list[Row] = []
    for step in chosen:
        timeline = Timeline(timeline.end)
        rows += _StepForecast(plan.graph, step, CostModel(plan.spec, plan.power_mode), timeline).rows()
    return np.array(rows, EVENT_DTYPE)


class _StepForecast:
    def __init__(self, graph: Graph, step: Step, cost: CostModel, timeline: Timeline) -> None:
        self.graph, self.step, self.cost, self.timeline = graph, step, cost, timeline
        self.problem = problem_of(graph, step.nodes[0])
        self.layouts = self.problem.layouts(step.axes)
        self.operands = {operand.name: operand for operand in step.operands}
        self.epilogue: dict[str, tuple[Operand, int, int]] = {}
        for node_id, operands in zip(step.nodes[1:], step.epilogue_operands, strict=True):
            for position, operand in enumerate(operands):
                if operand is not None:
                    self.epilogue[operand.name] = (operand, node_id, position)

    def rows(self) -> Iterator[Row]:
        step = self.step
        for entry in step.prefetch:
            nbytes = self.graph.type_of(entry).nbytes
            moved = (nbytes, 0, self.cost.transfer("L3", "L2", nbytes) if nbytes else 0)
            yield self._row(Instruction("prefetch", -1, ()), entry.node, "dma", ("L3", "L2"), moved, entry)
        forecasts: dict[str, Callable[[Instruction], Row | None]] = {
            "load": self._load,
            "fill": self._fill,
            "spill": self._spill,
            "compute": self._compute,
            "epilogue": self._run_epilogue,
            "drain": self._drain,
            "store": self._store,
        }
        for instruction in instructions(step, self.problem):
            if instruction.kind == "clear":
                continue  # clearing the accumulator takes no cycle of its own
            row = forecasts[instruction.kind](instruction)
            if row is not None:
                yield row

    def _row(
        self,
        instruction: Instruction,
        node: int,
        engine: str,
        ends: tuple[str, str],
        moved: Moved,
        entry: Entry | None = None,
    ) -> Row:
        return self.timeline.record(self.step, instruction, node, engine, ends, moved, entry)

    def _load(self, instruction: Instruction) -> Row | None:
        name = instruction.operand
        operand = self.epilogue[name][0] if name in self.epilogue else self.operands[name]
        nbytes = self._operand_bytes(name, instruction)
        if not nbytes:
            return None
        moved = (nbytes, 0, self.cost.transfer(operand.tier, "L1", nbytes))
        return self._row(instruction, operand.entry.node, "dma", (operand.tier, "L1"), moved, operand.entry)

    def _fill(self, instruction: Instruction) -> Row:
        return self._partial(instruction, ("L1", "L0"))

    def _spill(self, instruction: Instruction) -> Row:
        return self._partial(instruction, ("L0", "L1"))

    def _partial(self, instruction: Instruction, ends: tuple[str, str]) -> Row:
        """A partial sum leaves the accumulator, or comes back, as four bytes an element."""
        nbytes = self._out_box(instruction).elements * DTYPE_BYTES["float32"]
        moved = (nbytes, 0, self.cost.transfer(*ends, nbytes))
        return self._row(instruction, self.step.nodes[0], self.step.engine, ends, moved)

    def _operand_bytes(self, name: str, instruction: Instruction) -> int:
        if name in self.epilogue:
            operand, node_id, position = self.epilogue[name]
            box = aligned_operand(self.graph, node_id, position).box(self.layouts["out"], self._out_box(instruction))
        else:
            operand = self.operands[name]
            box = self.problem.box(name, self.step.axes, spans_of(self.step.axes, instruction.inside))
        return box.elements * DTYPE_BYTES[self.graph.type_of(operand.entry).dtype]

    def _compute(self, instruction: Instruction) -> Row | None:
        moved = self._computed(instruction)
        if moved is None:
            return None
        return self._row(instruction, self.step.nodes[0], self.step.engine, ("L1", "L0"), moved)

    def _computed(self, instruction: Instruction) -> Moved | None:
        problem, engine = self.problem, self.step.engine
        size = {name: stop - start for name, (start, stop) in spans_of(self.step.axes, instruction.at).items()}
        if isinstance(problem, Contraction):
            m, n, k = size["y"] * size["x"], size["n"], size["c"] * size["kh"] * size["kw"]
            nbytes = m * k * DTYPE_BYTES[problem.x.dtype] + k * n * DTYPE_BYTES[problem.w.dtype]
            return nbytes, m * n * k, self.cost.array(engine, m, n, k, self.step.dataflow, instruction.refills)
        elements = self._out_box(instruction).elements
        if isinstance(problem, Window):
            if instruction.stage == "finish":
                return None
            taps = size["kh"] * size["kw"]
            nbytes = elements * taps * DTYPE_BYTES[problem.x.dtype]
            if problem.w is not None:
                nbytes += taps * size["c"] * DTYPE_BYTES[problem.w.dtype]
            macs = elements * taps if problem.w is not None else 0
            return nbytes, macs, self.cost.lanes(engine, elements * taps)
        if isinstance(problem, Reduction):
            if instruction.stage == "finish":
                return None
            elements = math.prod(size.values())
            return elements * DTYPE_BYTES[problem.x.dtype], 0, self.cost.lanes(engine, elements)
        assert isinstance(problem, Elementwise | Movement | Rows)
        operands = operands_read(self.step, instruction)
        nbytes = sum(self._operand_bytes(operand.name, instruction) for operand in operands)
        return nbytes, 0, self.cost.lanes(engine, elements)

    def _run_epilogue(self, instruction: Instruction) -> Row:
        number = instruction.part
        names = [operand.name for operand in self.step.epilogue_operands[number] if operand is not None]
        nbytes = sum(self._operand_bytes(name, instruction) for name in names)
        engine = self.step.epilogue_engines[number]
        moved = (nbytes, 0, self.cost.lanes(engine, self._out_box(instruction).elements))
        return self._row(instruction, self.step.nodes[1 + number], engine, ("L1", "L0"), moved)

    def _drain(self, instruction: Instruction) -> Row:
        nbytes = self._out_bytes(instruction)
        moved = (nbytes, 0, self.cost.transfer("L0", "L1", nbytes))
        return self._row(instruction, self.step.nodes[-1], self.step.engine, ("L0", "L1"), moved)

    def _store(self, instruction: Instruction) -> Row:
        nbytes, tier = self._out_bytes(instruction), self.step.output_tier
        moved = (nbytes, 0, self.cost.transfer("L1", tier, nbytes))
        return self._row(instruction, self.step.nodes[-1], "dma", ("L1", tier), moved)

    def _out_bytes(self, instruction: Instruction) -> int:
        return self._out_box(instruction).elements * DTYPE_BYTES[self.graph.type_of(self.step.output).dtype]

    def _out_box(self, instruction: Instruction) -> Box:
        return self.problem.box("out", self.step.axes, spans_of(self.step.axes, instruction.inside))


def total_cycles(events: Events) -> int:
    """The cycle in which the last event ends."""
    return int((events["start"] + events["cycles"]).max(initial=0))


def busy_cycles(events: Events) -> dict[str, int]:
    """Busy cycles by engine, for the engines that do anything."""
    sums = np.bincount(events["engine"], weights=events["cycles"], minlength=len(ENGINES))
    return {name: int(cycles) for name, cycles in zip(ENGINES, sums, strict=True) if not math.isclose(cycles, 0)}
