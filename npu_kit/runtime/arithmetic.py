"""What the engines compute: element-wise operations and the product of two tiles, on NumPy arrays.

Each function gives an element the same bits whether it stands in one tile, in a stack of tiles or in the whole tensor.
So the step runtime, the fast runtime and the reference share this file. (A NaN stays a NaN, but where two meet, which
one's sign bit lives on depends on the processor's vector length.) float16 is computed in float32 and rounded once;
integers are computed in int32 and wrapped.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.errors import InputError, UnsupportedError
from npu_kit.graph.shapes import FLOATS, integer_range
from npu_kit.runtime.replaced import call_replaced
from npu_kit.runtime.unary import UNARY, side_by_side

Array = NDArray[Any]

_FLOAT, _INTEGER = np.dtype(np.float32), np.dtype(np.int32)


class QuantizeWarning(RuntimeWarning):
    """A NaN was quantized. It becomes the highest value, as in TVM's LLVM code; ONNX Runtime gives the lowest."""


def compute_dtype(dtype: str) -> np.dtype[Any]:
    """The dtype in which values of ``dtype`` are computed and accumulated: float32 for floats, int32 for integers."""
    return _FLOAT if dtype in FLOATS else _INTEGER


def to_declared(value: Array, dtype: str) -> Array:
    """``value``, as computed, in the dtype its tensor declares: float16 is rounded to nearest even, integers wrap."""
    if value.dtype == dtype:
        return value
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return value.astype(dtype)


def apply_elementwise(
    name: str, attrs: Mapping[str, Any], inputs: Sequence[Array], out_dtype: str, out: Array | None = None
) -> Array:
    """One element-wise operation on tiles.

    Args:
        name: an operation of family "elementwise".
        attrs: its full attributes. ``axis`` is not read: the inputs stand ready.
        inputs: arrays that broadcast against each other, each in the dtype of its tensor or in that dtype's compute
            dtype. gamma, beta, mean and variance of batch_norm, and scale and zero point of quantize, come in a shape
            that broadcasts along the right axis.
        out_dtype: the dtype of the result.
        out: an array of the inputs' common shape, in the compute dtype of ``out_dtype``, that may be overwritten, such
            as an input that nothing else needs. It only saves time: the result is what this returns.

    Returns:
        an array of the inputs' common shape, in ``out_dtype``.

    Raises:
        ZeroDivisionError: an integer divide by 0. (A caller that pads tiles pads divisors and scales with ones.)
        InputError: a scale of quantize or dequantize that is not finite and above 0.
        UnsupportedError: there is no such operation.
        ExecutionError: a function that was put in the place of the kit's does not do what it has to.
    """
    try:
        function = _FUNCTIONS[name]
    except KeyError:
        raise UnsupportedError(f"element-wise operation {name!r}", f"the kit has {', '.join(_FUNCTIONS)}") from None
    if function is not _OWN[name]:
        return call_replaced(function, name, attrs, out_dtype, [_widen(one) for one in inputs])
    with np.errstate(all="ignore"):
        value = np.asarray(function(attrs, out_dtype, out, *map(_widen, inputs)))
        return value if value.dtype == out_dtype else value.astype(out_dtype)


