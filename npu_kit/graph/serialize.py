"""The JSON graph as text, in the schema of TVM's JSON runtime, and back.

A reader of TVM's takes what is written here. It allows five keys at the top (it skips ``symbol``) and four in a node,
and keeps any attribute, so what the kit adds stands among the attributes: ``composite`` and ``span`` of a node, and
``format_version`` in the first one.

Text that comes in is not trusted: sizes and types are checked, then the rules of ``verify``.
"""

from __future__ import annotations

import json
from itertools import zip_longest
from typing import Any

from npu_kit.errors import GraphError
from npu_kit.graph.ir import AttrValue, Entry, Graph, Node, TensorType
from npu_kit.graph.strict_json import JsonReader, shown
from npu_kit.graph.verify import MAX_NODES, verify_graph

FORMAT_VERSION = 1

_READ = JsonReader("graph JSON", GraphError)
_RESERVED = ("shape", "dtype", "num_inputs", "num_outputs", "composite", "span", "format_version")


def to_json(graph: Graph) -> str:
    """Write ``graph`` as ASCII text; equal graphs give equal text.

    Raises:
        GraphError: the graph breaks a rule, or is larger than 64 MiB of text.
    """
    verify_graph(graph)
    root = {
        "symbol": graph.symbol,
        "nodes": [_node_to_object(index, node) for index, node in enumerate(graph.nodes)],
        "arg_nodes": list(graph.arg_nodes),
        "heads": [[entry.node, entry.output, 0] for entry in graph.heads],
        "node_row_ptr": _row_pointers(graph.nodes),
    }
    text = json.dumps(root, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    _READ.check_length(text)
    return text


def from_json(text: str) -> Graph:
    """Read a graph; ``from_json(to_json(graph)) == graph``.

    Raises:
        GraphError: anything at all is wrong with the text or the graph; the message names the place.
    """
    root = _READ.object(_READ.parse(text), "the top level", ("nodes", "arg_nodes", "heads", "node_row_ptr", "symbol"))
    objects = _READ.array(root["nodes"], "nodes")
    if len(objects) > MAX_NODES:
        raise GraphError("graph JSON, nodes", f"there are {len(objects):,} and the limit is {MAX_NODES:,}")
    nodes = tuple(_node_from_object(index, item) for index, item in enumerate(objects))
    graph = Graph(
        symbol=_READ.text(root["symbol"], "symbol"),
        nodes=nodes,
        arg_nodes=_READ.items(root["arg_nodes"], "arg_nodes", _READ.integer),
        heads=_READ.items(root["heads"], "heads", _entry),
    )
    verify_graph(graph)
    _check_row_pointers(_READ.items(root["node_row_ptr"], "node_row_ptr", _READ.integer), _row_pointers(nodes))
    return graph


def _node_to_object(index: int, node: Node) -> dict[str, Any]:
    written: dict[str, Any] = {"op": node.kind, "name": node.name}
    attrs: dict[str, Any] = {"format_version": FORMAT_VERSION} if index == 0 else {}
    if node.is_kernel:
        written["inputs"] = [[entry.node, entry.output, 0] for entry in node.inputs]
        attrs |= {"num_inputs": len(node.inputs), "num_outputs": len(node.outputs)}
    attrs["shape"] = [list(tensor.shape) for tensor in node.outputs]
    attrs["dtype"] = [tensor.dtype for tensor in node.outputs]
    attrs |= {key: node.attrs[key] for key in sorted(node.attrs)}
    attrs |= {key: value for key, value in (("composite", node.composite), ("span", node.span)) if value}
    return written | {"attrs": attrs}


def _node_from_object(index: int, value: Any) -> Node:
    where = f"nodes[{index}]"
    is_kernel = isinstance(value, dict) and value.get("op") == "kernel"
    found = _READ.object(value, where, ("op", "name", "attrs", "inputs") if is_kernel else ("op", "name", "attrs"))
    inputs = _READ.items(found["inputs"], f"{where}.inputs", _entry) if is_kernel else ()
    attrs, here = found["attrs"], f"{where}.attrs"
    needed = ["shape", "dtype"] + ["num_inputs", "num_outputs"] * is_kernel + ["format_version"] * (index == 0)
    given = _READ.object(attrs, here, needed, others=True)
    if index == 0 and _READ.integer(given["format_version"], f"{here}.format_version") != FORMAT_VERSION:
        _READ.refuse(f"{here}.format_version", f"it is {given['format_version']} and this kit reads {FORMAT_VERSION}")
    shapes = _READ.items(given["shape"], f"{here}.shape", lambda item, place: _READ.items(item, place, _READ.integer))
    dtypes = _READ.items(given["dtype"], f"{here}.dtype", _READ.text)
    if len(shapes) != len(dtypes):
        _READ.refuse(here, f"it has {len(shapes)} shapes and {len(dtypes)} dtypes")
    if is_kernel:
        for key, count in (("num_inputs", len(inputs)), ("num_outputs", len(shapes))):
            if _READ.integer(given[key], f"{here}.{key}") != count:
                _READ.refuse(f"{here}.{key}", f"it is {given[key]} and there are {count}")
    if index > 0 and "format_version" in given:
        _READ.refuse(f"{here}.format_version", "only the first node carries it")
    return Node(
        kind=_READ.text(found["op"], f"{where}.op"),
        name=_READ.text(found["name"], f"{where}.name"),
        outputs=tuple(TensorType(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)),
        inputs=inputs,
        attrs={key: _attribute(item, f"{here}.{key}") for key, item in given.items() if key not in _RESERVED},
        composite=_READ.text(given.get("composite", ""), f"{here}.composite"),
        span=_READ.text(given.get("span", ""), f"{here}.span"),
    )


def _row_pointers(nodes: tuple[Node, ...]) -> list[int]:
    pointers = [0]
    for node in nodes:
        pointers.append(pointers[-1] + len(node.outputs))
    return pointers


def _check_row_pointers(found: tuple[int, ...], expected: list[int]) -> None:
    for index, (number, pointer) in enumerate(zip_longest(found, expected)):
        if pointer is None:
            _READ.refuse("node_row_ptr", f"it must have {len(expected)} numbers and has {len(found)}")
        if number != pointer:
            given = "missing" if number is None else number
            why = f"it must be {pointer}, the number of outputs before that node, and is {given}"
            _READ.refuse(f"node_row_ptr[{index}]", why)


def _entry(value: Any, where: str) -> Entry:
    numbers = _READ.items(value, where, _READ.integer)
    if len(numbers) != 3 or numbers[2] != 0:
        _READ.refuse(where, f"needs [node, output, 0] and got {list(numbers)!r:.80}")
    return Entry(numbers[0], numbers[1])


def _attribute(value: Any, where: str) -> AttrValue:
    return _READ.items(value, where, _scalar) if type(value) is list else _scalar(value, where)


def _scalar(value: Any, where: str) -> AttrValue:
    if type(value) not in (int, float, bool, str):
        _READ.refuse(where, f"needs a number, text, true, false, or an array of those, and got {shown(value)}")
    found: AttrValue = value
    return found
