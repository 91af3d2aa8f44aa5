"""Step mode: the program of a plan, one instruction at a time, on real tiers.

A kernel receives only views into tier memory, so nothing can be computed that was not moved there first. Counters and
events come from the copies that are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.graph.ir import Entry
from npu_kit.plan.cost import CostModel
from npu_kit.plan.ir import Buffer, Plan, Step
from npu_kit.plan.program import Instruction, copied_tensor, copies_after, copies_before, instructions
from npu_kit.plan.schedule import Timeline
from npu_kit.runtime import engines
from npu_kit.runtime.arithmetic import to_declared
from npu_kit.runtime.memory import OnChipMemory
from npu_kit.runtime.slots import StepSlots, keep, real
from npu_kit.trace.counters import Counters
from npu_kit.trace.events import EventLog

Array = NDArray[Any]


class StepRunner:
    """Runs the instructions of one step.

    Args:
        plan: the plan the step belongs to.
        step: the step.
        tensors: the arrays in L3, by entry, and views of those in L2.
        output: where the step's result goes.
        memory: the on-chip tiers.
        timeline: when engines and data are ready, during this step.
        log: where events are kept.
        poison: fill every slot with NaN before it is used again.
    """

    def __init__(
        self,
        plan: Plan,
        step: Step,
        tensors: Mapping[Entry, Array],
        output: Array,
        memory: OnChipMemory,
        timeline: Timeline,
        log: EventLog,
        *,
        poison: bool = False,
    ) -> None:
        self.step, self.memory, self.timeline, self._log = step, memory, timeline, log
        self.tensors, self.output = dict(tensors), output
        self.slots = StepSlots(plan, step, memory, poison=poison)
        self.cost = CostModel(plan.spec, plan.power_mode)
        self.counters = Counters()
        self.dtypes = [plan.graph.nodes[node].outputs[0].dtype for node in step.nodes]
        self.running = self.dtypes[0]  # declared dtype of the value in the accumulator
        self._residents = {
            buffer.entry: buffer
            for buffer in plan.buffers
            if buffer.role == "resident" and buffer.first_step <= step.index <= buffer.last_step
        }
        for entry, buffer in self._residents.items():
            if buffer.first_step < step.index:  # an earlier step has copied it
                self.tensors[entry] = self._near(buffer)

    def run(self) -> Counters:
        """Run all instructions, each with an event if it took part; returns what was counted."""
        for instruction in copies_before(self.slots.graph, self.step):
            entry = copied_tensor(self.step, instruction)
            self._copy(instruction, entry, self._near(self._residents[entry]), ("L3", "L2"))
        actions = {
            "clear": self._clear,
            "load": self._load,
            "fill": self._fill,
            "spill": self._spill,
            "compute": self._compute,
            "epilogue": self._epilogue,
            "drain": self._drain,
            "store": self._store,
        }
        for instruction in instructions(self.step, self.slots.problem):
            actions[instruction.kind](instruction)
        for instruction in copies_after(self.step):
            entry = copied_tensor(self.step, instruction)
            self._copy(instruction, entry, np.empty_like(self.tensors[entry]), ("L2", "L3"))
        return self.counters

    def _copy(self, instruction: Instruction, entry: Entry, target: Array, ends: tuple[str, str]) -> None:
        """A whole tensor."""
        target[...] = self.tensors[entry]
        self.tensors[entry] = target
        self._moved(instruction, entry.node, ends, target.nbytes, entry)

    def _near(self, buffer: Buffer) -> Array:
        kind = self.slots.graph.type_of(buffer.entry)
        return self.memory["L2"].view(buffer.offset_bytes, kind.shape, kind.dtype)

    def _clear(self, instruction: Instruction) -> None:
        engines.clear(self.slots)
        self.running = self.dtypes[0]

    def _load(self, instruction: Instruction) -> None:
        place = self.slots.places[instruction.operand]
        operand, layout = place.operand, place.layout
        box = self.slots.box(operand.name, instruction)
        source = self.tensors[operand.entry][keep(box.index)].transpose(layout.order).reshape(box.lengths)
        self.slots.load(instruction, box, source)
        if source.nbytes:
            self._moved(instruction, operand.entry.node, (operand.tier, "L1"), source.nbytes, operand.entry)

    def _fill(self, instruction: Instruction) -> None:
        self._drained(instruction, ("L1", "L0"), engines.fill(self.slots, instruction))

    def _spill(self, instruction: Instruction) -> None:
        self._drained(instruction, ("L0", "L1"), engines.spill(self.slots, instruction))

    def _compute(self, instruction: Instruction) -> None:
        self.running = self.dtypes[0]
        work = engines.compute(self.slots, instruction, self.cost)
        if work is not None:
            self._worked(instruction, self.step.nodes[0], self.step.engine, work)

    def _epilogue(self, instruction: Instruction) -> None:
        number = instruction.part
        work = engines.epilogue(self.slots, number, self.running, instruction, self.cost)
        self.running = self.dtypes[1 + number]
        self._worked(instruction, self.step.nodes[1 + number], self.step.epilogue_engines[number], work)

    def _drain(self, instruction: Instruction) -> None:
        """The finished tile leaves the accumulator in the dtype its tensor declares."""
        here, dtype = real(self.slots.out_box(instruction)), self.dtypes[-1]
        copy = instruction.copies["out"]
        self.slots.fresh("out", copy=copy)
        out = self.slots.view("out", self.slots.layouts["out"].shape, dtype, copy=copy)[here]
        out[...] = to_declared(self.slots.accumulator(self.running)[here], dtype)
        self._drained(instruction, ("L0", "L1"), out.nbytes)

    def _store(self, instruction: Instruction) -> None:
        box, layout = self.slots.out_box(instruction), self.slots.layouts["out"]
        piece = self.slots.view("out", layout.shape, self.dtypes[-1], copy=instruction.copies["out"])[real(box)]
        target = self.output[keep(box.index)].transpose(layout.order)
        target[...] = piece.reshape(target.shape)
        self.counters.tiles += 1
        self.counters.stored_elements += piece.size
        self._moved(instruction, self.step.nodes[-1], ("L1", self.step.output_tier), piece.nbytes)

    def _moved(
        self, instruction: Instruction, node: int, ends: tuple[str, str], nbytes: int, entry: Entry | None = None
    ) -> None:
        """Count one transfer by the dma engine, made by whoever calls."""
        self.counters.move(*ends, nbytes)
        cycles = self.cost.transfer(*ends, nbytes) if nbytes else 0
        self._record(instruction, node, "dma", ends, (nbytes, 0, cycles), entry)

    def _drained(self, instruction: Instruction, ends: tuple[str, str], nbytes: int) -> None:
        """Count what the anchor's engine moved between its accumulator and L1."""
        self.counters.move(*ends, nbytes)
        node = self.step.nodes[-1 if instruction.kind == "drain" else 0]
        self._record(instruction, node, self.step.engine, ends, (nbytes, 0, self.cost.transfer(*ends, nbytes)))

    def _worked(self, instruction: Instruction, node: int, engine: str, work: engines.Work) -> None:
        self.counters.move("L1", "L0", work.nbytes, work.reads)
        self.counters.macs += work.macs
        self.counters.sum_bytes += work.sum_bytes
        self._record(instruction, node, engine, ("L1", "L0"), (work.nbytes, work.macs, work.cycles))

    def _record(
        self,
        instruction: Instruction,
        node: int,
        engine: str,
        ends: tuple[str, str],
        took: tuple[int, int, int],
        entry: Entry | None = None,
    ) -> None:
        self._log.append(self.timeline.record(self.step, instruction, node, engine, ends, took, entry))
