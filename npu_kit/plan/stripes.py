"""Chains in stripes: a few rows of a result at a time are carried through several steps.

Where the tensors between steps are larger than L2, only these rows, and the halo that they need, are on the chip.
``cut`` rewrites the graph: each stripe becomes nodes of its own, on views of the rows they read, and a join node stands
for the tensor that the stripes make up. Views and joins move nothing: they are places in memory. Every output element
is summed in the same order as before, so no bit changes; rows in a halo are computed twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from npu_kit.graph.ir import AttrValue, Entry, Graph, Node, TensorType
from npu_kit.plan.fusion import Group
from npu_kit.plan.geometry import Contraction, Elementwise, Window, aligned_operand, problem_of
from npu_kit.plan.geometry.sliding import Sliding

Rows = tuple[int, int]
VIEW, JOIN = "view", "join"  # kinds of node that only a planned graph has


@dataclass(frozen=True)
class Link:
    """One group of a chain: how its rows depend on the rows of the group before it."""

    group: Group
    axis: int  # of the output's rows; the running input's rows lie along the same one
    sliding: Sliding | None  # None for an elementwise anchor

    def needs(self, rows: Rows) -> Rows:
        """The real input rows that the output rows need; empty where all is padding."""
        if self.sliding is None:
            return rows
        kernel = self.sliding.kernel
        # Rows between the taps are not skipped here: a stripe is one piece of memory.
        first = rows[0] * self.sliding.stride - self.sliding.before
        last = (rows[1] - 1) * self.sliding.stride + (kernel - 1) * self.sliding.dilation - self.sliding.before
        return max(0, first), min(self.sliding.size, last + 1)

    def padding(self, rows: Rows) -> Rows:
        """Padding above and below the real rows."""
        assert self.sliding is not None
        kernel = self.sliding.kernel
        first = rows[0] * self.sliding.stride - self.sliding.before
        last = (rows[1] - 1) * self.sliding.stride + (kernel - 1) * self.sliding.dilation - self.sliding.before
        return max(0, -first), max(0, last + 1 - self.sliding.size)


def link_of(graph: Graph, group: Group, axis: int | None = None) -> Link | None:
    """How a group can be part of a chain, None if it cannot; ``axis`` is that of the rows before it."""
    anchor = graph.nodes[group.nodes[0]]
    if len(anchor.outputs[0].shape) != 4 or anchor.attrs.get("ceil_mode"):
        return None  # a window that hangs over the padding counts other taps than one inside it
    problem = problem_of(graph, group.nodes[0])
    if isinstance(problem, Elementwise):
        return None if axis is None else Link(group, axis, None)
    if isinstance(problem, Contraction) and problem.operation == "conv2d":
        return Link(group, problem.out_axes.index("H"), problem.rows)
    if isinstance(problem, Window) and "padding" in anchor.attrs:
        return Link(group, problem.x_axes.index("H"), problem.rows)
    return None


def chains(graph: Graph, groups: Sequence[Group], far: Collection[Entry]) -> list[list[Link]]:
    """The longest runs of groups with only tensors of ``far`` between them, each read by the next group alone."""
    found: list[list[Link]] = []
    taken: set[Group] = set()
    if not far:
        return found
    pieces = {entry for node in graph.nodes if node.kind == JOIN for entry in node.inputs}
    group_of = {node: group for group in groups for node in group.nodes}
    readers: dict[Entry, list[int]] = {}
    for node_id, node in enumerate(graph.nodes):
        for entry in node.inputs:
            readers.setdefault(entry, []).append(node_id)
    for group in groups:
        link = None if group in taken else link_of(graph, group)
        run: list[Link] = []
        while link is not None:
            run.append(link)
            link = _next_link(graph, link, far, readers, group_of)
        # What is a stripe already is not cut again.
        if len(run) > 1 and Entry(run[-1].group.nodes[-1]) not in pieces:
            found.append(run)
            taken.update(one.group for one in run)
    return found


def _next_link(
    graph: Graph,
    link: Link,
    far: Collection[Entry],
    readers: Mapping[Entry, Sequence[int]],
    group_of: Mapping[int, Group],
) -> Link | None:
    """The group that reads the link's output as its running input, if nothing else reads it."""
    output = Entry(link.group.nodes[-1])
    reading = readers.get(output, ())
    if output not in far or len(reading) != 1 or reading[0] not in group_of:
        return None
    following = link_of(graph, group_of[reading[0]], link.axis)
    anchor = graph.nodes[group_of[reading[0]].nodes[0]]
    if following is None or following.axis != link.axis or anchor.inputs[0] != output:
        return None
    return following


