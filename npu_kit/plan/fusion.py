"""Which nodes run as one step: an anchor, and the elementwise nodes of its own composite that follow it in the tile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from npu_kit.graph.ir import Entry, Graph
from npu_kit.graph.ops import OPS, is_reshape


@dataclass(frozen=True)
class Group:
    """The nodes of one step, and for each epilogue node which of its inputs is the running tile."""

    nodes: tuple[int, ...]
    running: tuple[int, ...] = ()


def group_nodes(graph: Graph) -> tuple[Group, ...]:
    """Cut the graph into steps, in the order in which they can run.

    A node joins its predecessor's step when both come from one composite, nothing else reads the value between them,
    and the value has the shape of the result: then the value never leaves L0.
    """
    readers = readers_of(graph)
    heads = frozenset(graph.heads)
    groups: list[Group] = []
    taken: set[int] = set()
    for node_id in graph.kernels:
        if node_id in taken or is_reshape(graph.nodes[node_id]):
            continue
        nodes, running = [node_id], []
        while (step := _next_in_tile(graph, readers, heads, nodes[-1])) is not None:
            follower, position = step
            if follower in taken:
                break  # it reads two values of its composite, and the tile of the other one has it already
            nodes.append(follower)
            running.append(position)
        taken.update(nodes)
        groups.append(Group(tuple(nodes), tuple(running)))
    # An epilogue operand is produced before the node that reads it, so the last node's id gives a valid order.
    return tuple(sorted(groups, key=lambda group: group.nodes[-1]))


def readers_of(graph: Graph) -> dict[Entry, list[int]]:
    """The ids of the nodes that read an entry, once for each time they do; entries that nothing reads are left out."""
    readers: dict[Entry, list[int]] = {}
    for node_id, node in enumerate(graph.nodes):
        for entry in node.inputs:
            readers.setdefault(entry, []).append(node_id)
    return readers


def _next_in_tile(
    graph: Graph, readers: Mapping[Entry, list[int]], heads: frozenset[Entry], node_id: int
) -> tuple[int, int] | None:
    """The node that can follow ``node_id`` in the tile, and which of its inputs the tile is."""
    entry = Entry(node_id)
    if len(readers.get(entry, ())) != 1 or entry in heads:
        return None
    (follower_id,) = readers[entry]
    node, follower = graph.nodes[node_id], graph.nodes[follower_id]
    if not node.composite or follower.composite != node.composite or OPS[follower.name].family != "elementwise":
        return None
    position = follower.inputs.index(entry)
    if follower.outputs[0].shape != node.outputs[0].shape:
        return None
    if position > 0 and OPS[follower.name].parameters_on_axis:
        return None  # the tile would be a parameter
    return follower_id, position
