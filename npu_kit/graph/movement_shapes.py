"""Shape rules of the operations that move or reshape data."""

from __future__ import annotations

import math

from npu_kit.errors import GraphError, UnsupportedError
from npu_kit.graph.ir import TensorType
from npu_kit.graph.shapes import INTEGERS, Attrs, Types, broadcast, integer_range, same_dtype, shape_error


def infer_reshape(op: str, types: Types, attrs: Attrs, out_dtype: str | None) -> TensorType:
    """The shape is ``newshape``, of as many elements."""
    shape = attrs["newshape"]
    if math.prod(shape) != types[0].elements:
        why = f"shape {shape} has {math.prod(shape)} elements and the data {types[0].elements}"
        raise shape_error(op, types, why, "a shape of as many elements")
    return same_dtype(op, types, out_dtype, shape)


def infer_permute(op: str, types: Types, attrs: Attrs, out_dtype: str | None) -> TensorType:
    """Axis ``axes[i]`` of the data becomes axis i."""
    shape, axes = types[0].shape, attrs["axes"]
    if sorted(axes) != list(range(len(shape))):
        raise shape_error(op, types, f"axes {axes} are not the {len(shape)} axes of the data", "each axis once")
    return same_dtype(op, types, out_dtype, tuple(shape[axis] for axis in axes))


def infer_broadcast_to(op: str, types: Types, attrs: Attrs, out_dtype: str | None) -> TensorType:
    """The shape is ``newshape``, to which the data must broadcast."""
    shape = attrs["newshape"]
    if broadcast(op, types, (types[0].shape, shape)) != shape:
        raise shape_error(op, types, f"the data does not broadcast to {shape}", "a larger shape")
    return same_dtype(op, types, out_dtype, shape)


def infer_slice(op: str, types: Types, attrs: Attrs, out_dtype: str | None) -> TensorType:
    """Positions begin, begin + stride, .. before end, along every axis."""
    shape, sizes = types[0].shape, []
    begin, end, strides = attrs["begin"], attrs["end"], attrs["strides"]
    if {len(begin), len(end), len(strides)} != {len(shape)}:
        raise shape_error(op, types, f"begin, end and strides need {len(shape)} numbers each", "one for each axis")
    for size, first, stop, stride in zip(shape, begin, end, strides, strict=True):
        if not first <= stop <= size:
            raise shape_error(op, types, f"positions {first} to {stop} are not in an axis of {size}", "begin <= end")
        sizes.append(-(-(stop - first) // stride))
    return same_dtype(op, types, out_dtype, tuple(sizes))


def infer_pad(op: str, types: Types, attrs: Attrs, out_dtype: str | None) -> TensorType:
    """Along every axis so many elements more, before and behind; the value is one of the dtype."""
    shape, widths, value = types[0].shape, attrs["pad_width"], attrs["pad_value"]
    if len(widths) != 2 * len(shape):
        raise shape_error(op, types, f"pad_width needs {2 * len(shape)} numbers and has {len(widths)}", "two for each")
    if types[0].dtype in INTEGERS:
        lowest, highest = integer_range(types[0].dtype)
        if value != int(value) or not lowest <= value <= highest:
            why = f"pad_value is {value}, which is no {types[0].dtype} value ({lowest} to {highest})"
            raise UnsupportedError(f"{op} of {types[0]}", why, "a whole number in that range")
    padded = zip(shape, widths[::2], widths[1::2], strict=True)
    return same_dtype(op, types, out_dtype, tuple(size + before + after for size, before, after in padded))


def infer_concat(op: str, types: Types, attrs: Attrs, out_dtype: str | None) -> TensorType:
    """The sizes along ``axis`` add up; all others are equal."""
    axis, first = attrs["axis"], types[0].shape
    if axis >= len(first):
        raise shape_error(op, types, f"axis {axis} is not one of the {len(first)} axes of the data", "another axis")
    for given in types[1:]:
        others = (*given.shape[:axis], *given.shape[axis + 1 :])
        if len(given.shape) != len(first) or others != (*first[:axis], *first[axis + 1 :]):
            raise GraphError(f"{op} of {' and '.join(map(str, types))}", f"sizes differ along axes other than {axis}")
    total = sum(given.shape[axis] for given in types)
    return same_dtype(op, types, out_dtype, (*first[:axis], total, *first[axis + 1 :]))
