"""How a tensor looks to a step: which box of it a tile needs, and where that box stands in on-chip memory.

A box is given in the tensor's own axes, so a transfer is a plain copy of a NumPy view, and a picture can draw it. A
tile has its own axes (rows, columns, channels, ...) whatever the tensor's layout is: the dma engine transposes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from npu_kit.graph.ir import DTYPE_BYTES, TensorType
from npu_kit.plan.ir import Axis

Spans = Mapping[str, tuple[int, int]]  # axis name -> start and stop


@dataclass(frozen=True)
class Box:
    """One piece of a tensor and its place in a tile."""

    index: tuple[slice, ...]  # into the tensor's own axes
    target: tuple[slice, ...]  # into the tile's axes; with a step where zeros stand between the elements

    @property
    def elements(self) -> int:
        """Real elements, padding not counted."""
        return math.prod(self.lengths)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Real elements along each of the tile's axes."""
        return tuple(len(range(piece.start, piece.stop, piece.step or 1)) for piece in self.target)


@dataclass(frozen=True)
class TileLayout:
    """The fixed part of an operand's tiles."""

    type: TensorType
    axes: tuple[int, ...]  # per tile axis the tensor axis it shows, or -1; a box is one element long along all others
    shape: tuple[int, ...]  # of a full tile
    fill: float = 0  # value of the elements that no real data covers

    @property
    def order(self) -> tuple[int, ...]:
        """Permutation of the tensor's axes: those that the tile does not show, then the tile's."""
        shown = tuple(axis for axis in self.axes if axis >= 0)
        return tuple(axis for axis in range(len(self.type.shape)) if axis not in shown) + shown

    @property
    def nbytes(self) -> int:
        """Bytes of one full tile."""
        return DTYPE_BYTES[self.type.dtype] * math.prod(self.shape)


def spans_of(axes: tuple[Axis, ...], at: tuple[int, ...]) -> dict[str, tuple[int, int]]:
    """The span of each axis at tile index ``at``; an index below 0 leaves the axis out."""
    return {axis.name: axis.span(index) for axis, index in zip(axes, at, strict=True) if index >= 0}


def whole(span: tuple[int, int]) -> slice:
    """The span as a slice that starts at 0: where a ragged piece stands in its tile."""
    return slice(0, span[1] - span[0])


def batch_index(shape: tuple[int, ...], batch_shape: tuple[int, ...], flat: int) -> tuple[slice, ...]:
    """The place of flat batch index ``flat`` in a tensor whose leading axes ``shape`` broadcast to ``batch_shape``."""
    index = []
    for size in reversed(batch_shape):
        flat, position = divmod(flat, max(1, size))  # a batch of nothing still has the one place of what it shares
        index.append(position)
    aligned = list(reversed(index))[len(batch_shape) - len(shape) :]
    return tuple(
        slice(0, 1) if size == 1 else slice(position, position + 1)
        for size, position in zip(shape, aligned, strict=True)
    )
