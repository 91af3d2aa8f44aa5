"""Brings a module into the form in which patterns match, without changing what it computes.

TVM's own passes come first (helpers inlined, dataflow blocks, dead code), then ``rewrite``, then every call gets its
number. ``DecomposeOpsForInference`` and ``LegalizeOps`` are not among them: they take away what patterns look for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import ir, relax
from tvm.ir import IRModule
from tvm.relax.expr_functor import PyExprMutator, mutator

from npu_kit.byoc.model.calls import constant_value, describe_type, dtype_of, relax_name
from npu_kit.byoc.model.rewrite import rewrite
from npu_kit.byoc.model.walk import is_model_function, model_functions, operators_in, walk_calls
from npu_kit.errors import PartitionError

# TVM's passes recurse: an expression nested about 5,000 deep ends the process. A chain of bindings is not nested.
MAX_DEPTH = 1_000

_DIVISIONS = ("relax.divide", "relax.floor_divide", "relax.mod", "relax.floor_mod")


def prepare(mod: Any) -> IRModule:
    """A copy of ``mod``, ready for matching; ``mod`` stays as it is.

    Raises:
        PartitionError: ``mod`` is no IRModule or has no Relax function of the model; or it holds what TVM does not
            survive: expressions nested too deep, a closure, an integer divided by a constant 0.
    """
    if not isinstance(mod, IRModule):
        hint = "tvm.IRModule.from_expr(function)" if isinstance(mod, relax.Function) else "an importer's result"
        raise PartitionError(f"cannot partition {type(mod).__name__}", "a tvm.IRModule is needed", f"{hint}.")
    if not model_functions(mod):
        raise PartitionError("cannot partition this module", _why_no_model(mod), "the module before any lowering.")
    for var, function in model_functions(mod):
        depth = nesting_depth(function)
        if depth > MAX_DEPTH:
            raise PartitionError(
                f"function {var.name_hint} nests expressions {depth:,} deep",
                f"TVM's passes recurse, and the kit stops at {MAX_DEPTH:,} before the process ends",
                "BlockBuilder.emit for each step, which gives a chain of bindings.",
            )
    copy = IRModule(dict(mod.functions), attrs=mod.attrs, global_infos=mod.global_infos)
    for step in _passes(copy):
        copy = step(copy)
    _refuse_closures(copy)
    copy = relax.transform.DeadCodeElimination()(rewrite(copy))
    _refuse_zero_divisors(copy)
    return number_calls(copy)


def number_calls(mod: IRModule) -> IRModule:
    """Give every call of the model a Span ``function:index``, counting through all functions; fusing keeps it."""
    index = 0
    for var, function in model_functions(mod):
        numbering = _Numbering(mod, str(var.name_hint), index)
        mod[var] = numbering.visit_expr(function)
        index = numbering.index
    return mod


def nesting_depth(function: Any) -> int:
    """How deep calls stand inside arguments of calls, without recursion; 1 where every value is bound."""
    depths: dict[Any, int] = {}
    pending: list[tuple[Any, bool]] = [(function, False)]
    deepest = 0
    while pending:
        expr, is_done = pending.pop()
        parts = list(_parts(expr))
        if is_done:
            own = 1 if isinstance(expr, relax.Call | relax.Tuple | relax.TupleGetItem) else 0
            depths[expr] = own + max((depths[part] for part in parts), default=0) if own else 0
            deepest = max(deepest, depths[expr])
        elif expr not in depths:
            pending.append((expr, True))
            pending.extend((part, False) for part in parts if part not in depths)
    return deepest


def _parts(expr: Any) -> Iterator[Any]:
    if isinstance(expr, relax.Function):
        yield expr.body
    elif isinstance(expr, relax.SeqExpr):
        yield from (binding.value for block in expr.blocks for binding in block.bindings)
        yield expr.body
    elif isinstance(expr, relax.If):
        yield from (expr.cond, expr.true_branch, expr.false_branch)
    elif isinstance(expr, relax.Call | relax.Tuple):
        operands = expr.args if isinstance(expr, relax.Call) else expr.fields
        yield from (part for part in operands if isinstance(part, relax.Call | relax.Tuple | relax.TupleGetItem))
    elif isinstance(expr, relax.TupleGetItem):
        yield expr.tuple_value


def _passes(mod: IRModule) -> Iterator[Any]:
    yield relax.transform.Normalize()
    if all(is_model_function(f) for f in mod.functions.values() if isinstance(f, relax.Function)):
        # Where a backend has taken parts already, these two would put its functions back into the model.
        yield relax.transform.LambdaLift()
        yield relax.transform.InlinePrivateFunctions()
    yield relax.transform.ConvertToDataflow(min_size=1)
    yield relax.transform.DeadCodeElimination()


def _refuse_closures(mod: IRModule) -> None:
    """An inner function that reads a variable around it becomes a closure, which TVM 0.27 cannot build."""
    if "relax.make_closure" in operators_in(mod):
        raise PartitionError(
            "a function inside a function reads a variable of the outer one",
            "TVM makes a closure of it, and cannot build closures",
            "that variable as a parameter of the inner function.",
        )


def _refuse_zero_divisors(mod: IRModule) -> None:
    """An integer divided by a constant 0 ends the process in LLVM's code, or fails at build."""
    for var, function in model_functions(mod):
        for call, bound in walk_calls(function):
            if isinstance(call.op, ir.Op) and call.op.name in _DIVISIONS and "int" in dtype_of(call):
                divisor = constant_value(call.args[1])
                if divisor is not None and not divisor.all():
                    raise PartitionError(
                        f"{relax_name(call)} of {describe_type(call.ty)}, variable {bound.var.name} of {var.name_hint}",
                        "an integer is divided by a constant 0",
                        "another divisor, or a division of floats.",
                    )


def _why_no_model(mod: IRModule) -> str:
    names = ", ".join(sorted(str(var.name_hint) for var in mod.get_global_vars()))
    if not names:
        return "it has no function"
    if any(isinstance(function, relax.Function) for function in mod.functions.values()):
        return f"a backend has taken every Relax function already ({names})"
    return f"it has TensorIR functions only ({names}), and patterns name Relax operators"


@mutator
class _Numbering(PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: IRModule, function: str, index: int) -> None:
        super().__init__(mod)
        self.source, self.index = ir.SourceName(function), index

    def visit_call_(self, call: Any) -> Any:
        visited = self.visit_expr_post_order(call)
        span = ir.Span(self.source, self.index, self.index, 0, 0)
        self.index += 1
        return relax.Call(visited.op, visited.args, visited.attrs, visited.ty_args, span)
