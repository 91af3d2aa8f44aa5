"""Shape and dtype rules: the type of an operation's output from its inputs' types and its full attributes.

Letters: M, N, K for a matmul; N, C, H, W for images; O, I, H, W for the weights of a convolution.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from npu_kit.errors import GraphError, UnsupportedError
from npu_kit.graph.ir import DTYPE_BYTES, TensorType

FLOATS = ("float16", "float32")
QUANTIZED = ("int8", "uint8", "int16", "uint16")
INTEGERS = (*QUANTIZED, "int32")
SIGNED = ("int8", "int16", "int32")

Types = Sequence[TensorType]
Attrs = Mapping[str, Any]


def integer_range(dtype: str) -> tuple[int, int]:
    """Lowest and highest value of an integer dtype."""
    bits = 8 * DTYPE_BYTES[dtype]
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def permutation(source: str, target: str) -> tuple[int, ...]:
    """The axes that ``transpose`` needs to go from layout ``source`` to ``target``: NHWC to NCHW is (0, 3, 1, 2)."""
    return tuple(source.index(letter) for letter in target)


def in_layout(shape: Sequence[int], source: str, target: str) -> tuple[int, ...]:
    """``shape``, given in layout ``source``, in layout ``target``."""
    return tuple(shape[axis] for axis in permutation(source, target))


def spatial_letters(layout: str) -> str:
    """The letters of the spatial axes of a data layout, in the order of attributes: NHWC has "HW", NCW has "W"."""
    return "".join(letter for letter in layout if letter not in "NC")


def window_extent(size: int, dilation: int) -> int:
    """Positions that a window of ``size`` taps spans."""
    return dilation * (size - 1) + 1


def window_count(size: int, window: int, stride: int, before: int, after: int, ceil_mode: bool = False) -> int:
    """Number of positions of a window that spans ``window`` elements along one axis.

    Args:
        size: elements of the data along the axis, padding not counted.
        before: padding before the data; ``after``: padding behind it.
        ceil_mode: count a last window that hangs over the end, unless it starts behind the data.
    """
    room = size + before + after - window
    count = (-(-room // stride) if ceil_mode else room // stride) + 1
    if ceil_mode and (count - 1) * stride >= size + before:
        count -= 1
    return count


def infer_matmul(op: str, types: Types, attrs: Attrs, out_dtype: str | None) -> TensorType:
    """(batch.., M, K) x (batch.., K, N): batch axes broadcast; a 1-D operand gets an axis that the result loses."""
    a, b = types[0].shape, types[1].shape
    if not a or not b:
        raise shape_error(op, types, "both operands need at least one axis", "reshape the scalar, or use multiply")
    left = (1, *a) if len(a) == 1 else a
    right = (*b, 1) if len(b) == 1 else b
    if left[-1] != right[-2]:
        why = f"the inner sizes must be equal and are {left[-1]} and {right[-2]}"
        raise shape_error(op, types, why, "transpose one operand")
    batch = broadcast(op, types, (left[:-2], right[:-2]))
    rows = () if len(a) == 1 else (left[-2],)
    columns = () if len(b) == 1 else (right[-1],)
    return TensorType((*batch, *rows, *columns), contraction_dtype(op, types, out_dtype))


def infer_conv(op: str, types: Types, attrs: Attrs, out_dtype: str | None) -> TensorType:
    """Data in ``data_layout`` and weights in ``kernel_layout``; the output has the data's layout."""
    layout, kernel_layout = attrs["data_layout"], attrs["kernel_layout"]
    letters = spatial_letters(layout)
    _check_rank(op, types, (len(layout), len(kernel_layout)))
    batch, channels, *sizes = in_layout(types[0].shape, layout, "NC" + letters)
    filters, per_group, *kernel = in_layout(types[1].shape, kernel_layout, "OI" + letters)
    groups = attrs["groups"]
    if channels != per_group * groups:
        why = f"the data has {channels} channels, the weights take {per_group} in each of {groups} groups"
        raise shape_error(op, types, why, f"check data_layout {layout!r}, kernel_layout {kernel_layout!r} and groups")
    if filters % groups:
        raise shape_error(op, types, f"{filters} filters do not divide into {groups} groups", "change groups")
    spans = _window_sizes(op, types, sizes, kernel, attrs)
    out = (batch, filters, *spans)
    return TensorType(in_layout(out, "NC" + letters, layout), contraction_dtype(op, types, out_dtype))


