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

import numpy as np
from approximate import LARGEST, SMALLEST, TRANSCENDENTAL, UNIT, Approximate, Rule
from float64_elementwise import ELEMENTWISE_RULES
from float64_rows import ROW_RULES
from float64_sums import SUM_RULES
from sample_model import Array, Model, Step


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


def _rounded(step: Step, args: Sequence[Approximate], dtypes: list[str], arithmetic: Arithmetic) -> Approximate:
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


def _moved(function: Callable[[Step, Sequence[Array]], Array]) -> Rule:
    """What computes nothing: errors move along with the values."""

    def rule(step: Step, args: Sequence[Approximate], unit: float) -> tuple[Array, Array]:
        return function(step, [arg.value for arg in args]), function(step, [arg.error for arg in args])

    return rule


def _pad(step: Step, args: Sequence[Approximate], unit: float) -> tuple[Array, Array]:
    widths = np.reshape(step.attrs["pad_width"], (-1, 2))
    if not len(widths):
        return args[0].value, args[0].error
    value, error = (np.pad(array, widths) for array in (args[0].value, args[0].error))
    is_data = np.pad(np.ones(args[0].value.shape, bool), widths)
    return np.where(is_data, value, step.attrs["pad_value"]), error


def _sliced(step: Step, args: Sequence[Array]) -> Array:
    attrs, box = step.attrs, [slice(None)] * args[0].ndim
    for axis, begin, end, stride in zip(*(attrs[key] for key in ("axes", "begin", "end", "strides")), strict=True):
        box[axis] = slice(begin, end, stride)
    return args[0][tuple(box)]


RULES: Mapping[str, Rule] = {
    **ELEMENTWISE_RULES,
    **SUM_RULES,
    **ROW_RULES,
    "permute_dims": _moved(lambda step, args: args[0].transpose(step.attrs["axes"])),
    "reshape": _moved(lambda step, args: args[0].reshape(step.shape)),
    "broadcast_to": _moved(lambda step, args: np.broadcast_to(args[0], step.shape)),
    "flip": _moved(lambda step, args: np.flip(args[0], step.attrs["axis"])),
    "strided_slice": _moved(_sliced),
    "concat": _moved(lambda step, args: np.concatenate(args, step.attrs["axis"])),
    "pad": _pad,
    "tuple": lambda step, args, unit: (args[1].value, args[1].error),
}
