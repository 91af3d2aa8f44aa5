"""The slots of one step, as views into tier memory, and the boxes that belong in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.graph.ir import Graph
from npu_kit.plan.geometry import Box, TileLayout, aligned_operand, problem_of, spans_of
from npu_kit.plan.ir import Operand, Plan, Step
from npu_kit.plan.program import Instruction
from npu_kit.runtime.arithmetic import compute_dtype
from npu_kit.runtime.memory import OnChipMemory

Array = NDArray[Any]


@dataclass(frozen=True)
class Place:
    """What an operand's slot is for: the operand, the layout of its tiles, and which input of which node it is."""

    operand: Operand
    layout: TileLayout
    node: int
    position: int  # -1 for an operand of the anchor, whose boxes the problem gives


class StepSlots:
    """The on-chip memory of one step.

    Args:
        plan: the plan the step belongs to.
        step: the step.
        memory: the tiers.
        poison: fill every slot with NaN before it is used again, so that a stale element cannot go unnoticed.
    """

    def __init__(self, plan: Plan, step: Step, memory: OnChipMemory, *, poison: bool = False) -> None:
        self.graph: Graph = plan.graph
        self.step, self.memory, self._poison = step, memory, poison
        self.problem = problem_of(plan.graph, step.nodes[0])
        self.layouts = self.problem.layouts(step.axes)
        self.tile_rows = plan.spec.tile.rows
        self.places: Mapping[str, Place] = self._places()
        self._held: dict[tuple[str, int], Box] = {}

    def _places(self) -> dict[str, Place]:
        step = self.step
        places = {o.name: Place(o, self.layouts[o.name], step.nodes[0], -1) for o in step.operands}
        for node, position, operand in step.epilogue_reads:
            layout = aligned_operand(self.graph, node, position).layout(self.layouts["out"])
            places[operand.name] = Place(operand, layout, node, position)
        return places

    def view(self, name: str, shape: tuple[int, ...], dtype: str, part: int = 0, copy: int = 0) -> Array:
        """A view of one part of one copy of a slot."""
        slot = self.step.slot(name)
        offset, _ = slot.place(part, copy)
        return self.memory[slot.tier].view(offset, shape, dtype)

    def fresh(self, name: str, part: int = 0, copy: int = 0) -> None:
        """A part of a slot is about to be used again."""
        if self._poison:
            slot = self.step.slot(name)
            self.memory[slot.tier].poison(*slot.place(part, copy))

    def box(self, name: str, instruction: Instruction) -> Box:
        """The box of an operand's tensor that an instruction needs."""
        place = self.places[name]
        if place.position < 0:
            return self.problem.box(name, self.step.axes, spans_of(self.step.axes, instruction.inside))
        aligned = aligned_operand(self.graph, place.node, place.position)
        return aligned.box(self.layouts["out"], self.out_box(instruction))

    def out_box(self, instruction: Instruction) -> Box:
        """The box of the output tensor that an instruction works on."""
        return self.problem.box("out", self.step.axes, spans_of(self.step.axes, instruction.inside))

    def load(self, instruction: Instruction, box: Box, source: Array) -> None:
        """Put a piece of a tensor, shaped as the box, into its slot; elements without real data get the fill."""
        name, part, copy = instruction.operand, instruction.part, instruction.copies.get(instruction.operand, 0)
        self.fresh(name, part, copy)
        layout = self.places[name].layout
        tile = self.view(name, layout.shape, layout.type.dtype, part, copy)
        if box.lengths != layout.shape:
            tile[...] = layout.fill
        tile[box.target] = source
        self._held[name, copy] = box

    def loaded(self, name: str, instruction: Instruction) -> Array:
        """The real part of what an elementwise operand's slot holds."""
        copy = instruction.copies.get(name, 0)
        layout = self.places[name].layout
        tile: Array = self.view(name, layout.shape, layout.type.dtype, copy=copy)
        return np.asarray(tile[keep(self._held[name, copy].target)])

    def operand(self, name: str, shape: tuple[int, ...], instruction: Instruction) -> Array:
        """The tile of an anchor's operand that an instruction works on, as ``shape``."""
        slot = self.step.slot(name)
        part = instruction.part if slot.parts > 1 else 0
        dtype = self.places[name].layout.type.dtype
        return self.view(name, shape, dtype, part, instruction.copies.get(name, 0))

    def accumulator(self, declared: str) -> Array:
        """The accumulator in the shape of the output tile, in the dtype in which ``declared`` is computed."""
        return self.view("accumulator", self.layouts["out"].shape, compute_dtype(declared).name)


def keep(index: tuple[slice, ...]) -> Any:
    """An index that gives a view even of a scalar's tensor, which a plain empty index would turn into a number."""
    return (*index, ...)


def real(box: Box) -> Any:
    """The index of the real part of an output tile."""
    return keep(tuple(slice(0, size) for size in box.lengths))
