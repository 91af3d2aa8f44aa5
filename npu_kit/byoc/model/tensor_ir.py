"""What a loop nest computes: frontends write some operators as ``call_tir``, which no pattern names."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, relax, tirx, topi

from npu_kit.byoc.model.calls import dtype_of, shape_of


def operator_of(function: Any, call: Any, operands: list[Any]) -> Any | None:
    """A call of the Relax operator that a ``call_tir`` computes: a maximum, a minimum or a pad; None for all else.

    Args:
        function: the TensorIR function.
        call: the ``call_tir``.
        operands: its operands, constants as such.
    """
    extremum = _extremum(function, call, operands)
    return _pad(function, call, operands) if extremum is None else extremum


def _extremum(function: Any, call: Any, operands: list[Any]) -> Any | None:
    """The Relax operator that a ``call_tir`` computes, if that is a maximum or a minimum.

    By its name too: the ``relu`` of a legalised module is a maximum, and stays what its user made of it.
    """
    if not str(call.args[0].name_hint).startswith(("maximum", "minimum")):
        return None
    stored = _stored_value(function)
    if not isinstance(stored, tirx.Max | tirx.Min) or not operands or dtype_of(operands[0]) != dtype_of(call):
        return None
    others = operands
    if len(operands) == 1 and isinstance(stored.b, tirx.FloatImm | tirx.IntImm):
        others = [operands[0], stored.b.value]
        operands.append(relax.const(stored.b.value, dtype_of(call)))
    if len(operands) != 2 or not _broadcast_to(operands, shape_of(call)):
        return None
    is_maximum = isinstance(stored, tirx.Max)
    # Equal in structure to what TVM writes for the operator: then it computes the operator.
    if not tvm_ffi.structural_equal(function, _as_tir(topi.maximum if is_maximum else topi.minimum, others)):
        return None
    return (relax.op.maximum if is_maximum else relax.op.minimum)(*operands)


def _pad(function: Any, call: Any, operands: list[Any]) -> Any | None:
    """The ``relax.nn.pad`` that a ``call_tir`` computes, if it is one with a number around a tensor."""
    if not str(call.args[0].name_hint).startswith("pad") or len(operands) != 1:
        return None
    (x,) = operands
    stored, shape, padded = _stored_value(function), shape_of(x), shape_of(call)
    if not isinstance(stored, ir.Call) or len(stored.args) != 3 or shape is None or padded is None:
        return None
    load, value = stored.args[1:]
    if not hasattr(load, "indices") or not isinstance(value, tirx.FloatImm | tirx.IntImm):
        return None
    before = [int(one.b.value) if _is_less_a_number(one) else 0 for one in load.indices]
    after = [wide - size - low for size, low, wide in zip(shape, before, padded, strict=True)]
    if min(after, default=0) < 0:
        return None
    if not tvm_ffi.structural_equal(function, _as_tir(lambda data: topi.nn.pad(data, before, after, value.value), [x])):
        return None
    widths = [width for pair in zip(before, after, strict=True) for width in pair]
    return relax.op.nn.pad(x, widths, "constant", float(value.value))


def _as_tir(te_function: Any, operands: list[Any]) -> Any:
    """The TensorIR function that TVM writes for ``te_function`` of tensors like ``operands``, and of numbers."""
    builder = relax.BlockBuilder()
    given = [relax.Var("x", operand.ty) if isinstance(operand, ir.Expr) else operand for operand in operands]
    call = builder.call_te(te_function, *given)  # adds the function to the module that get() returns
    return builder.get()[call.args[0]]


def _is_less_a_number(index: Any) -> bool:
    return isinstance(index, tirx.Sub) and isinstance(index.b, tirx.IntImm)


def _stored_value(function: Any) -> Any:
    """What the innermost statement of a TensorIR function stores, None where loops and blocks hold more than that."""
    statement = function.body
    while not isinstance(statement, tirx.BufferStore):
        inner = getattr(statement, "block", None)
        statement = getattr(statement, "body", None) if inner is None else inner
        if statement is None:
            return None
    return statement.value


def _broadcast_to(operands: list[Any], shape: tuple[int, ...] | None) -> bool:
    shapes = [shape_of(operand) for operand in operands]
    known = [given for given in shapes if given is not None]
    if shape is None or len(known) != len(operands):
        return False
    try:
        return bool(np.broadcast_shapes(*known) == shape)
    except ValueError:
        return False
