"""Computes calls whose operands are all constants, where NumPy gives the bits that TVM's code gives.

TVM's own FoldConstant builds and runs LLVM code for each call, which takes seconds on a model with 70 clips; it would
also fold away the dequantized weights that quantized patterns look for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import ir, relax

from npu_kit.byoc.model.calls import dtype_of, shape_of

Array = NDArray[Any]

# Weights that a model writes as one number, broadcast, may be too large to write out.
MAX_BYTES = 64 * 1024 * 1024

_DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "int64", "float16", "float32", "float64")


def fold(call: Any, operands: tuple[Array | None, ...]) -> Any | None:
    """The constant that ``call`` computes; None if an operand is not constant or the operation is not folded.

    Args:
        call: a Relax call.
        operands: the value of each argument that is a constant, None for each other.
    """
    rule = _RULES.get(str(call.op.name)) if isinstance(call.op, ir.Op) else None
    shape, dtype = shape_of(call), dtype_of(call)
    if rule is None or shape is None or dtype not in _DTYPES:
        return None
    if math.prod(shape) * np.dtype(dtype).itemsize > MAX_BYTES:
        return None
    tensors = [operand for operand in operands if operand is not None]
    if str(call.op.name) in _ARITHMETIC and dtype == "bool":
        return None
    if len(tensors) != sum(isinstance(argument.ty, relax.TensorType) for argument in call.args):
        return None
    with np.errstate(all="ignore"):
        value = rule(call, *tensors)
    if value is None or value.shape != shape or str(value.dtype) != dtype:
        return None
    return relax.const(np.ascontiguousarray(value).reshape(shape), dtype)


def _reshape(call: Any, value: Array) -> Array | None:
    shape = shape_of(call)
    return None if shape is None else value.reshape(shape)


def _permute(call: Any, value: Array) -> Array:
    axes = call.attrs.axes
    return np.transpose(value, None if axes is None else [int(axis) for axis in axes])


def _where(call: Any, condition: Array, left: Array, right: Array) -> Array:
    return np.where(condition, left, right)


def _broadcast(call: Any, value: Array) -> Array | None:
    shape = shape_of(call)
    return None if shape is None else np.broadcast_to(value, shape)


def _astype(call: Any, value: Array) -> Array | None:
    dtype = np.dtype(dtype_of(call))
    # Out-of-range floats become integers in ways that differ between machines.
    return None if value.dtype.kind == "f" and dtype.kind != "f" else value.astype(dtype)


_ARITHMETIC: Mapping[str, Callable[..., Array]] = {
    "relax.add": lambda call, left, right: left + right,
    "relax.subtract": lambda call, left, right: left - right,
    "relax.multiply": lambda call, left, right: left * right,
    "relax.negative": lambda call, value: -value,
}

_RULES: Mapping[str, Callable[..., Array | None]] = {
    "relax.reshape": _reshape,
    "relax.expand_dims": _reshape,
    "relax.squeeze": _reshape,
    "relax.flatten": _reshape,
    "relax.permute_dims": _permute,
    "relax.astype": _astype,
    "relax.broadcast_to": _broadcast,
    "relax.isnan": lambda call, value: np.isnan(value),
    "relax.where": _where,
    **_ARITHMETIC,
}
