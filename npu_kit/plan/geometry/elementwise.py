"""Elementwise operations: every operand is seen along the output's axes, broadcast where it is one element long.

The same alignment serves an epilogue: there the output's axes are those of the running tile.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

from npu_kit.graph.ir import Graph, TensorType
from npu_kit.graph.ops import OPS
from npu_kit.plan.geometry.base import Box, Spans, TileLayout, whole
from npu_kit.plan.ir import Axis


def alignment(graph: Graph, node_id: int, position: int) -> tuple[int, ...]:
    """Per axis of the node's output, the axis of its operand ``position`` that runs along it, or -1 (broadcast)."""
    node = graph.nodes[node_id]
    shape, rank = graph.type_of(node.inputs[position]).shape, len(node.outputs[0].shape)
    if position > 0 and OPS[node.name].parameters_on_axis:
        return _on_axis(shape, node.attrs["axis"], rank)
    return _from_the_right(shape, rank)


@functools.lru_cache(maxsize=1024)
def _on_axis(shape: tuple[int, ...], channel: int, rank: int) -> tuple[int, ...]:
    # One value serves every index of the axis, whether its shape is that of a scalar, (1,) or (1, 1).
    is_shared = all(size == 1 for size in shape)
    return tuple(0 if axis == channel and not is_shared else -1 for axis in range(rank))


@functools.lru_cache(maxsize=1024)  # the planner asks for every candidate of a step
def _from_the_right(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    missing = rank - len(shape)
    return tuple(axis - missing if axis >= missing and shape[axis - missing] != 1 else -1 for axis in range(rank))


@dataclass(frozen=True)
class Aligned:
    """One operand, seen along the axes of an output tile."""

    type: TensorType
    along: tuple[int, ...]  # see ``alignment``

    def layout(self, out: TileLayout) -> TileLayout:
        """Layout of this operand's tile beside an output tile."""
        axes = tuple(self.along[axis] if axis >= 0 else -1 for axis in out.axes)
        shape = tuple(size if axis >= 0 else 1 for size, axis in zip(out.shape, axes, strict=True))
        return TileLayout(self.type, axes, shape)

    def box(self, out: TileLayout, out_box: Box) -> Box:
        """The box of this operand that the output box needs."""
        index = [slice(0, 1)] * len(self.type.shape)
        for piece, axis in zip(out_box.index, self.along, strict=True):
            if axis >= 0:
                index[axis] = piece
        target = tuple(
            piece if axis >= 0 and self.along[axis] >= 0 else slice(0, 1)
            for piece, axis in zip(out_box.target, out.axes, strict=True)
        )
        return Box(tuple(index), target)


def aligned_operand(graph: Graph, node_id: int, position: int) -> Aligned:
    """Operand ``position`` of an elementwise node."""
    return Aligned(graph.type_of(graph.nodes[node_id].inputs[position]), alignment(graph, node_id, position))


@dataclass(frozen=True)
class Elementwise:
    """The problem of one node, before it is cut into tiles; axis ``d0`` is the output's first."""

    reduction: ClassVar[tuple[str, ...]] = ()  # axes along which a tile's result is summed

    operation: str
    out: TensorType
    operands: tuple[Aligned, ...]

    @property
    def extents(self) -> dict[str, int]:
        """Axis name -> extent; a scalar has no axis."""
        return {f"d{i}": size for i, size in enumerate(self.out.shape)}

    def layouts(self, axes: tuple[Axis, ...]) -> dict[str, TileLayout]:
        """Layout of the tiles of ``x0``, ``x1``, ... and ``out``."""
        out = TileLayout(self.out, tuple(range(len(axes))), tuple(axis.tile for axis in axes))
        return {"out": out} | {f"x{i}": operand.layout(out) for i, operand in enumerate(self.operands)}

    def box(self, operand: str, axes: tuple[Axis, ...], spans: Spans) -> Box:
        """The box of ``operand`` ("x0", ... or "out") that the tile at ``spans`` needs."""
        named = [spans[axis.name] for axis in axes]
        out_box = Box(tuple(slice(*span) for span in named), tuple(whole(span) for span in named))
        if operand == "out":
            return out_box
        return self.operands[int(operand[1:])].box(self.layouts(axes)["out"], out_box)


def elementwise_of(graph: Graph, node_id: int) -> Elementwise:
    """The problem of an elementwise node whose graph has been verified."""
    node = graph.nodes[node_id]
    operands = tuple(aligned_operand(graph, node_id, i) for i in range(len(node.inputs)))
    return Elementwise(node.name, node.outputs[0], operands)


def copy_of(tensor: TensorType) -> Elementwise:
    """The problem of copying a tensor unchanged, for a region that returns one of its inputs."""
    return Elementwise("copy", tensor, (Aligned(tensor, tuple(range(len(tensor.shape)))),))
