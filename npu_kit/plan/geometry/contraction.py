"""Matmul, convolutions and transposed convolutions as one problem: a sliding matrix product.

``out[b, g, y, x, n] = sum over (c, kh, kw) of x[b, g, y', x', c] * w[b, g, kh, kw, c, n]``. A matmul is the case of
one row ``y``, its rows along ``x``, and a 1x1 kernel; conv1d is the case of one row. Letters: b batch, g group, y and x
output rows and columns, n output channels of a group, c input channels of a group.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

from npu_kit.graph.ir import Graph, TensorType
from npu_kit.plan.geometry.base import Box, Spans, TileLayout, batch_index, whole
from npu_kit.plan.geometry.sliding import Sliding, sliding_of
from npu_kit.plan.ir import Axis


@dataclass(frozen=True)
class Contraction:
    """The problem of one node, before it is cut into tiles."""

    reduction: ClassVar[tuple[str, ...]] = ("c", "kh", "kw")  # axes along which a tile's result is summed

    operation: str
    x: TensorType
    w: TensorType
    out: TensorType
    batch_shape: tuple[int, ...]
    groups: int
    channels: int  # output channels of one group
    depth: int  # input channels of one group
    rows: Sliding
    columns: Sliding
    x_axes: str  # the tensor's axes by letter: B batch, H, W, C
    w_axes: str  # B, H, W, I, O
    out_axes: str  # B, H, W, C
    is_transposed: bool = False  # the kernel is turned round, and the groups lie along I of the weights, not O

    @property
    def extents(self) -> dict[str, int]:
        """Axis name -> extent."""
        return {
            "batch": math.prod(self.batch_shape),
            "group": self.groups,
            "y": self.rows.out,
            "x": self.columns.out,
            "n": self.channels,
            "c": self.depth,
            "kh": self.rows.kernel,
            "kw": self.columns.kernel,
        }

    @property
    def is_weight_shared(self) -> bool:
        """Whether every batch element uses the same weight."""
        return self.w_axes.count("B") == 0 or math.prod(self.w.shape[: self.w_axes.count("B")]) == 1

    @property
    def macs(self) -> int:
        """Multiply-accumulates, taps that fall on padding included, as is usual."""
        return math.prod(self.extents.values())

    def layouts(self, axes: tuple[Axis, ...]) -> dict[str, TileLayout]:
        """Layout of the tiles of ``x``, ``w`` and ``out``."""
        tile = {axis.name: axis.tile for axis in axes}
        ih, iw = self.rows.halo(tile["y"], tile["kh"]), self.columns.halo(tile["x"], tile["kw"])
        return {
            "x": TileLayout(self.x, _shown(self.x_axes, "HWC"), (ih, iw, tile["c"])),
            "w": TileLayout(self.w, _shown(self.w_axes, "HWIO"), (tile["kh"], tile["kw"], tile["c"], tile["n"])),
            "out": TileLayout(self.out, _shown(self.out_axes, "HWC"), (tile["y"], tile["x"], tile["n"])),
        }

    def box(self, operand: str, axes: tuple[Axis, ...], spans: Spans) -> Box:
        """The box of ``operand`` ("x", "w" or "out") that the tile at ``spans`` needs."""
        if operand == "x":
            return self._x_box(axes, spans)
        if operand == "w":
            return self._w_box(spans)
        return self._out_box(spans)

    def _x_box(self, axes: tuple[Axis, ...], spans: Spans) -> Box:
        tile = {axis.name: axis.tile for axis in axes}
        rows, row_target = self.rows.box(spans["y"], spans["kh"], tile["kh"])
        columns, column_target = self.columns.box(spans["x"], spans["kw"], tile["kw"])
        group = spans["group"][0] * self.depth
        channels = slice(group + spans["c"][0], group + spans["c"][1])
        index = self._index(self.x, self.x_axes, spans, {"H": rows, "W": columns, "C": channels})
        return Box(index, (row_target, column_target, whole(spans["c"])))

    def _w_box(self, spans: Spans) -> Box:
        group, (c0, c1), (n0, n1) = spans["group"][0], spans["c"], spans["n"]
        pieces = {"H": slice(*spans["kh"]), "W": slice(*spans["kw"])}
        if self.is_transposed:
            pieces = {"H": turned(spans["kh"], self.rows.kernel), "W": turned(spans["kw"], self.columns.kernel)}
            pieces |= {"I": slice(group * self.depth + c0, group * self.depth + c1), "O": slice(n0, n1)}
        else:
            pieces |= {"I": slice(c0, c1), "O": slice(group * self.channels + n0, group * self.channels + n1)}
        target = (whole(spans["kh"]), whole(spans["kw"]), whole(spans["c"]), whole(spans["n"]))
        return Box(self._index(self.w, self.w_axes, spans, pieces), target)

    def _out_box(self, spans: Spans) -> Box:
        group = spans["group"][0] * self.channels
        pieces = {
            "H": slice(*spans["y"]),
            "W": slice(*spans["x"]),
            "C": slice(group + spans["n"][0], group + spans["n"][1]),
        }
        target = (whole(spans["y"]), whole(spans["x"]), whole(spans["n"]))
        return Box(self._index(self.out, self.out_axes, spans, pieces), target)

    def _index(self, tensor: TensorType, letters: str, spans: Spans, pieces: dict[str, slice]) -> tuple[slice, ...]:
        """Slices in the tensor's own axes; several leading batch axes share one flat index."""
        count = letters.count("B")
        batch = batch_index(tensor.shape[:count], self.batch_shape, spans["batch"][0])
        return batch + tuple(pieces[letter] for letter in letters[count:])


