"""The program of a step: the instructions that the runtime executes, in order, and nothing else.

A step is one nest of loops over its axes, and one ``Line`` for each instruction of the innermost body. A line says at
which places of the loops it takes part: a panel is loaded at the first tile that needs it, a finished tile is stored at
the last chunk. ``nest_of`` writes it down, a few lines per family; listings fold and count it without visiting a tile.

``instructions`` walks the nest. The lines at one place are a unit: loads, and the work that needs them. Where every
slot that the next unit loads into has a second copy, its loads come before the work of the unit at hand, so that the
dma engine can run ahead. An instruction names its tile by the index along each of the step's axes (-1: the instruction
stands outside that axis).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from npu_kit.graph.ir import Entry, Graph
from npu_kit.plan.geometry import Contraction, Problem, Rows, chunk_axes
from npu_kit.plan.ir import Axis, Operand, Step
from npu_kit.plan.storage import is_computed
from npu_kit.plan.traffic import stays_along

CHUNK = Contraction.reduction
PASS = "pass"
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


@dataclass(frozen=True)
class Line:
    """One instruction of a nest's body, and where it takes part."""

    kind: str
    operand: str = ""
    stage: str = ""
    number: int = 0  # of the epilogue node
    first: tuple[str, ...] = ()  # only at the first index of these axes
    last: tuple[str, ...] = ()  # only at the last index of these axes
    later: tuple[str, ...] = ()  # only behind the first place of these axes together
    earlier: tuple[str, ...] = ()  # only before the last place of these axes together
    only: int = -1  # of rows: the pass
    before_last: bool = False  # of rows: whether that is not the last pass
    sweeps: tuple[str, ...] = ()  # a panel: once for each index of these axes, one after the other
    numbered: tuple[str, ...] = ()  # the axes whose place is the instruction's part
    outside: tuple[str, ...] = ()  # axes that the instruction stands outside of
    fills: tuple[str, ...] = ()  # of an accumulate: what stays on the array is new at the first index of these axes


@dataclass(frozen=True)
class Nest:
    """The loops of a step, outermost first, and the lines of the body: all loads before all work."""

    axes: tuple[Axis, ...]  # those of the step; rows have one more, their passes
    tiles: tuple[Axis, ...]  # those that number the output tiles
    body: tuple[Line, ...]

    def times(self, line: Line) -> int:
        """How often a line is executed."""
        count = {axis.name: axis.count for axis in self.axes}
        once = {*line.first, *line.last} | ({PASS} if line.only >= 0 else set())
        places = math.prod(n for name, n in count.items() if name not in once)
        for guard in (line.later, line.earlier):
            if guard:
                inside = math.prod(count[name] for name in guard)
                places = places // inside * (inside - 1) if inside else 0
        if any(not count[name] for name in once):
            return 0
        return places * math.prod(count[name] for name in line.sweeps)


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


def tile_indices(axes: tuple[Axis, ...]) -> Iterator[tuple[int, ...]]:
    """All tile indices along ``axes``, the last axis fastest."""
    return itertools.product(*(range(axis.count) for axis in axes))


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


def nest_of(step: Step, problem: Problem) -> Nest:
    """The loops and lines of a step."""
    if isinstance(problem, Contraction):
        return _contraction(step, problem)
    if isinstance(problem, Rows):
        return _rows(step, problem)
    reduction = tuple(axis.name for axis in chunk_axes(step))
    loads = tuple(Line("load", operand.name) for operand in step.operands)
    if step.family in ("window", "reduction"):
        work: tuple[Line, ...] = (
            Line("clear", first=reduction, outside=reduction),
            Line("compute", stage="accumulate"),
            Line("compute", stage="finish", last=reduction, outside=reduction),
        )
    else:
        work = (Line("compute", stage="finish"),)
    return _nest(step, step.axes, reduction, loads, work, _finish(step, last=reduction, outside=reduction))


