"""Rules of softmax and the norms, in float64 with an error bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from approximate import TRANSCENDENTAL, Approximate, Rule, overflow, product
from float64_elementwise import on_axis
from sample_model import Array, Step

Args = Sequence[Approximate]


def _softmax(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
    x, axis = args[0], step.attrs["axis"]
    shifted = x.value - x.value.max(axis, keepdims=True)
    powers = np.exp(shifted)
    value = powers / powers.sum(axis, keepdims=True)
    largest = x.error.max(axis, keepdims=True)
    spread = np.abs(shifted) + step.shape[axis] + TRANSCENDENTAL
    return value, value * (np.expm1(2 * largest) + spread * unit * np.exp(2 * largest))


def _log_softmax(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
    """The sum is at least 1, and none of its terms is further from the real one than a few units."""
    x, axis = args[0], step.attrs["axis"]
    shifted = x.value - x.value.max(axis, keepdims=True)
    logarithm = np.log(np.exp(shifted).sum(axis, keepdims=True))
    largest = x.error.max(axis, keepdims=True)
    of_sum = -np.log1p(-np.minimum((2 * step.shape[axis] + TRANSCENDENTAL) * unit, 1))
    own = of_sum + TRANSCENDENTAL * unit * (1 + logarithm + 2 * largest) + 2 * unit * np.abs(shifted)
    return shifted - logarithm, 2 * largest + own


def _layer_norm(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
    x, *parameters = on_axis(step, args)
    axis, terms = step.attrs["axis"], step.shape[step.attrs["axis"]]
    size = np.abs(x.value) + x.error
    mean = x.value.mean(axis, keepdims=True)
    mean_error = x.error.mean(axis, keepdims=True) + (terms + 2) * unit * size.mean(axis, keepdims=True)
    centred = Approximate(x.value - mean, x.error + mean_error)
    return _normalised(step, centred, size, parameters, unit)


def _rms_norm(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
    x, *parameters = on_axis(step, args)
    return _normalised(step, x, np.abs(x.value) + x.error, parameters, unit)


def _normalised(
    step: Step, x: Approximate, size: Array, parameters: Sequence[Approximate], unit: float
) -> tuple[Array, Array]:
    """``x`` over the root of its mean square, times and plus the parameters.

    ``size`` are the absolute values before the mean was subtracted: a variance may be computed as the mean of their
    squares less the square of the mean.
    """
    axis, terms, epsilon = step.attrs["axis"], step.shape[step.attrs["axis"]], step.attrs["epsilon"]
    square = product(x, x)
    variance = square.value.mean(axis, keepdims=True) + epsilon
    of_sum = (3 * terms + 8) * unit * (size * size).mean(axis, keepdims=True)
    room = variance - square.error.mean(axis, keepdims=True) - of_sum - unit * variance
    stretch = np.where(room > 0, np.sqrt(variance / room), np.inf)  # 1 over the root is at most so many times as large
    value = x.value / np.sqrt(variance)
    error = (np.abs(value) + x.error / np.sqrt(variance)) * stretch * (1 + 4 * unit) - np.abs(value)
    error = error + overflow((size * size).sum(axis, keepdims=True), unit)
    result = Approximate(value, error)
    if step.attrs.get("scale", True):
        result = product(result, parameters[0])
        result = Approximate(result.value, result.error + unit * np.abs(result.value))
    if step.attrs.get("center", True) and len(parameters) > 1:
        result = Approximate(result.value + parameters[1].value, result.error + parameters[1].error)
    return result.value, result.error + unit * np.abs(result.value)


ROW_RULES: Mapping[str, Rule] = {
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
}
