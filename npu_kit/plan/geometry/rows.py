"""Operations that walk along one axis several times: softmax and the norms. A tile's columns lie along that axis.

======================  ===========================================================================
operation               passes over the columns
======================  ===========================================================================
softmax                 the maximum, the sum of ``exp(x - maximum)``, the quotient
log_softmax             the maximum, the sum of ``exp(x - maximum)``, the difference
layer_norm              the sum, the squares of ``x - mean``, the quotient times gamma, plus beta
rms_norm                the squares of ``x``, the quotient times gamma
======================  ===========================================================================
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from npu_kit.graph.ir import Graph, TensorType
from npu_kit.plan.geometry.base import Box, Spans, TileLayout, batch_index, whole
from npu_kit.plan.ir import Axis

AXES = ("outer", "inner", "k")

# The statistics that a pass gathers, one value a row, in order; the last pass over the columns makes the output.
STATISTICS: Mapping[str, tuple[str, ...]] = {
    "softmax": ("maximum", "sum"),
    "log_softmax": ("maximum", "sum"),
    "layer_norm": ("sum", "squares"),
    "rms_norm": ("squares",),
}
GATHERED = frozenset(itertools.chain(*STATISTICS.values()))  # the stages that write a statistic's slot in L1
LAST = "normalise"  # the stage of the last pass
_EXPONENTIALS = ("softmax", "log_softmax")


@dataclass(frozen=True)
class Rows:
    """The problem of one node: ``outer`` counts the axes before the columns' axis, ``inner`` is the last axis.

    Axes between the columns' axis and the last one belong to ``outer`` as well. Where the columns' axis is the last
    one, ``inner`` is the axis before it.
    """

    reduction: ClassVar[tuple[str, ...]] = ()  # axes along which a tile's result is summed

    operation: str  # a key of STATISTICS
    type: TensorType
    axis: int
    parameters: Mapping[str, TensorType]  # gamma and the like: one value for each column, read in the last pass

    @property
    def out(self) -> TensorType:
        return self.type

    @property
    def stages(self) -> tuple[str, ...]:
        """The passes, in order."""
        return (*STATISTICS[self.operation], LAST)

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

    @property
    def fill(self) -> float:
        """What columns without data hold: -inf has an exponential of 0."""
        return -math.inf if self.operation in _EXPONENTIALS else 0

    def layouts(self, axes: tuple[Axis, ...]) -> dict[str, TileLayout]:
        """Layout of the tiles of ``x``, the parameters and ``out``."""
        tile = {axis.name: axis.tile for axis in axes}
        shown, shape = (self.inner_axis, self.axis), (tile["inner"], tile["k"])
        layouts = {"x": TileLayout(self.type, shown, shape, fill=self.fill)}
        for name, kind in self.parameters.items():
            layouts[name] = TileLayout(kind, (-1, 0), (1, tile["k"]))
        return layouts | {"out": TileLayout(self.type, shown, shape)}

    def box(self, operand: str, axes: tuple[Axis, ...], spans: Spans) -> Box:
        """The box of ``operand`` ("x", a parameter or "out") that the tile at ``spans`` needs."""
        columns = slice(*spans["k"])
        if operand in self.parameters:
            return Box((columns,), (slice(0, 1), whole(spans["k"])))
        outer_shape = tuple(self.type.shape[i] for i in self.outer_axes)
        index = [slice(0, 1)] * len(self.type.shape)
        for axis, piece in zip(self.outer_axes, batch_index(outer_shape, outer_shape, spans["outer"][0]), strict=True):
            index[axis] = piece
        if self.inner_axis >= 0:
            index[self.inner_axis] = slice(*spans["inner"])
        index[self.axis] = columns
        return Box(tuple(index), (whole(spans["inner"]), whole(spans["k"])))


def rows_of(graph: Graph, node_id: int) -> Rows:
    """The problem of a softmax or norm node whose graph has been verified."""
    node = graph.nodes[node_id]
    axis = node.attrs["axis"]
    assert isinstance(axis, int)
    parameters = {f"w{i}": graph.type_of(entry) for i, entry in enumerate(node.inputs[1:])}
    return Rows(node.name, node.outputs[0], axis, parameters)
