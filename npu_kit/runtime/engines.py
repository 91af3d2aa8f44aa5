"""The engines in step mode: one compute instruction on the tiles that stand in L1, into the accumulator in L0.

Each function gets the slots of its step and returns what it read, counted on the views it was given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.graph.ir import DTYPE_BYTES
from npu_kit.plan.cost import CostModel
from npu_kit.plan.geometry import Contraction, Elementwise, Movement, Reduction, Rows, Window, spans_of
from npu_kit.plan.geometry.rows import LAST
from npu_kit.plan.program import Instruction
from npu_kit.runtime.arithmetic import apply_elementwise, to_declared
from npu_kit.runtime.kernels import (
    Pair,
    finish_reduction,
    fold_reduction,
    multiply_accumulate,
    reduce_taps,
    sliding_windows,
)
from npu_kit.runtime.row_kernels import STARTS, gather, normalise
from npu_kit.runtime.slots import StepSlots, keep, real

Array = NDArray[Any]


@dataclass(frozen=True)
class Work:
    """What one instruction took."""

    nbytes: int  # read from L1
    reads: int  # operands read
    macs: int
    cycles: int
    sum_bytes: int = 0  # sums that are added to those in the accumulator


def clear(slots: StepSlots) -> None:
    """Set the accumulator to what the anchor's reduction starts from."""
    slots.fresh("accumulator")
    starts_from_fill = isinstance(slots.problem, Reduction) or (
        isinstance(slots.problem, Window) and slots.problem.is_maximum
    )
    declared = slots.graph.nodes[slots.step.nodes[0]].outputs[0].dtype
    slots.accumulator(declared)[...] = slots.layouts["x"].fill if starts_from_fill else 0


def compute(slots: StepSlots, instruction: Instruction, cost: CostModel) -> Work | None:
    """Run one compute instruction; None if it reads nothing from L1."""
    if isinstance(slots.problem, Contraction):
        return _contraction(slots, slots.problem, instruction, cost)
    if isinstance(slots.problem, Window):
        return _window(slots, slots.problem, instruction, cost)
    if isinstance(slots.problem, Reduction):
        return _reduction(slots, slots.problem, instruction, cost)
    if isinstance(slots.problem, Rows):
        return _rows(slots, slots.problem, instruction, cost)
    if isinstance(slots.problem, Movement):
        return _movement(slots, slots.problem, instruction, cost)
    return _elementwise(slots, slots.problem, instruction, cost)


def fill(slots: StepSlots, instruction: Instruction) -> int:
    """Bring a partial sum back into the accumulator; returns the bytes."""
    return _move_partial(slots, instruction, into_accumulator=True)


def spill(slots: StepSlots, instruction: Instruction) -> int:
    """Put the partial sum in the accumulator among the others in L1; returns the bytes."""
    return _move_partial(slots, instruction, into_accumulator=False)


def _move_partial(slots: StepSlots, instruction: Instruction, *, into_accumulator: bool) -> int:
    accumulator = slots.accumulator(slots.graph.nodes[slots.step.nodes[0]].outputs[0].dtype)
    here = real(slots.out_box(instruction))
    partial = slots.view("partials", accumulator.shape, accumulator.dtype.name, instruction.part)
    if into_accumulator:
        slots.fresh("accumulator")
        accumulator[here] = partial[here]
    else:
        slots.fresh("partials", instruction.part)
        partial[here] = accumulator[here]
    return int(partial[here].nbytes)


def epilogue(slots: StepSlots, number: int, running: str, instruction: Instruction, cost: CostModel) -> Work:
    """Run epilogue node ``number`` on the tile in the accumulator, whose declared dtype is ``running``."""
    node = slots.graph.nodes[slots.step.nodes[1 + number]]
    box = slots.out_box(instruction)
    here = real(box)
    values, beside = [], []
    for operand in slots.step.epilogue_operands[number]:
        if operand is None:
            values.append(to_declared(slots.accumulator(running)[here], running))
        else:
            values.append(slots.loaded(operand.name, instruction))
            beside.append(values[-1])
    dtype = node.outputs[0].dtype
    result = apply_elementwise(node.name, node.attrs, values, dtype)
    slots.accumulator(dtype)[here] = result
    cycles = cost.lanes(slots.step.epilogue_engines[number], box.lengths)
    return Work(sum(value.nbytes for value in beside), len(beside), 0, cycles)


