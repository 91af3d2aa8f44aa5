"""Fast mode: the tiles of a plan, computed in batches.

The same tiles as in step mode, packed side by side, go through the same kernels in one NumPy call; each keeps its own
order of summation, so the bits are the same. Counters come from the arrays that are packed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.graph.ir import Entry, Graph
from npu_kit.plan.geometry import Contraction, Elementwise, Problem, Softmax, Window, aligned_operand, problem_of
from npu_kit.plan.geometry.base import batch_index
from npu_kit.plan.geometry.sliding import Sliding
from npu_kit.plan.ir import Axis, Plan, Step
from npu_kit.plan.program import tile_indices
from npu_kit.runtime.arithmetic import apply_elementwise, compute_dtype, to_declared
from npu_kit.runtime.kernels import (
    multiply_accumulate,
    reduce_taps,
    sliding_windows,
    softmax_maximum,
    softmax_powers,
    softmax_sum,
)
from npu_kit.trace.counters import Counters

Array = NDArray[Any]
BLOCK_BYTES = 4 << 20  # packed tiles computed at once: about what a core's caches hold


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
        value = _Contraction(plan, step, problem, counters).run(*inputs)
    elif isinstance(problem, Window):
        value = _window(step, problem, inputs, counters)
    elif isinstance(problem, Softmax):
        value = _softmax(step, problem, inputs[0], counters)
    else:
        value = _elementwise(graph, step, problem, inputs, counters)
    value = to_declared(value, anchor.outputs[0].dtype)
    tiles = _count_tiles(problem, step.axes)
    value = _epilogue(graph, step, problem, value, tensors, tiles, counters)
    output[...] = value
    counters.move("L0", "L1", output.nbytes, tiles)
    counters.move("L1", step.output_tier, output.nbytes, tiles)
    counters.tiles, counters.stored_elements = tiles, output.size
    return counters


def _count_tiles(problem: Problem, axes: tuple[Axis, ...]) -> int:
    """Output tiles: the tiles of the axes that are no reduction."""
    reduced = {Contraction: 3, Window: 2}.get(type(problem), 0)
    return math.prod(axis.count for axis in axes[: len(axes) - reduced])


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


# Sliding families ----------------------------------------------------------------------------------------------------


def _padded_length(sliding: Sliding, outputs: int) -> int:
    """Positions that the windows of ``outputs`` output positions touch, and at least the padding and the data."""
    touched = (outputs - 1) * sliding.stride + (sliding.kernel - 1) * sliding.dilation + 1
    return max(touched, sliding.before + sliding.size)


def _pad(x: Array, rows: Sliding, columns: Sliding, outputs: tuple[int, int], fill: float) -> Array:
    """Images (B, H, W, C), contiguous, with everything around them that the windows touch."""
    shape = (x.shape[0], _padded_length(rows, outputs[0]), _padded_length(columns, outputs[1]), x.shape[3])
    padded = np.full(shape, fill, x.dtype) if fill else np.zeros(shape, x.dtype)
    padded[:, rows.before : rows.before + rows.size, columns.before : columns.before + columns.size] = x
    return padded


def _box_sums(sliding: Sliding, out: Axis, kernel: Axis) -> tuple[int, int]:
    """Real positions in all boxes along one axis, and the number of boxes with any, counted on a padded row of ones."""
    ones = np.zeros(_padded_length(sliding, out.count * out.tile), np.int64)
    ones[sliding.before : sliding.before + sliding.size] = 1
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


def _steps(rows: Sliding, columns: Sliding) -> Array:
    return np.array([[rows.stride, columns.stride], [rows.dilation, columns.dilation]])


def _window(step: Step, problem: Window, inputs: list[Array], counters: Counters) -> Array:
    axis = {a.name: a for a in step.axes}
    to_nhwc = [problem.x_axes.index(letter) for letter in "NHWC"]
    x = inputs[0].transpose(to_nhwc)
    outputs = (problem.rows.out, problem.columns.out)
    fill = problem.layouts(step.axes)["x"].fill
    padded = _pad(x, problem.rows, problem.columns, outputs, fill)
    windows = sliding_windows(
        padded, outputs, (problem.rows.kernel, problem.columns.kernel), _steps(problem.rows, problem.columns)
    )
    accumulator = np.full(windows.shape[:3] + windows.shape[-1:], fill, compute_dtype(problem.out.dtype))
    weights = None
    if problem.w is not None:
        weights = inputs[1].transpose([problem.w_axes.index(letter) for letter in "HWIO"])[:, :, 0]
    reduce_taps(accumulator, windows, weights, problem.is_maximum)
    if problem.operation == "avg_pool2d":
        rows, columns = problem.divisors()
        with np.errstate(all="ignore"):
            accumulator /= np.maximum(np.outer(rows, columns)[:, :, None], 1).astype(np.float32)
    row_sum, row_boxes = _box_sums(problem.rows, axis["y"], axis["kh"])
    column_sum, column_boxes = _box_sums(problem.columns, axis["x"], axis["kw"])
    batch, channels = x.shape[0], x.shape[3]
    boxes = batch * axis["c"].count * row_boxes * column_boxes
    counters.move(step.operands[0].tier, "L1", batch * row_sum * column_sum * channels * x.itemsize, boxes)
    taps, chunks = windows.shape[-3] * windows.shape[-2], axis["kh"].count * axis["kw"].count
    computes = _count_tiles(problem, step.axes) * chunks
    counters.move("L1", "L0", accumulator.size * taps * x.itemsize, computes)
    if weights is not None:
        again = batch * axis["y"].count * axis["x"].count
        counters.move(step.operands[1].tier, "L1", again * inputs[1].nbytes, computes)
        counters.move("L1", "L0", again * inputs[1].nbytes, computes)
        counters.macs = accumulator.size * taps
    return accumulator.transpose(np.argsort(to_nhwc))


class _Contraction:
    """One contraction: patches and weights packed into full tiles, chunk by chunk, block by block."""

    def __init__(self, plan: Plan, step: Step, problem: Contraction, counters: Counters) -> None:
        self.step, self.problem, self.counters = step, problem, counters
        self.axis = {axis.name: axis for axis in step.axes}
        self.tile_rows = plan.spec.tile.rows
        self.chunks = [
            tuple(axis.span(i) for axis, i in zip(step.axes[-3:], index, strict=True))
            for index in tile_indices(step.axes[-3:])
        ]
        self.depth = math.prod(axis.tile for axis in step.axes[-3:])

    def run(self, x: Array, w: Array) -> Array:
        """The product in the compute dtype, in the output tensor's own axes."""
        problem, axis = self.problem, self.axis
        images, filters = self._images(x), self._filters(w)
        batch = axis["batch"].extent
        shape = (batch, axis["y"].extent, axis["x"].extent, axis["group"].extent * axis["n"].extent)
        result = np.zeros(shape, compute_dtype(problem.out.dtype))
        if result.size and self.chunks:
            for group in range(axis["group"].extent):
                columns = slice(group * axis["n"].extent, (group + 1) * axis["n"].extent)
                for first, last in self._batches():
                    packed = self._pack_weights(filters[0 if problem.is_weight_shared else first], columns)
                    stack = np.stack([images[i] for i in range(first, last)])
                    channels = slice(group * problem.depth, (group + 1) * problem.depth)
                    self._block(stack[..., channels], packed, result[first:last, :, :, columns])
        self._count(result)
        return self._to_output_axes(result)

    def _images(self, x: Array) -> list[Array]:
        """One (H, W, C) view per batch element."""
        problem = self.problem
        count = problem.x_axes.count("B")
        lengths = (problem.rows.size, problem.columns.size, problem.groups * problem.depth)
        order = [problem.x_axes.index(letter) for letter in "HWC" if letter in problem.x_axes]
        batch = list(range(count))
        return [
            x[batch_index(x.shape[:count], problem.batch_shape, i)].transpose(batch + order).reshape(lengths)
            for i in range(self.axis["batch"].extent)
        ]

    def _filters(self, w: Array) -> list[Array]:
        """One (KH, KW, I, O) view per batch element, or one for all."""
        problem = self.problem
        count = problem.w_axes.count("B")
        outputs = problem.groups * problem.channels
        lengths = (problem.rows.kernel, problem.columns.kernel, problem.depth, outputs)
        order = [problem.w_axes.index(letter) for letter in "HWIO" if letter in problem.w_axes]
        batch = list(range(count))
        number = 1 if problem.is_weight_shared else self.axis["batch"].extent
        return [
            w[batch_index(w.shape[:count], problem.batch_shape, i)].transpose(batch + order).reshape(lengths)
            for i in range(number)
        ]

    def _batches(self) -> Iterator[tuple[int, int]]:
        """Ranges of batch elements that are packed together: as many as share a weight and fit a block."""
        tiles = self.axis["y"].count * self.axis["x"].count
        nbytes = tiles * self.tile_rows * max(self.depth, self.axis["n"].count * self.axis["n"].tile) * 4
        size = max(1, BLOCK_BYTES // nbytes) if self.problem.is_weight_shared else 1
        batch = self.axis["batch"].extent
        for first in range(0, batch, size):
            yield first, min(first + size, batch)

    def _pack_weights(self, w: Array, columns: slice) -> list[Array]:
        """Per chunk the tiles (n tiles, depth, tile columns), zero where there is no weight."""
        axis = self.axis
        w = w[..., columns]
        packed = []
        for (c0, c1), (h0, h1), (v0, v1) in self.chunks:
            full = np.zeros(
                (axis["kh"].tile, axis["kw"].tile, axis["c"].tile, axis["n"].count * axis["n"].tile), w.dtype
            )
            full[: h1 - h0, : v1 - v0, : c1 - c0, : axis["n"].extent] = w[h0:h1, v0:v1, c0:c1]
            tiles = full.reshape(self.depth, axis["n"].count, axis["n"].tile).transpose(1, 0, 2)
            packed.append(np.ascontiguousarray(tiles))
        return packed

    def _block(self, images: Array, weights: list[Array], result: Array) -> None:
        """Some images: rows of tiles at a time, so that what is packed stays in the caches."""
        problem, axis = self.problem, self.axis
        y, x, n = axis["y"], axis["x"], axis["n"]
        outputs = (y.count * y.tile, x.count * x.tile)
        padded = _pad(images, problem.rows, problem.columns, outputs, 0)
        kernel = (problem.rows.kernel, problem.columns.kernel)
        windows = sliding_windows(padded, outputs, kernel, _steps(problem.rows, problem.columns))
        windows = windows.reshape(len(images), y.count, y.tile, x.count, x.tile, *kernel, windows.shape[-1])
        row_bytes = len(images) * x.count * self.tile_rows * max(self.depth, n.count * n.tile) * 4
        height = max(1, BLOCK_BYTES // row_bytes)
        for top in range(0, y.count, height):
            some = windows[:, top : top + height]
            tiles = math.prod(some.shape[i] for i in (0, 1, 3))
            accumulator = np.zeros((tiles, n.count, self.tile_rows, n.tile), result.dtype)
            patches = np.zeros((tiles, 1, self.tile_rows, self.depth), images.dtype)
            for chunk, w in zip(self.chunks, weights, strict=True):
                self._pack_patches(some, chunk, patches)
                multiply_accumulate(accumulator, patches, w[None])
            self._unpack(accumulator, some.shape, result[:, top * y.tile :])

    def _pack_patches(self, windows: Array, chunk: tuple[tuple[int, int], ...], patches: Array) -> None:
        """Windows (B, Y, y, X, x, KH, KW, C) of one chunk into the tiles (B*Y*X, 1, rows, depth)."""
        axis = self.axis
        (c0, c1), (h0, h1), (v0, v1) = chunk
        piece = windows[..., h0:h1, v0:v1, c0:c1].transpose(0, 1, 3, 2, 4, 5, 6, 7)
        pixels = axis["y"].tile * axis["x"].tile
        kernel = (axis["kh"].tile, axis["kw"].tile, axis["c"].tile)
        if piece.shape[5:] != kernel:
            patches[...] = 0
        target = patches[:, 0, :pixels].reshape(*piece.shape[:5], *kernel)
        target[..., : h1 - h0, : v1 - v0, : c1 - c0] = piece

    def _unpack(self, accumulator: Array, shape: tuple[int, ...], result: Array) -> None:
        """Tiles (B*Y*X, N, rows, columns) into the images they are pieces of."""
        y, x, n = self.axis["y"], self.axis["x"], self.axis["n"]
        images, rows, columns = shape[0], shape[1], shape[3]
        tiles = accumulator[:, :, : y.tile * x.tile].reshape(images, rows, columns, n.count, y.tile, x.tile, n.tile)
        whole = tiles.transpose(0, 1, 4, 2, 5, 3, 6).reshape(images, rows * y.tile, columns * x.tile, -1)
        height = min(whole.shape[1], result.shape[1])
        result[:, :height] = whole[:, :height, : x.extent, : n.extent]

    def _to_output_axes(self, result: Array) -> Array:
        problem = self.problem
        letters = problem.out_axes.lstrip("B")
        moved = result.transpose(
            [0, *("BHWC".index(letter) for letter in letters)]
            + [i for i, letter in enumerate("HWC", start=1) if letter not in letters]
        )
        return moved.reshape(problem.out.shape)

    def _count(self, result: Array) -> None:
        problem, axis, counters = self.problem, self.axis, self.counters
        x, w = self.step.operands
        batch, groups, columns = axis["batch"].count, axis["group"].count, axis["n"].count
        spatial = axis["y"].count * axis["x"].count
        x_size, w_size = np.dtype(problem.x.dtype).itemsize, np.dtype(problem.w.dtype).itemsize
        chunk_sizes = [math.prod(stop - start for start, stop in chunk) for chunk in self.chunks]
        row_sum, row_boxes = _box_sums(problem.rows, axis["y"], axis["kh"])
        column_sum, column_boxes = _box_sums(problem.columns, axis["x"], axis["kw"])
        passes = batch * groups * (min(1, columns) if x.is_panel else columns)
        x_elements = row_sum * column_sum * axis["c"].extent
        counters.move(x.tier, "L1", passes * x_elements * x_size, passes * row_boxes * column_boxes * axis["c"].count)
        if not w.is_panel:
            passes = batch * spatial
        elif problem.is_weight_shared:
            passes = min(1, batch * spatial)
        else:
            passes = batch * min(1, spatial)
        w_elements = sum(chunk_sizes) * groups * axis["n"].extent
        counters.move(w.tier, "L1", passes * w_elements * w_size, passes * groups * columns * len(self.chunks))
        computes = batch * groups * spatial * columns * len(self.chunks)
        outputs = result.shape[0] * groups * result.shape[1] * result.shape[2]
        counters.move("L1", "L0", outputs * columns * sum(chunk_sizes) * x_size, computes)
        counters.move("L1", "L0", batch * spatial * w_elements * w_size, computes)
        counters.macs = result.size * sum(chunk_sizes)