def _nest(
    step: Step,
    axes: tuple[Axis, ...],
    reduction: tuple[str, ...],
    loads: tuple[Line, ...],
    work: tuple[Line, ...],
    finish: tuple[Line, ...],
) -> Nest:
    lines = (*work, *finish)
    body = (*loads, *(one for one in lines if one.kind == "load"), *(one for one in lines if one.kind != "load"))
    return Nest(axes, tuple(axis for axis in step.axes if axis.name not in reduction), body)


def _finish(step: Step, **where: Any) -> tuple[Line, ...]:
    """What follows the anchor of every family: its epilogue in the tile, then the way out."""
    lines: list[Line] = []
    for number, operands in enumerate(step.epilogue_operands):
        lines += [Line("load", operand.name, **where) for operand in operands if operand is not None]
        lines.append(Line("epilogue", number=number, **where))
    return (*lines, Line("drain", **where), Line("store", **where))


def _contraction(step: Step, problem: Contraction) -> Nest:
    """The three dataflows: what stays on the array while the rest passes.

    Under output stationary the chunk loop is inside and a sum stays in the accumulator. Else an operand stays, the
    chunk loop is outside, and between two chunks the sum so far waits in L1 among the partial sums.
    """
    x, w = step.operands
    names = [axis.name for axis in step.axes]
    # A sum of nothing has no chunk, and its tile is cleared and stored all the same.
    axes = tuple(Axis(a.name, 1, 1) if a.name in CHUNK and not a.extent else a for a in step.axes)
    finish = _finish(step, last=CHUNK, outside=CHUNK)
    clear = Line("clear", first=CHUNK, outside=CHUNK)
    if axes != step.axes:
        return _nest(step, axes, CHUNK, (), (clear,), finish)
    inside = stays_along(problem, step.dataflow)
    if inside:
        stays, passes = (w, x) if step.dataflow == "weight_stationary" else (x, w)
        place = tuple(name for name in ("batch", "y", "x", "n") if names.index(name) > names.index("kw"))
        loads: tuple[Line, ...] = (Line("load", stays.name, first=inside), Line("load", passes.name))
        work = (
            clear,
            Line("fill", later=CHUNK, outside=CHUNK, numbered=place),
            Line("compute", stage="accumulate", numbered=CHUNK, fills=inside),
        )
        spill = Line("spill", earlier=CHUNK, outside=CHUNK, numbered=place)
        return _nest(step, axes, CHUNK, loads, work, (*finish, spill))
    inputs_outside = names.index("n") > names.index("x")
    waits = stays_along(problem, "input_stationary" if inputs_outside else "weight_stationary")  # in L1, as a panel
    panels = [operand for operand in (x, w) if operand.is_panel]
    operands = (*panels, *(operand for operand in (x, w) if operand not in panels))
    loads = tuple(_kept(operand, waits) for operand in operands)
    return _nest(step, axes, CHUNK, loads, (clear, Line("compute", stage="accumulate", numbered=CHUNK)), finish)


def _kept(operand: Operand, inside: tuple[str, ...]) -> Line:
    """The load of an operand for every chunk, or of a panel of all chunks before the loops inside begin."""
    if not operand.is_panel:
        return Line("load", operand.name)
    numbered = CHUNK if operand.slot.parts > 1 else ()
    first = (*inside, *CHUNK)
    return Line("load", operand.name, first=first, sweeps=CHUNK, numbered=numbered, outside=inside)


def _rows(step: Step, problem: Rows) -> Nest:
    x, *parameters = step.operands
    numbered, last = ("k",) if x.slot.parts > 1 else (), len(problem.stages) - 1
    passes = (0,) if x.is_panel else range(last + 1)
    loads = [Line("load", x.name, only=number, numbered=numbered, before_last=number < last) for number in passes]
    loads += [Line("load", parameter.name, only=last) for parameter in parameters]
    work = tuple(
        Line("compute", stage=stage, only=i, numbered=("k",), before_last=i < last)
        for i, stage in enumerate(problem.stages)
    )
    axes = (*step.axes[:-1], Axis(PASS, last + 1, 1), step.axes[-1])
    return _nest(step, axes, (), tuple(loads), work, _finish(step, only=last))
