"""Graphs in stripes: a few rows of a result at a time are carried through a chain of steps.

Where the tensors between steps are larger than L2, only these rows, and the halo that they need, are on the chip.
``cut`` rewrites the graph: each stripe becomes nodes of its own, on views of the rows they read, and a join node stands
for the tensor that the stripes make up. Views and joins move nothing: they are places in memory. Every output element
is summed in the same order as before, so no bit changes; rows in a halo are computed twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from npu_kit.graph.ir import AttrValue, Entry, Graph, Node, TensorType
from npu_kit.plan.chains import Link, RowSpan
from npu_kit.plan.geometry import aligned_operand
from npu_kit.plan.storage import JOIN, VIEW

Stripes = Sequence[Sequence[RowSpan]]  # per stripe, the output rows of every group of the chain


def cut(graph: Graph, chains: Sequence[tuple[Sequence[Link], Stripes]]) -> Graph:
    """The graph with each chain cut into its stripes."""
    inside = {node for chain, _ in chains for link in chain for node in link.group.nodes}
    ends = {chain[-1].group.nodes[-1]: (chain, stripes) for chain, stripes in chains}
    builder = _Rewriter(graph)
    for node_id in range(len(graph.nodes)):
        if node_id not in inside:
            builder.copy(node_id)
        elif node_id in ends:
            builder.stripes(*ends[node_id])
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

    def view(self, entry: Entry, axis: int, rows: RowSpan) -> Entry:
        """The rows of a tensor; the tensor itself where that is all of it."""
        kind = self.nodes[entry.node].outputs[entry.output]
        if rows == (0, kind.shape[axis]):
            return entry
        name = f"{self.nodes[entry.node].name}[{rows[0]}:{rows[1]}]"
        attrs: Mapping[str, AttrValue] = {"axis": axis, "start": rows[0], "stop": rows[1]}
        return self.add(Node(VIEW, name, (_cropped(kind, axis, rows),), (entry,), attrs))

    def stripes(self, chain: Sequence[Link], stripes: Stripes) -> None:
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

    def group(self, link: Link, rows: RowSpan, running: Entry) -> Entry:
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

    def _aligned(self, node_id: int, position: int, axis: int, rows: RowSpan) -> Entry:
        """An operand beside the running tile: its own rows where it has them."""
        along = aligned_operand(self.old, node_id, position).along[axis]
        entry = self.renamed[self.old.nodes[node_id].inputs[position]]
        return entry if along < 0 else self.view(entry, along, rows)

    def graph(self) -> Graph:
        arguments = tuple(self.renamed[Entry(node)].node for node in self.old.arg_nodes)
        heads = tuple(self.renamed[entry] for entry in self.old.heads)
        return Graph(self.old.symbol, tuple(self.nodes), arguments, heads)


def _cropped(kind: TensorType, axis: int, rows: RowSpan) -> TensorType:
    return TensorType((*kind.shape[:axis], rows[1] - rows[0], *kind.shape[axis + 1 :]), kind.dtype)
