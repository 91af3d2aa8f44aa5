"""A value in float64 and how far a right implementation may be from it; what the rules of operations have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from sample_model import Array, Step

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


# One operation: (step, operands, unit of intermediate sums) -> value and error before the last rounding.
Rule = Callable[[Step, Sequence[Approximate], float], tuple[Array, Array]]


def overflow(size: Array, unit: float) -> Array:
    """Infinite where terms of these absolute values may, in some order, overflow a sum that is rounded to ``unit``."""
    dtype = next(dtype for dtype, rounded in UNIT.items() if rounded == unit)
    return np.where(size < LARGEST[dtype], 0, np.inf)


def reshaped(x: Approximate, shape: Sequence[int]) -> Approximate:
    return Approximate(x.value.reshape(shape), x.error.reshape(shape))


def product(a: Approximate, b: Approximate) -> Approximate:
    """The exact product."""
    error = np.abs(a.value) * b.error + np.abs(b.value) * a.error + a.error * b.error
    return Approximate(a.value * b.value, error)
