"""The door for arrays from outside: makes an array acceptable where its values stay the same, and refuses it otherwise.

What is only a matter of memory (strides, byte order, alignment, a read-only flag) is put right in a copy; the caller's
array is never written. What would change values (another dtype, another shape) is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.errors import InputError

Extent = int | str  # a str is the name of a symbol: any extent, the same wherever the name stands


@dataclass(frozen=True)
class Parameter:
    """What a model takes for one of its parameters."""

    name: str
    shape: tuple[Extent, ...]
    dtype: str  # NumPy's name

    def __str__(self) -> str:
        return f"{self.name} ({_type_text(self.shape, self.dtype)})"


def admit(values: Sequence[Any], parameters: Sequence[Parameter], what: str = "the model") -> tuple[NDArray[Any], ...]:
    """Check arrays against parameters; returns C-contiguous, aligned arrays in native byte order, in the same order.

    An array that is all that already is not copied: the result shares its memory, and is read-only where it is.

    Raises:
        InputError: the number of arrays, or for one of them the kind, dtype, rank or shape; names the parameter, what
            is wanted and what was found.
    """
    if len(values) != len(parameters):
        wanted = ", ".join(map(str, parameters)) or "nothing"
        raise InputError(
            f"{what} got {_count(len(values), 'array')}", f"it takes {_count(len(parameters), 'array')}: {wanted}"
        )
    symbols: dict[str, tuple[int, str]] = {}
    return tuple(_admit(value, parameter, symbols) for value, parameter in zip(values, parameters, strict=True))


def _admit(value: Any, parameter: Parameter, symbols: dict[str, tuple[int, str]]) -> NDArray[Any]:
    what = f"parameter {parameter}"
    if not isinstance(value, np.ndarray | np.generic) or isinstance(value, np.ma.MaskedArray):
        found = f"a NumPy array is needed and a {type(value).__name__} was given"
        raise InputError(what, found, _as_array(value, parameter.dtype))
    array = np.asarray(value)
    if array.dtype.newbyteorder("=") != np.dtype(parameter.dtype):
        hint = f'x.astype("{parameter.dtype}"), where losing range or precision is right.'
        raise InputError(what, f"the array is {array.dtype.name}", hint)
    _check_shape(array.shape, parameter, symbols)
    # A copy only where memory asks for one; np.require alone would turn a scalar into one dimension.
    return np.require(array, array.dtype.newbyteorder("="), ["C", "ALIGNED"]).reshape(array.shape)


def _check_shape(shape: tuple[int, ...], parameter: Parameter, symbols: dict[str, tuple[int, str]]) -> None:
    what, found = f"parameter {parameter}", _type_text(shape, parameter.dtype)
    if len(shape) != len(parameter.shape):
        wanted_axes = _count(len(parameter.shape), "axis")
        raise InputError(what, f"it has {wanted_axes} and {found} has {len(shape)}", "x.reshape(...).")
    for axis, (extent, wanted) in enumerate(zip(shape, parameter.shape, strict=True)):
        if isinstance(wanted, str):
            first, where = symbols.setdefault(wanted, (extent, f"axis {axis} of {parameter.name}"))
            if extent != first:
                raise InputError(what, f"{wanted} is {extent} at axis {axis} of {found}, and {first} at {where}")
        elif extent != wanted:
            why = f"axis {axis} must be {wanted} and is {extent} in {found}"
            raise InputError(what, why, _in_order(shape, parameter))


def _as_array(value: Any, dtype: str) -> str:
    """How to make an array of what is none. ``np.asarray`` cannot read TVM's tensors, and loses a mask."""
    if isinstance(value, np.ma.MaskedArray):
        return "value.filled(number), with the number that stands for what is masked."
    if callable(getattr(value, "numpy", None)):
        return "value.numpy()."
    return f'np.asarray(value, dtype="{dtype}").'


def _in_order(shape: tuple[int, ...], parameter: Parameter) -> str:
    """The transpose that brings ``shape`` into the parameter's, where the sizes are the same but for their order."""
    sizes = [extent for extent in parameter.shape if isinstance(extent, int)]
    if len(sizes) < len(shape) or sorted(sizes) != sorted(shape):
        return ""
    left = list(range(len(shape)))
    order = [left.pop(next(k for k, axis in enumerate(left) if shape[axis] == size)) for size in sizes]
    return f"x.transpose({', '.join(map(str, order))}), if only the order of its axes differs."


def _type_text(shape: tuple[Extent, ...], dtype: str) -> str:
    return f"{'x'.join(map(str, shape)) or 'scalar'} {dtype}"


def _count(number: int, noun: str) -> str:
    if number == 1:
        return f"1 {noun}"
    return f"{number} {'axes' if noun == 'axis' else noun + 's'}"
