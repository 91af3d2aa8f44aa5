"""Building a Relax module with one function ``main``, and arrays to run it with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from npu_kit.errors import InputError

Emit = Callable[[Any, str], Any]
"""Binds an expression to a new variable of that name and returns the variable."""


def tensor(name: str, shape: Sequence[int], dtype: str = "float32") -> Any:
    """A parameter of ``main``."""
    return relax.Var(name, relax.TensorType(tuple(shape), dtype))


def weight(random: np.random.RandomState, *shape: int, fan_in: int) -> Any:
    """A float32 constant of random numbers, scaled so that a sum of ``fan_in`` products is as large as its inputs."""
    return relax.const((random.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32))


def build_main(
    inputs: Sequence[Any], body: Callable[[Emit], Any], *, parameters: Mapping[str, Any] | None = None
) -> Any:
    """A module whose ``main`` is one dataflow block.

    Args:
        inputs: variables that each call gives.
        body: gets ``emit`` and returns the expression of the result, not emitted yet.
        parameters: variables that hold weights, by name; they follow the inputs. The attribute ``num_input`` tells TVM
            where they begin.

    Returns:
        a ``tvm.ir.IRModule``.
    """
    builder = relax.BlockBuilder()
    variables = [*inputs, *(parameters or {}).values()]
    with builder.function("main", variables, attrs={"num_input": len(inputs)}):
        with builder.dataflow():
            output = builder.emit_output(body(builder.emit), "output")
        builder.emit_func_output(output)
    return builder.get()


def random_arguments(module: Any, seed: int = 0) -> tuple[NDArray[Any], ...]:
    """One array for each parameter of ``main``, in order.

    Floats are standard normal, and positive where the parameter's name ends in ``_var``, a variance; integers are drawn
    from the whole range of their dtype.

    Raises:
        InputError: a parameter is no tensor of known shape.
    """
    random = np.random.RandomState(seed)
    return tuple(_random_array(variable, random) for variable in module["main"].params)


def _random_array(variable: Any, random: np.random.RandomState) -> NDArray[Any]:
    try:
        shape, dtype = [int(extent) for extent in variable.ty.shape], np.dtype(str(variable.ty.dtype))
        if dtype.kind not in "fiub":  # packages add dtypes such as bfloat16 to NumPy
            raise TypeError(f"{dtype} is no float, integer or bool")
    except (AttributeError, TypeError) as error:
        raise InputError(
            f"no random array for parameter {variable.name!r} of main",
            f"it is {variable.ty}, and a tensor of known shape and a NumPy dtype is needed",
        ) from error
    if dtype.kind == "f":
        numbers = random.standard_normal(shape)
        return np.asarray(np.abs(numbers) if variable.name.endswith("_var") else numbers).astype(dtype)
    if dtype.kind == "b":
        return random.randint(0, 2, shape).astype(dtype)
    limits = np.iinfo(dtype)
    return random.randint(limits.min, limits.max, shape, dtype=dtype)
