"""Fast mode: the tiles of a plan, computed in batches.

The same tiles as in step mode, packed side by side, go through the same kernels in one NumPy call; each keeps its own
order of summation, so the bits are the same. Counters come from the arrays that are packed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.graph.ir import Entry, Graph
from npu_kit.plan.geometry import Contraction, Elementwise, Problem, Softmax, Window, aligned_operand, problem_of
from npu_kit.plan.ir import Axis, Plan, Step
from npu_kit.plan.traffic import out_tiles
from npu_kit.runtime.arithmetic import apply_elementwise, compute_dtype, to_declared
from npu_kit.runtime.fast_contraction import FastContraction
from npu_kit.runtime.kernels import reduce_taps, softmax_maximum, softmax_powers, softmax_sum
from npu_kit.runtime.packing import box_sums, image_windows, pad_images
from npu_kit.trace.counters import Counters

Array = NDArray[Any]


def run_fast(plan: Plan, step: Step, tensors: Mapping[Entry, Array], output: Array) -> Counters:
    """Run one step on whole arrays; returns what was counted while packing."""
    graph = plan.graph
    problem = problem_of(graph, step.nodes[0])
    counters = Counters()
    for entry in step.prefetch:
        counters.move("L3", "L2", tensors[entry].nbytes)
    inputs = [tensors[operand.entry] for operand in step.operands]
    anchor = graph.nodes[step.nodes[0]]
    if isinstance(problem, Contraction):
        value = FastContraction(plan, step, problem, counters).run(*inputs)
    elif isinstance(problem, Window):
        value = _window(step, problem, inputs, counters)
    elif isinstance(problem, Softmax):
        value = _softmax(step, problem, inputs[0], counters)
    else:
        value = _elementwise(graph, step, problem, inputs, counters)
    value = to_declared(value, anchor.outputs[0].dtype)
    tiles = out_tiles(problem, step.axes)
    value = _epilogue(graph, step, problem, value, tensors, tiles, counters)
    output[...] = value
    counters.move("L0", "L1", output.nbytes, tiles)
    counters.move("L1", step.output_tier, output.nbytes, tiles)
    counters.tiles, counters.stored_elements = tiles, output.size
    return counters


def _epilogue(
    graph: Graph,
    step: Step,
    problem: Problem,
    value: Array,
    tensors: Mapping[Entry, Array],
    tiles: int,
    counters: Counters,
) -> Array:
    """The epilogue on the whole output, in the tensor's own axes: it is elementwise, so tiles do not matter."""
    pieces = _pieces(problem, step.axes)
    for node_id, operands in zip(step.nodes[1:], step.epilogue_operands, strict=True):
        node = graph.nodes[node_id]
        values = []
        for position, operand in enumerate(operands):
            if operand is None:
                values.append(value)
                continue
            along = aligned_operand(graph, node_id, position).along
            array = tensors[operand.entry]
            seen = array.reshape([array.shape[axis] if axis >= 0 else 1 for axis in along])
            values.append(seen)
            # Along an axis that the operand runs, each tile loads its own part; along another, the same one again.
            repeats = math.prod(count for count, axis in zip(pieces, along, strict=True) if axis < 0)
            counters.move(operand.tier, "L1", array.nbytes * repeats, tiles)
            counters.move("L1", "L0", array.nbytes * repeats, tiles)
        value = apply_elementwise(node.name, node.attrs, values, node.outputs[0].dtype)
    return value


def _pieces(problem: Problem, axes: tuple[Axis, ...]) -> list[int]:
    """Number of tiles along each axis of the output tensor."""
    count = {axis.name: axis.count for axis in axes}
    if isinstance(problem, Elementwise):
        return [axis.count for axis in axes]
    if isinstance(problem, Softmax):
        shape = problem.type.shape
        by_axis = {problem.inner_axis: count["inner"], problem.axis: count["k"]}
        return [by_axis.get(i, size) for i, size in enumerate(shape)]
    if isinstance(problem, Window):
        letters = {"N": count["batch"], "H": count["y"], "W": count["x"], "C": count["c"]}
        return [letters[letter] for letter in problem.x_axes]
    letters = {"H": count["y"], "W": count["x"], "C": count["group"] * count["n"]}
    return [problem.batch_shape[i] if letter == "B" else letters[letter] for i, letter in enumerate(problem.out_axes)]


