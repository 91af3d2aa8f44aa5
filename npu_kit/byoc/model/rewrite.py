"""Rewrites what frontends write into the operators that patterns name, without changing what is computed.

====================================================  ==============================================
what is found                                         what it becomes
====================================================  ==============================================
a movement, comparison, sum or product of constants   the constant
``call_tir`` of a maximum or minimum (ONNX Clip)      ``relax.maximum``, ``relax.minimum``
``maximum(x, -inf)``, ``minimum(x, inf)``             ``x``
``maximum(x, 0)``                                     ``relax.nn.relu(x)``
a minimum of a maximum by numbers, either way round   ``relax.clip(x, low, high)``, where low <= high
item 0 of ``relax.nn.dropout``                        its input: at inference it does nothing
``astype``, ``broadcast_to``, ``reshape`` to the same  their input
a sum, max or min over a stack (ONNX Sum, Max, Min)   a chain of ``relax.add``, ``maximum``, ``minimum``
``squeeze``, ``expand_dims``, ``flatten``               ``relax.reshape``
a ``reshape`` of a ``reshape``                        one ``reshape``
an item of a ``split``                                ``relax.strided_slice``
``call_tir`` of a pad with a number (ONNX Pad)        ``relax.nn.pad``
pools of 1-D data, and of 3-D data with windows       a ``reshape``, the pool of 2-D data, a ``reshape``
that are longer than 1 along D alone (ONNX LRN)
``relax.variance``                                    the mean of the squared distances from the mean
a ``dequantize`` with several readers                 one for each, so that each quantized chain has its own
====================================================  ==============================================

NaN is out of this: TVM's LLVM code turns a NaN that meets a maximum, minimum or clip into one or the other bound,
depending on the operand order, where ONNX and the kit propagate it.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tvm import ir, relax
from tvm.ir import IRModule
from tvm.relax.expr_functor import PyExprMutator, mutator

from npu_kit.byoc.model.calls import constant_value, dtype_of, is_reshape_target, shape_of, tensor_type
from npu_kit.byoc.model.folding import fold
from npu_kit.byoc.model.pools import POOLS, as_pool2d
from npu_kit.byoc.model.tensor_ir import operator_of
from npu_kit.byoc.model.walk import model_functions, walk

_MOVES = ("relax.astype", "relax.broadcast_to", "relax.reshape")  # nothing where the type stays
_REDUCTIONS = {"relax.sum": relax.op.add, "relax.max": relax.op.maximum, "relax.min": relax.op.minimum}
_RESHAPES = ("relax.squeeze", "relax.expand_dims", "relax.flatten")
# Operators that, given fixed shapes, are no more there afterwards; of pools of 3-D data only some.
REWRITTEN = (*_RESHAPES, "relax.split", "relax.variance", "relax.nn.dropout", *POOLS)
_EXTREMA = {"relax.maximum": True, "relax.minimum": False}  # whether the number is a lower bound


def rewrite(mod: IRModule) -> IRModule:
    """The module with the model's functions rewritten; what nothing reads any more is still there."""
    for var, function in model_functions(mod):
        mod[var] = _Rewriter(mod, function).visit_expr(function)
    return relax.transform.CanonicalizeBindings()(mod)


@dataclass(frozen=True)
class _Bound:
    """max(x, value) where ``is_lower``, else min(x, value)."""

    is_lower: bool
    x: Any
    value: int | float


