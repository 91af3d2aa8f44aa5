"""Refuses models that TVM's own build would crash on, or compute without an error and wrong.

Each rule was seen on the apache-tvm 0.27 wheel; the message says what happens there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax
from tvm.ir import IRModule

from npu_kit.byoc.model import calls
from npu_kit.byoc.model.normalize import MAX_DEPTH, nesting_depth
from npu_kit.byoc.model.walk import model_functions, walk_calls
from npu_kit.errors import UnsupportedError

_DIVISIONS = ("relax.divide", "relax.floor_divide", "relax.mod", "relax.floor_mod")
_CONVOLUTIONS = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d")


def verify_depth(mod: IRModule) -> None:
    """Raise UnsupportedError if an expression is nested deeper than ``MAX_DEPTH``; to be called before any pass."""
    for var, function in mod.functions.items():
        if isinstance(function, relax.Function) and nesting_depth(function) > MAX_DEPTH:
            raise UnsupportedError(
                f"an expression in {var.name_hint}",
                f"it is nested more than {MAX_DEPTH:,} deep, and TVM's passes recurse until the process ends",
                "binding the steps to variables, as BlockBuilder.emit does; a chain of bindings can be of any length.",
            )


def verify_host(mod: IRModule) -> None:
    """Raise UnsupportedError if the part that the host computes holds what TVM builds wrong.

    Args:
        mod: a partitioned module: what is on the NPU is not looked at.
    """
    for _, function in model_functions(mod):
        for call, bound in walk_calls(function):
            name = calls.relax_name(call)
            problem = _RULES[name](call) if name in _RULES else ""
            if problem:
                hint = "a model without it, or TVM's own relax.build, at that risk."
                raise UnsupportedError(f"{name} ({bound.var.name}) on the host", problem, hint)


def _check_division(call: Any) -> str:
    dtype = calls.dtype_of(call)
    if not dtype.startswith(("int", "uint")):
        return ""
    divisor = calls.constant_value(call.args[1])
    if divisor is not None and (divisor != 0).all() and (dtype.startswith("uint") or (divisor != -1).all()):
        return ""
    found = "not a constant" if divisor is None else "a constant that holds one"
    return f"dividing {dtype} by 0, or the lowest {dtype} by -1, ends the process there, and the divisor is {found}"


def _check_convolution(call: Any) -> str:
    shape = calls.shape_of(call.args[1])
    axis = str(call.attrs.kernel_layout).find("I")
    return "TVM leaves the result of 0 input channels unwritten" if shape and shape[axis] == 0 else ""


def _check_pool(call: Any) -> str:
    sizes = [int(size) for size in (*call.attrs.pool_size, *call.attrs.strides)]
    return "TVM returns memory it never wrote for a window or stride of 0" if 0 in sizes else ""


_RULES: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(_DIVISIONS, _check_division),
    **dict.fromkeys(_CONVOLUTIONS, _check_convolution),
    **{f"relax.nn.{kind}_pool{axes}d": _check_pool for kind in ("max", "avg") for axes in (1, 2, 3)},
}
