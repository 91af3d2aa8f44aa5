"""The program of a step: the instructions that the runtime executes, in order, and nothing else.

``units`` is the loop nest written out once, one short generator per family: a unit is one piece of work on an engine
with the loads that it needs. ``instructions`` puts the units in a row; where every slot that the next unit loads into
has a second copy, those loads come before the work of the unit at hand, so that the dma engine can run ahead. An
instruction names its tile by the index along each of the step's axes (-1: the loop stands outside that axis).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from npu_kit.plan.geometry import Contraction, Problem, Rows
from npu_kit.plan.geometry.rows import LAST
from npu_kit.plan.ir import Axis, Operand, Step


class Instruction(NamedTuple):
    """One thing that one engine does."""

    kind: str  # "clear", "load", "fill", "compute", "epilogue", "spill", "drain", "store"
    tile: int  # number of the output tile, in loop order
    at: tuple[int, ...]  # tile index along each axis of the step
    operand: str = ""  # what is loaded
    part: int = 0  # of a panel or of the partial sums; for "epilogue" the number of the epilogue node
    stage: str = ""  # of a compute: "accumulate", "finish"; of rows: one of their passes
    copies: Mapping[str, int] = {}  # slot -> which of its copies is meant
    refills: bool = True  # of an accumulate: whether what stays on the array is new

    @property
    def inside(self) -> tuple[int, ...]:
        """``at`` with 0 for the axes that the instruction stands outside of: what it moves does not depend on them."""
        return tuple(max(0, index) for index in self.at)


@dataclass
class Unit:
    """One piece of work and the loads it needs."""

    loads: list[Instruction] = field(default_factory=list)
    work: list[Instruction] = field(default_factory=list)


def instructions(step: Step, problem: Problem) -> Iterator[Instruction]:
    """The instructions of ``step``, in order."""
    copies = {slot.name: slot.copies for slot in step.slots}
    current: dict[str, int] = {}
    waiting: list[Instruction] = []
    for unit in units(step, problem):
        if not all(copies[load.operand] > 1 for load in unit.loads):
            yield from waiting
            waiting = []
        for load in unit.loads:
            if load.part == 0:  # a panel begins: its other parts go into the same copy
                current[load.operand] = (current.get(load.operand, -1) + 1) % copies[load.operand]
        if any(one.kind == "drain" for one in unit.work):
            current["out"] = (current.get("out", -1) + 1) % copies["out"]
        used = dict(current)
        yield from (load._replace(copies=used) for load in unit.loads)
        yield from waiting
        waiting = [one._replace(copies=used) for one in unit.work]
    yield from waiting


def units(step: Step, problem: Problem) -> Iterator[Unit]:
    """The pieces of work of ``step``, in order."""
    if step.family == "contraction":
        assert isinstance(problem, Contraction)
        return _Contraction(step, problem).units()
    if step.family in ("window", "reduction"):
        return _reduced(step, problem)
    if isinstance(problem, Rows):
        return _rows(step, problem)
    return _elementwise(step)


def tile_indices(axes: tuple[Axis, ...]) -> Iterator[tuple[int, ...]]:
    """All tile indices along ``axes``, the last axis fastest."""
    return itertools.product(*(range(axis.count) for axis in axes))


def _finish(step: Step, unit: Unit, tile: int, at: tuple[int, ...]) -> Unit:
    """Add what follows the anchor of every family: its epilogue in the tile, then the way out."""
    for number, operands in enumerate(step.epilogue_operands):
        for operand in operands:
            if operand is not None:
                unit.loads.append(Instruction("load", tile, at, operand.name))
        unit.work.append(Instruction("epilogue", tile, at, part=number))
    unit.work += [Instruction("drain", tile, at), Instruction("store", tile, at)]
    return unit


class _Contraction:
    """The loop nests of the three dataflows: what stays on the array while the rest passes."""

    def __init__(self, step: Step, problem: Contraction) -> None:
        self.step, self.problem = step, problem
        self.x, self.w = step.operands
        self.names = [axis.name for axis in step.axes]
        self.axis = {axis.name: axis for axis in step.axes}
        self.chunks = list(tile_indices((self.axis["c"], self.axis["kh"], self.axis["kw"])))

    def units(self) -> Iterator[Unit]:
        """The units of the step's dataflow."""
        if self.step.dataflow == "weight_stationary":
            return self._weights_stay_chunk_by_chunk()
        if self.step.dataflow == "input_stationary":
            return self._inputs_stay_chunk_by_chunk()
        inputs_outside = self.names.index("n") > self.names.index("x")
        return self._outputs_stay_inputs_outside() if inputs_outside else self._outputs_stay_weights_outside()

    def _over(self, *names: str) -> Iterator[dict[str, int]]:
        axes = tuple(self.axis[name] for name in names)
        return (dict(zip(names, index, strict=True)) for index in tile_indices(axes))

    def _at(self, index: Mapping[str, int], chunk: tuple[int, ...] | None = None) -> tuple[int, ...]:
        if chunk is not None:
            index = {**index, **dict(zip(("c", "kh", "kw"), chunk, strict=True))}
        return tuple(index.get(name, -1) for name in self.names)

    def _load(self, operand: Operand, tile: int, index: Mapping[str, int], part: int) -> Instruction:
        slot_part = part if operand.slot.parts > 1 else 0
        return Instruction("load", tile, self._at(index, self.chunks[part]), operand.name, slot_part)

    def _panel(self, operand: Operand, tile: int, index: Mapping[str, int]) -> list[Instruction]:
        return [self._load(operand, tile, index, part) for part in range(len(self.chunks))]

    def _output_tile(
        self, tile: int, index: Mapping[str, int], kept: Operand, first: list[Instruction]
    ) -> Iterator[Unit]:
        """One output tile from its first chunk to its last; ``first`` is loaded before it."""
        unit = Unit(first, [Instruction("clear", tile, self._at(index))])
        passing = [operand for operand in (self.x, self.w) if operand is not kept or not operand.is_panel]
        for part in range(len(self.chunks)):
            if part:
                yield unit
                unit = Unit()
            unit.loads += [self._load(operand, tile, index, part) for operand in passing]
            here = self._at(index, self.chunks[part])
            unit.work.append(Instruction("compute", tile, here, part=part, stage="accumulate"))
        yield _finish(self.step, unit, tile, self._at(index))

    def _outputs_stay_inputs_outside(self) -> Iterator[Unit]:
        tile = 0
        for outer in self._over("batch", "group", "y", "x"):
            for n in range(self.axis["n"].count):
                first = self._panel(self.x, tile, outer) if self.x.is_panel and n == 0 else []
                yield from self._output_tile(tile, {**outer, "n": n}, self.x, first)
                tile += 1

    def _outputs_stay_weights_outside(self) -> Iterator[Unit]:
        tile = 0
        for outer in self._over("group", "n", "batch"):
            fresh = self.w.is_panel and (outer["batch"] == 0 or not self.problem.is_weight_shared)
            for inner in self._over("y", "x"):
                first = self._panel(self.w, tile, outer) if fresh else []
                fresh = False
                yield from self._output_tile(tile, {**outer, **inner}, self.w, first)
                tile += 1

    def _weights_stay_chunk_by_chunk(self) -> Iterator[Unit]:
        rows = list(self._over("batch", "y", "x"))
        for number, outer in enumerate(self._over("group", "n")):
            for part in range(len(self.chunks)):
                for i, inner in enumerate(rows):
                    index = {**outer, **inner}
                    new = i == 0 or (not self.problem.is_weight_shared and inner["batch"] != rows[i - 1]["batch"])
                    stays = [self._load(self.w, number * len(rows) + i, index, part)] if new else []
                    yield self._partial(number * len(rows) + i, index, part, i, stays, self.x)

    def _inputs_stay_chunk_by_chunk(self) -> Iterator[Unit]:
        columns = self.axis["n"].count
        for number, outer in enumerate(self._over("batch", "group", "y", "x")):
            for part in range(len(self.chunks)):
                for n in range(columns):
                    index = {**outer, "n": n}
                    stays = [self._load(self.x, number * columns + n, index, part)] if n == 0 else []
                    yield self._partial(number * columns + n, index, part, n, stays, self.w)

    def _partial(
        self, tile: int, index: Mapping[str, int], part: int, place: int, stays: list[Instruction], passes: Operand
    ) -> Unit:
        """One chunk of one output tile, whose sum so far waits in L1 among the partial sums, at ``place``."""
        at, here = self._at(index), self._at(index, self.chunks[part])
        unit = Unit([*stays, self._load(passes, tile, index, part)])
        if part == 0:
            unit.work.append(Instruction("clear", tile, at))
        else:
            unit.work.append(Instruction("fill", tile, at, part=place))
        unit.work.append(Instruction("compute", tile, here, part=part, stage="accumulate", refills=bool(stays)))
        if part == len(self.chunks) - 1:
            return _finish(self.step, unit, tile, at)
        unit.work.append(Instruction("spill", tile, at, part=place))
        return unit


