"""An operation's letters for the axes of its loops and of its tiles: M, N, K of a matmul; N, C, H, W of images."""

from __future__ import annotations

from npu_kit.plan.geometry import Contraction, Problem, Rows, Window


def letters_of(problem: Problem) -> dict[str, str]:
    """By name of a loop's axis, its letter; axes of rows keep their names, and say which of the tensor's they are."""
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


def tile_letters(problem: Problem, operand: str) -> str:
    """A letter per axis of the operand's tile, "" where the tensor's axis number must do."""
    if isinstance(problem, Contraction) and problem.operation == "matmul":
        return {"x": " MK", "w": "  KN"}.get(operand, " MN")
    if isinstance(problem, Contraction):
        return {"w": "HWIO"}.get(operand, "HWC")
    return "HWC" if isinstance(problem, Window) else ""
