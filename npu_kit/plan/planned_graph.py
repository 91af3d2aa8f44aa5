"""The graph of a plan as JSON: where a chain was cut, it has views of rows and joins, which the graph's schema has not.

In the text each of these stands in the graph as an input, and ``places`` says what it is. So every rule of graphs holds
for the rest, and the rules here for the places.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

from npu_kit.errors import PlanError
from npu_kit.graph.ir import Entry, Graph, Node, TensorType
from npu_kit.graph.serialize import from_json, to_json
from npu_kit.graph.strict_json import JsonReader
from npu_kit.graph.verify import texts
from npu_kit.plan.storage import JOIN, VIEW

_READ = JsonReader("plan JSON", PlanError)
_KEYS = {VIEW: ("axis", "start", "stop"), JOIN: ("axis",)}


def planned_graph_to(graph: Graph) -> tuple[Any, list[dict[str, Any]]]:
    """The graph as a JSON object, and its places."""
    prefix = "place"
    while any(node.name.startswith(f"{prefix} ") for node in graph.nodes):
        prefix = f"_{prefix}"
    nodes = list(graph.nodes)
    places: list[dict[str, Any]] = []
    for index, node in enumerate(graph.nodes):
        if node.kind in _KEYS:
            nodes[index] = Node("input", f"{prefix} {index}", node.outputs)
            inputs = [[entry.node, entry.output] for entry in node.inputs]
            written = {"node": index, "kind": node.kind, "name": node.name, "inputs": inputs}
            places.append(written | {key: node.attrs[key] for key in _KEYS[node.kind]})
    stands = tuple(place["node"] for place in places)
    plain = replace(graph, nodes=tuple(nodes), arg_nodes=(*graph.inputs, *stands, *graph.constants))
    return json.loads(to_json(plain)), places


def planned_graph_from(graph_object: Any, places: Any) -> Graph:
    """Read what ``planned_graph_to`` writes.

    Raises:
        GraphError: the graph breaks one of its rules.
        PlanError: a place is none.
    """
    plain = from_json(json.dumps(graph_object))
    found = dict(_READ.items(places, "places", _place))
    nodes = list(plain.nodes)
    for index, node in found.items():
        where = f"places, node {index}"
        if not 0 <= index < len(nodes) or nodes[index].kind != "input":
            _READ.refuse(where, f"the graph has {len(nodes)} nodes, and no input of that number")
        nodes[index] = replace(node, outputs=nodes[index].outputs)
    if len(found) != len(places):
        _READ.refuse("places", f"{len(places)} places are {len(found)} nodes")
    arguments = tuple(index for index in plain.arg_nodes if index not in found)
    graph = replace(plain, nodes=tuple(nodes), arg_nodes=arguments)
    for violation in texts(graph):
        _READ.refuse(f"places, {violation.where}", violation.why)
    _verify_places(graph, tuple(found))
    return graph


def _place(value: Any, where: str) -> tuple[int, Node]:
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind not in (VIEW, JOIN):
        _READ.refuse(where, f"needs an object of kind {VIEW!r} or {JOIN!r}")
    found = _READ.object(value, where, ("node", "kind", "name", "inputs", *_KEYS[kind]))
    inputs = _READ.items(found["inputs"], f"{where}.inputs", _entry)
    attrs = {key: _READ.integer(found[key], f"{where}.{key}") for key in _KEYS[kind]}
    node = Node(kind, _READ.text(found["name"], f"{where}.name"), (), inputs, attrs)
    return _READ.integer(found["node"], f"{where}.node"), node


def _entry(value: Any, where: str) -> Entry:
    numbers = _READ.items(value, where, _READ.integer)
    if len(numbers) != 2 or numbers[1] != 0:
        _READ.refuse(where, f"needs [node, 0] and got {list(numbers)!r:.80}")
    return Entry(numbers[0])


def _verify_places(graph: Graph, places: tuple[int, ...]) -> None:
    """A view shows rows of a tensor before it; a join is made of results that belong to no other join."""
    joins = [graph.nodes[index] for index in places if graph.nodes[index].kind == JOIN]
    pieces = Counter(entry for join in joins for entry in join.inputs)
    for index in places:
        node, where = graph.nodes[index], f"places, node {index}"
        shape, dtype = node.outputs[0].shape, node.outputs[0].dtype
        axis = node.attrs["axis"]
        assert isinstance(axis, int)
        if not node.inputs or not all(0 <= entry.node < index for entry in node.inputs):
            _READ.refuse(where, f"it reads {[entry.node for entry in node.inputs]!r:.80} and may read nodes before it")
        if not 0 <= axis < len(shape):
            _READ.refuse(where, f"axis {axis} is none of its {len(shape)}")
        kinds = [graph.type_of(entry) for entry in node.inputs]
        if any(len(kind.shape) != len(shape) for kind in kinds):
            _READ.refuse(where, "what it reads has another number of axes")
        if node.kind == VIEW:
            start, stop = node.attrs["start"], node.attrs["stop"]
            assert isinstance(start, int) and isinstance(stop, int)
            if len(kinds) != 1 or not 0 <= start < stop <= kinds[0].shape[axis]:
                _READ.refuse(where, f"rows {start}:{stop} are not rows of {', '.join(map(str, kinds))}")
            wanted = TensorType((*kinds[0].shape[:axis], stop - start, *kinds[0].shape[axis + 1 :]), kinds[0].dtype)
        else:
            for entry in node.inputs:
                if not graph.nodes[entry.node].is_kernel or pieces[entry] != 1 or entry in graph.heads:
                    _READ.refuse(where, f"node {entry.node} is no result that belongs to this join alone")
            rows = sum(kind.shape[axis] for kind in kinds)
            wanted = TensorType((*kinds[0].shape[:axis], rows, *kinds[0].shape[axis + 1 :]), kinds[0].dtype)
            if len({(*kind.shape[:axis], *kind.shape[axis + 1 :]) for kind in kinds}) > 1:
                _READ.refuse(where, "its pieces have different shapes beside the joined axis")
        if (wanted.shape, wanted.dtype) != (shape, dtype) or any(kind.dtype != dtype for kind in kinds):
            _READ.refuse(where, f"it is {node.outputs[0]} and should be {wanted}")
