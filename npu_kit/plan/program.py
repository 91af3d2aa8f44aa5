"""The instructions of a step: its nest of loops, walked in the order of issue.

The lines at one place of the nest are a unit: loads, and the work that needs them. Where every slot that the next unit
loads into has a second copy, its loads come before the work of the unit at hand, so that the dma engine can run ahead.
An instruction names its tile by the index along each of the step's axes (-1: the instruction stands outside that axis).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from npu_kit.graph.ir import Entry, Graph
from npu_kit.plan.geometry import Problem, tile_indices
from npu_kit.plan.ir import Step
from npu_kit.plan.nest import PASS, Line, Nest, nest_of
from npu_kit.plan.storage import is_computed

WHOLE = -1  # stands for the number of a tile where a tensor is copied whole


class Instruction(NamedTuple):
    """One thing that one engine does."""

    kind: str  # "prefetch", "clear", "load", "fill", "compute", "epilogue", "spill", "drain", "store"
    tile: int  # number of the output tile, in loop order; WHOLE for a tensor that is copied whole
    at: tuple[int, ...]  # tile index along each axis of the step
    operand: str = ""  # what is loaded
    part: int = 0  # of a panel or of the partial sums; number of the epilogue node, or of the tensor copied whole
    stage: str = ""  # of a compute: "accumulate", "finish"; of rows: one of their passes
    copies: Mapping[str, int] = {}  # slot -> which of its copies is meant
    refills: bool = True  # of an accumulate: whether what stays on the array is new

    @property
    def inside(self) -> tuple[int, ...]:
        """``at`` with 0 for the axes that the instruction stands outside of: what it moves does not depend on them."""
        return tuple(max(0, index) for index in self.at)


def instructions(step: Step, problem: Problem) -> Iterator[Instruction]:
    """The instructions of ``step``, in order."""
    copies = {slot.name: slot.copies for slot in step.slots}
    current: dict[str, int] = {}
    waiting: list[Instruction] = []
    for loads, work in _units(step, nest_of(step, problem)):
        if not all(copies[load.operand] > 1 for load in loads):
            yield from waiting
            waiting = []
        for load in loads:
            if load.part == 0:  # a panel begins: its other parts go into the same copy
                current[load.operand] = (current.get(load.operand, -1) + 1) % copies[load.operand]
        if any(one.kind == "drain" for one in work):
            current["out"] = (current.get("out", -1) + 1) % copies["out"]
        used = dict(current)
        yield from (load._replace(copies=used) for load in loads)
        yield from waiting
        waiting = [one._replace(copies=used) for one in work]
    yield from waiting


def copies_before(graph: Graph, step: Step) -> Iterator[Instruction]:
    """The copies to L2 before the first tile: a fill brings back what was computed, a prefetch what was given."""
    for number, entry in enumerate(step.prefetch):
        yield Instruction("fill" if is_computed(graph, entry) else "prefetch", WHOLE, (), part=number)


def copies_after(step: Step) -> Iterator[Instruction]:
    """The copies to L3 after the last tile."""
    for number in range(len(step.spills)):
        yield Instruction("spill", WHOLE, (), part=number)


def copied_tensor(step: Step, instruction: Instruction) -> Entry:
    """The tensor that an instruction copies whole."""
    return (step.spills if instruction.kind == "spill" else step.prefetch)[instruction.part]


def _units(step: Step, nest: Nest) -> Iterator[tuple[list[Instruction], list[Instruction]]]:
    """Loads and work at each place of the loops that has any."""
    lines = [_Walker(line, step, nest) for line in nest.body]
    for index in tile_indices(nest.axes):
        loads: list[Instruction] = []
        work: list[Instruction] = []
        for line in lines:
            if line.is_at(index):
                (loads if line.kind == "load" else work).extend(line.at(index))
        if loads or work:
            yield loads, work


class _Walker:
    """A line with the axes it names as places in the nest's index."""

    def __init__(self, line: Line, step: Step, nest: Nest) -> None:
        place = {axis.name: i for i, axis in enumerate(nest.axes)}
        count = [axis.count for axis in nest.axes]
        self.kind, self._line = line.kind, line
        self._wanted = [(place[name], 0) for name in line.first]
        self._wanted += [(place[name], count[place[name]] - 1) for name in line.last]
        self._wanted += [(place[PASS], line.only)] if line.only >= 0 else []
        self._later = [place[name] for name in line.later]
        self._earlier = [(place[name], count[place[name]] - 1) for name in line.earlier]
        self._at = [-1 if axis.name in line.outside else place[axis.name] for axis in step.axes]
        # Before the last pass of rows all columns of a row belong to the row's first tile.
        is_row = line.before_last
        self._tiles = [(-1 if is_row and axis.name == "k" else place[axis.name], axis.count) for axis in nest.tiles]
        self._numbered = [(place[name], count[place[name]]) for name in line.numbered]
        self._fills = [place[name] for name in line.fills]
        self._sweeps = [(place[name], count[place[name]]) for name in line.sweeps]

    def is_at(self, index: tuple[int, ...]) -> bool:
        """Whether the line takes part at this place of the loops."""
        for i, wanted in self._wanted:
            if index[i] != wanted:
                return False
        if self._later and not any(index[i] for i in self._later):
            return False
        return not self._earlier or any(index[i] != last for i, last in self._earlier)

    def at(self, index: tuple[int, ...]) -> Iterator[Instruction]:
        """The instructions of the line at this place."""
        if not self._sweeps:
            yield self._instruction(index)
            return
        place = list(index)
        for swept in itertools.product(*(range(n) for _, n in self._sweeps)):
            for (i, _), position in zip(self._sweeps, swept, strict=True):
                place[i] = position
            yield self._instruction(tuple(place))

    def _instruction(self, index: tuple[int, ...]) -> Instruction:
        line = self._line
        tile = 0
        for i, n in self._tiles:
            tile = tile * n + (index[i] if i >= 0 else 0)
        part = line.number
        for i, n in self._numbered:
            part = part * n + index[i]
        at = tuple(-1 if i < 0 else index[i] for i in self._at)
        refills = not any(index[i] for i in self._fills)
        return Instruction(line.kind, tile, at, line.operand, part, line.stage, refills=refills)