@mutator
class _Rewriter(PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: IRModule, function: Any) -> None:
        super().__init__(mod)
        self.mod = mod
        self.shared = _shared_dequantizes(function)

    def visit_tuple_getitem_(self, item: Any) -> Any:
        visited = self.visit_expr_post_order(item)
        producer = self.producer(visited.tuple_value)
        if _is_call(producer, "relax.nn.dropout") and visited.index == 0:
            return producer.args[0]
        if _is_call(producer, "relax.split"):
            part = slice_of_split(producer, int(visited.index))
            return visited if part is None else part
        return visited

    def visit_call_(self, call: Any) -> Any:
        visited = self.visit_expr_post_order(call)
        if not isinstance(visited.op, ir.Op):
            return visited
        arguments = [
            self.repeat(new) if isinstance(old, relax.Var) and old in self.shared else self.constant_or_self(new)
            for old, new in zip(call.args, visited.args, strict=True)
        ]
        visited = self.builder_.normalize(
            relax.Call(visited.op, arguments, visited.attrs, visited.ty_args, visited.span)
        )
        folded = fold(visited, tuple(constant_value(argument) for argument in arguments))
        return self.simplify(visited) if folded is None else folded

    def simplify(self, call: Any) -> Any:
        if call.op.name == "relax.call_tir":
            operands = [self.constant_or_self(field) for field in call.args[1].fields]
            operator = operator_of(self.mod[call.args[0]], call, operands)
            call = call if operator is None else self.builder_.normalize(operator)
        shape = shape_of(call)
        if call.op.name in _RESHAPES and is_reshape_target(shape):
            call = self.builder_.normalize(relax.op.reshape(call.args[0], shape))
        if call.op.name == "relax.reshape" and is_reshape_target(shape):
            call = self.builder_.normalize(relax.op.reshape(self.before_reshape(call.args[0]), shape))
        if call.op.name in POOLS:
            pool = as_pool2d(self.builder_, call, self.before_reshape(call.args[0]))
            call = call if pool is None else pool
        if (
            call.op.name == "relax.variance"
            and shape_of(call.args[0]) is not None
            and dtype_of(call).startswith("float")
        ):
            return self.variance_of(call)
        if call.op.name in _MOVES and tensor_type(call) is not None and tensor_type(call) == tensor_type(call.args[0]):
            return call.args[0]
        if call.op.name in _REDUCTIONS:
            call = self.chain_of(call)
        bound = _bound_of(call)
        if bound is None:
            return call
        if bound.value == (-math.inf if bound.is_lower else math.inf):
            return bound.x
        inner = _bound_of(self.producer(bound.x))
        if inner is not None and inner.is_lower != bound.is_lower:
            low, high = (bound.value, inner.value) if bound.is_lower else (inner.value, bound.value)
            if low <= high and math.isfinite(low) and math.isfinite(high):
                return relax.op.clip(inner.x, low, high)
        return relax.op.nn.relu(bound.x) if bound.is_lower and bound.value == 0 else call

    def producer(self, expr: Any) -> Any:
        """The value that ``expr`` stands for, through variables; ``expr`` itself if it is a parameter."""
        while isinstance(expr, relax.Var):
            value = self.lookup_binding(expr)
            if value is None:
                break
            expr = value
        return expr

    def constant_or_self(self, expr: Any) -> Any:
        value = self.producer(expr)
        return value if isinstance(value, ir.GenericConst) else expr

    def repeat(self, expr: Any) -> Any:
        """A new variable bound to the same call."""
        producer = self.producer(expr)
        return self.builder_.emit(relax.Call(producer.op, producer.args, producer.attrs, producer.ty_args))

    def chain_of(self, call: Any) -> Any:
        """A reduction over what a stack has put side by side, as a chain of binary operators; else the call itself."""
        stack = self.producer(call.args[0])
        if not _is_call(stack, "relax.stack") or call.attrs.keepdims or not isinstance(stack.args[0], relax.Tuple):
            return call
        rank = len(shape_of(call) or ()) + 1
        axes = [int(axis) % rank for axis in call.attrs.axis or ()]
        if axes != [int(stack.attrs.axis or 0) % rank] or tensor_type(call) is None:
            return call
        first, *others = (self.before_broadcast(field) for field in stack.args[0].fields)
        operator, chain = _REDUCTIONS[call.op.name], first
        for number, operand in enumerate(others):
            left = self.builder_.emit(chain) if number else chain
            chain = self.builder_.normalize(operator(left, operand))
        return chain if others and tensor_type(chain) == tensor_type(call) else call

    def before_reshape(self, expr: Any) -> Any:
        producer = self.producer(expr)
        return producer.args[0] if _is_call(producer, "relax.reshape") else expr

    def before_broadcast(self, expr: Any) -> Any:
        producer = self.producer(expr)
        return producer.args[0] if _is_call(producer, "relax.broadcast_to") else expr

    def variance_of(self, call: Any) -> Any:
        """A variance by its definition."""
        x, axis = call.args[0], call.attrs.axis
        axes = None if axis is None else [int(one) for one in axis]
        mean = self.builder_.emit(relax.op.mean(x, axes, keepdims=True))
        distance = self.builder_.emit(relax.op.subtract(x, mean))
        square = self.builder_.emit(relax.op.multiply(distance, distance))
        return self.builder_.normalize(relax.op.mean(square, axes, keepdims=bool(call.attrs.keepdims)))


def slice_of_split(split: Any, index: int) -> Any | None:
    """Part ``index`` of a split, as a ``relax.strided_slice``; None where the sizes are not known."""
    shape = shape_of(split.args[0])
    if shape is None:
        return None
    axis = int(split.attrs.axis) % len(shape)
    sizes = [shape_of(relax.Var("part", field)) for field in split.ty.fields]
    known = [size[axis] for size in sizes if size is not None]
    if len(known) != len(sizes):
        return None
    start = sum(known[:index])
    return relax.op.strided_slice(split.args[0], [axis], [start], [start + known[index]])


def _bound_of(call: Any) -> _Bound | None:
    if _is_call(call, "relax.nn.relu"):
        return _Bound(True, call.args[0], 0)
    if not isinstance(call, relax.Call) or not isinstance(call.op, ir.Op) or call.op.name not in _EXTREMA:
        return None
    for x, other in (call.args, reversed(call.args)):
        value = constant_value(other)
        if value is not None and value.size == 1 and shape_of(x) == shape_of(call) and not math.isnan(value.item()):
            return _Bound(_EXTREMA[call.op.name], x, value.item())
    return None


def _shared_dequantizes(function: Any) -> set[Any]:
    """Variables bound to a dequantize that more than one thing reads."""
    readers: Counter[Any] = Counter()
    bound = []
    for binding in walk(function):
        if _is_call(binding.value, "relax.dequantize"):
            bound.append(binding.var)
        parts = getattr(binding.value, "args", None) or getattr(binding.value, "fields", None) or ()
        readers.update(part for part in parts if isinstance(part, relax.Var))
    return {var for var in bound if readers[var] > 1 or not isinstance(var, relax.DataflowVar)}


def _is_call(value: Any, name: str) -> bool:
    return isinstance(value, relax.Call) and isinstance(value.op, ir.Op) and value.op.name == name
