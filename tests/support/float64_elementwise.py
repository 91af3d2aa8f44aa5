"""Rules of element-wise operations: what they compute in float64, and how errors of their operands grow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from approximate import TRANSCENDENTAL, UNIT, Approximate, Rule, product, reshaped
from sample_model import Array, Step
from scipy.special import erf

Args = Sequence[Approximate]


def _add(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
    a, b = args
    return a.value + b.value, a.error + b.error


def _subtract(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
    a, b = args
    return a.value - b.value, a.error + b.error


def _multiply(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
    a, b = args
    whole = product(a, b)
    if step.dtype == "int32":  # products that float64 does not hold exactly
        return a.value.astype(np.int64) * b.value.astype(np.int64), whole.error
    return whole.value, whole.error


def _square(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
    return _multiply(step, (args[0], args[0]), unit)


def _divide(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
    a, b = args
    if step.dtype not in UNIT:
        is_exact = (a.error == 0) & (b.error == 0)
        return np.trunc(a.value / b.value), np.where(is_exact, 0, np.inf)
    quotient = a.value / b.value
    room = np.abs(b.value) - b.error
    return quotient, np.where(room > 0, (a.error + np.abs(quotient) * b.error) / room, np.inf)


def _power(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
    """Relative to the result, the error of the base is multiplied by the exponent, that of the exponent by a log."""
    a, b = np.broadcast_arrays(args[0].value, args[1].value)
    base_error, exponent_error = np.broadcast_arrays(args[0].error, args[1].error)
    value = np.power(a, b)
    of_base = np.where(base_error > 0, -np.log1p(-np.minimum(base_error / np.abs(a), 1)), 0)
    of_exponent = np.where(exponent_error > 0, exponent_error * (np.abs(np.log(np.abs(a))) + of_base), 0)
    relative = np.expm1(np.abs(b) * of_base + of_exponent)
    # Below 0 a power exists for whole exponents only, and one that is not known exactly is none.
    is_unknown = (exponent_error > 0) & (a - base_error <= 0)
    return value, np.where(is_unknown, np.inf, np.abs(value) * (relative + TRANSCENDENTAL * unit * (1 + relative)))


def _extremum(function: Any) -> Rule:
    def rule(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
        a, b = args
        return function(a.value, b.value), np.maximum(*np.broadcast_arrays(a.error, b.error))

    return rule


def _monotonic(function: Callable[[Step, Array], Array]) -> Rule:
    """A function that never moves two values apart."""

    def rule(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
        return function(step, args[0].value), args[0].error

    return rule


def _leaky_relu(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
    alpha = Approximate(np.asarray(step.attrs["alpha"]), np.asarray(unit * abs(step.attrs["alpha"])))
    return _sloped(args[0], alpha, unit)


def _prelu(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
    return _sloped(*on_axis(step, args), unit)


def _sloped(x: Approximate, alpha: Approximate, unit: float) -> tuple[Array, Array]:
    """Near 0 either side may be taken: both are 0 there."""
    below = product(x, alpha)
    value = np.where(x.value > 0, x.value, below.value)
    return value, np.where(x.value > x.error, x.error, np.maximum(x.error, below.error + unit * np.abs(below.value)))


def _smooth(function: Callable[[Array], Array], slope: float, scale: Callable[[Array, Array], Array]) -> Rule:
    """A transcendental function whose derivative is at most ``slope``; its own error is in units of ``scale``."""

    def rule(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
        x = args[0].value
        value = function(x)
        return value, slope * args[0].error + TRANSCENDENTAL * unit * scale(x, value)

    return rule


def _gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + erf(x / np.sqrt(2))))


def _gelu_tanh(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


def _steepest(function: Callable[[Array], Array], steepest_at: int) -> Rule:
    """A monotonic transcendental function; between two points it is steepest at the lower (-1) or upper (1) one.

    Where that one is outside of its domain nothing is known.
    """

    def rule(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
        x = args[0]
        value = function(x.value)
        spread = np.where(x.error > 0, np.abs(function(x.value + steepest_at * x.error) - value), 0)
        return value, spread + TRANSCENDENTAL * unit * (np.abs(value) + spread)

    return rule


def _stepwise(function: Callable[[Array], Array]) -> Rule:
    """A function with whole results: it may fall on either side of each step that the operand may be on."""

    def rule(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
        x = args[0]
        value, low, high = (function(x.value + sign * x.error) for sign in (0, -1, 1))
        return value, np.maximum(high - value, value - low)

    return rule


def _batch_norm(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
    x, *parameters = args
    if step.attrs["item"]:
        return parameters[1 + step.attrs["item"]].value, parameters[1 + step.attrs["item"]].error
    _, gamma, beta, mean, variance = (arg.value for arg in on_axis(step, args))
    factor = (gamma if step.attrs["scale"] else 1) / np.sqrt(variance + step.attrs["epsilon"])
    offset = beta if step.attrs["center"] else np.zeros(())
    value = (x.value - mean) * factor + offset
    size = np.abs(factor) * (np.abs(x.value) + np.abs(mean)) + np.abs(offset)
    return value, np.abs(factor) * x.error + 8 * unit * size


def _quantize(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
    x, scale, zero_point = (arg.value for arg in on_axis(step, args))
    limits = np.iinfo(step.dtype)
    quotient = x / scale
    doubt = args[0].error / scale + 2 * unit * np.abs(quotient)
    low, high = (np.clip(np.rint(q) + zero_point, limits.min, limits.max) for q in (quotient - doubt, quotient + doubt))
    value = np.clip(np.rint(quotient) + zero_point, limits.min, limits.max)
    return value, np.where(np.isfinite(doubt), np.maximum(high - value, value - low), np.inf)


def _dequantize(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
    x, scale, zero_point = (arg.value for arg in on_axis(step, args))
    value = (x - zero_point) * scale
    return value, args[0].error * scale + 2 * UNIT["float32"] * np.abs(value)


def on_axis(step: Step, args: Args) -> list[Approximate]:
    """Data and its parameters, each of which has one element, or stands along the attribute ``axis`` of the data."""
    x, *parameters = args
    shape = [1] * x.value.ndim
    if shape:
        shape[step.attrs["axis"]] = -1
    return [x, *(p if p.value.size == 1 and not p.value.shape else reshaped(p, shape) for p in parameters)]


ELEMENTWISE_RULES: Mapping[str, Rule] = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "square": _square,
    "divide": _divide,
    "power": _power,
    "maximum": _extremum(np.maximum),
    "minimum": _extremum(np.minimum),
    "relu": _monotonic(lambda step, x: np.maximum(x, 0)),
    "clip": _monotonic(lambda step, x: np.clip(x, step.attrs["min"], step.attrs["max"])),
    "abs": _monotonic(lambda step, x: np.abs(x)),
    "negative": _monotonic(lambda step, x: -x),
    "leaky_relu": _leaky_relu,
    "prelu": _prelu,
    "sigmoid": _smooth(lambda x: 1 / (1 + np.exp(-x)), 0.25, lambda x, y: y * (1 + np.abs(x))),
    "tanh": _smooth(np.tanh, 1, lambda x, y: np.abs(y)),
    "sin": _smooth(np.sin, 1, lambda x, y: np.abs(x)),
    "erf": _smooth(erf, 1.13, lambda x, y: np.abs(y)),
    "gelu": _smooth(_gelu, 1.13, lambda x, y: np.abs(x)),
    "gelu_tanh": _smooth(_gelu_tanh, 1.13, lambda x, y: np.abs(x)),
    "silu": _smooth(lambda x: x / (1 + np.exp(-x)), 1.1, lambda x, y: np.abs(x)),
    "exp": _steepest(np.exp, 1),
    "log": _steepest(np.log, -1),
    "sqrt": _steepest(np.sqrt, -1),
    "rsqrt": _steepest(lambda x: 1 / np.sqrt(x), -1),
    "floor": _stepwise(np.floor),
    "ceil": _stepwise(np.ceil),
    "round": _stepwise(np.rint),
    "batch_norm": _batch_norm,
    "quantize": _quantize,
    "dequantize": _dequantize,
}
