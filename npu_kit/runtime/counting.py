"""What a step moves and computes in fast mode: the real parts of its boxes, which packing takes apart axis by axis.

Counted on padded rows of ones, in another way than ``plan.traffic`` and step mode do it; tests hold the three equal.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from npu_kit.graph.ir import DTYPE_BYTES, Graph
from npu_kit.plan.cost import CostModel
from npu_kit.plan.geometry import (
    Contraction,
    Elementwise,
    Movement,
    Problem,
    Reduction,
    Rows,
    Window,
    aligned_operand,
    tile_count,
    tile_indices,
)
from npu_kit.plan.geometry.sliding import Sliding
from npu_kit.plan.ir import Axis, Step
from npu_kit.trace.counters import Counters


def count_step(graph: Graph, step: Step, problem: Problem, cost: CostModel) -> Counters:
    """The counters of one run of ``step``."""
    counters = Counters()
    for entry in step.prefetch:
        counters.move("L3", "L2", graph.type_of(entry).nbytes)
    for entry in step.spills:
        counters.move("L2", "L3", graph.type_of(entry).nbytes)
    if isinstance(problem, Contraction):
        _contraction(step, problem, cost, counters)
    elif isinstance(problem, Window):
        _window(step, problem, counters)
    elif isinstance(problem, Reduction):
        for ends in ((step.operands[0].tier, "L1"), ("L1", "L0")):
            counters.move(*ends, problem.x.nbytes, math.prod(axis.count for axis in step.axes))
        chunks = math.prod(axis.count for axis in step.axes[len(problem.kept) :])
        counters.sum_bytes = problem.out.elements * chunks * 4
    elif isinstance(problem, Movement):
        _movement(step, problem, counters)
    elif isinstance(problem, Rows):
        _rows(step, problem, counters)
    else:
        for operand, aligned in zip(step.operands, problem.operands, strict=True):
            _aligned(aligned.along, aligned.type.nbytes, operand.tier, [axis.count for axis in step.axes], counters)
    tiles = tile_count(step)
    pieces = _pieces(problem, step.axes)
    for node_id, position, beside in step.epilogue_reads:
        aligned = aligned_operand(graph, node_id, position)
        _aligned(aligned.along, aligned.type.nbytes, beside.tier, pieces, counters)
    out = graph.type_of(step.output)
    counters.move("L0", "L1", out.nbytes, tiles)
    counters.move("L1", step.output_tier, out.nbytes, tiles)
    counters.tiles, counters.stored_elements = tiles, out.elements
    return counters


def _pieces(problem: Problem, axes: tuple[Axis, ...]) -> list[int]:
    """Number of tiles along each axis of the output tensor."""
    count = {axis.name: axis.count for axis in axes}
    if isinstance(problem, Elementwise | Movement):
        return [axis.count for axis in axes]
    if isinstance(problem, Reduction):
        by_axis = {out: count[f"d{axis}"] for axis, out in zip(problem.kept, problem.out_axes, strict=True)}
        return [by_axis.get(i, 1) for i in range(len(problem.out.shape))]
    if isinstance(problem, Rows):
        shape = problem.type.shape
        by_axis = {problem.inner_axis: count["inner"], problem.axis: count["k"]}
        return [by_axis.get(i, size) for i, size in enumerate(shape)]
    if isinstance(problem, Window):
        letters = {"N": count["batch"], "H": count["y"], "W": count["x"], "C": count["c"]}
        return [letters[letter] for letter in problem.x_axes]
    letters = {"H": count["y"], "W": count["x"], "C": count["group"] * count["n"]}
    return [problem.batch_shape[i] if letter == "B" else letters[letter] for i, letter in enumerate(problem.out_axes)]


def _aligned(along: tuple[int, ...], nbytes: int, tier: str, pieces: list[int], counters: Counters) -> None:
    """An elementwise operand: along its own axes each tile loads another part, along the others the same again."""
    repeats = math.prod(count for count, axis in zip(pieces, along, strict=True) if axis < 0)
    for ends in ((tier, "L1"), ("L1", "L0")):
        counters.move(*ends, nbytes * repeats, math.prod(pieces))


def _movement(step: Step, problem: Movement, counters: Counters) -> None:
    """Counted on the positions of the output, axis by axis: which tile each is in, and whose it is."""
    for operand, piece in zip(step.operands, problem.pieces, strict=True):
        boxes = elements = 1
        for i, axis in enumerate(step.axes):
            tiles = np.arange(axis.extent)[piece.start[i] : piece.stop[i]] // axis.tile
            boxes *= len(np.unique(tiles))
            elements *= len(tiles) if piece.along[i] >= 0 else len(np.unique(tiles))
        nbytes = elements * DTYPE_BYTES[piece.type.dtype]
        for ends in ((operand.tier, "L1"), ("L1", "L0")):
            counters.move(*ends, nbytes, boxes)


def _rows(step: Step, problem: Rows, counters: Counters) -> None:
    tiles, passes = tile_count(step), len(problem.stages)
    x, *parameters = step.operands
    loads = 1 if x.is_panel else passes
    counters.move(x.tier, "L1", loads * problem.type.nbytes, loads * tiles)
    counters.move("L1", "L0", passes * problem.type.nbytes, passes * tiles)
    columns = step.axes[-1].count
    for parameter in parameters:
        again = tiles // columns if columns else 0
        for ends in ((parameter.tier, "L1"), ("L1", "L0")):
            counters.move(*ends, again * problem.parameters[parameter.name].nbytes, tiles)


def _window(step: Step, problem: Window, counters: Counters) -> None:
    axis = {a.name: a for a in step.axes}
    x_size, outputs = DTYPE_BYTES[problem.x.dtype], problem.out.elements
    row_sum, row_boxes = box_sums(problem.rows, axis["y"], axis["kh"])
    column_sum, column_boxes = box_sums(problem.columns, axis["x"], axis["kw"])
    batch, channels = axis["batch"].extent, axis["c"].extent
    boxes = batch * axis["c"].count * row_boxes * column_boxes
    counters.move(step.operands[0].tier, "L1", batch * row_sum * column_sum * channels * x_size, boxes)
    taps = axis["kh"].extent * axis["kw"].extent
    computes = tile_count(step) * axis["kh"].count * axis["kw"].count
    counters.move("L1", "L0", outputs * taps * x_size, computes)
    counters.sum_bytes = outputs * axis["kh"].count * axis["kw"].count * 4
    if problem.w is not None:
        again = batch * axis["y"].count * axis["x"].count
        for ends in ((step.operands[1].tier, "L1"), ("L1", "L0")):
            counters.move(*ends, again * problem.w.nbytes, computes)
        counters.macs = outputs * taps


def _contraction(step: Step, problem: Contraction, cost: CostModel, counters: Counters) -> None:
    axis = {a.name: a for a in step.axes}
    x, w = step.operands
    x_size, w_size = DTYPE_BYTES[problem.x.dtype], DTYPE_BYTES[problem.w.dtype]
    batch, groups, columns = axis["batch"].count, axis["group"].count, axis["n"].count
    spatial = axis["y"].count * axis["x"].count
    reduction = (axis["c"], axis["kh"], axis["kw"])
    chunks, products = math.prod(a.count for a in reduction), math.prod(a.extent for a in reduction)
    row_sum, row_boxes = box_sums(problem.rows, axis["y"], axis["kh"])
    column_sum, column_boxes = box_sums(problem.columns, axis["x"], axis["kw"])
    passes = batch * groups * (min(1, columns) if x.is_panel else columns)
    x_elements = row_sum * column_sum * axis["c"].extent
    counters.move(x.tier, "L1", passes * x_elements * x_size, passes * row_boxes * column_boxes * axis["c"].count)
    if not w.is_panel:
        passes = batch * spatial
    elif problem.is_weight_shared:
        passes = min(1, batch * spatial)
    else:
        passes = batch * min(1, spatial)
    w_elements = products * groups * axis["n"].extent
    counters.move(w.tier, "L1", passes * w_elements * w_size, passes * groups * columns * chunks)
    _array(step, problem, cost, counters)
    pixels = axis["batch"].extent * axis["y"].extent * axis["x"].extent
    outputs = pixels * groups * axis["n"].extent
    counters.macs = outputs * products
    if step.dataflow != "output_stationary":
        again = chunks - 1  # partial sums leave and come back between chunks; float32 and int32 are 4 bytes
        for ends in (("L0", "L1"), ("L1", "L0")):
            counters.move(*ends, again * outputs * 4, again * batch * groups * spatial * columns)


def _array(step: Step, problem: Contraction, cost: CostModel, counters: Counters) -> None:
    """What the array takes in and gives out, with the tiles of all axes laid out: m, n and k of each product."""
    rows, columns = cost.array_shape(step.engine)
    length = {
        a.name: np.array([stop - start for start, stop in map(a.span, range(a.count))], np.int64) for a in step.axes
    }
    m, k, n = _products(length["y"], length["x"]), _products(length["c"], length["kh"], length["kw"]), length["n"]
    batch, groups = len(length["batch"]), len(length["group"])
    again = batch * groups
    m, n, k = m[:, None, None], n[None, :, None], k[None, None, :]
    x, w, sums = (np.broadcast_to(one, np.broadcast_shapes(m.shape, n.shape, k.shape)) for one in (m * k, k * n, m * n))
    x_times, w_times = np.full(x.shape, again), np.full(x.shape, again)
    folds_of_k, folds_of_n = -(-k // rows), -(-n // columns)
    if step.dataflow == "input_stationary":
        is_kept = (k <= rows) & (m <= columns)
        x_times[:, 1:, :] *= ~np.broadcast_to(is_kept, x.shape)[:, 1:, :]
        x_bytes, w_bytes, sum_folds = x, w * -(-m // columns), folds_of_k
    elif step.dataflow == "weight_stationary":
        is_kept = np.broadcast_to((k <= rows) & (n <= columns), w.shape)
        w_times[1:] *= ~is_kept[1:]
        if problem.is_weight_shared:
            w_times[:1] = np.where(is_kept[:1], groups * min(1, batch), again)
        x_bytes, w_bytes, sum_folds = x * folds_of_n, w, folds_of_k
    else:
        x_bytes, w_bytes, sum_folds = x * folds_of_n, w * -(-m // rows), np.ones_like(k)
    for elements, times, kind in ((x_bytes, x_times, problem.x), (w_bytes, w_times, problem.w)):
        moved = times * (elements > 0)
        counters.move("L1", "L0", int((elements * times).sum()) * DTYPE_BYTES[kind.dtype], int(moved.sum()))
    counters.sum_bytes = int((sums * sum_folds).sum()) * again * 4


def _products(*lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """All products of one length of each."""
    return functools.reduce(np.multiply.outer, lengths).ravel()


def box_sums(sliding: Sliding, out: Axis, kernel: Axis) -> tuple[int, int]:
    """Real positions in all boxes along one axis, and the number of boxes with any, counted on a padded row of ones."""
    touched = (out.count * out.tile - 1) * sliding.stride + (sliding.kernel - 1) * sliding.dilation + 1
    places = np.arange(max(touched, sliding.before + sliding.size * sliding.upsample)) - sliding.before
    is_data = (places >= 0) & (places % sliding.upsample == 0) & (places < sliding.size * sliding.upsample)
    ones = is_data.astype(np.int64)
    total = boxes = 0
    for (i,), (k,) in ((i, k) for i in tile_indices((out,)) for k in tile_indices((kernel,))):
        (o0, o1), (k0, k1) = out.span(i), kernel.span(k)
        start = o0 * sliding.stride + k0 * sliding.dilation
        if kernel.tile == 1:
            box = ones[start : start + (o1 - o0 - 1) * sliding.stride + 1 : sliding.stride]
        else:
            box = ones[start : start + (o1 - o0 - 1) * sliding.stride + (k1 - k0 - 1) * sliding.dilation + 1]
        total += int(box.sum())
        boxes += bool(box.any())
    return total, boxes
