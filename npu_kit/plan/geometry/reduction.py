"""Sums, means and extrema over some axes of a tensor: a tile of the others for each tile of the result.

``out[kept] = reduce over the reduced axes of x``. Axis ``d2`` is the tensor's third where it is kept, ``r2`` where it
is reduced. The tile's last axes are the reduced ones, so that what one result needs of a tile is one run of memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from npu_kit.graph.ir import Graph, TensorType
from npu_kit.graph.shapes import FLOATS, integer_range
from npu_kit.graph.verify import MAX_RANK
from npu_kit.plan.geometry.base import Box, Spans, TileLayout, whole
from npu_kit.plan.ir import Axis


@dataclass(frozen=True)
class Reduction:
    """The problem of one node, before it is cut into tiles."""

    reduction: ClassVar[tuple[str, ...]] = tuple(f"r{i}" for i in range(MAX_RANK))

    operation: str  # "sum", "mean", "max", "min"
    x: TensorType
    out: TensorType
    reduced: tuple[int, ...]  # axes of x, in order

    @property
    def kept(self) -> tuple[int, ...]:
        """The axes of x that the result has, in order."""
        return tuple(axis for axis in range(len(self.x.shape)) if axis not in self.reduced)

    @property
    def out_axes(self) -> tuple[int, ...]:
        """The result's axis for each kept axis of x; with keepdims the reduced ones are there too, one long."""
        is_kept_whole = len(self.out.shape) == len(self.x.shape)
        return self.kept if is_kept_whole else tuple(range(len(self.kept)))

    @property
    def count(self) -> int:
        """Elements of x in each element of the result."""
        return math.prod(self.x.shape[axis] for axis in self.reduced)

    @property
    def start(self) -> float:
        """What the reduction of nothing gives, and elements of a tile without data hold."""
        if self.operation in ("sum", "mean"):
            return 0
        is_maximum = self.operation == "max"
        if self.x.dtype in FLOATS:
            return -math.inf if is_maximum else math.inf
        return integer_range(self.x.dtype)[0 if is_maximum else 1]

    @property
    def extents(self) -> dict[str, int]:
        """Axis name -> extent: the kept axes, then the reduced ones."""
        named = [(f"d{axis}", axis) for axis in self.kept] + [(f"r{axis}", axis) for axis in self.reduced]
        return {name: self.x.shape[axis] for name, axis in named}

    def layouts(self, axes: tuple[Axis, ...]) -> dict[str, TileLayout]:
        """Layout of the tiles of ``x`` and ``out``."""
        tiles = tuple(axis.tile for axis in axes)
        return {
            "x": TileLayout(self.x, (*self.kept, *self.reduced), tiles, fill=self.start),
            "out": TileLayout(self.out, self.out_axes, tiles[: len(self.kept)]),
        }

    def box(self, operand: str, axes: tuple[Axis, ...], spans: Spans) -> Box:
        """The box of ``operand`` ("x" or "out") that the tile at ``spans`` needs."""
        if operand == "x":
            tensor, shown, used = self.x, (*self.kept, *self.reduced), axes
        else:
            tensor, shown, used = self.out, self.out_axes, axes[: len(self.kept)]
        named = [spans[axis.name] for axis in used]
        index = [slice(0, 1)] * len(tensor.shape)
        for axis, span in zip(shown, named, strict=True):
            index[axis] = slice(*span)
        return Box(tuple(index), tuple(whole(span) for span in named))


def reduction_of(graph: Graph, node_id: int) -> Reduction:
    """The problem of a reduction node whose graph has been verified."""
    node = graph.nodes[node_id]
    attrs: Mapping[str, Any] = node.attrs
    return Reduction(node.name, graph.type_of(node.inputs[0]), node.outputs[0], attrs["axis"])
