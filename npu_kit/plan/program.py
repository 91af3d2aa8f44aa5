"""The program of a step: the instructions that the runtime executes, in order, and nothing else.

``instructions`` is the loop nest written out once, one short generator per family. An instruction names the tile by its
index along each of the step's axes (-1: the loop stands outside that axis).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from npu_kit.plan.geometry import Contraction, Problem
from npu_kit.plan.ir import Axis, Operand, Step


class Instruction(NamedTuple):
    """One thing that one engine does."""

    kind: str  # "clear", "load", "compute", "epilogue", "drain", "store"
    tile: int  # number of the output tile, in loop order
    at: tuple[int, ...]  # tile index along each axis of the step
    operand: str = ""  # what is loaded
    part: int = 0  # of a panel; for "epilogue" the number of the epilogue node
    stage: str = ""  # of a compute: "accumulate", "finish", "maximum", "sum", "quotient"

    @property
    def inside(self) -> tuple[int, ...]:
        """``at`` with 0 for the axes that the instruction stands outside of: what it moves does not depend on them."""
        return tuple(max(0, index) for index in self.at)


def instructions(step: Step, problem: Problem) -> Iterator[Instruction]:
    """The instructions of ``step``, in order."""
    if step.family == "contraction":
        assert isinstance(problem, Contraction)
        return _contraction(step, problem)
    if step.family == "window":
        return _window(step)
    if step.family == "softmax":
        return _softmax(step)
    return _elementwise(step)


def tile_indices(axes: tuple[Axis, ...]) -> Iterator[tuple[int, ...]]:
    """All tile indices along ``axes``, the last axis fastest."""
    return itertools.product(*(range(axis.count) for axis in axes))


def _finish(step: Step, tile: int, at: tuple[int, ...]) -> Iterator[Instruction]:
    """What follows the anchor of every family: its epilogue in the tile, then the way out."""
    for number, operands in enumerate(step.epilogue_operands):
        for operand in operands:
            if operand is not None:
                yield Instruction("load", tile, at, operand.name)
        yield Instruction("epilogue", tile, at, part=number)
    yield Instruction("drain", tile, at)
    yield Instruction("store", tile, at)


def _loads(operands: tuple[Operand, ...], tile: int, at: tuple[int, ...]) -> Iterator[Instruction]:
    """Loads of the operands that no panel keeps; their slot has one part."""
    for operand in operands:
        if not operand.is_panel:
            yield Instruction("load", tile, at, operand.name)


def _contraction(step: Step, problem: Contraction) -> Iterator[Instruction]:
    x, w = step.operands
    names = [axis.name for axis in step.axes]
    axis = {a.name: a for a in step.axes}
    chunks = list(tile_indices((axis["c"], axis["kh"], axis["kw"])))

    def at(**index: int) -> tuple[int, ...]:
        return tuple(index.get(name, -1) for name in names)

    def panel(operand: Operand, **index: int) -> Iterator[Instruction]:
        if operand.is_panel:
            for part, (c, kh, kw) in enumerate(chunks):
                yield Instruction("load", tile, at(**index, c=c, kh=kh, kw=kw), operand.name, part)

    def body(**index: int) -> Iterator[Instruction]:
        yield Instruction("clear", tile, at(**index))
        for part, (c, kh, kw) in enumerate(chunks):
            here = at(**index, c=c, kh=kh, kw=kw)
            yield from _loads(step.operands, tile, here)
            yield Instruction("compute", tile, here, part=part, stage="accumulate")
        yield from _finish(step, tile, at(**index))

    tile = 0
    if names.index("n") > names.index("x"):  # the input's tile stays while the weights pass
        for b, g, y, i in tile_indices((axis["batch"], axis["group"], axis["y"], axis["x"])):
            if axis["n"].count:
                yield from panel(x, batch=b, group=g, y=y, x=i)
            for n in range(axis["n"].count):
                yield from body(batch=b, group=g, y=y, x=i, n=n)
                tile += 1
        return
    for g, n, b in tile_indices((axis["group"], axis["n"], axis["batch"])):  # the weights stay while the input passes
        if (b == 0 or not problem.is_weight_shared) and axis["y"].count and axis["x"].count:
            yield from panel(w, batch=b, group=g, n=n)
        for y, i in tile_indices((axis["y"], axis["x"])):
            yield from body(batch=b, group=g, y=y, x=i, n=n)
            tile += 1


def _window(step: Step) -> Iterator[Instruction]:
    outer, kernel = step.axes[:4], step.axes[4:]
    for tile, where in enumerate(tile_indices(outer)):
        yield Instruction("clear", tile, (*where, -1, -1))
        for chunk in tile_indices(kernel):
            here = (*where, *chunk)
            yield from _loads(step.operands, tile, here)
            yield Instruction("compute", tile, here, stage="accumulate")
        yield Instruction("compute", tile, (*where, -1, -1), stage="finish")
        yield from _finish(step, tile, (*where, -1, -1))


def _softmax(step: Step) -> Iterator[Instruction]:
    (x,) = step.operands
    columns = step.axes[-1].count
    tile = 0
    for outer in tile_indices(step.axes[:-1]):
        for stage in ("maximum", "sum", "quotient"):
            for part in range(columns):
                here = (*outer, part)
                if stage == "maximum" or not x.is_panel:
                    yield Instruction("load", tile, here, x.name, part if x.is_panel else 0)
                yield Instruction("compute", tile, here, part=part, stage=stage)
                if stage == "quotient":
                    yield from _finish(step, tile, here)
                    tile += 1


def _elementwise(step: Step) -> Iterator[Instruction]:
    for tile, here in enumerate(tile_indices(step.axes)):
        yield from _loads(step.operands, tile, here)
        yield Instruction("compute", tile, here, stage="finish")
        yield from _finish(step, tile, here)