def _reduced(step: Step, problem: Problem) -> Iterator[Unit]:
    outer = tuple(axis for axis in step.axes if axis.name not in problem.reduction)
    kernel = step.axes[len(outer) :]
    for tile, where in enumerate(tile_indices(outer)):
        outside = (*where, *[-1] * len(kernel))
        unit = Unit(work=[Instruction("clear", tile, outside)])
        for number, chunk in enumerate(tile_indices(kernel)):
            if number:
                yield unit
                unit = Unit()
            here = (*where, *chunk)
            unit.loads += [Instruction("load", tile, here, operand.name) for operand in step.operands]
            unit.work.append(Instruction("compute", tile, here, stage="accumulate"))
        unit.work.append(Instruction("compute", tile, outside, stage="finish"))
        yield _finish(step, unit, tile, outside)


def _rows(step: Step, problem: Rows) -> Iterator[Unit]:
    x, *parameters = step.operands
    columns = step.axes[-1].count
    tile = 0
    for outer in tile_indices(step.axes[:-1]):
        for stage in problem.stages:
            for part in range(columns):
                here = (*outer, part)
                unit = Unit(work=[Instruction("compute", tile, here, part=part, stage=stage)])
                if stage == problem.stages[0] or not x.is_panel:
                    unit.loads.append(Instruction("load", tile, here, x.name, part if x.slot.parts > 1 else 0))
                if stage == LAST:
                    unit.loads += [Instruction("load", tile, here, one.name) for one in parameters]
                    _finish(step, unit, tile, here)
                    tile += 1
                yield unit


def _elementwise(step: Step) -> Iterator[Unit]:
    for tile, here in enumerate(tile_indices(step.axes)):
        loads = [Instruction("load", tile, here, operand.name) for operand in step.operands]
        unit = Unit(loads, [Instruction("compute", tile, here, stage="finish")])
        yield _finish(step, unit, tile, here)
