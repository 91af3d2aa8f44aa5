"""Shape rules of the operations that have an attribute ``axis``: softmax, norms, per-channel parameters, reductions."""

from __future__ import annotations

from npu_kit.errors import UnsupportedError
from npu_kit.graph.ir import TensorType
from npu_kit.graph.shapes import FLOATS, QUANTIZED, Attrs, Types, dtype_error, same_dtype, shape_error


def infer_softmax(op: str, types: Types, attrs: Attrs, out_dtype: str | None) -> TensorType:
    """The shape stays; ``axis`` is the one that sums to 1."""
    _axis_size(op, types, attrs)
    return same_dtype(op, types, out_dtype, types[0].shape)


def infer_prelu(op: str, types: Types, attrs: Attrs, out_dtype: str | None) -> TensorType:
    """The shape of ``x`` stays; alpha is one number, or one for each index of ``axis``."""
    size = _axis_size(op, types, attrs)
    if types[1].shape not in ((size,), (1,)):
        why = f"alpha needs shape ({size},), the size of axis {attrs['axis']}, or (1,), and has {types[1].shape}"
        raise shape_error(op, types, why, "check axis")
    return same_dtype(op, types, out_dtype, types[0].shape)


def infer_quantize(op: str, types: Types, attrs: Attrs, out_dtype: str | None) -> TensorType:
    """The shape of ``x`` stays; scale and zero point are one number, or one for each index of ``axis``."""
    if types[0].shape:
        size = _axis_size(op, types, attrs)
    elif attrs["axis"]:
        raise shape_error(op, types, f"a scalar has no axis {attrs['axis']}", "axis 0")
    else:
        size = 1
    for name, given in zip(("scale", "zero_point"), types[1:], strict=True):
        if given.elements != 1 and given.shape != (size,):
            why = f"{name} needs 1 element or shape ({size},), the size of axis {attrs['axis']}, and has {given.shape}"
            raise shape_error(op, types, why, "check axis")
    allowed = QUANTIZED if op == "quantize" else FLOATS
    if out_dtype is None or out_dtype not in allowed:
        raise dtype_error(op, types, f"the output needs one of {', '.join(allowed)} and is {out_dtype}")
    return TensorType(types[0].shape, out_dtype)


def infer_batch_norm(op: str, types: Types, attrs: Attrs, out_dtype: str | None) -> TensorType:
    """The shape of ``x`` stays; gamma, beta, mean and variance have one element for each index of ``axis``."""
    size = _axis_size(op, types, attrs)
    for name, given in zip(("gamma", "beta", "moving_mean", "moving_var"), types[1:], strict=True):
        if given.shape != (size,):
            why = f"{name} needs shape ({size},), the size of axis {attrs['axis']}, and has {given.shape}"
            raise shape_error(op, types, why, "check axis")
    return same_dtype(op, types, out_dtype, types[0].shape)


def infer_norm(op: str, types: Types, attrs: Attrs, out_dtype: str | None) -> TensorType:
    """The shape of ``x`` stays; the parameters have one element for each index of ``axis``."""
    size = _axis_size(op, types, attrs)
    for given in types[1:]:
        if given.shape != (size,):
            why = f"a parameter needs shape ({size},), the size of axis {attrs['axis']}, and has {given.shape}"
            raise shape_error(op, types, why, "check axes")
    return same_dtype(op, types, out_dtype, types[0].shape)


def infer_reduction(op: str, types: Types, attrs: Attrs, out_dtype: str | None) -> TensorType:
    """The axes of ``axis`` go, or become one long with ``keepdims``."""
    shape, reduced, keepdims = types[0].shape, attrs["axis"], attrs["keepdims"]
    if any(axis >= len(shape) for axis in reduced):
        why = f"axis {max(reduced)} is not one of the {len(shape)} axes of the data"
        raise shape_error(op, types, why, "another axis")
    if 0 in shape:
        raise UnsupportedError(f"{op} of {types[0]}", "the data holds no element", "leave it on the host")
    sizes = [1 if axis in reduced else size for axis, size in enumerate(shape) if keepdims or axis not in reduced]
    return same_dtype(op, types, out_dtype, tuple(sizes))


def _axis_size(op: str, types: Types, attrs: Attrs) -> int:
    shape, axis = types[0].shape, attrs["axis"]
    if not 0 <= axis < len(shape):
        raise shape_error(op, types, f"axis {axis} is not one of the {len(shape)} axes of the data", "another axis")
    return int(shape[axis])
