"""Calls a kernel function that someone has put in the place of the kit's own, and believes nothing of it.

What it is given it cannot write, and what it returns has to be an array of the shape and kind that the operation
gives: NumPy would silently stretch a row over a whole tile, or make NaN of None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.blame import function_line, line_of
from npu_kit.errors import ExecutionError, leave_note, text_of

Array = NDArray[Any]


def call_replaced(
    function: Callable[..., Any], name: str, attrs: Mapping[str, Any], out_dtype: str, inputs: Sequence[Array]
) -> Array:
    """The result of ``function`` in the place of the kit's function for operation ``name``, as a copy.

    Raises:
        ExecutionError: it returned no array of the right shape and kind, wrote an input, or called itself without end;
            names the function and its line. What else it raises arrives as it was raised, with a note of the line.
    """
    what = f"your function for {name} ({function_line(function)})"
    if not callable(function):
        raise ExecutionError(f"what stands for {name}", f"it is {type(function).__name__}, and no function")
    shape = np.broadcast_shapes(*(array.shape for array in inputs))
    try:
        found = function(attrs, out_dtype, None, *map(_sealed, inputs))
    except RecursionError as error:
        raise ExecutionError(what, "it calls itself without end", "a case in which it does not.") from error
    except ValueError as error:
        if "read-only" in text_of(error):
            raise ExecutionError(what, f"it writes an input, at {line_of(error)}", "a new array.") from error
        _note(error)
        raise
    except Exception as error:
        _note(error)
        raise
    if not isinstance(found, np.ndarray | np.generic) or isinstance(found, np.ma.MaskedArray):
        raise ExecutionError(what, f"it returned {type(found).__name__} and not an array", "return at its end.")
    value = np.asarray(found)  # of a subclass, what it holds: it may say another shape
    if value.shape != shape:
        raise ExecutionError(what, f"it returned the shape {value.shape} and the operands give {shape}")
    if value.dtype.kind not in "biuf":
        raise ExecutionError(what, f"it returned {value.dtype} and {out_dtype} is needed")
    with np.errstate(all="ignore"):
        copy: Array = np.array(value, out_dtype)
    if value.dtype.kind == "f" and copy.dtype.kind != "f" and not np.array_equal(copy, value):
        raise ExecutionError(what, f"it returned {value.dtype} values that {out_dtype} does not hold", "np.rint.")
    return copy


def _sealed(array: Array) -> Array:
    view: Array = array.view()
    view.flags.writeable = False
    return view


def _note(error: Exception) -> None:
    if where := line_of(error):
        leave_note(error, f"at {where}")
