"""Walks Relax code in the order in which it runs, and finds regions and composites in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import ir, relax
from tvm.ir import IRModule


@dataclass(frozen=True)
class Bound:
    """One binding, and where it stands."""

    var: Any
    value: Any  # None for a MatchCast
    is_dataflow: bool  # inside a dataflow block, where patterns are matched


def walk(expr: Any) -> Iterator[Bound]:
    """Every binding of a function or a SeqExpr in order; the branches of an If and inner functions where they stand."""
    if isinstance(expr, relax.Function):
        expr = expr.body
    if not isinstance(expr, relax.SeqExpr):
        return
    for block in expr.blocks:
        is_dataflow = isinstance(block, relax.DataflowBlock)
        for binding in block.bindings:
            value = binding.value if isinstance(binding, relax.VarBinding) else None
            if isinstance(value, relax.If):
                yield from walk(value.true_branch)
                yield from walk(value.false_branch)
            elif isinstance(value, relax.Function):
                yield from walk(value)
            yield Bound(binding.var, value, is_dataflow)


def walk_calls(expr: Any) -> Iterator[tuple[Any, Bound]]:
    """Every call with its binding, in order."""
    for bound in walk(expr):
        if isinstance(bound.value, relax.Call):
            yield bound.value, bound


def is_model_function(function: Any) -> bool:
    """Whether ``function`` is Relax code of the model: no PrimFunc, and nothing that a backend has already taken."""
    if not isinstance(function, relax.Function):
        return False
    attrs = function.attrs
    return attrs is None or not any(key in attrs for key in ("Composite", "Codegen", "Primitive"))


def model_functions(mod: IRModule) -> list[tuple[Any, Any]]:
    """(GlobalVar, function) of the model's Relax functions, ``main`` first, then by name."""
    found = [(var, function) for var, function in mod.functions.items() if is_model_function(function)]
    return sorted(found, key=lambda item: (item[0].name_hint != "main", item[0].name_hint))


def has_branch(mod: IRModule) -> bool:
    """Whether a function of the model has an If."""
    return any(isinstance(bound.value, relax.If) for _, function in model_functions(mod) for bound in walk(function))


def operators_in(mod: IRModule) -> frozenset[str]:
    """Names of the Relax operators that the model's functions call."""
    calls = (call for _, function in model_functions(mod) for call, _ in walk_calls(function))
    return frozenset(str(call.op.name) for call in calls if isinstance(call.op, ir.Op))


def region_functions(mod: IRModule) -> list[tuple[str, Any]]:
    """(symbol, function) of each external function, in the order in which the model calls them."""
    found: dict[str, Any] = {}
    for _, function in model_functions(mod):
        for call, _ in walk_calls(function):
            if isinstance(call.op, ir.GlobalVar):
                callee = mod[call.op]
                if isinstance(callee, relax.Function) and callee.attrs is not None and "Codegen" in callee.attrs:
                    found.setdefault(str(call.op.name_hint), callee)
    return list(found.items())


def composites_of(region: Any) -> list[tuple[str, Any]]:
    """(label, inner function) of each composite of a region, in order of execution.

    A label is the pattern's name, ``#`` and the position among the region's composites: ``example_npu.dense#1``.
    """
    inner: dict[Any, Any] = {}
    ordered: list[tuple[str, Any]] = []
    for block in region.body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Function):
                inner[binding.var] = binding.value
            elif isinstance(binding.value, relax.Call) and binding.value.op in inner:
                function = inner[binding.value.op]
                ordered.append((f"{function.attrs['Composite']}#{len(ordered)}", function))
    return ordered
