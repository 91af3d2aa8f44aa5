"""The JSON graph as text, in the schema of TVM's JSON runtime, and back.

A reader of TVM's takes what is written here. It allows five keys at the top (it skips ``symbol``) and four in a node,
and keeps any attribute, so what the kit adds stands among the attributes: ``composite`` and ``span`` of a node, and
``format_version`` in the first one.

Text that comes in is not trusted: sizes and types are checked, then the rules of ``verify``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any, NoReturn, TypeVar

from npu_kit.errors import GraphError
from npu_kit.graph.ir import AttrValue, Entry, Graph, Node, TensorType
from npu_kit.graph.verify import MAX_NODES, verify_graph
from npu_kit.outside import OutsideError, parse_json

FORMAT_VERSION = 1
MAX_TEXT = 64 * 1024 * 1024  # characters, of one byte each: the text is ASCII

_T = TypeVar("_T")
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
    _check_length(text)
    return text


def from_json(text: str) -> Graph:
    """Read a graph; ``from_json(to_json(graph)) == graph``.

    Raises:
        GraphError: anything at all is wrong with the text or the graph; the message names the place.
    """
    if not isinstance(text, str):
        raise GraphError("graph JSON", f"it must be text and is {type(text).__name__}")
    _check_length(text)
    root = _object(_parse(text), "the top level", ("nodes", "arg_nodes", "heads", "node_row_ptr", "symbol"))
    objects = _array(root["nodes"], "nodes")
    if len(objects) > MAX_NODES:
        raise GraphError("graph JSON, nodes", f"there are {len(objects):,} and the limit is {MAX_NODES:,}")
    nodes = tuple(_node_from_object(index, item) for index, item in enumerate(objects))
    graph = Graph(
        symbol=_text(root["symbol"], "symbol"),
        nodes=nodes,
        arg_nodes=_items(root["arg_nodes"], "arg_nodes", _integer),
        heads=_items(root["heads"], "heads", _entry),
    )
    verify_graph(graph)
    _check_row_pointers(_items(root["node_row_ptr"], "node_row_ptr", _integer), _row_pointers(nodes))
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
    found = _object(value, where, ("op", "name", "attrs", "inputs") if is_kernel else ("op", "name", "attrs"))
    inputs = _items(found["inputs"], f"{where}.inputs", _entry) if is_kernel else ()
    attrs, here = found["attrs"], f"{where}.attrs"
    needed = ["shape", "dtype"] + ["num_inputs", "num_outputs"] * is_kernel + ["format_version"] * (index == 0)
    given = _object(attrs, here, needed, others=True)
    if index == 0 and _integer(given["format_version"], f"{here}.format_version") != FORMAT_VERSION:
        _refuse(f"{here}.format_version", f"it is {given['format_version']} and this kit reads {FORMAT_VERSION}")
    shapes = _items(given["shape"], f"{here}.shape", lambda item, place: _items(item, place, _integer))
    dtypes = _items(given["dtype"], f"{here}.dtype", _text)
    if len(shapes) != len(dtypes):
        _refuse(here, f"it has {len(shapes)} shapes and {len(dtypes)} dtypes")
    if is_kernel:
        for key, count in (("num_inputs", len(inputs)), ("num_outputs", len(shapes))):
            if _integer(given[key], f"{here}.{key}") != count:
                _refuse(f"{here}.{key}", f"it is {given[key]} and there are {count}")
    if index > 0 and "format_version" in given:
        _refuse(f"{here}.format_version", "only the first node carries it")
    return Node(
        kind=_text(found["op"], f"{where}.op"),
        name=_text(found["name"], f"{where}.name"),
        outputs=tuple(TensorType(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)),
        inputs=inputs,
        attrs={key: _attribute(item, f"{here}.{key}") for key, item in given.items() if key not in _RESERVED},
        composite=_text(given.get("composite", ""), f"{here}.composite"),
        span=_text(given.get("span", ""), f"{here}.span"),
    )


def _row_pointers(nodes: tuple[Node, ...]) -> list[int]:
    pointers = [0]
    for node in nodes:
        pointers.append(pointers[-1] + len(node.outputs))
    return pointers


def _check_row_pointers(found: tuple[int, ...], expected: list[int]) -> None:
    for index, (number, pointer) in enumerate(zip_longest(found, expected)):
        if pointer is None:
            _refuse("node_row_ptr", f"it must have {len(expected)} numbers and has {len(found)}")
        if number != pointer:
            given = "missing" if number is None else number
            why = f"it must be {pointer}, the number of outputs before that node, and is {given}"
            _refuse(f"node_row_ptr[{index}]", why)


def _check_length(text: str) -> None:
    if len(text) > MAX_TEXT:
        raise GraphError("graph JSON", f"it has {len(text):,} characters and the limit is {MAX_TEXT:,}")


def _parse(text: str) -> Any:
    try:
        return parse_json(text)
    except OutsideError as error:
        raise GraphError(f"graph JSON{error.where and ', '}{error.where:.200}", error.why, error.hint) from None


def _refuse(where: str, why: str, hint: str = "") -> NoReturn:
    raise GraphError(f"graph JSON, {where:.200}", why, hint)


def _object(value: Any, where: str, keys: Any, others: bool = False) -> Mapping[str, Any]:
    if type(value) is not dict:
        _refuse(where, f"needs an object and got {type(value).__name__}")
    for key in keys:
        if key not in value:
            _refuse(where, f"the key {key!r} is missing")
    if not others and len(value) > len(keys):
        _refuse(where, f"the key {next(key for key in value if key not in keys)!r:.80} does not belong there")
    found: Mapping[str, Any] = value
    return found


def _array(value: Any, where: str) -> list[Any]:
    if type(value) is not list:
        _refuse(where, f"needs an array and got {type(value).__name__}")
    found: list[Any] = value
    return found


def _items(value: Any, where: str, read: Callable[[Any, str], _T]) -> tuple[_T, ...]:
    return tuple(read(item, f"{where}[{index}]") for index, item in enumerate(_array(value, where)))


def _integer(value: Any, where: str) -> int:
    if type(value) is not int:
        _refuse(where, f"needs an integer and got {_show(value)}")
    return int(value)


def _text(value: Any, where: str) -> str:
    if type(value) is not str:
        _refuse(where, f"needs text and got {_show(value)}")
    return str(value)


def _entry(value: Any, where: str) -> Entry:
    numbers = _items(value, where, _integer)
    if len(numbers) != 3 or numbers[2] != 0:
        _refuse(where, f"needs [node, output, 0] and got {list(numbers)!r:.80}")
    return Entry(numbers[0], numbers[1])


def _attribute(value: Any, where: str) -> AttrValue:
    return _items(value, where, _scalar) if type(value) is list else _scalar(value, where)


def _scalar(value: Any, where: str) -> AttrValue:
    if type(value) not in (int, float, bool, str):
        _refuse(where, f"needs a number, text, true, false, or an array of those, and got {_show(value)}")
    found: AttrValue = value
    return found


def _show(value: Any) -> str:
    return type(value).__name__ if isinstance(value, (list, dict)) else f"{value!r:.80}"
