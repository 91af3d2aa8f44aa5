"""Tile shapes: how much of each axis one tile takes.

Only the output tile follows the machine's capacities. The depth of a reduction chunk follows the operation and the tile
alone, so the order of a floating-point sum, and with it every bit of the result, is the same on a machine with less
memory.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from npu_kit.hw.spec import NpuSpec
from npu_kit.plan.geometry import Contraction, Elementwise, Movement, Reduction, Rows, Window
from npu_kit.plan.geometry.sliding import Sliding
from npu_kit.plan.ir import Axis

# Products summed in one pass through the array: 32 channels of a 3x3 kernel, nine tiles deep at 32x32. Networks have
# channels by powers of two, so the last chunk is rarely ragged. Illustrative.
CHUNK_TARGET = 288
CHUNK_LIMIT = 288  # so many products of two int8 values sum exactly in float32: 288 * 128 * 128 < 2**24


def balanced(extent: int, limit: int, multiple: int = 8) -> int:
    """The tile that cuts ``extent`` into as few, and as equal, pieces as ``limit`` allows; a multiple if it cuts."""
    if extent <= limit:
        return max(1, extent)
    pieces = math.ceil(extent / limit)
    return min(limit, math.ceil(math.ceil(extent / pieces) / multiple) * multiple)


@functools.lru_cache(maxsize=1024)  # every loop order of a layer asks the same
def spatial_tile(
    rows: Sliding, columns: Sliding, kernel: tuple[int, int], limit: int, minimum: int = 1
) -> tuple[int, int]:
    """Rows and columns of an output tile of at most ``limit`` positions: fewest tiles first, then the smallest halo.

    Of fewer than ``minimum`` positions only where the tensor has no rectangle between the two.
    """
    best: tuple[tuple[bool, int, int, int], tuple[int, int]] | None = None
    for height in range(1, min(limit, max(1, rows.out)) + 1):
        width = max(1, min(limit // height, columns.out))
        tiles = math.ceil(rows.out / height) * math.ceil(columns.out / width)
        halo = tiles * rows.halo(height, kernel[0]) * columns.halo(width, kernel[1])
        key = (height * width < minimum, tiles, halo, height)
        if best is None or key < best[0]:
            best = key, (height, width)
    assert best is not None
    return best[1]


def reduction_chunk(problem: Contraction) -> tuple[int, int, int]:
    """Input channels, kernel rows and kernel columns that one pass through the array sums."""
    kh, kw = problem.rows.kernel, problem.columns.kernel
    channels = problem.depth
    tile_c = balanced(channels, max(8, CHUNK_TARGET // (kh * kw) // 8 * 8) if kh * kw > 1 else CHUNK_TARGET)
    if tile_c * kh * kw <= CHUNK_LIMIT:
        return tile_c, kh, kw
    tile_kh = balanced(kh, max(1, CHUNK_LIMIT // (tile_c * kw)), 1)
    if tile_c * tile_kh * kw <= CHUNK_LIMIT:
        return tile_c, tile_kh, kw
    return tile_c, 1, balanced(kw, max(1, CHUNK_LIMIT // tile_c), 1)


@dataclass(frozen=True)
class LoopOrder:
    """One way to nest the loops of a contraction."""

    dataflow: str  # what stays on the array, see plan.cost.DATAFLOWS
    names: tuple[str, ...]  # axes, outermost first
    keeps: str  # the operand whose tiles stay in L1 while the other's pass: "x" or "w"


_CHUNK = Contraction.reduction
LOOP_ORDERS = (
    LoopOrder("output_stationary", ("group", "n", "batch", "y", "x", *_CHUNK), "w"),
    LoopOrder("output_stationary", ("batch", "group", "y", "x", "n", *_CHUNK), "x"),
    LoopOrder("weight_stationary", ("group", "n", *_CHUNK, "batch", "y", "x"), "w"),
    LoopOrder("input_stationary", ("batch", "group", "y", "x", *_CHUNK, "n"), "x"),
)


def stays_along(problem: Contraction, dataflow: str) -> tuple[str, ...]:
    """The axes along which an operand stays on the array: the loops inside that of its chunks; none for outputs."""
    if dataflow == "weight_stationary":
        return ("batch", "y", "x") if problem.is_weight_shared else ("y", "x")
    return ("n",) if dataflow == "input_stationary" else ()


def contraction_axes(problem: Contraction, spec: NpuSpec, order: LoopOrder) -> tuple[Axis, ...]:
    """Axes and tiles of a contraction, in loop order."""
    c, kh, kw = reduction_chunk(problem)
    y, x = spatial_tile(problem.rows, problem.columns, (kh, kw), spec.tile.rows, spec.tile.minimum)
    tile = {"batch": 1, "group": 1, "y": y, "x": x, "n": spec.tile.columns, "c": c, "kh": kh, "kw": kw}
    extents = problem.extents
    return tuple(Axis(name, extents[name], tile[name]) for name in order.names)


def window_axes(problem: Window, spec: NpuSpec) -> Iterator[tuple[Axis, ...]]:
    """Candidate tilings of a window, the largest first.

    Kernel rows are cut before kernel columns, so the taps are always summed in the same order.
    """
    kernel_rows, kernel_columns = problem.rows.kernel, problem.columns.kernel
    extents = problem.extents
    kernels = [(kernel_rows, kernel_columns), (1, kernel_columns), (1, min(8, kernel_columns)), (1, 1)]
    for channels in halved(spec.tile.columns, spec.tile.minimum):
        for kernel in dict.fromkeys(kernels):
            y, x = spatial_tile(problem.rows, problem.columns, kernel, spec.tile.rows, spec.tile.minimum)
            tile = {"batch": 1, "y": y, "x": x, "c": channels, "kh": kernel[0], "kw": kernel[1]}
            yield tuple(Axis(name, extents[name], tile[name]) for name in tile)


def elementwise_axes(problem: Elementwise | Movement, spec: NpuSpec) -> Iterator[tuple[Axis, ...]]:
    """Candidate tilings of a walk over the output, the largest first: the last axes are taken whole.

    An axis that is cut is cut into whole vectors where they lie along it, so that only its end leaves lanes idle.
    """
    for limit in halved(spec.tile.rows * spec.tile.columns, spec.tile.minimum):
        tiles: list[int] = []
        left = limit
        for size in reversed(problem.out.shape):
            tile = max(1, min(size, left))
            if not tiles and tile < size and tile > spec.vector_elements:
                tile -= tile % spec.vector_elements
            tiles.append(tile)
            left //= tile
        extents = problem.extents
        yield tuple(
            Axis(name, extent, tile) for (name, extent), tile in zip(extents.items(), reversed(tiles), strict=True)
        )


def reduction_chunks(problem: Reduction, spec: NpuSpec) -> dict[str, int]:
    """How much of each reduced axis one tile takes: the last axes first, as many elements as the machine's columns."""
    tile: dict[str, int] = {}
    left = spec.tile.columns
    for axis in reversed(problem.reduced):
        tile[f"r{axis}"] = balanced(problem.x.shape[axis], max(1, left), 1)
        left //= tile[f"r{axis}"]
    return tile


