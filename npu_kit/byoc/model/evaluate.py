"""Follows the values through a Relax body: tuples, sequences and variables, in the order in which it runs.

What a value is, and what becomes of a constant or a call, is up to the subclass: lowering makes nodes of a graph, a
description makes boxes of a picture.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from tvm import ir, relax

Place = TypeVar("Place")  # where a body stands: a subclass's own
Scope = dict[Any, Any]  # relax.Var -> value


class Evaluator(ABC, Generic[Place]):
    """A tuple is a Python tuple of values and a function is itself; the other values come from the subclass."""

    def evaluate(self, expr: Any, scope: Scope, place: Place) -> Any:
        """What ``expr`` stands for, where the variables have the values of ``scope``."""
        if isinstance(expr, relax.Var):
            return scope[expr]
        if isinstance(expr, relax.Function):
            return expr
        if isinstance(expr, ir.GenericConst):
            return self.constant(expr, place)
        if isinstance(expr, relax.Tuple):
            return tuple(self.evaluate(field, scope, place) for field in expr.fields)
        if isinstance(expr, relax.TupleGetItem):
            return self.item(self.evaluate(expr.tuple_value, scope, place), int(expr.index))
        if isinstance(expr, relax.SeqExpr):
            return self.sequence(expr, dict(scope), place)
        if isinstance(expr, relax.Call):
            return self.call(expr, scope, place)
        return self.other(expr, scope, place)

    def sequence(self, sequence: Any, scope: Scope, place: Place) -> Any:
        for block in sequence.blocks:
            for binding in block.bindings:
                value = self.evaluate(binding.value, scope, place)
                if isinstance(binding, relax.MatchCast):
                    self.cast(binding, value)
                scope[binding.var] = value
        return self.evaluate(sequence.body, scope, place)

    def enter(self, function: Any, arguments: list[Any], place: Place) -> Any:
        """What ``function`` returns for ``arguments``."""
        return self.evaluate(function.body, dict(zip(function.params, arguments, strict=True)), place)

    def item(self, whole: Any, index: int) -> Any:
        assert isinstance(whole, tuple), "or the module would not be well formed"
        return whole[index]

    @abstractmethod
    def constant(self, constant: Any, place: Place) -> Any: ...

    @abstractmethod
    def call(self, call: Any, scope: Scope, place: Place) -> Any: ...

    @abstractmethod
    def other(self, expr: Any, scope: Scope, place: Place) -> Any:
        """An If, a shape, a number."""

    @abstractmethod
    def cast(self, binding: Any, value: Any) -> None:
        """``binding`` is a MatchCast of ``value``."""
