"""Fast mode of a contraction: patches and weights packed into full tiles, chunk by chunk, block by block."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.plan.geometry import Contraction
from npu_kit.plan.geometry.base import batch_index
from npu_kit.plan.ir import Plan, Step
from npu_kit.plan.program import tile_indices
from npu_kit.runtime.arithmetic import compute_dtype
from npu_kit.runtime.kernels import multiply_accumulate
from npu_kit.runtime.packing import box_sums, image_windows, pad_images
from npu_kit.trace.counters import Counters

Array = NDArray[Any]
BLOCK_BYTES = 2 << 20  # packed tiles computed at once: about what a core's caches hold


class FastContraction:
    """One contraction of a plan, and what packing it counted."""

    def __init__(self, plan: Plan, step: Step, problem: Contraction, counters: Counters) -> None:
        self.step, self.problem, self.counters = step, problem, counters
        self.axis = {axis.name: axis for axis in step.axes}
        self.tile_rows = plan.spec.tile.rows
        reduction = (self.axis["c"], self.axis["kh"], self.axis["kw"])
        self.chunks = [
            tuple(axis.span(i) for axis, i in zip(reduction, index, strict=True)) for index in tile_indices(reduction)
        ]
        self.depth = math.prod(axis.tile for axis in reduction)

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
        padded = pad_images(images, problem.rows, problem.columns, outputs, 0)
        windows = image_windows(padded, problem.rows, problem.columns, outputs)
        windows = windows.reshape(len(images), y.count, y.tile, x.count, x.tile, *windows.shape[3:])
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
        missing = [letter for letter in "HWC" if letter not in letters]  # one element long: reshape drops them
        order = ["BHWC".index(letter) for letter in ("B", *letters, *missing)]
        return np.reshape(result.transpose(order), problem.out.shape)

    def _count(self, result: Array) -> None:
        problem, axis, counters = self.problem, self.axis, self.counters
        x, w = self.step.operands
        batch, groups, columns = axis["batch"].count, axis["group"].count, axis["n"].count
        spatial = axis["y"].count * axis["x"].count
        x_size, w_size = np.dtype(problem.x.dtype).itemsize, np.dtype(problem.w.dtype).itemsize
        chunk_sizes = [math.prod(stop - start for start, stop in chunk) for chunk in self.chunks]
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
        w_elements = sum(chunk_sizes) * groups * axis["n"].extent
        counters.move(w.tier, "L1", passes * w_elements * w_size, passes * groups * columns * len(self.chunks))
        computes = batch * groups * spatial * columns * len(self.chunks)
        outputs = result.shape[0] * groups * result.shape[1] * result.shape[2]
        counters.move("L1", "L0", outputs * columns * sum(chunk_sizes) * x_size, computes)
        counters.move("L1", "L0", batch * spatial * w_elements * w_size, computes)
        counters.macs = result.size * sum(chunk_sizes)
        if self.step.dataflow != "output_stationary":
            visits = (len(self.chunks) - 1) * batch * groups * spatial * columns
            for ends in (("L0", "L1"), ("L1", "L0")):  # partial sums leave and come back between chunks
                counters.move(*ends, (len(self.chunks) - 1) * result.nbytes, visits)
