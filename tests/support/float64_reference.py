"""Evaluates a sample model in float64, and bounds the error that the same steps may have in the model's own dtypes.

The bound is a running error analysis (N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., ch. 3):
each step turns the errors of its operands into one of its own and adds its rounding, element by element. A unit is the
unit roundoff of a dtype: half the distance of 1 to the next number. Integers have no error, except where a quantized
value lies so close to the middle between two integers that rounding may go either way. The bound is infinite where
nothing can be said, for example after an overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from float64_windows import avg_pool, convolve, max_pool
from sample_model import Array, Model, Step
from scipy.special import erf

UNIT = {"float16": 2.0**-11, "float32": 2.0**-24}
SMALLEST = {"float16": 2.0**-24, "float32": 2.0**-126}  # below, what is left of a value depends on the implementation
LARGEST = {"float16": 65504.0, "float32": float(np.finfo(np.float32).max)}
# exp, tanh and erf of NumPy, of libm and of the polynomials that LLVM code uses are this many units from the real ones.
TRANSCENDENTAL = 16


@dataclass(frozen=True)
class Approximate:
    """A value in float64 and how far a right implementation may be from it, per element."""

    value: Array
    error: Array
    has_wrapped: bool = False  # an int32 overflowed on the way here


@dataclass(frozen=True)
class Arithmetic:
    """How one implementation computes."""

    computes_in: Mapping[str, str]  # dtype of the operands -> dtype of sums and of what is inside an operation
    sums_in_the_result: bool  # whether a sum has the dtype of the result, where that is the narrower one
    keeps_small_values: bool  # whether tanh and sigmoid are as exact near 0, relatively, as elsewhere


KIT = Arithmetic({"float16": "float32", "float32": "float32"}, sums_in_the_result=False, keeps_small_values=True)
LLVM = Arithmetic({"float16": "float16", "float32": "float32"}, sums_in_the_result=True, keeps_small_values=False)


def evaluate(model: Model, arithmetic: Arithmetic) -> list[Approximate]:
    """One approximate value per result of the model."""
    values: dict[int, Approximate] = {}
    for number, array in enumerate(model.arrays):
        values[~number] = Approximate(array.astype(np.float64), np.zeros(array.shape))
    with np.errstate(all="ignore"):
        for number, step in enumerate(model.steps):
            args = [values[i] for i in step.args]
            dtypes = [model.type_of(i)[1] for i in step.args]
            values[number] = _rounded(step, args, dtypes, arithmetic)
    return [values[i] for i in model.results]


def _rounded(step: Step, args: list[Approximate], dtypes: list[str], arithmetic: Arithmetic) -> Approximate:
    """One step: the operation, then the rounding to the dtype of its result."""
    unit = UNIT[arithmetic.computes_in.get(dtypes[0], "float32")]
    if arithmetic.sums_in_the_result and step.dtype in UNIT:
        unit = max(unit, UNIT[step.dtype])
    value, error = RULES[step.op](step, args, unit)
    if step.op in ("sigmoid", "tanh") and not arithmetic.keeps_small_values:
        error = error + TRANSCENDENTAL * unit
    value, error = np.broadcast_to(value, step.shape), np.broadcast_to(error, step.shape)
    has_wrapped = any(arg.has_wrapped for arg in args)
    if step.dtype in UNIT:
        largest = LARGEST[step.dtype]
        error = error + UNIT[step.dtype] * (np.abs(value) + error) + SMALLEST[step.dtype]
        error = np.where(np.abs(value) + error < largest, error, np.inf)
        return Approximate(value, np.where(np.isnan(error), np.inf, error), has_wrapped)
    wrapped = _wrap(value, step.dtype).astype(np.float64)
    # A value that is not known exactly must not come near the place where it would wrap.
    is_safe = (error == 0) | (_wrap(value - error, step.dtype) == value - error) & (wrapped == value)
    is_safe &= (error == 0) | (_wrap(value + error, step.dtype) == value + error)
    overflows = step.dtype == "int32" and bool((wrapped != value).any())
    return Approximate(wrapped, np.where(is_safe, error, np.inf), has_wrapped or overflows)


def _wrap(value: Array, dtype: str) -> Array:
    bits = np.iinfo(dtype).bits
    low = 0 if dtype.startswith("u") else -(2 ** (bits - 1))
    return np.where(np.isfinite(value), np.mod(value - low, 2**bits) + low, value)


# --- One rule per operation: (step, operands, unit of intermediate sums) -> value and error before the last rounding --

Rule = Callable[[Step, list[Approximate], float], tuple[Array, Array]]


def _add(step: Step, args: list[Approximate], unit: float) -> tuple[Array, Array]:
    a, b = args
    return a.value + b.value, a.error + b.error


def _subtract(step: Step, args: list[Approximate], unit: float) -> tuple[Array, Array]:
    a, b = args
    return a.value - b.value, a.error + b.error


def _multiply(step: Step, args: list[Approximate], unit: float) -> tuple[Array, Array]:
    a, b = args
    error = np.abs(a.value) * b.error + np.abs(b.value) * a.error + a.error * b.error
    if step.dtype == "int32":  # products that float64 does not hold exactly
        return a.value.astype(np.int64) * b.value.astype(np.int64), error
    return a.value * b.value, error


def _divide(step: Step, args: list[Approximate], unit: float) -> tuple[Array, Array]:
    a, b = args
    if step.dtype not in UNIT:
        is_exact = (a.error == 0) & (b.error == 0)
        return np.trunc(a.value / b.value), np.where(is_exact, 0, np.inf)
    quotient = a.value / b.value
    room = np.abs(b.value) - b.error
    return quotient, np.where(room > 0, (a.error + np.abs(quotient) * b.error) / room, np.inf)


def _extremum(function: Any) -> Rule:
    def rule(step: Step, args: list[Approximate], unit: float) -> tuple[Array, Array]:
        a, b = args
        return function(a.value, b.value), np.maximum(*np.broadcast_arrays(a.error, b.error))

    return rule


def _monotonic(function: Callable[[Step, Array], Array]) -> Rule:
    """A function that never moves two values apart."""

    def rule(step: Step, args: list[Approximate], unit: float) -> tuple[Array, Array]:
        return function(step, args[0].value), args[0].error

    return rule


def _smooth(function: Callable[[Array], Array], slope: float, scale: Callable[[Array, Array], Array]) -> Rule:
    """A transcendental function whose derivative is at most ``slope``; its own error is in units of ``scale``."""

    def rule(step: Step, args: list[Approximate], unit: float) -> tuple[Array, Array]:
        x = args[0].value
        value = function(x)
        return value, slope * args[0].error + TRANSCENDENTAL * unit * scale(x, value)

    return rule


def _gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + erf(x / np.sqrt(2))))


def _gelu_tanh(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


def _softmax(step: Step, args: list[Approximate], unit: float) -> tuple[Array, Array]:
    x, axis = args[0], step.attrs["axis"]
    shifted = x.value - x.value.max(axis, keepdims=True)
    powers = np.exp(shifted)
    value = powers / powers.sum(axis, keepdims=True)
    largest = x.error.max(axis, keepdims=True)
    spread = np.abs(shifted) + step.shape[axis] + TRANSCENDENTAL
    return value, value * (np.expm1(2 * largest) + spread * unit * np.exp(2 * largest))


def _batch_norm(step: Step, args: list[Approximate], unit: float) -> tuple[Array, Array]:
    x, *parameters = args
    if step.attrs["item"]:
        return parameters[1 + step.attrs["item"]].value, parameters[1 + step.attrs["item"]].error
    on_axis = [1] * len(step.shape)
    on_axis[step.attrs["axis"]] = -1
    gamma, beta, mean, variance = (parameter.value.reshape(on_axis) for parameter in parameters)
    factor = (gamma if step.attrs["scale"] else 1) / np.sqrt(variance + step.attrs["epsilon"])
    offset = beta if step.attrs["center"] else np.zeros(())
    value = (x.value - mean) * factor + offset
    size = np.abs(factor) * (np.abs(x.value) + np.abs(mean)) + np.abs(offset)
    return value, np.abs(factor) * x.error + 8 * unit * size


def _quantize(step: Step, args: list[Approximate], unit: float) -> tuple[Array, Array]:
    x, scale, zero_point = (arg.value for arg in _on_axis(step, args))
    limits = np.iinfo(step.dtype)
    quotient = x / scale
    doubt = args[0].error / scale + 2 * unit * np.abs(quotient)
    low, high = (np.clip(np.rint(q) + zero_point, limits.min, limits.max) for q in (quotient - doubt, quotient + doubt))
    value = np.clip(np.rint(quotient) + zero_point, limits.min, limits.max)
    return value, np.where(np.isfinite(doubt), np.maximum(high - value, value - low), np.inf)


def _dequantize(step: Step, args: list[Approximate], unit: float) -> tuple[Array, Array]:
    x, scale, zero_point = (arg.value for arg in _on_axis(step, args))
    value = (x - zero_point) * scale
    return value, args[0].error * scale + 2 * UNIT["float32"] * np.abs(value)


def _on_axis(step: Step, args: list[Approximate]) -> list[Approximate]:
    x, *parameters = args
    shape = [1] * len(step.shape)
    if shape:
        shape[step.attrs["axis"]] = -1
    return [x, *(p if p.value.size == 1 and not p.value.shape else _reshaped(p, shape) for p in parameters)]


def _reshaped(x: Approximate, shape: Sequence[int]) -> Approximate:
    return Approximate(x.value.reshape(shape), x.error.reshape(shape))


def _matmul(step: Step, args: list[Approximate], unit: float) -> tuple[Array, Array]:
    return _sum_of_products(np.matmul, args, args[0].value.shape[-1], step, unit)


def _sum_of_products(
    contract: Callable[[Array, Array], Array], args: list[Approximate], terms: int, step: Step, unit: float
) -> tuple[Array, Array]:
    a, b = args
    value = contract(a.value, b.value)
    error = contract(np.abs(a.value), b.error) + contract(a.error, np.abs(b.value) + b.error)
    if step.dtype not in UNIT:
        return value, error
    size = contract(np.abs(a.value) + a.error, np.abs(b.value) + b.error)
    return value, error + (terms + 2) * unit * size + _overflow(size, unit)


def _overflow(size: Array, unit: float) -> Array:
    """Infinite where terms of these absolute values may, in some order, overflow a sum that is rounded to ``unit``."""
    dtype = next(dtype for dtype, rounded in UNIT.items() if rounded == unit)
    return np.where(size < LARGEST[dtype], 0, np.inf)


def _conv(step: Step, args: list[Approximate], unit: float) -> tuple[Array, Array]:
    layout, kernel_layout = step.attrs["data_layout"], step.attrs["kernel_layout"]
    letters = [letter for letter in layout if letter not in "NC"]
    x, w = (
        Approximate(arg.value.transpose(order), arg.error.transpose(order))
        for arg, order in (
            (args[0], [layout.index(letter) for letter in ["N", "C", *letters]]),
            (args[1], [kernel_layout.index(letter) for letter in ["O", "I", *letters]]),
        )
    )
    terms = int(np.prod(w.value.shape[1:]))

    def contract(data: Array, weights: Array) -> Array:
        out = convolve(data, weights, step.attrs)
        return out.transpose([["N", "C", *letters].index(letter) for letter in layout])

    return _sum_of_products(contract, [x, w], terms, step, unit)


def _pool(step: Step, args: list[Approximate], unit: float) -> tuple[Array, Array]:
    layout = step.attrs["layout"]
    order = [layout.index(letter) for letter in "NCHW"]
    x, errors = args[0].value.transpose(order), args[0].error.transpose(order)
    out_sizes = [step.shape[layout.index(letter)] for letter in "HW"]
    if step.op == "max_pool2d":
        results = max_pool(x, errors, out_sizes, step.attrs)
    else:
        value, error, size = avg_pool(x, errors, out_sizes, step.attrs, unit)
        results = value, error + _overflow(size, unit)
    back = ["NCHW".index(letter) for letter in layout]
    return results[0].transpose(back), results[1].transpose(back)


def _moved(function: Callable[[Step, Array], Array]) -> Rule:
    def rule(step: Step, args: list[Approximate], unit: float) -> tuple[Array, Array]:
        return function(step, args[0].value), function(step, args[0].error)

    return rule


RULES: Mapping[str, Rule] = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "divide": _divide,
    "maximum": _extremum(np.maximum),
    "minimum": _extremum(np.minimum),
    "relu": _monotonic(lambda step, x: np.maximum(x, 0)),
    "clip": _monotonic(lambda step, x: np.clip(x, step.attrs["min"], step.attrs["max"])),
    "abs": _monotonic(lambda step, x: np.abs(x)),
    "negative": _monotonic(lambda step, x: -x),
    "sigmoid": _smooth(lambda x: 1 / (1 + np.exp(-x)), 0.25, lambda x, y: y * (1 + np.abs(x))),
    "tanh": _smooth(np.tanh, 1, lambda x, y: np.abs(y)),
    "sin": _smooth(np.sin, 1, lambda x, y: np.abs(x)),
    "gelu": _smooth(_gelu, 1.13, lambda x, y: np.abs(x)),
    "gelu_tanh": _smooth(_gelu_tanh, 1.13, lambda x, y: np.abs(x)),
    "softmax": _softmax,
    "batch_norm": _batch_norm,
    "quantize": _quantize,
    "dequantize": _dequantize,
    "matmul": _matmul,
    "conv1d": _conv,
    "conv2d": _conv,
    "max_pool2d": _pool,
    "avg_pool2d": _pool,
    "permute_dims": _moved(lambda step, x: x.transpose(step.attrs["axes"])),
    "reshape": _moved(lambda step, x: x.reshape(step.shape)),
    "tuple": lambda step, args, unit: (args[1].value, args[1].error),
}
