"""Where the elements of a tensor are kept: a view has no memory of its own, nor have the pieces of a join."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from npu_kit.graph.ir import Entry, Graph
from npu_kit.graph.ops import is_reshape

Array = NDArray[Any]

VIEW, JOIN = "view", "join"  # kinds of node that only a planned graph has


def homes(graph: Graph) -> dict[Entry, Entry]:
    """For each entry of the graph, the entry that owns its memory."""
    entries = (Entry(i, output) for i, node in enumerate(graph.nodes) for output in range(len(node.outputs)))
    owner = {entry: entry for entry in entries}
    for i, node in enumerate(graph.nodes):
        if node.kind == JOIN:
            owner.update(dict.fromkeys(node.inputs, Entry(i)))
        elif node.kind == VIEW or is_reshape(node):
            owner[Entry(i)] = owner[node.inputs[0]]
    return owner


def shared_homes(graph: Graph) -> frozenset[Entry]:
    """The entries whose memory others show, all of it or a part: views, reshapes, and the pieces of joins."""
    return frozenset(home for entry, home in homes(graph).items() if entry != home)


def place_views(graph: Graph, tensors: dict[Entry, Array]) -> None:
    """Add the arrays of views, and of the pieces of joins, to the arrays that own their memory."""
    for i, node in enumerate(graph.nodes):
        if node.kind == JOIN:
            axis, start = _axis(node.attrs), 0
            for piece in node.inputs:
                stop = start + graph.type_of(piece).shape[axis]
                tensors[piece] = rows_of(tensors[Entry(i)], axis, start, stop)
                start = stop
    for i, node in enumerate(graph.nodes):
        if node.kind == VIEW:
            attrs: Mapping[str, Any] = node.attrs
            tensors[Entry(i)] = rows_of(tensors[node.inputs[0]], _axis(attrs), attrs["start"], attrs["stop"])
        elif is_reshape(node):
            tensors[Entry(i)] = tensors[node.inputs[0]].reshape(node.outputs[0].shape)


def reshaped(graph: Graph) -> frozenset[Entry]:
    """The entries that own memory which a reshape shows: their rows must stand side by side."""
    owner = homes(graph)
    return frozenset(owner[Entry(i)] for i, node in enumerate(graph.nodes) if is_reshape(node))


def rows_of(array: Array, axis: int, start: int, stop: int) -> Array:
    """A view of some rows of an array."""
    return array[(slice(None),) * axis + (slice(start, stop),)]


def _axis(attrs: Mapping[str, Any]) -> int:
    axis: int = attrs["axis"]
    return axis


def is_computed(graph: Graph, entry: Entry) -> bool:
    """Whether a tensor is made in the region, and not an argument, a constant, or a part of one."""
    node = graph.nodes[entry.node]
    while node.kind == VIEW or is_reshape(node):
        node = graph.nodes[node.inputs[0].node]
    return node.is_kernel or node.kind == JOIN