@contextmanager
def use_kernel(name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Compute element-wise operation ``name`` with ``function`` meanwhile, in all threads and modes.

    Args:
        name: an operation of family "elementwise".
        function: called as ``function(attrs, out_dtype, None, *inputs)`` with read-only arrays in the compute dtype,
            whole tiles or stacks of them; returns an array of their common shape. It is checked whenever it is used,
            see ``call_replaced``.

    Raises:
        UnsupportedError: there is no such operation.
    """
    if name not in _FUNCTIONS:
        raise UnsupportedError(f"element-wise operation {name!r}", f"the kit has {', '.join(_FUNCTIONS)}")
    before = _FUNCTIONS[name]
    _FUNCTIONS[name] = function
    try:
        yield
    finally:
        _FUNCTIONS[name] = before


def multiply_tile(a: Array, b: Array, out_compute_dtype: np.dtype[Any]) -> Array:
    """The product of (.., tm, tk) and (.., tk, tn), one matrix product of that size for each leading index.

    Floats are multiplied in float32. Integers are exact: through the BLAS where its floats cannot round, and with
    integer arithmetic otherwise; the sum then wraps to ``out_compute_dtype``.

    Args:
        a, b: tiles in their tensor's dtype. The leading axes broadcast.
        out_compute_dtype: ``compute_dtype`` of the output: float32 or int32.
    """
    dtype, _ = product_dtype(a.dtype, b.dtype, a.shape[-1])
    with np.errstate(all="ignore"):
        product = np.matmul(np.ascontiguousarray(a, dtype=dtype), np.ascontiguousarray(b, dtype=dtype))
    return to_compute(np.asarray(product), out_compute_dtype)


def product_dtype(a: np.dtype[Any], b: np.dtype[Any], depth: int) -> tuple[np.dtype[Any], int]:
    """The dtype in which tiles of two dtypes are multiplied, and how many products it sums as tiles do.

    Floats are summed in float32, one tile after the other: any number of products. Integers go through the BLAS as
    floats, in a dtype that holds ``depth`` products exactly, and so in any order: NumPy multiplies integer matrices
    with plain loops, ten times slower or more.
    """
    if a.kind == "f":
        return np.dtype(np.float32), sys.maxsize
    largest = _largest(a) * _largest(b)
    for exact, limit in ((np.float32, 2**24), (np.float64, 2**53)):  # up to which every integer is a value of the float
        if depth * largest <= limit:
            return np.dtype(exact), limit // largest
    return np.dtype(np.int32), sys.maxsize


def to_compute(product: Array, out_compute_dtype: np.dtype[Any]) -> Array:
    """A sum of products in the dtype in which the output is computed; integers wrap."""
    if product.dtype == np.float64:
        product = product.astype(np.int64)  # a sum that int32 cannot hold would be undefined in a cast from float
    return product.astype(out_compute_dtype, copy=False)


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
    dtype = _FLOAT if x.dtype.kind == "f" else _INTEGER
    return x if x.dtype == dtype else x.astype(dtype)


def _largest(dtype: np.dtype[Any]) -> int:
    lowest, highest = integer_range(dtype.name)
    return max(-lowest, highest)


# Each function below gets the node's attributes, the output's dtype, an array that may be overwritten or None, and the
# operands in their compute dtype. IEEE arithmetic gives an element the same bits however its neighbours lie in memory;
# exp, power and the like do so only where elements stand side by side.


def _add(attrs: Mapping[str, Any], dtype: str, out: Array | None, a: Array, b: Array) -> Array:
    return np.add(a, b, out=out)


def _subtract(attrs: Mapping[str, Any], dtype: str, out: Array | None, a: Array, b: Array) -> Array:
    return np.subtract(a, b, out=out)


def _multiply(attrs: Mapping[str, Any], dtype: str, out: Array | None, a: Array, b: Array) -> Array:
    return np.multiply(a, b, out=out)


def _maximum(attrs: Mapping[str, Any], dtype: str, out: Array | None, a: Array, b: Array) -> Array:
    # np.maximum may return either of 0.0 and -0.0, depending on an element's place in its vector. This never does.
    return np.where((a > b) | (a != a), a, b)


def _minimum(attrs: Mapping[str, Any], dtype: str, out: Array | None, a: Array, b: Array) -> Array:
    return np.where((a < b) | (a != a), a, b)


def _divide(attrs: Mapping[str, Any], dtype: str, out: Array | None, a: Array, b: Array) -> Array:
    if dtype in FLOATS:
        return np.divide(a, b, out=out)
    if not b.all():
        raise ZeroDivisionError(f"divide: {b.size - np.count_nonzero(b)} of {b.size} {dtype} divisors are 0")
    wide_a, wide_b = a.astype(np.int64), b.astype(np.int64)  # in which -2**31 / -1 exists
    quotient = np.abs(wide_a) // np.abs(wide_b)
    return np.where((wide_a < 0) != (wide_b < 0), -quotient, quotient)


def _power(attrs: Mapping[str, Any], dtype: str, out: Array | None, a: Array, b: Array) -> Array:
    return np.power(*map(side_by_side, np.broadcast_arrays(a, b)))


def _prelu(attrs: Mapping[str, Any], dtype: str, out: Array | None, x: Array, alpha: Array) -> Array:
    return np.where(x > 0, x, x * alpha)


def _batch_norm(
    attrs: Mapping[str, Any],
    dtype: str,
    out: Array | None,
    x: Array,
    gamma: Array,
    beta: Array,
    mean: Array,
    var: Array,
) -> Array:
    out = np.asarray(np.subtract(x, mean, out=out))
    out /= np.sqrt(var + np.float32(attrs["epsilon"]))
    if attrs["scale"]:
        out *= gamma
    if attrs["center"]:
        out += beta
    return out


def _quantize(
    attrs: Mapping[str, Any], dtype: str, out: Array | None, x: Array, scale: Array, zero_point: Array
) -> Array:
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


def _dequantize(
    attrs: Mapping[str, Any], dtype: str, out: Array | None, x: Array, scale: Array, zero_point: Array
) -> Array:
    _require_scale("dequantize", scale)
    value = (x - zero_point).astype(np.float32) * scale
    # TVM saturates a float16 result where a plain cast would give infinity.
    return np.asarray(np.clip(value, -65504, 65504) if dtype == "float16" else value)


def _require_scale(name: str, scale: Array) -> None:
    problems = check_scale(scale)
    if problems:
        raise InputError(f"{name} with a scale that arrived at run time", "; ".join(problems), "finite scales above 0")


_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "divide": _divide,
    "maximum": _maximum,
    "minimum": _minimum,
    "power": _power,
    "prelu": _prelu,
    "batch_norm": _batch_norm,
    "quantize": _quantize,
    "dequantize": _dequantize,
    **UNARY,
}
_OWN = dict(_FUNCTIONS)
