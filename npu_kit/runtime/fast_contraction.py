"""Fast mode of a contraction: patches and weights packed into full tiles, block by block, chunk by chunk."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.plan.geometry import Contraction, tile_indices
from npu_kit.plan.geometry.sliding import Sliding
from npu_kit.plan.ir import Plan, Step
from npu_kit.runtime.arithmetic import compute_dtype, product_dtype, to_compute
from npu_kit.runtime.fast_epilogue import BoundEpilogue, Call, Where, arrange, order_of
from npu_kit.runtime.fast_patches import Chunk, Patches, PatchShapes, Tiles
from npu_kit.runtime.workspace import BLOCK_BYTES, Scratch, cut, shapes_bytes

Array = NDArray[Any]
WORTH_SHARING = 16_000_000  # multiply-accumulates of a step that two threads share: a third of a millisecond
Packed = Sequence[Sequence[Array]]  # per batch element, or once for all, per chunk: tiles (G, N, D, n)


@dataclass(frozen=True)
class Block:
    """Tiles that are computed together: all of some rows of tiles of some images, or a part of one row."""

    tiles: Tiles
    source: Where  # of the images (B.., H, W, C): the data that its windows touch
    target: tuple[slice, slice]  # where that stands in the padded piece of image
    where: Where  # of the output (B.., H, W, C), ragged tiles cut off


class FastContraction:
    """One contraction of a plan, ready to be bound to arrays.

    Args:
        plan, step: what is run.
        problem: of the step's anchor, with as many images as there are.
        threads: threads that share the blocks.
    """

    def __init__(self, plan: Plan, step: Step, problem: Contraction, threads: int) -> None:
        self._problem = problem
        self._axes = {axis.name: replace(axis, extent=problem.extents[axis.name]) for axis in step.axes}
        reduction = (self._axes["c"], self._axes["kh"], self._axes["kw"])
        self._chunks: list[Chunk] = [
            tuple(axis.span(i) for axis, i in zip(reduction, index, strict=True)) for index in tile_indices(reduction)
        ]
        depth = math.prod(axis.tile for axis in reduction)
        self._out_dtype = compute_dtype(problem.out.dtype)
        self._dtype, exact = product_dtype(np.dtype(problem.x.dtype), np.dtype(problem.w.dtype), depth)
        self._chunks_at_once = max(1, exact // max(1, depth))  # whose sum the product's dtype holds
        self._shapes = PatchShapes(problem, self._axes, plan.spec.tile.rows, (self._dtype, self._out_dtype))
        self.blocks = list(self._blocks(threads if problem.macs >= WORTH_SHARING else 1)) if problem.macs else []
        sizes = {block.tiles: shapes_bytes(self._shapes.of(block.tiles)) for block in self.blocks}
        self.scratch_bytes = max(sizes.values(), default=0)

    def _blocks(self, threads: int) -> Iterator[Block]:
        problem, y, x = self._problem, self._axes["y"], self._axes["x"]
        most = max(1, BLOCK_BYTES // shapes_bytes(self._shapes.of((1, 1, 1))))  # tiles
        batch, together = problem.batch_shape, 1
        if len(batch) == 1 and problem.is_weight_shared:
            together = max(1, most // (y.count * x.count))
        # The first axis that is long enough is cut for the threads.
        parts = [threads if math.prod(batch) >= threads else 1]
        parts.append(threads if parts == [1] and y.count >= threads else 1)
        parts.append(threads if max(parts) == 1 else 1)
        batches = itertools.product(*(list(cut(size, together, parts[0])) for size in batch))
        rows = list(cut(y.count, max(1, most // x.count), parts[1]))
        columns = list(cut(x.count, most, parts[2]))
        for which, (y0, y1), (x0, x1) in itertools.product(batches, rows, columns):
            row_source, row_target = _box(problem.rows, y0 * y.tile, y1 * y.tile)
            column_source, column_target = _box(problem.columns, x0 * x.tile, x1 * x.tile)
            index = tuple(slice(*span) for span in which)
            pixels = slice(y0 * y.tile, min(y1 * y.tile, y.extent)), slice(x0 * x.tile, min(x1 * x.tile, x.extent))
            yield Block(
                tiles=(math.prod(stop - start for start, stop in which), y1 - y0, x1 - x0),
                source=(*index, row_source, column_source),
                target=(row_target, column_target),
                where=(*index, *pixels, slice(None)),
            )

    def pack_weights(self, w: Array) -> Packed:
        """Weights in tiles, zero where there is none."""
        problem = self._problem
        count = problem.w_axes.count("B")
        filters = arrange(w, order_of(problem.w_axes, "HWIO"))
        if problem.is_transposed:
            grouped = filters[::-1, ::-1].reshape(*filters.shape[:2], problem.groups, problem.depth, -1)
            filters = np.moveaxis(grouped, 2, 3).reshape(*filters.shape[:2], problem.depth, -1)
        if problem.is_weight_shared:
            filters = filters.reshape(1, *filters.shape[count:])
        else:
            filters = np.broadcast_to(filters, (*problem.batch_shape, *filters.shape[count:]))
            filters = filters.reshape(-1, *filters.shape[len(problem.batch_shape) :])
        return [[self._pack_chunk(one, chunk) for chunk in self._chunks] for one in filters]

    def _pack_chunk(self, w: Array, chunk: Chunk) -> Array:
        (c0, c1), (h0, h1), (v0, v1) = chunk
        kh, kw, c, n = (self._axes[name] for name in ("kh", "kw", "c", "n"))
        groups = self._problem.groups
        some = w[h0:h1, v0:v1, c0:c1].reshape(h1 - h0, v1 - v0, c1 - c0, groups, n.extent)
        full = np.zeros((groups, kh.tile, kw.tile, c.tile, n.count * n.tile), self._dtype)
        full[:, : h1 - h0, : v1 - v0, : c1 - c0, : n.extent] = some.transpose(3, 0, 1, 2, 4)
        return np.ascontiguousarray(full.reshape(groups, -1, n.count, n.tile).transpose(0, 2, 1, 3))

    def images(self, x: Array) -> Array:
        """The left operand in working axes (B.., H, W, C)."""
        images, batch = arrange(x, order_of(self._problem.x_axes, "HWC")), self._problem.batch_shape
        return images if images.shape[:-3] == batch else np.broadcast_to(images, (*batch, *images.shape[-3:]))

    def bind(
        self, block: Block, images: Array, weights: Packed | None, epilogue: BoundEpilogue, scratch: Scratch
    ) -> Iterator[Call]:
        """The NumPy calls that compute one block.

        Args:
            block: one of ``blocks``.
            images: from ``images``.
            weights: from ``pack_weights``.
            epilogue: takes the block.
            scratch: of at least ``scratch_bytes``.
        """
        assert weights is not None
        batch = block.where[:-3]
        which = 0
        if len(weights) > 1:
            which = int(np.ravel_multi_index([one.start for one in batch], self._problem.batch_shape))
        patches = Patches(self._shapes, block.tiles, scratch.arrays(self._shapes.of(block.tiles)))
        data = images[block.source]
        yield from patches.load(data.reshape(block.tiles[0], *data.shape[-3:]), block.target)
        yield from patches.clear_unused_rows()
        yield from self._sum(patches, weights[which])
        yield from patches.unpack(patches.sums if self._dtype == self._out_dtype else patches.total)
        rows, columns = (where.stop - where.start for where in block.where[-3:-1])
        value = patches.pixels[:, :rows, :columns].reshape(*data.shape[:-3], rows, columns, -1)
        yield epilogue.call(value, block.where)

    def _sum(self, patches: Patches, weights: Sequence[Array]) -> Iterator[Call]:
        """Sum over the chunks, each product first, then one addition; integers in floats as long as those are exact."""
        is_exact = self._dtype != self._out_dtype
        if is_exact:
            yield partial(np.copyto, patches.total, 0)
        for part, (chunk, w) in enumerate(zip(self._chunks, weights, strict=True)):
            yield from patches.pack(chunk)
            if part % self._chunks_at_once == 0:
                yield partial(np.matmul, patches.tiles, w, patches.sums_by_tile)
            else:
                yield partial(np.matmul, patches.tiles, w, patches.product_by_tile)
                yield partial(np.add, patches.sums, patches.product, patches.sums)
            is_last = (part + 1) % self._chunks_at_once == 0 or part + 1 == len(self._chunks)
            if is_exact and is_last:
                yield partial(_add_exact, patches.total, patches.sums)


def _add_exact(total: Array, sums: Array) -> None:
    total += to_compute(sums, total.dtype)


def _box(sliding: Sliding, start: int, stop: int) -> tuple[slice, slice]:
    """The real positions that output positions need, and where they stand in the padded piece of image."""
    return sliding.box((start, stop), (0, sliding.kernel), sliding.kernel)