def infer_transposed_conv(op: str, types: Types, attrs: Attrs, out_dtype: str | None) -> TensorType:
    """Weights are (I, O in each group, H, W); every input element spreads over a window of the output."""
    layout = attrs["data_layout"]
    _check_rank(op, types, (len(layout), len(attrs["kernel_layout"])))
    batch, channels, *sizes = in_layout(types[0].shape, layout, "NCHW")
    depth, per_group, *kernel = in_layout(types[1].shape, attrs["kernel_layout"], "IOHW")
    groups, padding = attrs["groups"], attrs["padding"]
    if channels != depth or channels % groups:
        why = f"the data has {channels} channels, the weights take {depth} in {groups} groups"
        raise shape_error(op, types, why, "check kernel_layout and groups")
    spans = []
    for axis, (size, taps) in enumerate(zip(sizes, kernel, strict=True)):
        stride, extra = attrs["strides"][axis], attrs["output_padding"][axis]
        if extra >= max(stride, attrs["dilation"][axis]):
            raise UnsupportedError(
                f"{op} with output_padding {extra}", f"it must be smaller than the stride of {stride}", "a smaller one"
            )
        window = window_extent(taps, attrs["dilation"][axis])
        spans.append((size - 1) * stride + window + extra - padding[axis] - padding[axis + 2])
        if not size or not taps or spans[-1] < 1:
            raise shape_error(op, types, f"the result has {spans[-1]} rows or columns", "less padding, or more data")
    out = (batch, per_group * groups, *spans)
    return TensorType(in_layout(out, "NCHW", layout), contraction_dtype(op, types, out_dtype))


def infer_pool(op: str, types: Types, attrs: Attrs, out_dtype: str | None) -> TensorType:
    """A window slides over H and W of every channel."""
    layout = attrs["layout"]
    _check_rank(op, types, (len(layout),))
    batch, channels, *sizes = in_layout(types[0].shape, layout, "NCHW")
    if 0 in sizes:
        raise shape_error(op, types, f"the data is {sizes[0]}x{sizes[1]}, so no window holds any", "other data")
    if op == "avg_pool2d":
        for pad, size in zip(attrs["padding"], attrs["pool_size"] * 2, strict=True):
            if pad >= size:
                raise UnsupportedError(
                    f"{op} of {types[0]} with padding {attrs['padding']}",
                    f"a padding of {pad} is not smaller than the window of {size}, so a window may hold no data",
                    "a smaller padding or a larger pool_size",
                )
    out = (batch, channels, *_window_sizes(op, types, sizes, attrs["pool_size"], attrs))
    return same_dtype(op, types, out_dtype, in_layout(out, "NCHW", layout))


def infer_adaptive_pool(op: str, types: Types, attrs: Attrs, out_dtype: str | None) -> TensorType:
    """H and W become those of ``output_size``, which must divide them: then all windows have one size."""
    layout, wanted = attrs["layout"], attrs["output_size"]
    _check_rank(op, types, (len(layout),))
    if len(wanted) > 2:
        raise shape_error(op, types, f"output_size needs at most 2 numbers and has {len(wanted)}", "rows and columns")
    batch, channels, *sizes = in_layout(types[0].shape, layout, "NCHW")
    outputs = wanted * 2 if len(wanted) == 1 else wanted or tuple(sizes)
    for size, output in zip(sizes, outputs, strict=True):
        if not size or not output or size % output:
            raise UnsupportedError(
                f"{op} of {types[0]} to {outputs}",
                f"{size} rows or columns do not divide into {output} windows of one size",
                "an output size that divides, or leave the operation on the host",
            )
    return same_dtype(op, types, out_dtype, in_layout((batch, channels, *outputs), "NCHW", layout))


def infer_broadcast(op: str, types: Types, attrs: Attrs, out_dtype: str | None) -> TensorType:
    """Element by element, the inputs broadcast against each other as in NumPy."""
    return same_dtype(op, types, out_dtype, broadcast(op, types, [t.shape for t in types]))


def infer_clip(op: str, types: Types, attrs: Attrs, out_dtype: str | None) -> TensorType:
    """Like any unary operation; the bounds of an integer clip are values of its dtype."""
    dtype = types[0].dtype
    if dtype in INTEGERS:
        lowest, highest = integer_range(dtype)
        for bound in ("min", "max"):
            if attrs[bound] != int(attrs[bound]) or not lowest <= attrs[bound] <= highest:
                why = f"{bound} is {attrs[bound]}, which is no {dtype} value ({lowest} to {highest})"
                raise UnsupportedError(f"{op} of {types[0]}", why, "a whole number in that range")
    return infer_broadcast(op, types, attrs, out_dtype)


