"""Softmax along one axis, streamed: the rows of a tile lie along the other axes, its columns along the softmax axis.

Three passes over the columns: the maximum, the sum of ``exp(x - maximum)``, and the quotient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from npu_kit.graph.ir import Graph, TensorType
from npu_kit.plan.geometry.base import Box, Spans, TileLayout, batch_index, whole
from npu_kit.plan.ir import Axis

AXES = ("outer", "inner", "k")


@dataclass(frozen=True)
class Softmax:
    """The problem of one node: ``outer`` counts the axes before the softmax axis, ``inner`` is the last axis.

    Axes between the softmax axis and the last one belong to ``outer`` as well. Where the softmax axis is the last one,
    ``inner`` is the axis before it.
    """

    reduction: ClassVar[tuple[str, ...]] = ()  # axes along which a tile's result is summed

    type: TensorType
    axis: int

    @property
    def operation(self) -> str:
        return "softmax"

    @property
    def inner_axis(self) -> int:
        """The tensor axis called ``inner``, -1 if there is only one axis."""
        rank = len(self.type.shape)
        if rank == 1:
            return -1
        return rank - 1 if self.axis != rank - 1 else rank - 2

    @property
    def outer_axes(self) -> tuple[int, ...]:
        """The tensor axes that ``outer`` counts, in order."""
        return tuple(i for i in range(len(self.type.shape)) if i not in (self.axis, self.inner_axis))

    @property
    def extents(self) -> dict[str, int]:
        """Axis name -> extent."""
        shape = self.type.shape
        inner = shape[self.inner_axis] if self.inner_axis >= 0 else 1
        return dict(zip(AXES, (math.prod(shape[i] for i in self.outer_axes), inner, shape[self.axis]), strict=True))

    def layouts(self, axes: tuple[Axis, ...]) -> dict[str, TileLayout]:
        """Layout of the tiles of ``x`` and ``out``; columns without data hold -inf, whose exponential is 0."""
        tile = {axis.name: axis.tile for axis in axes}
        shown, shape = (self.inner_axis, self.axis), (tile["inner"], tile["k"])
        return {
            "x": TileLayout(self.type, shown, shape, fill=-math.inf),
            "out": TileLayout(self.type, shown, shape),
        }

    def box(self, operand: str, axes: tuple[Axis, ...], spans: Spans) -> Box:
        """The box of ``operand`` ("x" or "out") that the tile at ``spans`` needs."""
        outer_shape = tuple(self.type.shape[i] for i in self.outer_axes)
        index = [slice(0, 1)] * len(self.type.shape)
        for axis, piece in zip(self.outer_axes, batch_index(outer_shape, outer_shape, spans["outer"][0]), strict=True):
            index[axis] = piece
        if self.inner_axis >= 0:
            index[self.inner_axis] = slice(*spans["inner"])
        index[self.axis] = slice(*spans["k"])
        return Box(tuple(index), (whole(spans["inner"]), whole(spans["k"])))


def softmax_of(graph: Graph, node_id: int) -> Softmax:
    """The problem of a softmax node whose graph has been verified."""
    node = graph.nodes[node_id]
    axis = node.attrs["axis"]
    assert isinstance(axis, int)
    return Softmax(node.outputs[0], axis)