def turned(span: tuple[int, int], size: int) -> slice:
    """The elements that stand at ``span`` once an axis of ``size`` elements is turned round."""
    last = size - span[1]
    return slice(size - 1 - span[0], last - 1 if last else None, -1)


@functools.lru_cache(maxsize=64)
def _shown(letters: str, wanted: str) -> tuple[int, ...]:
    """Position in ``letters`` of each letter of ``wanted``, -1 where it is missing."""
    return tuple(letters.find(letter) for letter in wanted)


def contraction_of(graph: Graph, node_id: int) -> Contraction:
    """The problem of a node of this family whose graph has been verified."""
    node = graph.nodes[node_id]
    x, w = (graph.type_of(entry) for entry in node.inputs)
    out = node.outputs[0]
    if node.name == "matmul":
        return _matmul(x, w, out)
    if node.name == "conv2d_transpose":
        return _transposed(dict(node.attrs), x, w, out)
    return _convolution(node.name, dict(node.attrs), x, w, out)


def _matmul(x: TensorType, w: TensorType, out: TensorType) -> Contraction:
    x_batch, w_batch = x.shape[:-2], w.shape[:-2]
    rows = x.shape[-2] if len(x.shape) > 1 else 1
    columns = w.shape[-1] if len(w.shape) > 1 else 1
    out_batch = out.shape[: len(out.shape) - (len(x.shape) > 1) - (len(w.shape) > 1)]
    return Contraction(
        operation="matmul",
        x=x,
        w=w,
        out=out,
        batch_shape=out_batch,
        groups=1,
        channels=columns,
        depth=x.shape[-1],
        rows=Sliding(1, 1),
        columns=Sliding(rows, rows),
        x_axes="B" * len(x_batch) + ("WC" if len(x.shape) > 1 else "C"),
        w_axes="B" * len(w_batch) + ("IO" if len(w.shape) > 1 else "I"),
        out_axes="B" * len(out_batch) + ("W" if len(x.shape) > 1 else "") + ("C" if len(w.shape) > 1 else ""),
    )


def _convolution(name: str, attrs: dict[str, Any], x: TensorType, w: TensorType, out: TensorType) -> Contraction:
    x_axes = attrs["data_layout"].replace("N", "B")
    w_axes = attrs["kernel_layout"]
    x_size, w_size = dict(zip(x_axes, x.shape, strict=True)), dict(zip(w_axes, w.shape, strict=True))
    out_size = dict(zip(x_axes, out.shape, strict=True))
    groups = attrs["groups"]
    spatial = 1 if name == "conv1d" else 2
    sliding = [
        sliding_of(attrs, i, x_size[letter], out_size[letter], w_size[letter])
        for i, letter in enumerate("HW"[2 - spatial :])
    ]
    rows = Sliding(1, 1) if spatial == 1 else sliding[0]
    return Contraction(
        operation=name,
        x=x,
        w=w,
        out=out,
        batch_shape=(x_size["B"],),
        groups=groups,
        channels=w_size["O"] // groups,
        depth=w_size["I"],
        rows=rows,
        columns=sliding[-1],
        x_axes=x_axes,
        w_axes=w_axes,
        out_axes=x_axes,
    )


def _transposed(attrs: dict[str, Any], x: TensorType, w: TensorType, out: TensorType) -> Contraction:
    """A convolution with stride 1 over the data with ``strides - 1`` zeros between its elements.

    V. Dumoulin and F. Visin, A guide to convolution arithmetic for deep learning, arXiv:1603.07285, section 4.
    """
    x_axes, w_axes = attrs["data_layout"].replace("N", "B"), attrs["kernel_layout"]
    x_size, w_size = dict(zip(x_axes, x.shape, strict=True)), dict(zip(w_axes, w.shape, strict=True))
    out_size = dict(zip(x_axes, out.shape, strict=True))
    rows, columns = (
        Sliding(
            size=x_size[letter],
            out=out_size[letter],
            kernel=w_size[letter],
            dilation=attrs["dilation"][i],
            before=attrs["dilation"][i] * (w_size[letter] - 1) - attrs["padding"][i],
            upsample=attrs["strides"][i],
        )
        for i, letter in enumerate("HW")
    )
    return Contraction(
        operation="conv2d_transpose",
        x=x,
        w=w,
        out=out,
        batch_shape=(x_size["B"],),
        groups=attrs["groups"],
        channels=w_size["O"],
        depth=w_size["I"] // attrs["groups"],
        rows=rows,
        columns=columns,
        x_axes=x_axes,
        w_axes=w_axes,
        out_axes=x_axes,
        is_transposed=True,
    )
