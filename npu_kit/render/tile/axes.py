"""The axes of a step as pictures speak of them: which number its tiles, which are summed in chunks, their letters."""

from __future__ import annotations

import math
from typing import get_args

from npu_kit.plan.geometry import Contraction, Problem, Rows, Window
from npu_kit.plan.ir import Axis, Step

_REDUCTIONS = {kind.__name__.lower(): kind.reduction for kind in get_args(Problem)}  # by family of a step


def output_axes(step: Step) -> tuple[Axis, ...]:
    """The axes that number the output tiles, in loop order."""
    return tuple(axis for axis in step.axes if axis.name not in _REDUCTIONS.get(step.family, ()))


def tile_count(step: Step) -> int:
    """Number of output tiles of ``step``."""
    return math.prod(axis.count for axis in output_axes(step))


def chunk_count(step: Step) -> int:
    """Number of chunks of the reduction axes, per output tile."""
    return math.prod(axis.count for axis in step.axes if axis not in output_axes(step))


def letters_of(problem: Problem) -> dict[str, str]:
    """Axis names in the letters of the operation: M, N, K for a matmul; N, C, H, W for images.

    Those of a softmax or a norm keep their names, and say which axis of the tensor they are.
    """
    if isinstance(problem, Contraction) and problem.operation == "matmul":
        return {"x": "M", "n": "N", "c": "K"}
    if isinstance(problem, Contraction):
        return {"batch": "N", "y": "H", "x": "W", "n": "C"}
    if isinstance(problem, Window):
        return {"batch": "N", "y": "H", "x": "W", "c": "C"}
    if isinstance(problem, Rows):
        axes = {"k": problem.axis, "inner": problem.inner_axis}
        return {name: f"{name} (axis {axis})" for name, axis in axes.items() if axis >= 0}
    return {}
