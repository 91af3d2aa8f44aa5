"""Rules of what sums or compares many elements: products, convolutions, pools and reductions, in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from approximate import UNIT, Approximate, Rule, overflow
from float64_windows import avg_pool, convolve, convolve_transposed, max_pool
from sample_model import Array, Step

Args = Sequence[Approximate]


def _matmul(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
    return _sum_of_products(np.matmul, args, args[0].value.shape[-1], step, unit)


def _sum_of_products(
    contract: Callable[[Array, Array], Array], args: Args, terms: int, step: Step, unit: float
) -> tuple[Array, Array]:
    a, b = args
    value = contract(a.value, b.value)
    error = contract(np.abs(a.value), b.error) + contract(a.error, np.abs(b.value) + b.error)
    if step.dtype not in UNIT:
        return value, error
    size = contract(np.abs(a.value) + a.error, np.abs(b.value) + b.error)
    return value, error + (terms + 2) * unit * size + overflow(size, unit)


def _conv(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
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


def _pool(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
    layout = step.attrs["layout"]
    order = [layout.index(letter) for letter in "NCHW"]
    x, errors = args[0].value.transpose(order), args[0].error.transpose(order)
    out_sizes = [step.shape[layout.index(letter)] for letter in "HW"]
    if step.op == "max_pool2d":
        results = max_pool(x, errors, out_sizes, step.attrs)
    else:
        value, error, size = avg_pool(x, errors, out_sizes, step.attrs, unit)
        results = value, error + overflow(size, unit)
    back = ["NCHW".index(letter) for letter in layout]
    return results[0].transpose(back), results[1].transpose(back)


def _conv_transposed(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
    terms = int(np.prod(args[1].value.shape)) // max(1, args[1].value.shape[1] * step.attrs["groups"])

    def contract(data: Array, weights: Array) -> Array:
        return convolve_transposed(data, weights, step.shape[2:], step.attrs)

    return _sum_of_products(contract, args, terms, step, unit)


def _adaptive_pool(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
    """The mean over axes that stand for the inside of a window: the output's size divides the data's."""
    layout = step.attrs["layout"]
    split: list[int] = []
    for letter, size, count in zip(layout, args[0].value.shape, step.shape, strict=True):
        split += [count, size // count] if letter in "HW" else [size]
    inside = tuple(layout.index(letter) + 1 + (letter == "W") for letter in "HW")
    return _summed(args[0].value.reshape(split), args[0].error.reshape(split), inside, True, step, unit)


def _sum(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
    value, error = _summed(args[0].value, args[0].error, _reduced(step, args), step.op == "mean", step, unit)
    return value.reshape(step.shape), error.reshape(step.shape)


def _summed(
    x: Array, errors: Array, axes: tuple[int, ...], is_mean: bool, step: Step, unit: float
) -> tuple[Array, Array]:
    terms = int(np.prod([x.shape[axis] for axis in axes]))
    count = terms if is_mean else 1
    value, error = x.sum(axes), errors.sum(axes)
    if step.dtype in UNIT:
        size = (np.abs(x) + errors).sum(axes)
        error = error + (terms + 2) * unit * size + overflow(size, unit)
    return np.asarray(value / count), np.asarray(error / count)


def _extreme(step: Step, args: Args, unit: float) -> tuple[Array, Array]:
    axes = _reduced(step, args)
    value = getattr(np, step.op)(args[0].value, axes)
    return value.reshape(step.shape), args[0].error.max(axes).reshape(step.shape)


def _reduced(step: Step, args: Args) -> tuple[int, ...]:
    """The axes that an operation reduces; Relax has None for all, and an int for one."""
    axis, rank = step.attrs["axis"], args[0].value.ndim
    axes = range(rank) if axis is None else [axis] if isinstance(axis, int) else axis
    return tuple(one % rank for one in axes)


SUM_RULES: Mapping[str, Rule] = {
    "matmul": _matmul,
    "conv1d": _conv,
    "conv2d": _conv,
    "conv2d_transpose": _conv_transposed,
    "max_pool2d": _pool,
    "avg_pool2d": _pool,
    "adaptive_avg_pool2d": _adaptive_pool,
    "sum": _sum,
    "mean": _sum,
    "max": _extreme,
    "min": _extreme,
}
