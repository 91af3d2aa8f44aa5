"""Which axes of a step number its output tiles, which are summed in chunks, and how many there are of both."""

from __future__ import annotations

import math
from collections.abc import Mapping

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
