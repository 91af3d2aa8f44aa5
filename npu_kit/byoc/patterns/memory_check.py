"""Asks the planner whether a match fits the machine, before it is taken."""

from __future__ import annotations

from typing import Any

from tvm import relax

from npu_kit.byoc.model.calls import (
    attributes_of,
    find_definition,
    result_of,
    tensor_operands,
    tensor_type,
)
from npu_kit.byoc.patterns.match import Match
from npu_kit.byoc.report import Refusal
from npu_kit.errors import PlanError
from npu_kit.graph.ir import Entry, Graph, Node, TensorType
from npu_kit.graph.ops import normalise_attrs
from npu_kit.plan.planner import make_plan


def check_memory(match: Match) -> list[Refusal]:
    """Operands and result fit DRAM, and the smallest tile fits L0 and L1: the planner finds a plan for the composite.

    The calls of the match must have passed the checks of types and attributes.
    """
    try:
        make_plan(graph_of(match), match.spec)
    except PlanError as error:
        return [Refusal("memory", f"room on {match.spec.name!r}", f"{error.what}: {error.why}", error.hint)]
    return []


def graph_of(match: Match) -> Graph:
    """The JSON graph of a match alone; its operands are inputs, constants too."""
    nodes = [Node("input", f"operand{i}", (_known_type(operand),)) for i, operand in enumerate(match.operands)]
    entries: dict[Any, Entry] = {operand: Entry(i) for i, operand in enumerate(match.operands)}
    arguments = tuple(range(len(nodes)))

    def entry_of(expr: Any) -> Entry:
        value = match.context.matched_bindings.get(expr)
        if isinstance(value, relax.TupleGetItem):  # of a batch norm: the one result that is computed
            return entry_of(value.tuple_value)
        return entries[expr if value is None else value]

    for call in match.calls:
        definition = find_definition(call)
        assert definition is not None
        operands = tensor_operands(call)
        attrs = normalise_attrs(definition.name, attributes_of(call), [_known_type(operand) for operand in operands])
        inputs = tuple(entry_of(operand) for operand in operands)
        entries[call] = Entry(len(nodes))
        nodes.append(Node("kernel", definition.name, (_known_type(result_of(call)),), inputs, attrs, "match"))
    return Graph("match", tuple(nodes), arguments, (entries[match.root],))


def _known_type(expr: Any) -> TensorType:
    known = tensor_type(expr)
    assert known is not None, "check_shapes lets only known types through"
    return known
