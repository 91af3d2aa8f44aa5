"""The program of a plan as a listing: one row for each instruction, in columns, with its place and its time.

Rows are those of ``plan.forecast``, and so of the events that a run in step mode leaves, with three columns more. A row
is 69 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npu_kit.graph.ir import Entry
from npu_kit.plan.forecast import scheduled
from npu_kit.plan.geometry.rows import GATHERED
from npu_kit.plan.ir import Plan, Step
from npu_kit.plan.program import WHOLE, Instruction, copied_tensor
from npu_kit.trace.events import EVENT_DTYPE

ROW_DTYPE = np.dtype(
    [
        *EVENT_DTYPE.descr,
        ("what", "<i4"),  # index into the listing's names: what is moved or done
        ("at", "<i8"),  # the tile index along each axis of the step, as one number: see ``place_of_row``
        ("offset", "<i8"),  # byte at which the tile stands in the tier nearer to the engine
    ]
)


@dataclass(frozen=True)
class Listing:
    """Rows of a plan's program."""

    rows: NDArray[np.void]  # ROW_DTYPE
    names: tuple[str, ...]


def list_program(plan: Plan, steps: Sequence[int] | None = None) -> Listing:
    """The rows of a plan, or of some of its steps; cycles count from the beginning of the plan.

    Cost: as ``plan.forecast``, of all steps up to the last one asked for.
    """
    last = len(plan.steps) if steps is None else max(steps, default=-1) + 1
    wanted = frozenset(range(last) if steps is None else steps)
    names: dict[str, int] = {}

    def rows() -> Iterator[tuple[int, ...]]:
        for step, instruction, event in scheduled(plan, tuple(range(last))):
            if step.index in wanted:
                number = names.setdefault(name_of(plan, step, instruction), len(names))
                yield (*event, number, _flat(step, instruction), offset_of(plan, step, instruction))

    found = np.fromiter(rows(), ROW_DTYPE)
    return Listing(found, tuple(names))


def name_of(plan: Plan, step: Step, instruction: Instruction) -> str:
    """What an instruction moves or does: an operand, a slot, a tensor, an operation, a stage of a computation."""
    if instruction.tile == WHOLE:
        return plan.graph.nodes[copied_tensor(step, instruction).node].name
    if instruction.kind == "epilogue":
        return plan.graph.nodes[step.nodes[1 + instruction.part]].name
    slots = {"fill": "partials", "spill": "partials", "drain": "out", "store": "out"}
    return slots.get(instruction.kind) or instruction.operand or instruction.stage


def offset_of(plan: Plan, step: Step, instruction: Instruction) -> int:
    """The byte at which an instruction's tile stands in the nearer tier: a slot of L1, the accumulator, a copy in L2.

    What is computed stands in the accumulator, but for what a softmax or a norm gathers over its rows, which has slots
    in L1; what is loaded, drained or stored in its slot.
    """
    kind = instruction.kind
    if instruction.tile == WHOLE:
        role = "intermediate" if kind == "spill" else "resident"
        return offset_in_l2(plan, step, copied_tensor(step, instruction), role)
    if instruction.stage in GATHERED:
        return step.slot(instruction.stage).offset_bytes
    if kind in ("compute", "epilogue", "clear"):
        return step.slot("accumulator").offset_bytes
    if kind in ("fill", "spill"):
        return step.slot("partials").place(instruction.part)[0]
    name = instruction.operand or "out"
    part = instruction.part if kind == "load" else 0
    return step.slot(name).place(part, instruction.copies.get(name, 0))[0]


def offset_in_l2(plan: Plan, step: Step, entry: Entry, role: str) -> int:
    """Where in L2 a tensor, or the copy of it, stands during a step."""
    live = (b for b in plan.buffers if b.tier == "L2" and b.first_step <= step.index <= b.last_step)
    return next(b.offset_bytes for b in live if (b.role, b.entry) == (role, entry))


def place_of_row(step: Step, at: int) -> tuple[int, ...]:
    """Tile indices along the axes of a step, from a row's column ``at``; -1 outside an axis, () where no tile is."""
    if at < 0:
        return ()
    index = []
    for axis in reversed(step.axes):
        at, position = divmod(at, axis.count + 1)
        index.append(position - 1)
    return tuple(reversed(index))


def _flat(step: Step, instruction: Instruction) -> int:
    if not instruction.at and step.axes:
        return -1
    flat = 0
    for axis, index in zip(step.axes, instruction.at, strict=True):
        flat = flat * (axis.count + 1) + index + 1
    return flat