def _contraction(slots: StepSlots, problem: Contraction, instruction: Instruction, cost: CostModel) -> Work:
    step = slots.step
    tile = {axis.name: axis.tile for axis in step.axes}
    depth, pixels = tile["c"] * tile["kh"] * tile["kw"], tile["y"] * tile["x"]
    b = slots.operand("w", (depth, tile["n"]), instruction)
    if tile["kh"] == tile["kw"] == 1:  # the box is the matrix tile
        a = slots.operand("x", (pixels, depth), instruction)
    else:
        x = slots.operand("x", slots.layouts["x"].shape, instruction)
        slots.fresh("patches")
        a = slots.view("patches", (pixels, depth), problem.x.dtype)
        windows = _windows(problem, tile, x, (tile["y"], tile["x"]), (tile["kh"], tile["kw"]))
        patches = a.reshape(windows.shape)
        patches[...] = windows
        # Behind the kernel's last tap stand zeros, not data: an infinity there would meet a weight of zero.
        span = spans_of(step.axes, instruction.at)
        for axis, name in ((2, "kh"), (3, "kw")):
            taps = span[name][1] - span[name][0]
            patches[(slice(None),) * axis + (slice(taps, None),)] = 0
    accumulator = slots.accumulator(problem.out.dtype)
    matrix = slots.view("accumulator", (slots.tile_rows, tile["n"]), accumulator.dtype.name)
    multiply_accumulate(matrix, a, b)
    size = {name: stop - start for name, (start, stop) in spans_of(step.axes, instruction.at).items()}
    m, n, k = size["y"] * size["x"], size["n"], size["c"] * size["kh"] * size["kw"]
    cycles = cost.array(step.engine, m, n, k, step.dataflow, instruction.refills)
    is_kept = not instruction.refills and cost.is_one_fold(step.engine, m, n, k, step.dataflow)
    reads = _folds(a[:m, :k], b[:k, :n], matrix[:m, :n], cost.array_shape(step.engine), step.dataflow, is_kept)
    return Work(sum(view.nbytes for view in reads.operands), 2 - is_kept, m * n * k, cycles, reads.sum_bytes)


@dataclass
class _Folds:
    """The views that an array takes in, fold by fold, and the bytes of the sums that leave it."""

    operands: list[Array]
    sum_bytes: int = 0


def _folds(a: Array, b: Array, sums: Array, shape: Pair, dataflow: str, is_kept: bool) -> _Folds:
    """Cut a product into the folds of an array of ``shape``; ``is_kept``: what stays is on the array already."""
    rows, columns = shape
    (m, k), n = a.shape, b.shape[1]
    found = _Folds([])
    if dataflow == "output_stationary":
        for i, j in product(range(0, m, rows), range(0, n, columns)):
            found.operands += [a[i : i + rows], b[:, j : j + columns]]
            found.sum_bytes += sums[i : i + rows, j : j + columns].nbytes
        return found
    for c in range(0, k, rows):
        depth = slice(c, c + rows)
        if dataflow == "weight_stationary":
            for j in range(0, n, columns):
                found.operands += [a[:, depth]] + [b[depth, j : j + columns]] * (not is_kept)
                found.sum_bytes += sums[:, j : j + columns].nbytes
        else:
            for i in range(0, m, columns):
                found.operands += [b[depth]] + [a[i : i + columns, depth]] * (not is_kept)
                found.sum_bytes += sums[i : i + columns].nbytes
    return found


def _window(slots: StepSlots, problem: Window, instruction: Instruction, cost: CostModel) -> Work | None:
    step = slots.step
    tile = {axis.name: axis.tile for axis in step.axes}
    box = slots.out_box(instruction)
    y, x, c = box.lengths
    accumulator = slots.accumulator(problem.out.dtype)[:y, :x, :c]
    if instruction.stage == "finish":
        if problem.is_mean:
            rows, columns = problem.divisors()
            row, column = (box.index[problem.x_axes.index(letter)] for letter in "HW")
            with np.errstate(all="ignore"):
                accumulator /= np.maximum(np.outer(rows[row], columns[column])[:, :, None], 1).astype(np.float32)
        return None
    layout = slots.layouts["x"]
    span = spans_of(step.axes, instruction.at)
    kh, kw = (span[name][1] - span[name][0] for name in ("kh", "kw"))
    held = slots.operand("x", layout.shape, instruction)
    windows = _windows(problem, tile, held, (y, x), (kh, kw))[..., :c]
    weights = None
    if problem.w is not None:
        weights = slots.operand("w", slots.layouts["w"].shape, instruction)[:kh, :kw, :c]
    reduce_taps(accumulator, windows, weights, problem.is_maximum)
    operations = math.prod(windows.shape)
    cycles = cost.lanes(step.engine, box.lengths, kh * kw)
    if weights is None:
        return Work(operations * windows.itemsize, 1, 0, cycles, accumulator.nbytes)
    return Work(operations * windows.itemsize + weights.nbytes, 2, operations, cycles, accumulator.nbytes)


