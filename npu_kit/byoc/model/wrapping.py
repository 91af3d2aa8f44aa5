"""Warns of products of small integers whose sums do not fit: what comes out is right, and seldom what was meant."""

from __future__ import annotations

import warnings

from tvm.ir import IRModule

from npu_kit.byoc.model.calls import dtype_of, relax_name
from npu_kit.byoc.model.walk import model_functions, walk_calls

_PRODUCTS = ("relax.matmul", "relax.nn.conv1d", "relax.nn.conv2d")
_SMALL = ("int8", "uint8", "int16", "uint16")


class WrapWarning(RuntimeWarning):
    """A sum of products is declared in a dtype that holds few of them: it wraps, on the NPU as in TVM's own build."""


def warn_of_wrapping(mod: IRModule) -> None:
    """Warn, once for a model, where a product of small integers has no wider ``out_dtype``."""
    found = [
        f"{relax_name(call)} {bound.var.name} of {var.name_hint} is {dtype_of(call)}"
        for var, function in model_functions(mod)
        for call, bound in walk_calls(function)
        if relax_name(call) in _PRODUCTS and dtype_of(call) in _SMALL
    ]
    if found:
        more = f", and so are {len(found) - 1} more" if len(found) > 1 else ""
        warnings.warn(
            f'{found[0]}{more}: its sums wrap around. out_dtype="int32" keeps them', WrapWarning, stacklevel=4
        )
