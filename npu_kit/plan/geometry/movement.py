"""Operations that compute nothing: every element of the result is one of an operand, or padding. The dma engine's work.

A piece says which box of the result an operand fills and which of its elements stand there. A transpose, a slice and a
broadcast are one piece that fills all of it, a pad is one in the middle, a concatenation is several side by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from npu_kit.graph.ir import Graph, Node, TensorType
from npu_kit.plan.geometry.base import Box, Spans, TileLayout, whole
from npu_kit.plan.ir import Axis


@dataclass(frozen=True)
class Piece:
    """One operand and its place; all tuples run over the axes of the result."""

    type: TensorType
    along: tuple[int, ...]  # the operand's axis that runs along this one, -1 for none (broadcast)
    start: tuple[int, ...]  # the first position that the operand fills
    stop: tuple[int, ...]  # behind the last one
    first: tuple[int, ...]  # the operand's position that stands at ``start``
    step: tuple[int, ...]  # between operand positions that stand side by side

    def box(self, spans: list[tuple[int, int]]) -> Box:
        """What of the operand stands in the tile at ``spans``, and where; empty if nothing does."""
        index, target = [slice(0, 1)] * len(self.type.shape), []
        lows = [max(span[0], start) for span, start in zip(spans, self.start, strict=True)]
        highs = [min(span[1], stop) for span, stop in zip(spans, self.stop, strict=True)]
        is_empty = any(high <= low for low, high in zip(lows, highs, strict=True))
        for i, (span, axis) in enumerate(zip(spans, self.along, strict=True)):
            low, high = (span[0], span[0]) if is_empty else (lows[i], highs[i])
            place = slice(low - span[0], high - span[0])
            if axis < 0:
                target.append(slice(0, 1) if high > low else slice(0, 0))
                continue
            target.append(place)
            if is_empty:
                index[axis] = slice(0, 0)
                continue
            begin = self.first[i] + (low - self.start[i]) * self.step[i]
            index[axis] = slice(begin, begin + (high - low - 1) * self.step[i] + 1, self.step[i])
        return Box(tuple(index), tuple(target))

    def positions(self, axis: int) -> int:
        """Positions of the result along ``axis`` that the operand fills."""
        return self.stop[axis] - self.start[axis]


@dataclass(frozen=True)
class Movement:
    """The problem of one node, before it is cut into tiles; axis ``d0`` is the output's first."""

    reduction: ClassVar[tuple[str, ...]] = ()  # axes along which a tile's result is summed

    out: TensorType
    pieces: tuple[Piece, ...]
    fill: float = 0  # of the elements that no piece covers

    @property
    def extents(self) -> dict[str, int]:
        """Axis name -> extent; a scalar has no axis."""
        return {f"d{i}": size for i, size in enumerate(self.out.shape)}

    def padding(self, spans: Sequence[tuple[int, int]]) -> int:
        """Elements of the tile at ``spans`` that no operand fills."""
        filled = 0
        for piece in self.pieces:
            places = zip(spans, piece.start, piece.stop, strict=True)
            filled += math.prod(max(0, min(span[1], stop) - max(span[0], start)) for span, start, stop in places)
        return math.prod(stop - start for start, stop in spans) - filled

    def layouts(self, axes: tuple[Axis, ...]) -> dict[str, TileLayout]:
        """Layout of the tiles of ``x0``, ``x1``, ... and ``out``."""
        sizes = tuple(axis.tile for axis in axes)
        layouts = {}
        for i, piece in enumerate(self.pieces):
            shape = tuple(size if axis >= 0 else 1 for size, axis in zip(sizes, piece.along, strict=True))
            layouts[f"x{i}"] = TileLayout(piece.type, piece.along, shape)
        return layouts | {"out": TileLayout(self.out, tuple(range(len(axes))), sizes)}

    def box(self, operand: str, axes: tuple[Axis, ...], spans: Spans) -> Box:
        """The box of ``operand`` ("x0", ... or "out") that the tile at ``spans`` needs."""
        named = [spans[axis.name] for axis in axes]
        if operand == "out":
            return Box(tuple(slice(*span) for span in named), tuple(whole(span) for span in named))
        return self.pieces[int(operand[1:])].box(named)


def movement_of(graph: Graph, node_id: int) -> Movement:
    """The problem of a movement node whose graph has been verified."""
    node = graph.nodes[node_id]
    inputs = [graph.type_of(entry) for entry in node.inputs]
    return _MOVEMENTS[node.name](node, inputs, dict(node.attrs))


def _all_of(kind: TensorType, along: tuple[int, ...], out: TensorType) -> Piece:
    """The operand's own positions, in order, over the whole result."""
    rank = len(out.shape)
    return Piece(kind, along, (0,) * rank, out.shape, (0,) * rank, (1,) * rank)


def _permute_dims(node: Node, inputs: list[TensorType], attrs: dict[str, Any]) -> Movement:
    return Movement(node.outputs[0], (_all_of(inputs[0], attrs["axes"], node.outputs[0]),))


def _broadcast_to(node: Node, inputs: list[TensorType], attrs: dict[str, Any]) -> Movement:
    out, (x,) = node.outputs[0], inputs
    missing = len(out.shape) - len(x.shape)
    sizes = (1,) * missing + x.shape
    along = tuple(i - missing if sizes[i] == size != 1 else -1 for i, size in enumerate(out.shape))
    return Movement(out, (_all_of(x, along, out),))


def _strided_slice(node: Node, inputs: list[TensorType], attrs: dict[str, Any]) -> Movement:
    out, rank = node.outputs[0], len(node.outputs[0].shape)
    piece = Piece(inputs[0], tuple(range(rank)), (0,) * rank, out.shape, attrs["begin"], attrs["strides"])
    return Movement(out, (piece,))


def _pad(node: Node, inputs: list[TensorType], attrs: dict[str, Any]) -> Movement:
    (x,), rank, before = inputs, len(inputs[0].shape), attrs["pad_width"][::2]
    stop = tuple(start + size for start, size in zip(before, x.shape, strict=True))
    piece = Piece(x, tuple(range(rank)), before, stop, (0,) * rank, (1,) * rank)
    return Movement(node.outputs[0], (piece,), attrs["pad_value"])


def _concat(node: Node, inputs: list[TensorType], attrs: dict[str, Any]) -> Movement:
    out, axis, at, pieces = node.outputs[0], attrs["axis"], 0, []
    for kind in inputs:
        start = tuple(at if i == axis else 0 for i in range(len(out.shape)))
        at += kind.shape[axis]
        stop = tuple(at if i == axis else size for i, size in enumerate(out.shape))
        rank = len(out.shape)
        pieces.append(Piece(kind, tuple(range(rank)), start, stop, (0,) * rank, (1,) * rank))
    return Movement(out, tuple(pieces))


_MOVEMENTS: Mapping[str, Callable[[Node, list[TensorType], dict[str, Any]], Movement]] = {
    "broadcast_to": _broadcast_to,
    "concat": _concat,
    "pad": _pad,
    "permute_dims": _permute_dims,
    "strided_slice": _strided_slice,
}