def _elementwise(graph: Graph, step: Step, problem: Elementwise, inputs: list[Array], counters: Counters) -> Array:
    node = graph.nodes[step.nodes[0]]
    pieces = [axis.count for axis in step.axes]
    seen = []
    for operand, array, aligned in zip(step.operands, inputs, problem.operands, strict=True):
        seen.append(array.reshape([array.shape[axis] if axis >= 0 else 1 for axis in aligned.along]))
        repeats = math.prod(count for count, axis in zip(pieces, aligned.along, strict=True) if axis < 0)
        counters.move(operand.tier, "L1", array.nbytes * repeats, math.prod(pieces))
        counters.move("L1", "L0", array.nbytes * repeats, math.prod(pieces))
    if not node.is_kernel:
        return inputs[0]
    if 0 in problem.out.shape:
        return np.empty(problem.out.shape, problem.out.dtype)
    value = apply_elementwise(node.name, node.attrs, seen, problem.out.dtype)
    return np.broadcast_to(value, problem.out.shape)


def _softmax(step: Step, problem: Softmax, x: Array, counters: Counters) -> Array:
    """Rows stay apart; the columns are padded to whole tiles and summed tile by tile, as in step mode."""
    columns = step.axes[-1]
    moved = np.moveaxis(x, problem.axis, -1)
    rows = math.prod(moved.shape[:-1])
    packed = np.full((rows, columns.count * columns.tile), -np.inf, x.dtype)
    packed[:, : columns.extent] = moved.reshape(rows, columns.extent)
    maximum, total = np.full(rows, -np.inf, np.float32), np.zeros(rows, np.float32)
    chunks = packed.reshape(rows, columns.count, columns.tile)
    for part in range(columns.count):
        softmax_maximum(maximum, chunks[:, part])
    for part in range(columns.count):
        softmax_sum(total, chunks[:, part], maximum)
    with np.errstate(all="ignore"):
        value = softmax_powers(packed, maximum) / total[:, None]
    tiles = math.prod(axis.count for axis in step.axes)
    passes = 1 if step.operands[0].is_panel else 3
    counters.move(step.operands[0].tier, "L1", passes * x.nbytes, passes * tiles)
    counters.move("L1", "L0", 3 * x.nbytes, 3 * tiles)
    return np.moveaxis(value[:, : columns.extent].reshape(moved.shape), -1, problem.axis)


def _window(step: Step, problem: Window, inputs: list[Array], counters: Counters) -> Array:
    axis = {a.name: a for a in step.axes}
    to_nhwc = [problem.x_axes.index(letter) for letter in "NHWC"]
    x = inputs[0].transpose(to_nhwc)
    outputs = (problem.rows.out, problem.columns.out)
    fill = problem.layouts(step.axes)["x"].fill
    padded = pad_images(x, problem.rows, problem.columns, outputs, fill)
    windows = image_windows(padded, problem.rows, problem.columns, outputs)
    accumulator = np.full(windows.shape[:3] + windows.shape[-1:], fill, compute_dtype(problem.out.dtype))
    weights = None
    if problem.w is not None:
        weights = inputs[1].transpose([problem.w_axes.index(letter) for letter in "HWIO"])[:, :, 0]
    reduce_taps(accumulator, windows, weights, problem.is_maximum)
    if problem.operation == "avg_pool2d":
        rows, columns = problem.divisors()
        with np.errstate(all="ignore"):
            accumulator /= np.maximum(np.outer(rows, columns)[:, :, None], 1).astype(np.float32)
    row_sum, row_boxes = box_sums(problem.rows, axis["y"], axis["kh"])
    column_sum, column_boxes = box_sums(problem.columns, axis["x"], axis["kw"])
    batch, channels = x.shape[0], x.shape[3]
    boxes = batch * axis["c"].count * row_boxes * column_boxes
    counters.move(step.operands[0].tier, "L1", batch * row_sum * column_sum * channels * x.itemsize, boxes)
    taps, chunks = windows.shape[-3] * windows.shape[-2], axis["kh"].count * axis["kw"].count
    computes = out_tiles(problem, step.axes) * chunks
    counters.move("L1", "L0", accumulator.size * taps * x.itemsize, computes)
    if weights is not None:
        again = batch * axis["y"].count * axis["x"].count
        counters.move(step.operands[1].tier, "L1", again * inputs[1].nbytes, computes)
        counters.move("L1", "L0", again * inputs[1].nbytes, computes)
        counters.macs = accumulator.size * taps
    return np.transpose(accumulator, np.argsort(to_nhwc))