def _reduction(slots: StepSlots, problem: Reduction, instruction: Instruction, cost: CostModel) -> Work | None:
    accumulator = slots.accumulator(problem.out.dtype)
    if instruction.stage == "finish":
        finish_reduction(accumulator, problem.operation, problem.count)
        return None
    x = slots.operand("x", slots.layouts["x"].shape, instruction)
    fold_reduction(accumulator, x.reshape(*accumulator.shape, -1), problem.operation)
    box = slots.box("x", instruction)
    sums = accumulator[real(slots.out_box(instruction))]
    return Work(box.elements * x.itemsize, 1, 0, cost.lanes(slots.step.engine, box.lengths), sums.nbytes)


def _rows(slots: StepSlots, problem: Rows, instruction: Instruction, cost: CostModel) -> Work:
    layout = slots.layouts["x"]
    x = slots.operand("x", layout.shape, instruction)
    statistics = [slots.view(name, layout.shape[:1], "float32") for name in problem.stages[:-1]]
    rows, columns = slots.out_box(instruction).lengths
    cycles = cost.lanes(slots.step.engine, (rows, columns))
    node = slots.graph.nodes[slots.step.nodes[0]]
    nbytes = x[:rows, :columns].nbytes
    if instruction.stage != LAST:
        number = problem.stages.index(instruction.stage)
        if instruction.at[-1] == 0:
            statistics[number][...] = STARTS[instruction.stage]
        gather(instruction.stage, statistics, x, columns, problem)
        return Work(nbytes, 1, 0, cycles)
    clear(slots)
    parameters = [slots.operand(name, slots.layouts[name].shape, instruction) for name in problem.parameters]
    slots.accumulator(problem.type.dtype)[...] = normalise(x, statistics, parameters, problem, node.attrs)
    return Work(nbytes + sum(one[:, :columns].nbytes for one in parameters), 1 + len(parameters), 0, cycles)


def _movement(slots: StepSlots, problem: Movement, instruction: Instruction, cost: CostModel) -> Work:
    """Put what has been loaded of each operand in its place; the engine reads those that have something here."""
    step = slots.step
    slots.fresh("accumulator")
    accumulator, out = slots.accumulator(problem.out.dtype), slots.out_box(instruction)
    accumulator[real(out)] = problem.fill
    nbytes = reads = 0
    for operand, piece in zip(step.operands, problem.pieces, strict=True):
        here = slots.box(operand.name, instruction)
        if here.elements:
            value = slots.loaded(operand.name, instruction)
            sides = zip(here.target, out.target, piece.along, strict=True)
            accumulator[keep(tuple(own if axis >= 0 else all_ for own, all_, axis in sides))] = value
            nbytes, reads = nbytes + value.nbytes, reads + 1
    return Work(nbytes, reads, 0, cost.copying(out.elements * DTYPE_BYTES[problem.out.dtype]))


def _elementwise(slots: StepSlots, problem: Elementwise, instruction: Instruction, cost: CostModel) -> Work:
    step = slots.step
    node = slots.graph.nodes[step.nodes[0]]
    slots.fresh("accumulator")
    box = slots.out_box(instruction)
    values = [slots.loaded(operand.name, instruction) for operand in step.operands]
    dtype = problem.out.dtype
    is_copy = step.family == "copy"
    result = values[0] if is_copy else apply_elementwise(node.name, node.attrs, values, dtype)
    slots.accumulator(dtype)[real(box)] = result
    cycles = cost.copying(values[0].nbytes) if is_copy else cost.lanes(step.engine, box.lengths)
    return Work(sum(v.nbytes for v in values), len(values), 0, cycles)


def _windows(problem: Contraction | Window, tile: dict[str, int], box: Array, out: Pair, kernel: Pair) -> Array:
    """The windows of the box in a tile's slot."""
    rows, columns = problem.rows.steps(tile["kh"]), problem.columns.steps(tile["kw"])
    return sliding_windows(box, out, kernel, (rows[0], columns[0]), (rows[1], columns[1]))
