"""The arrays of a block of a contraction, and the calls that take one to the next: piece of image, patches, sums.

Letters of shapes: B images, G groups, Y and X rows and columns of tiles, y and x pixels of a tile, T tiles (B * Y * X),
R rows of the matrix tile (at least y * x), D its depth, N tiles of output channels, n channels of one, K chunks of
input channels, c channels of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.plan.geometry import Contraction
from npu_kit.plan.ir import Axis
from npu_kit.runtime.fast_epilogue import Call
from npu_kit.runtime.kernels import sliding_windows
from npu_kit.runtime.workspace import Shapes

Array = NDArray[Any]
Tiles = tuple[int, int, int]  # B, Y, X
Chunk = tuple[tuple[int, int], ...]  # spans of input channels, kernel rows and kernel columns


class PatchShapes:
    """The shapes of a block's arrays.

    Args:
        problem: the contraction.
        axes: of the step, by name.
        tile_rows: R.
        dtypes: in which tiles are multiplied, and of the result.
    """

    def __init__(
        self,
        problem: Contraction,
        axes: Mapping[str, Axis],
        tile_rows: int,
        dtypes: tuple[np.dtype[Any], np.dtype[Any]],
    ) -> None:
        self.problem, self.axes, self.tile_rows, self.dtypes = problem, axes, tile_rows, dtypes
        self.kernel = (problem.rows.kernel, problem.columns.kernel)
        self.kernel_tile = (axes["kh"].tile, axes["kw"].tile)
        self.pixels = axes["y"].tile * axes["x"].tile
        self.depth = self.kernel_tile[0] * self.kernel_tile[1] * axes["c"].tile
        self.chunks = axes["c"].count * axes["kh"].count * axes["kw"].count

    def piece(self, tiles: Tiles) -> tuple[int, int]:
        """Rows and columns of the padded piece of image that a block needs."""
        height = self.problem.rows.halo(tiles[1] * self.axes["y"].tile, self.kernel[0])
        return height, self.problem.columns.halo(tiles[2] * self.axes["x"].tile, self.kernel[1])

    def of(self, tiles: Tiles) -> Shapes:
        """The arrays of a block of ``tiles``."""
        (factor, result), c, n, groups = self.dtypes, self.axes["c"], self.axes["n"], self.problem.groups
        count = tiles[0] * tiles[1] * tiles[2]
        sums = (count, self.tile_rows, groups, n.count, n.tile)
        return {
            "image": ((c.count, groups, tiles[0], *self.piece(tiles), c.tile), factor),
            "patches": ((count, groups, 1, self.tile_rows, self.depth), factor),
            "sums": (sums, factor),
            "product": (sums if self.chunks > 1 else (0,), factor),
            "total": (sums if factor != result else (0,), result),
            "out": ((count, self.pixels, groups, n.extent), result),
        }


class Patches:
    """The arrays of a block, in a workspace."""

    def __init__(self, shapes: PatchShapes, tiles: Tiles, arrays: Mapping[str, Array]) -> None:
        axes, problem = shapes.axes, shapes.problem
        y, x, c, n = (axes[name] for name in ("y", "x", "c", "n"))
        self._shapes, self._tiles = shapes, tiles
        self._image = arrays["image"]
        stride, dilation = zip(
            problem.rows.steps(shapes.kernel[0]), problem.columns.steps(shapes.kernel[1]), strict=True
        )
        outputs = (tiles[1] * y.tile, tiles[2] * x.tile)
        self._windows = self._split(sliding_windows(self._image, outputs, shapes.kernel, stride, dilation))
        self.tiles = arrays["patches"]  # (T, G, 1, R, D)
        target = self.tiles[:, :, 0, : shapes.pixels]
        self._target = target.reshape(*tiles, problem.groups, y.tile, x.tile, *shapes.kernel_tile, c.tile)
        self.sums, self.product, self.total = (arrays[name] for name in ("sums", "product", "total"))  # (T, R, G, N, n)
        self.sums_by_tile = self.sums.transpose(0, 2, 3, 1, 4)
        self.product_by_tile = self.product.transpose(0, 2, 3, 1, 4) if shapes.chunks > 1 else self.product
        self._out = arrays["out"].reshape(tiles[0], tiles[1], y.tile, tiles[2], x.tile, problem.groups, n.extent)
        # (B, Y * y, X * x, G * channels)
        self.pixels = self._out.reshape(tiles[0], *outputs, problem.groups * n.extent)

    def load(self, data: Array, target: tuple[slice, slice]) -> Iterator[Call]:
        """Make windows of the data (B, H, W, G * c), which stands at ``target`` in the piece of image."""
        shapes, c = self._shapes, self._shapes.axes["c"]
        data = data.reshape(*data.shape[:3], shapes.problem.groups, c.extent)
        full = c.extent // c.tile  # chunks; one more is ragged
        chunked = data[..., : full * c.tile].reshape(*data.shape[:4], full, c.tile).transpose(4, 3, 0, 1, 2, 5)
        is_covered = all(at.stop - at.start == size for at, size in zip(target, shapes.piece(self._tiles), strict=True))
        is_spread = shapes.problem.is_transposed
        if shapes.kernel == (1, 1) and is_covered and full == c.count and not is_spread:
            self._windows = self._split(chunked[..., None, None, :])  # each pixel is its own window
            return
        if full < c.count or is_spread:
            yield partial(self._image.fill, 0)
        else:
            yield from fill_border(self._image, (slice(None), slice(None), slice(None), *target), 0)
        place = self._image[:, :, :, target[0], target[1]]
        yield partial(np.copyto, place[:full], chunked)
        if full < c.count:
            rest = data[..., full * c.tile :].transpose(3, 0, 1, 2, 4)
            yield partial(np.copyto, place[full, ..., : rest.shape[-1]], rest)

    def pack(self, chunk: Chunk) -> Iterator[Call]:
        """The windows of one chunk into ``tiles``."""
        (c0, _), (h0, h1), (v0, v1) = chunk
        some, target = self._windows[c0 // self._shapes.axes["c"].tile][..., h0:h1, v0:v1, :], self._target
        if some.shape != target.shape:
            yield partial(np.copyto, target, 0)
            target = target[..., : h1 - h0, : v1 - v0, :]
        yield partial(np.copyto, target, some)

    def clear_unused_rows(self) -> Iterator[Call]:
        """Zero the rows of ``tiles`` that belong to no pixel."""
        unused = self.tiles[..., self._shapes.pixels :, :]
        if unused.size:
            yield partial(np.copyto, unused, 0)

    def unpack(self, sums: Array) -> Iterator[Call]:
        """Sums (T, R, G, N, n) into ``pixels``."""
        y, x, n = (self._shapes.axes[name] for name in "yxn")
        shape = (*self._tiles, y.tile, x.tile, self._shapes.problem.groups, n.count * n.tile)
        pixels = sums[:, : self._shapes.pixels].reshape(shape)[..., : n.extent]
        yield partial(np.copyto, self._out, pixels.transpose(0, 1, 3, 2, 4, 5, 6))

    def _split(self, windows: Array) -> Array:
        """Windows (K, G, B, Y * y, X * x, KH, KW, c) as (K, B, Y, X, G, y, x, KH, KW, c)."""
        y, x = self._shapes.axes["y"], self._shapes.axes["x"]
        grid = (self._tiles[0], self._tiles[1], y.tile, self._tiles[2], x.tile)
        split = windows.reshape(*windows.shape[:2], *grid, *windows.shape[5:])
        return np.transpose(split, (0, 2, 3, 5, 1, 4, 6, 7, 8, 9))


def fill_border(array: Array, inside: tuple[slice, ...], value: float) -> Iterator[Call]:
    """Fill what lies outside of the box ``inside`` along its axes; slabs at corners may be filled twice."""
    for axis, piece in enumerate(inside):
        if piece == slice(None):
            continue
        for outside in (slice(0, piece.start), slice(piece.stop, array.shape[axis])):
            if outside.start < outside.stop:
                yield partial(np.copyto, array[(slice(None),) * axis + (outside,)], value)
