"""Brings a module into the form in which patterns match, without changing what it computes.

TVM's own passes come first (helpers inlined, dataflow blocks, dead code), then ``rewrite``, then every call gets its
number. ``DecomposeOpsForInference`` and ``LegalizeOps`` are not among them: they take away what patterns look for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tvm import ir, relax
from tvm.ir import IRModule
from tvm.relax.expr_functor import PyExprMutator, mutator

from npu_kit.byoc.model.guard import verify_closures, verify_depth, verify_divisors, verify_splits
from npu_kit.byoc.model.rewrite import rewrite
from npu_kit.byoc.model.walk import is_model_function, model_functions
from npu_kit.errors import PartitionError

_OPERATOR = re.compile(r'ir\.Op\(span=.*?name="([^"]+)".*?support_level=\d+\)')
_CONDITION = re.compile(r"^Check failed: \(.*\) is false: ")


def prepare(mod: Any) -> IRModule:
    """A copy of ``mod``, ready for matching; ``mod`` stays as it is.

    Raises:
        PartitionError: ``mod`` is no IRModule, or has no Relax function of the model.
        UnsupportedError: it holds what TVM does not survive; ``guard`` has the rules.
    """
    if not isinstance(mod, IRModule):
        hint = "tvm.IRModule.from_expr(function)" if isinstance(mod, relax.Function) else "an importer's result"
        raise PartitionError(f"cannot partition {type(mod).__name__}", "a tvm.IRModule is needed", f"{hint}.")
    if not model_functions(mod):
        raise PartitionError("cannot partition this module", _why_no_model(mod), "the module before any lowering.")
    verify_depth(mod)
    copy = IRModule(dict(mod.functions), attrs=mod.attrs, global_infos=mod.global_infos)
    copy = _with_symbols(copy)
    for step in _passes(copy):
        copy = step(copy)
    verify_closures(copy)
    verify_splits(copy)
    copy = relax.transform.DeadCodeElimination()(rewrite(copy))
    verify_divisors(copy)
    return number_calls(copy)


def why_malformed(mod: IRModule) -> str:
    """What TVM finds wrong with the form of a module, in a line; "" where nothing is."""
    try:
        relax.analysis.well_formed(mod)
    except Exception as error:  # ValueError, TypeError or InternalError, by the rule that is broken
        return first_line(error)
    return ""


def first_line(error: BaseException) -> str:
    """The first line of a message of TVM's, which may hold a whole module, with operators by their names."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return _CONDITION.sub("", _OPERATOR.sub(r"\1", line))


def _with_symbols(mod: IRModule) -> IRModule:
    """Each function is known to the runtime by the name that it has in the module.

    One that was taken from another module keeps the symbol of there, and TVM's machine would find it by that only. A
    main that was declared private has none, and is what shall run all the same; TVM would drop it as dead code.
    """
    for var, function in model_functions(mod):
        name = str(var.name_hint)
        symbol = function.attrs["global_symbol"] if function.attrs and "global_symbol" in function.attrs else None
        if symbol != name and (symbol is not None or name == "main"):
            mod[var] = function.with_attr("global_symbol", name)
    return mod


def number_calls(mod: IRModule) -> IRModule:
    """Give every call of the model a Span ``function:index``, counting through all functions; fusing keeps it."""
    index = 0
    for var, function in model_functions(mod):
        numbering = _Numbering(mod, str(var.name_hint), index)
        mod[var] = numbering.visit_expr(function)
        index = numbering.index
    return mod


def _passes(mod: IRModule) -> Iterator[Any]:
    yield relax.transform.Normalize()
    if all(is_model_function(f) for f in mod.functions.values() if isinstance(f, relax.Function)):
        # Where a backend has taken parts already, these two would put its functions back into the model.
        yield relax.transform.LambdaLift()
        yield relax.transform.InlinePrivateFunctions()
    yield relax.transform.ConvertToDataflow(min_size=1)
    yield relax.transform.DeadCodeElimination()


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