def macs_of_matmul(types: Types, attrs: Attrs, output: TensorType) -> int:
    """K multiply-accumulates for each output element."""
    return output.elements * types[0].shape[-1]


def macs_of_conv(types: Types, attrs: Attrs, output: TensorType) -> int:
    """I * H * W of one filter for each output element; taps that fall on padding count, as in vendors' tables."""
    taps = [size for letter, size in zip(attrs["kernel_layout"], types[1].shape, strict=True) if letter != "O"]
    return output.elements * math.prod(taps)


def macs_of_transposed_conv(types: Types, attrs: Attrs, output: TensorType) -> int:
    """I * H * W of one group's weights for each output element, the zeros between the data included."""
    size = dict(zip(attrs["kernel_layout"], types[1].shape, strict=True))
    taps: int = size["I"] // attrs["groups"] * size["H"] * size["W"]
    return output.elements * taps


def broadcast(op: str, types: Types, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The common shape of ``shapes`` by NumPy's rule; GraphError names both sizes that do not fit."""
    rank = max(len(shape) for shape in shapes)
    out: list[int] = []
    for axis in range(-rank, 0):
        sizes = [shape[axis] for shape in shapes if len(shape) >= -axis]
        wanted = next((size for size in sizes if size != 1), 1)
        for size in sizes:
            if size not in (1, wanted):
                why = f"axis {axis} has sizes {wanted} and {size}, and neither is 1"
                raise shape_error(op, types, why, "insert axes of size 1, or transpose one operand")
        out.append(wanted)
    return tuple(out)


def contraction_dtype(op: str, types: Types, out_dtype: str | None) -> str:
    """The output dtype of a product: floats give floats, integers give integers, and mixed ones must say which."""
    a, b = types[0].dtype, types[1].dtype
    if (a in FLOATS or b in FLOATS) and a != b:
        raise dtype_error(op, types, f"operands have dtypes {a} and {b}, and the kit never promotes floats")
    if out_dtype is None:
        if a != b:
            raise dtype_error(op, types, f"operands have dtypes {a} and {b}, so out_dtype must be given")
        return a
    allowed = FLOATS if a in FLOATS else INTEGERS
    if out_dtype not in allowed:
        raise dtype_error(op, types, f"{a} operands need an output of {', '.join(allowed)} and it is {out_dtype}")
    return out_dtype


def same_dtype(op: str, types: Types, out_dtype: str | None, shape: tuple[int, ...]) -> TensorType:
    """The type of ``shape`` in the dtype that all inputs and the output have."""
    dtypes = sorted({t.dtype for t in types} | ({out_dtype} if out_dtype else set()))
    if len(dtypes) > 1:
        raise dtype_error(op, types, f"inputs and output need one dtype and have {', '.join(dtypes)}")
    return TensorType(shape, dtypes[0])


def _window_sizes(op: str, types: Types, sizes: Sequence[int], kernel: Sequence[int], attrs: Attrs) -> list[int]:
    axes = len(sizes)
    padding = attrs["padding"]
    counts = []
    for axis, (size, taps) in enumerate(zip(sizes, kernel, strict=True)):
        if taps < 1:
            raise shape_error(op, types, f"the window has {taps} taps and needs at least 1", "a window with data")
        window = window_extent(taps, attrs["dilation"][axis])
        before, after = padding[axis], padding[axis + axes]
        if window > size + before + after:
            why = f"the window spans {window} elements and the padded data has {size + before + after}"
            raise shape_error(op, types, why, "more padding, or a smaller kernel or dilation")
        ceil_mode = attrs.get("ceil_mode", False)
        counts.append(window_count(size, window, attrs["strides"][axis], before, after, ceil_mode))
    return counts


def _check_rank(op: str, types: Types, ranks: Sequence[int]) -> None:
    for name, given, rank in zip(("data", "weights"), types, ranks, strict=False):
        if len(given.shape) != rank:
            why = f"the {name} need {rank} axes and have {len(given.shape)}"
            raise shape_error(op, types, why, "check the layout")


def shape_error(op: str, types: Types, why: str, hint: str) -> GraphError:
    """The error about shapes that do not fit."""
    return GraphError(f"{op} of {' and '.join(map(str, types))}", why, hint)


def dtype_error(op: str, types: Types, why: str) -> UnsupportedError:
    """The error about dtypes that do not go together."""
    what = f"{op} of {' and '.join(map(str, types))}"
    return UnsupportedError(what, why, "a cast, or leave the operation on the host")
