"""The loops of a step and the lines of their innermost body: the program, written once and not yet walked.

A line says at which places of the loops it takes part: a panel is loaded at the first tile that needs it, a finished
tile is stored at the last chunk. ``nest_of`` writes it down, a few lines per family; ``plan.program`` walks it, and
listings fold and count it without visiting a tile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from npu_kit.plan.geometry import Contraction, Problem, Rows, chunk_axes, problem_of
from npu_kit.plan.ir import Axis, Operand, Plan, Step
from npu_kit.plan.tiling import stays_along

CHUNK = Contraction.reduction
PASS = "pass"  # the loop over the passes of rows


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


def instruction_count(plan: Plan, steps: Sequence[int] | None = None) -> int:
    """Instructions of a plan, or of some of its steps, those that take no cycle included."""
    count = 0
    for step in plan.steps if steps is None else (plan.steps[index] for index in steps):
        nest = nest_of(step, problem_of(plan.graph, step.nodes[0]))
        count += len(step.prefetch) + len(step.spills) + sum(map(nest.times, nest.body))
    return count


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
