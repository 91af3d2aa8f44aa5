"""What the engines compute: element-wise operations and the product of two tiles, on NumPy arrays.

Each function gives an element the same bits whether it stands in one tile, in a stack of tiles or in the whole tensor.
So the step runtime, the fast runtime and the reference share this file. (A NaN stays a NaN, but where two meet, which
one's sign bit lives on depends on the processor's vector length.) float16 is computed in float32 and rounded once;
integers are computed in int32 and wrapped.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.errors import InputError, UnsupportedError
from npu_kit.graph.shapes import FLOATS, integer_range
from npu_kit.runtime.erf import erf

Array = NDArray[Any]

# A float dtype that sums products of integers exactly as long as the sum of their absolute values stays below the limit
# of its significand, and an integer dtype for that sum. The BLAS has these two; NumPy multiplies integer matrices with
# plain loops, ten times slower or more.
_EXACT_BELOW = ((np.float32, 2**24, np.int32), (np.float64, 2**53, np.int64))


class QuantizeWarning(RuntimeWarning):
    """A NaN was quantized. It becomes the highest value, as in TVM's LLVM code; ONNX Runtime gives the lowest."""


def compute_dtype(dtype: str) -> np.dtype[Any]:
    """The dtype in which values of ``dtype`` are computed and accumulated: float32 for floats, int32 for integers."""
    return np.dtype(np.float32 if dtype in FLOATS else np.int32)