def reduction_axes(problem: Reduction, spec: NpuSpec) -> Iterator[tuple[Axis, ...]]:
    """Candidate tilings of a reduction, the largest first; only the kept axes change, for the sake of the sum's order.

    The machine's columns go to the reduced axes, and as many results stand beside each other as the accumulator holds.
    """
    tile = reduction_chunks(problem, spec)
    depth = math.prod(tile.values())
    for limit in halved(max(spec.tile.minimum, spec.tile.rows * spec.tile.columns // depth), spec.tile.minimum):
        left = limit
        for axis in reversed(problem.kept):
            tile[f"d{axis}"] = max(1, min(problem.x.shape[axis], left))
            left //= tile[f"d{axis}"]
        yield tuple(Axis(name, extent, tile[name]) for name, extent in problem.extents.items())


def row_axes(problem: Rows, spec: NpuSpec) -> Iterator[tuple[Axis, ...]]:
    """Candidate tilings of rows, the largest first; the columns never change, for the sake of the sum's order."""
    extents = problem.extents
    for rows in halved(spec.tile.rows, spec.tile.minimum):
        tile = {"outer": 1, "inner": max(1, min(rows, extents["inner"])), "k": spec.tile.columns}
        yield tuple(Axis(name, extents[name], tile[name]) for name in tile)


def halved(size: int, minimum: int) -> Iterator[int]:
    """``size`` and its halves, down to ``minimum``."""
    while size >= minimum:
        yield size
        size //= 2
