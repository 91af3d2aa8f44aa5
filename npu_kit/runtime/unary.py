"""Operations of one input on NumPy arrays: activations, roots and rounding.

Each gets the node's attributes, the output's dtype, an array that may be overwritten or None, and the operand in its
compute dtype. An element's bits do not depend on its neighbours: see ``arithmetic``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.runtime.erf import erf

Array = NDArray[Any]


def side_by_side(x: Array) -> Array:
    """``x`` in one run of memory: NumPy computes exp and the like in another way where elements lie apart."""
    return np.ascontiguousarray(x).reshape(np.shape(x))


def _relu(attrs: Mapping[str, Any], dtype: str, out: Array | None, x: Array) -> Array:
    # clip with numbers for bounds is three times faster than np.maximum, and always gives the same zero.
    return np.asarray(x.clip(x.dtype.type(0), _highest(x.dtype), out=out))


def _clip(attrs: Mapping[str, Any], dtype: str, out: Array | None, x: Array) -> Array:
    low, high = x.dtype.type(attrs["min"]), x.dtype.type(attrs["max"])
    return np.asarray(x.clip(low, max(low, high), out=out))  # TVM's lower bound wins where they cross


def _sigmoid(attrs: Mapping[str, Any], dtype: str, out: Array | None, x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(side_by_side(-x))))


def _tanh(attrs: Mapping[str, Any], dtype: str, out: Array | None, x: Array) -> Array:
    return np.asarray(np.tanh(side_by_side(x)))


def _gelu(attrs: Mapping[str, Any], dtype: str, out: Array | None, x: Array) -> Array:
    """x times the share of a normal distribution below x (Hendrycks and Gimpel, arXiv:1606.08415)."""
    return 0.5 * x * (1 + erf(x * np.float32(math.sqrt(0.5))))


def _gelu_tanh(attrs: Mapping[str, Any], dtype: str, out: Array | None, x: Array) -> Array:
    """The tanh form of the same paper, up to 4.7e-4 away from it."""
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + 0.044715 * x * x * x)
    return np.asarray(0.5 * x * (1 + np.tanh(side_by_side(inner))))


def _silu(attrs: Mapping[str, Any], dtype: str, out: Array | None, x: Array) -> Array:
    """Elfwing et al., arXiv:1702.03118."""
    return np.asarray(x / (1 + np.exp(side_by_side(-x))))


def _leaky_relu(attrs: Mapping[str, Any], dtype: str, out: Array | None, x: Array) -> Array:
    return np.where(x > 0, x, x * x.dtype.type(attrs["alpha"]))


def _exp(attrs: Mapping[str, Any], dtype: str, out: Array | None, x: Array) -> Array:
    return np.asarray(np.exp(side_by_side(x)))


def _log(attrs: Mapping[str, Any], dtype: str, out: Array | None, x: Array) -> Array:
    return np.asarray(np.log(side_by_side(x)))


def _sqrt(attrs: Mapping[str, Any], dtype: str, out: Array | None, x: Array) -> Array:
    return np.asarray(np.sqrt(x, out=out))


def _rsqrt(attrs: Mapping[str, Any], dtype: str, out: Array | None, x: Array) -> Array:
    return np.asarray(1 / np.sqrt(x))


def _erf(attrs: Mapping[str, Any], dtype: str, out: Array | None, x: Array) -> Array:
    return erf(x)


def _negative(attrs: Mapping[str, Any], dtype: str, out: Array | None, x: Array) -> Array:
    return np.negative(x, out=out)


def _abs(attrs: Mapping[str, Any], dtype: str, out: Array | None, x: Array) -> Array:
    return np.abs(x, out=out)


def _square(attrs: Mapping[str, Any], dtype: str, out: Array | None, x: Array) -> Array:
    return np.multiply(x, x, out=out)


def _floor(attrs: Mapping[str, Any], dtype: str, out: Array | None, x: Array) -> Array:
    return np.floor(x, out=out)


def _ceil(attrs: Mapping[str, Any], dtype: str, out: Array | None, x: Array) -> Array:
    return np.ceil(x, out=out)


def _round(attrs: Mapping[str, Any], dtype: str, out: Array | None, x: Array) -> Array:
    return np.rint(x, out=out)


def _highest(dtype: np.dtype[Any]) -> Any:
    return dtype.type(np.inf if dtype.kind == "f" else np.iinfo(dtype).max)


UNARY: Mapping[str, Callable[..., Array]] = {
    "relu": _relu,
    "clip": _clip,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
    "leaky_relu": _leaky_relu,
    "exp": _exp,
    "log": _log,
    "sqrt": _sqrt,
    "rsqrt": _rsqrt,
    "erf": _erf,
    "negative": _negative,
    "abs": _abs,
    "square": _square,
    "floor": _floor,
    "ceil": _ceil,
    "round": _round,
}
