"""Lowers one region to its JSON graph: a kernel node per operation, read from the bodies and never from a name.

A composite's name says which pattern matched; what the composite holds can differ (a convolution whose result has a
second reader stays outside of ``conv2d_relu_fused``, or the composite returns a tuple), and so can the operand order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Union

import numpy as np
from numpy.typing import NDArray
from tvm import ir, relax

from npu_kit.byoc.model import calls
from npu_kit.byoc.model.evaluate import Evaluator, Scope
from npu_kit.errors import NpuKitError, UnsupportedError
from npu_kit.graph.ir import DTYPE_BYTES, Entry, Graph, Node, TensorType
from npu_kit.graph.ops import normalise_attrs
from npu_kit.graph.verify import verify_graph

Array = NDArray[Any]

_NODE_KINDS = ("input", "const", "kernel")


@dataclass(frozen=True)
class _Absent:
    """A value that no node computes, and why; an error only where something reads it."""

    why: str


# What an expression stands for: a tensor, a tuple of values, a function to call, or nothing.
_Value = Union[Entry, "tuple[_Value, ...]", relax.Function, _Absent]


def lower(
    function: Any, symbol: str, constant_names: Mapping[Any, str] | None = None
) -> tuple[Graph, dict[str, Array]]:
    """Read the body of a region and write its graph.

    Args:
        function: the region, a ``relax.Function``: composites as local functions, bindings, or both.
        symbol: TVM's ``global_symbol`` of the region.
        constant_names: names for constants (``tvm.ir.GenericConst`` to name). By default a constant is named after its
            content, so that equal constants share a node and different ones never share a name.

    Returns:
        the graph, verified, and the value of each of its const nodes by name (read-only arrays).

    Raises:
        UnsupportedError: an operation, attribute, dtype or shape that the NPU cannot compute; names the operation and
            its composite.
    """
    lowering = _Lowering(str(symbol), constant_names or {})
    parameters = [lowering.input_of(str(p.name), p.ty, f"parameter {p.name}") for p in function.params]
    result = lowering.enter(function, parameters, "")
    graph = lowering.finish(result)
    verify_graph(graph)
    return graph, lowering.constants


class _Lowering(Evaluator[str]):
    """Makes the nodes; a place is the label of the innermost composite, "" outside of one."""

    def __init__(self, symbol: str, constant_names: Mapping[Any, str]) -> None:
        self.symbol = symbol
        self.constant_names = constant_names
        self.nodes: list[Node] = []
        self.constants: dict[str, Array] = {}
        self.constant_entries: dict[str, Entry] = {}
        self.composites = 0

    def finish(self, result: _Value) -> Graph:
        """The graph that returns ``result``: inputs, then constants, then kernels, each in order of appearance."""
        heads = self.tensors_of(result, "the result of the region")
        order = sorted(range(len(self.nodes)), key=lambda i: _NODE_KINDS.index(self.nodes[i].kind))
        number = {old: new for new, old in enumerate(order)}

        def renumber(entry: Entry) -> Entry:
            return Entry(number[entry.node], entry.output)

        nodes = tuple(
            Node(n.kind, n.name, n.outputs, tuple(map(renumber, n.inputs)), n.attrs, n.composite, n.span)
            for n in (self.nodes[old] for old in order)
        )
        arguments = tuple(i for i, node in enumerate(nodes) if not node.is_kernel)
        return Graph(self.symbol, nodes, arguments, tuple(map(renumber, heads)))

    def add(self, node: Node) -> Entry:
        self.nodes.append(node)
        return Entry(len(self.nodes) - 1)

    def type_of(self, entry: Entry) -> TensorType:
        return self.nodes[entry.node].outputs[entry.output]

    def input_of(self, name: str, type_: Any, what: str) -> _Value:
        """One input node, or one per leaf where a tuple is passed."""
        if isinstance(type_, relax.TupleType):
            return tuple(self.input_of(f"{name}_{i}", field, f"{what}[{i}]") for i, field in enumerate(type_.fields))
        if not isinstance(type_, relax.TensorType):
            _refuse(f"{what} of a region", f"it is {type_}, and the NPU takes tensors only", _STATIC_HINT)
        taken = {node.name for node in self.nodes}
        unique, number = name, 1
        while unique in taken:
            unique, number = f"{name}_{number}", number + 1
        return self.add(Node("input", unique, (_tensor_type(calls.Typed(type_), what),)))

    def constant(self, constant: Any, place: str) -> Entry:
        value = constant.value.numpy()
        type_ = _tensor_type(constant, "a constant")
        given = self.constant_names.get(constant)
        name = _content_name(value, type_) if given is None else str(given)
        if name not in self.constant_entries:
            value.setflags(write=False)
            self.constants[name] = value
            self.constant_entries[name] = self.add(Node("const", name, (type_,)))
        return self.constant_entries[name]

    def enter(self, function: Any, arguments: list[Any], place: str) -> Any:
        name = function.attrs.get("Composite") if function.attrs else None
        if name is not None:
            place = f"{name}#{self.composites}"
            self.composites += 1
        return super().enter(function, arguments, place)

    def other(self, expr: Any, scope: Scope, place: str) -> NoReturn:
        _refuse(
            f"{type(expr).__name__} in {_place(place, self.symbol)}",
            "a region holds calls, tuples and constants only",
            "leave it outside of the pattern",
        )

    def cast(self, binding: Any, value: _Value) -> None:
        what = f"the match_cast to {binding.var.name}"
        wanted = _tensor_type(binding.var, what)
        given = [self.type_of(entry) for entry in self.tensors_of(value, what)]
        if given != [wanted]:
            _refuse(what, f"it turns {', '.join(map(str, given))} into {wanted}", "a model without it.")

    def call(self, call: Any, scope: Scope, place: str) -> _Value:
        if isinstance(call.op, ir.Op):
            return self.operation(call, scope, place)
        if isinstance(call.op, relax.GlobalVar | relax.ExternFunc):
            _refuse(
                f"a call of {calls.relax_name(call)} in {_place(place, self.symbol)}",
                "a region can only call functions that it holds",
                "InlinePrivateFunctions before partitioning",
            )
        callee = self.evaluate(call.op, scope, place)
        return self.enter(callee, [self.evaluate(argument, scope, place) for argument in call.args], place)

    def operation(self, call: Any, scope: Scope, composite: str) -> _Value:
        name, place = calls.relax_name(call), _place(composite, self.symbol)
        if name == "relax.nn.dropout":  # does nothing at inference
            return self.evaluate(call.args[0], scope, composite), _Absent(f"the mask of {name} is not computed")
        definition = calls.find_definition(call)
        if definition is None:
            is_loop = name.startswith("call_tir")
            hint = "LegalizeOps after RunCodegen, not before." if is_loop else "a pattern that leaves it outside."
            _refuse(
                f"{name} in {place}", f"the NPU has no operation for it, only for {', '.join(calls.OP_OF_RELAX)}", hint
            )
        operands = (self.evaluate(operand, scope, composite) for operand in calls.tensor_operands(call))
        inputs = tuple(entry for value in operands for entry in self.tensors_of(value, f"{name} in {place}"))
        types = [self.type_of(entry) for entry in inputs]
        output = _tensor_type(calls.result_of(call), f"the result of {name} in {place}")
        try:
            attrs = normalise_attrs(definition.name, calls.attributes_of(call), types)
            definition.infer(types, attrs, output.dtype)
        except NpuKitError as error:
            raise UnsupportedError(f"{error.what}, in {place}", error.why, error.hint) from error
        node = Node("kernel", definition.name, (output,), inputs, attrs, composite, calls.span_label(call))
        entry = self.add(node)
        # At inference the running statistics come out of a batch norm as they went in.
        return (entry, inputs[3], inputs[4]) if definition.name == "batch_norm" else entry

    def tensors_of(self, value: _Value, what: str) -> list[Entry]:
        """The tensors in ``value``, tuples flattened."""
        if isinstance(value, Entry):
            return [value]
        if isinstance(value, tuple):
            return [entry for item in value for entry in self.tensors_of(item, what)]
        why = value.why if isinstance(value, _Absent) else "it reads a function as if it were a tensor"
        _refuse(what, why, "leave it outside of the pattern")


_STATIC_HINT = "bind_symbolic_vars before partitioning, or leave it on the host."


def _refuse(what: str, why: str, hint: str) -> NoReturn:
    raise UnsupportedError(what, why, hint)


def _place(composite: str, symbol: str) -> str:
    return f"composite {composite}" if composite else f"region {symbol[:80]}"


def _tensor_type(expr: Any, what: str) -> TensorType:
    described, dtype = calls.describe_type(expr.ty), calls.dtype_of(expr)
    if dtype not in DTYPE_BYTES:
        _refuse(what, f"it is {described}, and the NPU computes {', '.join(DTYPE_BYTES)}", "a cast, or the host.")
    known = calls.tensor_type(expr)
    if known is None:
        _refuse(
            what, f"the shape of {described} is not known before it runs, and the NPU is planned ahead", _STATIC_HINT
        )
    return known


def _content_name(value: Array, type_: TensorType) -> str:
    digest = hashlib.sha256(str(type_).encode())
    digest.update(np.ascontiguousarray(value).data if value.size else b"")
    return f"const_{digest.hexdigest()[:16]}"