def to_declared(value: Array, dtype: str) -> Array:
    """``value``, as computed, in the dtype its tensor declares: float16 is rounded to nearest even, integers wrap."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return value.astype(dtype, copy=False)


def apply_elementwise(name: str, attrs: Mapping[str, Any], inputs: Sequence[Array], out_dtype: str) -> Array:
    """One element-wise operation on tiles.

    Args:
        name: an operation of family "elementwise".
        attrs: its full attributes. ``axis`` is not read: the inputs stand ready.
        inputs: arrays that broadcast against each other, each in the dtype of its tensor or in that dtype's compute
            dtype. gamma, beta, mean and variance of batch_norm, and scale and zero point of quantize, come in a shape
            that broadcasts along the right axis.
        out_dtype: the dtype of the result.

    Returns:
        an array of the inputs' common shape, in ``out_dtype``.

    Raises:
        ZeroDivisionError: an integer divide by 0. (A caller that pads tiles pads divisors and scales with ones.)
        InputError: a scale of quantize or dequantize that is not finite and above 0.
        UnsupportedError: there is no such operation.
    """
    try:
        function = _FUNCTIONS[name]
    except KeyError:
        raise UnsupportedError(f"element-wise operation {name!r}", f"the kit has {', '.join(_FUNCTIONS)}") from None
    # Contiguous operands: NumPy takes other code paths for strided ones, and exp and tanh then differ in the last bit.
    ready = [np.ascontiguousarray(_widen(x)).reshape(np.shape(x)) for x in inputs]
    with np.errstate(all="ignore"):
        return to_declared(np.asarray(function(attrs, out_dtype, *ready)), out_dtype)


def multiply_tile(a: Array, b: Array, out_compute_dtype: np.dtype[Any]) -> Array:
    """The product of (.., tm, tk) and (.., tk, tn), one matrix product of that size for each leading index.

    Floats are multiplied in float32. Integers are exact: through the BLAS where its floats cannot round, and with
    integer arithmetic otherwise; the sum then wraps to ``out_compute_dtype``.

    Args:
        a, b: tiles in their tensor's dtype. The leading axes broadcast.
        out_compute_dtype: ``compute_dtype`` of the output: float32 or int32.
    """
    if out_compute_dtype.kind == "f":
        with np.errstate(all="ignore"):
            return _product(a, b, np.float32)
    bound = a.shape[-1] * _largest(a.dtype) * _largest(b.dtype)
    for exact, limit, integer in _EXACT_BELOW:
        if bound < limit:
            return _product(a, b, exact).astype(integer).astype(out_compute_dtype, copy=False)
    return _product(a, b, np.int32).astype(out_compute_dtype, copy=False)


def check_scale(scale: Array) -> list[str]:
    """What is wrong with the scales of a quantize or dequantize; an empty list if they are finite and above 0."""
    problems = []
    if np.isnan(scale).any():
        problems.append("a scale is NaN")
    if np.isinf(scale).any():
        problems.append("a scale is infinite")
    if (scale == 0).any():
        problems.append("a scale is 0")
    if (scale < 0).any():
        problems.append(f"a scale is negative ({np.min(scale):g})")
    return problems


def _widen(x: Array) -> Array:
    return x.astype(np.float32 if x.dtype.kind == "f" else np.int32, copy=False)


def _product(a: Array, b: Array, dtype: type) -> Array:
    return np.asarray(np.matmul(np.ascontiguousarray(a, dtype=dtype), np.ascontiguousarray(b, dtype=dtype)))


def _largest(dtype: np.dtype[Any]) -> int:
    lowest, highest = integer_range(dtype.name)
    return max(-lowest, highest)


def _larger(a: Any, b: Any) -> Array:
    # np.maximum may return either of 0.0 and -0.0, depending on an element's place in its vector. This never does.
    return np.asarray(np.where((a > b) | (a != a), a, b))


def _smaller(a: Any, b: Any) -> Array:
    return np.asarray(np.where((a < b) | (a != a), a, b))


def _divide(attrs: Mapping[str, Any], dtype: str, a: Array, b: Array) -> Array:
    if dtype in FLOATS:
        return np.asarray(a / b)
    if not b.all():
        raise ZeroDivisionError(f"divide: {b.size - np.count_nonzero(b)} of {b.size} {dtype} divisors are 0")
    wide_a, wide_b = a.astype(np.int64), b.astype(np.int64)  # in which -2**31 / -1 exists
    quotient = np.abs(wide_a) // np.abs(wide_b)
    return np.where((wide_a < 0) != (wide_b < 0), -quotient, quotient)


def _relu(attrs: Mapping[str, Any], dtype: str, x: Array) -> Array:
    return np.where(x < 0, x.dtype.type(0), x)


def _clip(attrs: Mapping[str, Any], dtype: str, x: Array) -> Array:
    low, high = x.dtype.type(attrs["min"]), x.dtype.type(attrs["max"])
    below = np.where(x > high, high, x)
    return np.where(below < low, low, below)


def _sigmoid(attrs: Mapping[str, Any], dtype: str, x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _tanh(attrs: Mapping[str, Any], dtype: str, x: Array) -> Array:
    return np.asarray(np.tanh(x))


def _gelu(attrs: Mapping[str, Any], dtype: str, x: Array) -> Array:
    """x times the share of a normal distribution below x (Hendrycks and Gimpel, arXiv:1606.08415)."""
    return 0.5 * x * (1 + erf(x * np.float32(math.sqrt(0.5))))


def _gelu_tanh(attrs: Mapping[str, Any], dtype: str, x: Array) -> Array:
    """The tanh form of the same paper, up to 4.7e-4 away from it."""
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + 0.044715 * x * x * x)
    return np.asarray(0.5 * x * (1 + np.tanh(inner)))


def _batch_norm(
    attrs: Mapping[str, Any], dtype: str, x: Array, gamma: Array, beta: Array, mean: Array, var: Array
) -> Array:
    out = (x - mean) / np.sqrt(var + np.float32(attrs["epsilon"]))
    if attrs["scale"]:
        out = out * gamma
    if attrs["center"]:
        out = out + beta
    return np.asarray(out)


def _quantize(attrs: Mapping[str, Any], dtype: str, x: Array, scale: Array, zero_point: Array) -> Array:
    _require_scale("quantize", scale)
    lowest, highest = integer_range(dtype)
    value = np.rint(x / scale) + zero_point.astype(np.float32)
    missing = np.isnan(value)
    if missing.any():
        warnings.warn(
            f"quantize: {np.count_nonzero(missing)} of {value.size} values are NaN and become {highest}",
            QuantizeWarning,
            stacklevel=2,
        )
    return np.asarray(np.where(missing, highest, np.clip(value, lowest, highest)).astype(np.int32))


def _dequantize(attrs: Mapping[str, Any], dtype: str, x: Array, scale: Array, zero_point: Array) -> Array:
    _require_scale("dequantize", scale)
    value = (x - zero_point).astype(np.float32) * scale
    # TVM saturates a float16 result where a plain cast would give infinity.
    return np.asarray(np.clip(value, -65504, 65504) if dtype == "float16" else value)


def _require_scale(name: str, scale: Array) -> None:
    problems = check_scale(scale)
    if problems:
        raise InputError(f"{name} with a scale that arrived at run time", "; ".join(problems), "finite scales above 0")


_FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "add": lambda attrs, dtype, a, b: a + b,
    "subtract": lambda attrs, dtype, a, b: a - b,
    "multiply": lambda attrs, dtype, a, b: a * b,
    "divide": _divide,
    "maximum": lambda attrs, dtype, a, b: _larger(a, b),
    "minimum": lambda attrs, dtype, a, b: _smaller(a, b),
    "relu": _relu,
    "clip": _clip,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "batch_norm": _batch_norm,
    "quantize": _quantize,
    "dequantize": _dequantize,
}
