"""Reads one Relax call in the kit's own words: operation, attributes, types of its tensors.

Checks, lowering and normalisation all read calls through here, so they cannot disagree on what a call says.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, TypeGuard

from tvm import ir, relax, tirx

from npu_kit.graph.definition import OpDef
from npu_kit.graph.ir import TensorType
from npu_kit.graph.ops import OPS

OP_OF_RELAX: Mapping[str, OpDef] = {definition.relax_name: definition for definition in OPS.values()}


class Typed:
    """Stands for an expression where only the type is known."""

    def __init__(self, ty: Any) -> None:
        self.ty = ty


def relax_name(call: Any) -> str:
    """What is called: ``relax.nn.conv2d``, ``call_tir maximum``, or the name of a function."""
    callee = call.op
    if isinstance(callee, ir.Op):
        if callee.name in ("relax.call_tir", "relax.call_tir_inplace") and isinstance(call.args[0], ir.GlobalVar):
            return f"{callee.name.removeprefix('relax.')} {call.args[0].name_hint}"
        return str(callee.name)
    if isinstance(callee, ir.GlobalVar):
        return str(callee.name_hint)
    if isinstance(callee, relax.ExternFunc):
        return str(callee.global_symbol)
    return str(getattr(callee, "name", type(callee).__name__))


def span_label(call: Any) -> str:
    """``"main:3"`` for a call of a prepared model, "" for one that was never numbered.

    Of a path only the last part: a graph must not depend on the folder in which a model was written.
    """
    span = call.span
    return f"{PurePath(str(span.source_name.name)).name}:{span.line}" if isinstance(span, ir.Span) else ""


def find_definition(call: Any) -> OpDef | None:
    """The kit's definition of the operation that ``call`` names, None if the kit has none."""
    return OP_OF_RELAX.get(call.op.name) if isinstance(call.op, ir.Op) else None


def attributes_of(call: Any) -> dict[str, Any]:
    """Attributes of ``call`` as Python values, in the form Relax holds them, for ``graph.ops.normalise_attrs``.

    Every attribute that the kit's table names is there, also those that a graph drops.
    """
    definition = OP_OF_RELAX[call.op.name]
    if definition.name == "strided_slice":
        return slice_attributes(call)
    keys = (*definition.attributes, *definition.dropped)
    names = {key: definition.renamed.get(key, key) for key in keys if key not in definition.arguments}
    found = {key: _to_python(getattr(call.attrs, name)) for key, name in names.items()}
    return found | {key: _to_python(call.args[index]) for key, index in definition.arguments.items()}


def tensor_operands(call: Any) -> tuple[Any, ...]:
    """The operands of ``call`` that are tensors, in the order of the table's inputs (the bounds of a clip are not)."""
    definition = find_definition(call)
    if definition is None:
        return tuple(argument for argument in call.args if isinstance(argument.ty, relax.TensorType))
    if definition.is_variadic and isinstance(call.args[0], relax.Tuple):
        return tuple(call.args[0].fields)
    return tuple(call.args[: definition.arity])


def slice_attributes(call: Any) -> dict[str, Any]:
    """begin, end and strides of a ``relax.strided_slice`` for every axis, counted from the front and cut to the data.

    Relax has three or four tuples among the arguments: axes, begin, end, strides. They stay as they are where a number
    is not known, or runs backwards; the table then refuses them.
    """
    x, *given = call.args
    found = [_to_python(one) for one in given]
    shape = shape_of(x)
    axes, begins, ends, *more = found
    strides = more[0] if more else (1,) * len(axes)
    if shape is None or not all(type(item) is int for one in (axes, begins, ends, strides) for item in one):
        return {"begin": begins, "end": ends, "strides": strides}
    begin, end, step = [0] * len(shape), list(shape), [1] * len(shape)
    for axis, first, stop, stride in zip(axes, begins, ends, strides, strict=True):
        size = shape[axis]
        low, high, _ = slice(first, stop).indices(size)
        begin[axis], end[axis], step[axis] = low, max(low, high), stride
    return {"begin": tuple(begin), "end": tuple(end), "strides": tuple(step)}


def shape_of(expr: Any) -> tuple[int, ...] | None:
    """The shape of a tensor expression; None if a dimension is symbolic or the shape is not known."""
    shape = getattr(expr.ty, "shape", None)
    if not isinstance(shape, relax.ShapeExpr) or not all(isinstance(size, tirx.IntImm) for size in shape.values):
        return None
    return tuple(int(size) for size in shape.values)


def is_reshape_target(shape: tuple[int, ...] | None) -> TypeGuard[tuple[int, ...]]:
    """Whether a ``relax.reshape`` can be asked for ``shape``: sizes are known and above 0, which means "as before"."""
    return shape is not None and min(shape, default=1) > 0


def dtype_of(expr: Any) -> str:
    """The dtype of a tensor expression, "" if it is not known or the expression is no tensor."""
    return str(expr.ty.dtype) if isinstance(expr.ty, relax.TensorType) and expr.ty.dtype is not None else ""


def tensor_type(expr: Any) -> TensorType | None:
    """Shape and dtype of a tensor expression; None if either is not known."""
    shape, dtype = shape_of(expr), dtype_of(expr)
    return TensorType(shape, dtype) if shape is not None and dtype else None


def result_of(call: Any) -> Any:
    """An object whose ``ty`` is the type of the call's tensor: the first one where it returns several."""
    return Typed(call.ty.fields[0]) if isinstance(call.ty, relax.TupleType) and len(call.ty.fields) else call


def describe_type(ty: Any) -> str:
    """A type in the words of the kit: ``1x16x30x30 float32``, ``n x 4 float32``, ``tuple of 3``."""
    if isinstance(ty, relax.TupleType):
        return f"tuple of {len(ty.fields)}"
    if isinstance(ty, relax.TensorType):
        dtype = str(ty.dtype) if ty.dtype is not None else "unknown dtype"
        if not isinstance(ty.shape, relax.ShapeExpr):
            return f"{f'{ty.ndim} axes' if ty.ndim >= 0 else 'unknown shape'} {dtype}"
        sizes = [str(int(size)) if isinstance(size, tirx.IntImm) else str(size) for size in ty.shape.values]
        return f"{'x'.join(sizes) or 'scalar'} {dtype}"
    return type(ty).__name__.removesuffix("Type").lower()


def constant_value(expr: Any) -> Any:
    """The NumPy array of a constant, None for any other expression."""
    return expr.value.numpy() if isinstance(expr, ir.GenericConst) else None


def _to_python(value: Any) -> Any:
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, tirx.IntImm):
        return int(value.value)
    if isinstance(value, tirx.FloatImm):
        return float(value.value)
    if isinstance(value, relax.ShapeExpr):
        return tuple(_to_python(item) for item in value.values)
    if isinstance(value, relax.Tuple):
        return tuple(_to_python(item) for item in value.fields)
    if isinstance(value, ir.Array):
        return tuple(_to_python(item) for item in value)
    return str(value)