def stripe_rows(graph: Graph, chain: Sequence[Link], count: int) -> list[list[Rows]]:
    """For each of ``count`` stripes, the output rows of every group of the chain."""
    height = graph.type_of(Entry(chain[-1].group.nodes[-1])).shape[chain[-1].axis]
    size = -(-height // count)
    stripes = []
    for start in range(0, height, size):
        rows = [(start, min(start + size, height))]
        for link in reversed(chain[1:]):
            rows.append(link.needs(rows[-1]))
        stripes.append(rows[::-1])
    return stripes


def stripe_bytes(graph: Graph, chain: Sequence[Link], rows: Sequence[Rows]) -> int:
    """The most that two tensors next to each other, inside the chain, take of L2 for one stripe."""
    sizes = []
    for link, (start, stop) in zip(chain[:-1], rows[:-1], strict=True):
        kind = graph.type_of(Entry(link.group.nodes[-1]))
        sizes.append(kind.nbytes * (stop - start) // kind.shape[link.axis])
    return max((one + other for one, other in zip(sizes, [0, *sizes[:-1]], strict=True)), default=0)


def cut(graph: Graph, chain: Sequence[Link], stripes: Sequence[Sequence[Rows]]) -> Graph:
    """The graph with ``chain`` cut into ``stripes``."""
    inside = {node for link in chain for node in link.group.nodes}
    last = chain[-1].group.nodes[-1]
    builder = _Rewriter(graph)
    for node_id in range(len(graph.nodes)):
        if node_id not in inside:
            builder.copy(node_id)
        elif node_id == last:
            builder.stripes(chain, stripes)
    return builder.graph()


class _Rewriter:
    def __init__(self, graph: Graph) -> None:
        self.old, self.nodes = graph, list[Node]()
        self.renamed: dict[Entry, Entry] = {}

    def add(self, node: Node) -> Entry:
        self.nodes.append(node)
        return Entry(len(self.nodes) - 1)

    def copy(self, node_id: int) -> None:
        node = self.old.nodes[node_id]
        entry = self.add(replace(node, inputs=tuple(self.renamed[one] for one in node.inputs)))
        for output in range(len(node.outputs)):
            self.renamed[Entry(node_id, output)] = Entry(entry.node, output)

    def view(self, entry: Entry, axis: int, rows: Rows) -> Entry:
        """The rows of a tensor; the tensor itself where that is all of it."""
        kind = self.nodes[entry.node].outputs[entry.output]
        if rows == (0, kind.shape[axis]):
            return entry
        name = f"{self.nodes[entry.node].name}[{rows[0]}:{rows[1]}]"
        attrs: Mapping[str, AttrValue] = {"axis": axis, "start": rows[0], "stop": rows[1]}
        return self.add(Node(VIEW, name, (_cropped(kind, axis, rows),), (entry,), attrs))

    def stripes(self, chain: Sequence[Link], stripes: Sequence[Sequence[Rows]]) -> None:
        last, axis = chain[-1].group.nodes[-1], chain[-1].axis
        pieces = []
        for rows in stripes:
            running = self.renamed[self.old.nodes[chain[0].group.nodes[0]].inputs[0]]
            running = self.view(running, axis, chain[0].needs(rows[0]))
            for link, out_rows in zip(chain, rows, strict=True):
                running = self.group(link, out_rows, running)
            pieces.append(running)
        name, outputs = self.old.nodes[last].name, self.old.nodes[last].outputs
        self.renamed[Entry(last)] = self.add(Node(JOIN, name, outputs, tuple(pieces), {"axis": axis}))

    def group(self, link: Link, rows: Rows, running: Entry) -> Entry:
        """The nodes of one group, on the rows of one stripe."""
        positions = (0, *link.group.running)
        for place, (node_id, position) in enumerate(zip(link.group.nodes, positions, strict=True)):
            node = self.old.nodes[node_id]
            inputs = []
            for i, entry in enumerate(node.inputs):
                if i == position:
                    inputs.append(running)
                elif place == 0 and link.sliding is not None:
                    inputs.append(self.renamed[entry])  # weights
                else:
                    inputs.append(self._aligned(node_id, i, link.axis, rows))
            attrs = dict(node.attrs)
            if place == 0 and link.sliding is not None:
                above, below = link.padding(rows)
                padding: Any = attrs["padding"]  # top, left, bottom, right
                attrs["padding"] = (above, padding[1], below, padding[3])
            outputs = (_cropped(node.outputs[0], link.axis, rows),)
            running = self.add(replace(node, inputs=tuple(inputs), outputs=outputs, attrs=attrs))
        return running

    def _aligned(self, node_id: int, position: int, axis: int, rows: Rows) -> Entry:
        """An operand beside the running tile: its own rows where it has them."""
        along = aligned_operand(self.old, node_id, position).along[axis]
        entry = self.renamed[self.old.nodes[node_id].inputs[position]]
        return entry if along < 0 else self.view(entry, along, rows)

    def graph(self) -> Graph:
        arguments = tuple(self.renamed[Entry(node)].node for node in self.old.arg_nodes)
        heads = tuple(self.renamed[entry] for entry in self.old.heads)
        return Graph(self.old.symbol, tuple(self.nodes), arguments, heads)


def _cropped(kind: TensorType, axis: int, rows: Rows) -> TensorType:
    return TensorType((*kind.shape[:axis], rows[1] - rows[0], *kind.shape[axis + 1 :]), kind.dtype)
