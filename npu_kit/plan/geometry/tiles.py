"""Output tiles and their chunks: along which axes of a step they lie, how many there are, where, and of which sizes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping

from npu_kit.plan.geometry.contraction import Contraction
from npu_kit.plan.geometry.reduction import Reduction
from npu_kit.plan.geometry.window import Window
from npu_kit.plan.ir import Axis, Step

_SUMMED_ALONG: Mapping[str, tuple[str, ...]] = {  # by family; in the others every axis numbers tiles
    "contraction": Contraction.reduction,
    "window": Window.reduction,
    "reduction": Reduction.reduction,
}


def output_axes(step: Step) -> tuple[Axis, ...]:
    """The axes that number the output tiles, in loop order."""
    return tuple(axis for axis in step.axes if axis.name not in _SUMMED_ALONG.get(step.family, ()))


def chunk_axes(step: Step) -> tuple[Axis, ...]:
    """The axes along which an output tile is summed chunk by chunk, in loop order."""
    return tuple(axis for axis in step.axes if axis.name in _SUMMED_ALONG.get(step.family, ()))


def tile_count(step: Step) -> int:
    """Number of output tiles."""
    return math.prod(axis.count for axis in output_axes(step))


def chunk_count(step: Step) -> int:
    """Number of chunks in each output tile; 1 where nothing is summed."""
    return math.prod(axis.count for axis in chunk_axes(step))


def tile_indices(axes: tuple[Axis, ...]) -> Iterator[tuple[int, ...]]:
    """All tile indices along ``axes``, the last axis fastest."""
    return itertools.product(*(range(axis.count) for axis in axes))


def tile_sizes(axes: Iterable[Axis]) -> Iterator[tuple[Mapping[str, int], int]]:
    """The different tile sizes, axis by axis, and how many tiles have each: an axis has full tiles and a ragged one."""
    choices = []
    for axis in axes:
        full, rest = divmod(axis.extent, axis.tile)
        sizes = [(axis.name, axis.tile, full)] * bool(full) + [(axis.name, rest, 1)] * bool(rest)
        choices.append(sizes)
    for combination in itertools.product(*choices):
        yield {name: size for name, size, _ in combination}, math.prod(count for _, _, count in combination)
