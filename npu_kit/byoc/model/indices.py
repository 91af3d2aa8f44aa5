"""Puts a check before every operation on the host that reads or writes where a tensor of indices says.

TVM's code for them trusts the indices: one that is out of range reads memory that is not the tensor's, ends the
process, or, in ``scatter_nd``, writes there. What is checked and how is decided here; the check itself runs in
``run.indices``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import ir, relax
from tvm.ir import IRModule
from tvm.relax.expr_functor import PyExprMutator, mutator

from npu_kit.byoc.model.calls import dtype_of, relax_name
from npu_kit.byoc.model.walk import model_functions, operators_in, walk_calls

CHECK = "npu_kit.checked_indices"  # a packed function: (what, is negative allowed, first axis, is deep, shape, indices)


@dataclass(frozen=True)
class _Indexing:
    """How an operation uses its indices, as seen on TVM's LLVM build."""

    indices: int  # number of the argument
    counts_from_the_end: bool = False  # a negative index is one from the end
    is_deep: bool = False  # the last axis of the indices holds one for each axis of the data


_INDEXING = {
    "relax.take": _Indexing(1),
    "relax.gather_elements": _Indexing(1),
    "relax.gather_nd": _Indexing(1, is_deep=True),
    "relax.scatter_elements": _Indexing(1, counts_from_the_end=True),
    "relax.scatter_nd": _Indexing(1, is_deep=True),
    "relax.index_tensor": _Indexing(1),
    "relax.index_put": _Indexing(1, counts_from_the_end=True),
}


def check_indices(mod: IRModule) -> IRModule:
    """``mod`` with every tensor of indices checked before it is used; IndexError at run time names the operation."""
    if not operators_in(mod) & set(_INDEXING):
        return mod
    checked = IRModule(dict(mod.functions), attrs=mod.attrs, global_infos=mod.global_infos)
    for var, function in model_functions(mod):
        checked[var] = _Checking(checked, str(var.name_hint), function).visit_expr(function)
    return checked


@mutator
class _Checking(PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: IRModule, name: str, function: Any) -> None:
        super().__init__(mod)
        # Found by the call itself: the mutator makes new variables.
        self.places = {call: f"variable {bound.var.name} of {name}" for call, bound in walk_calls(function)}

    def visit_call_(self, call: Any) -> Any:
        visited = self.visit_expr_post_order(call)
        how = _INDEXING.get(relax_name(call)) if isinstance(call.op, ir.Op) else None
        if how is None or (relax_name(call) == "relax.take" and str(call.attrs.mode) != "fast"):
            return visited
        what = f"{relax_name(call)}, {self.places.get(call, 'in an expression')}"
        data, given = visited.args[0], visited.args[how.indices]
        arguments = list(visited.args)
        if isinstance(call.args[how.indices].ty, relax.TupleType):
            parts = given.fields if isinstance(given, relax.Tuple) else self._parts_of(given)
            arguments[how.indices] = relax.Tuple(
                [self._check(what, how, axis, data, p) for axis, p in enumerate(parts)]
            )
        else:
            arguments[how.indices] = self._check(what, how, _first_axis(call), data, given)
        return relax.Call(visited.op, arguments, visited.attrs, visited.ty_args, visited.span)

    def _parts_of(self, given: Any) -> list[Any]:
        return [self.builder_.emit(relax.TupleGetItem(given, i)) for i in range(len(given.ty.fields))]

    def _check(self, what: str, how: _Indexing, axis: int, data: Any, indices: Any) -> Any:
        if not dtype_of(indices).startswith(("int", "uint")):
            return indices  # a mask
        shape = (
            data.ty.shape if isinstance(data.ty.shape, relax.ShapeExpr) else self.builder_.emit(relax.op.shape_of(data))
        )
        text, *numbers = what, int(how.counts_from_the_end), axis, int(how.is_deep)
        arguments = [ir.StringImm(text), *map(relax.prim_value, numbers), shape, indices]
        return self.builder_.emit(relax.call_pure_packed(CHECK, *arguments, ty_args=indices.ty))


def _first_axis(call: Any) -> int:
    """The axis of the data that the (first of the) indices runs along."""
    attrs = call.attrs
    if hasattr(attrs, "batch_dims"):
        return int(attrs.batch_dims)
    axis = getattr(attrs, "axis", 0)
    return 0 if axis is None else int(axis) % max(1, call.args[0].ty.ndim)
