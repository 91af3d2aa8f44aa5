"""Pools and depthwise convolution as one problem: a sliding window over each channel on its own.

``out[b, y, x, c] = reduce over (kh, kw) of x[b, y', x', c] (* w[kh, kw, c])``, with maximum or sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from npu_kit.graph.ir import Graph, TensorType
from npu_kit.plan.geometry.base import Box, Spans, TileLayout, whole
from npu_kit.plan.geometry.sliding import Sliding, sliding_of
from npu_kit.plan.ir import Axis

AXES = ("batch", "y", "x", "c", "kh", "kw")

# The smallest value of each dtype: where maximum starts, and what padding holds (as TVM and ONNX Runtime do).
LOWEST = {
    "float16": -65504.0,
    "float32": -3.4028234663852886e38,
    "int8": -128,
    "uint8": 0,
    "int16": -32768,
    "uint16": 0,
    "int32": -(2**31),
}


@dataclass(frozen=True)
class Window:
    """The problem of one node, before it is cut into tiles."""

    reduction: ClassVar[tuple[str, ...]] = ("kh", "kw")  # axes along which a tile's result is summed

    operation: str  # "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "conv2d" (depthwise)
    x: TensorType
    w: TensorType | None
    out: TensorType
    rows: Sliding
    columns: Sliding
    x_axes: str  # N, H, W, C
    w_axes: str  # H, W, I, O; "" for a pool
    include_padding: bool = False

    @property
    def is_maximum(self) -> bool:
        return self.operation == "max_pool2d"

    @property
    def is_mean(self) -> bool:
        return self.w is None and not self.is_maximum

    @property
    def extents(self) -> dict[str, int]:
        """Axis name -> extent."""
        size = dict(zip(self.x_axes, self.out.shape, strict=True))
        extents = (size["N"], self.rows.out, self.columns.out, size["C"], self.rows.kernel, self.columns.kernel)
        return dict(zip(AXES, extents, strict=True))

    def divisors(self) -> tuple[list[int], list[int]]:
        """Taps per output row and per output column; their product divides the sum of an average pool."""
        return self.rows.taps(self.include_padding), self.columns.taps(self.include_padding)

    def layouts(self, axes: tuple[Axis, ...]) -> dict[str, TileLayout]:
        """Layout of the tiles of ``x``, ``w`` (depthwise only) and ``out``."""
        tile = {axis.name: axis.tile for axis in axes}
        ih, iw = self.rows.halo(tile["y"], tile["kh"]), self.columns.halo(tile["x"], tile["kw"])
        shown = tuple(self.x_axes.index(letter) for letter in "HWC")
        fill = LOWEST[self.x.dtype] if self.is_maximum else 0
        layouts = {
            "x": TileLayout(self.x, shown, (ih, iw, tile["c"]), fill),
            "out": TileLayout(self.out, shown, (tile["y"], tile["x"], tile["c"])),
        }
        if self.w is not None:
            kernel = tuple(self.w_axes.index(letter) for letter in "HWO")
            layouts["w"] = TileLayout(self.w, kernel, (tile["kh"], tile["kw"], tile["c"]))
        return layouts

    def box(self, operand: str, axes: tuple[Axis, ...], spans: Spans) -> Box:
        """The box of ``operand`` ("x", "w" or "out") that the tile at ``spans`` needs."""
        tile = {axis.name: axis.tile for axis in axes}
        pieces = {"N": slice(*spans["batch"]), "C": slice(*spans["c"])}
        if operand == "w":
            kernel = {"H": slice(*spans["kh"]), "W": slice(*spans["kw"]), "I": slice(0, 1), "O": slice(*spans["c"])}
            target = (whole(spans["kh"]), whole(spans["kw"]), whole(spans["c"]))
            return Box(tuple(kernel[letter] for letter in self.w_axes), target)
        if operand == "x":
            rows, row_target = self.rows.box(spans["y"], spans["kh"], tile["kh"])
            columns, column_target = self.columns.box(spans["x"], spans["kw"], tile["kw"])
        else:
            rows, row_target = slice(*spans["y"]), whole(spans["y"])
            columns, column_target = slice(*spans["x"]), whole(spans["x"])
        pieces.update(H=rows, W=columns)
        return Box(tuple(pieces[letter] for letter in self.x_axes), (row_target, column_target, whole(spans["c"])))


def is_depthwise(graph: Graph, node_id: int) -> bool:
    """Whether a conv2d has one input and one output channel per group, which the vector engine does lane by lane."""
    node = graph.nodes[node_id]
    if node.name != "conv2d":
        return False
    kernel = dict(zip(str(node.attrs["kernel_layout"]), graph.type_of(node.inputs[1]).shape, strict=True))
    groups = node.attrs["groups"]
    return kernel["I"] == 1 and kernel["O"] == groups and groups != 1


def even_windows(data: tuple[int, ...], out: tuple[int, ...], layout: str) -> dict[str, Any]:
    """The attributes of the avg_pool2d that cuts the data into as many windows, side by side, as the output has."""
    sizes = tuple(data[axis] // out[axis] for axis in (layout.index("H"), layout.index("W")))
    return {"pool_size": sizes, "strides": sizes, "padding": (0, 0, 0, 0), "dilation": (1, 1)}


def window_of(graph: Graph, node_id: int) -> Window:
    """The problem of a pool or a depthwise conv2d whose graph has been verified."""
    node = graph.nodes[node_id]
    attrs: dict[str, Any] = dict(node.attrs)
    x, out = graph.type_of(node.inputs[0]), node.outputs[0]
    if node.name == "conv2d":
        w, w_axes, x_axes = graph.type_of(node.inputs[1]), attrs["kernel_layout"], attrs["data_layout"]
        kernel = tuple(w.shape[w_axes.index(letter)] for letter in "HW")
    else:
        w, w_axes, x_axes = None, "", attrs["layout"]
        if node.name == "adaptive_avg_pool2d":
            attrs |= even_windows(x.shape, out.shape, x_axes)
        kernel = tuple(attrs["pool_size"])
    size, out_size = dict(zip(x_axes, x.shape, strict=True)), dict(zip(x_axes, out.shape, strict=True))
    rows, columns = (sliding_of(attrs, i, size[letter], out_size[letter], kernel[i]) for i, letter in enumerate("HW"))
    include = bool(attrs.get("count_include_pad", False))
    return Window(node.name, x, w, out, rows, columns, x_axes, w_axes, include)
