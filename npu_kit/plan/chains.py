"""Chains: runs of steps whose tensors in between go through DRAM, and the rows of each that a stripe takes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from npu_kit.graph.ir import Entry, Graph, Node
from npu_kit.plan.fusion import Group, readers_of
from npu_kit.plan.geometry import Contraction, Elementwise, Window, problem_of
from npu_kit.plan.geometry.sliding import Sliding

RowSpan = tuple[int, int]  # start and stop of some rows of a tensor


@dataclass(frozen=True)
class Link:
    """One group of a chain: how its rows depend on the rows of the group before it."""

    group: Group
    axis: int  # of the output's rows; the running input's rows lie along the same one
    sliding: Sliding | None  # None for an elementwise anchor

    def needs(self, rows: RowSpan) -> RowSpan:
        """The real input rows that the output rows need; empty where all is padding."""
        if self.sliding is None:
            return rows
        first, stop = self.sliding.reach(rows)
        return max(0, first), min(self.sliding.size, stop)

    def padding(self, rows: RowSpan) -> RowSpan:
        """Padding above and below the real rows."""
        assert self.sliding is not None
        first, stop = self.sliding.reach(rows)
        return max(0, -first), max(0, stop - self.sliding.size)


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
    group_of = {node: group for group in groups for node in group.nodes}
    readers = readers_of(graph)
    for group in groups:
        link = None if group in taken else link_of(graph, group)
        run: list[Link] = []
        while link is not None:
            run.append(link)
            link = _next_link(graph, link, far, readers, group_of)
        if len(run) > 1:
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


def stripe_rows(graph: Graph, chain: Sequence[Link], count: int) -> list[list[RowSpan]]:
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


def stripe_bytes(graph: Graph, chain: Sequence[Link], rows: Sequence[RowSpan]) -> int:
    """The most that two tensors next to each other, inside the chain, take of L2 for one stripe."""
    sizes = []
    for link, (start, stop) in zip(chain[:-1], rows[:-1], strict=True):
        kind = graph.type_of(Entry(link.group.nodes[-1]))
        sizes.append(kind.nbytes * (stop - start) // kind.shape[link.axis])
    return max((one + other for one, other in zip(sizes, [0, *sizes[:-1]], strict=True)), default=0)


def excerpt(graph: Graph, chain: Sequence[Link]) -> tuple[Graph, list[Link], list[Entry]]:
    """The chain as a graph of its own, its links in that graph, and for each of its arguments the old entry."""
    inside = [node for link in chain for node in link.group.nodes]
    made = {Entry(node) for node in inside}
    outside = list(dict.fromkeys(one for node in inside for one in graph.nodes[node].inputs if one not in made))
    nodes = [Node("input", graph.nodes[entry.node].name, (graph.type_of(entry),)) for entry in outside]
    renamed = {entry: Entry(i) for i, entry in enumerate(outside)}
    for node in inside:
        renamed[Entry(node)] = Entry(len(nodes))
        nodes.append(replace(graph.nodes[node], inputs=tuple(renamed[one] for one in graph.nodes[node].inputs)))
    part = Graph(graph.symbol, tuple(nodes), tuple(range(len(outside))), (Entry(len(nodes) - 1),))
    links = [
        replace(link, group=replace(link.group, nodes=tuple(renamed[Entry(node)].node for node in link.group.nodes)))
        for link in chain
    ]
    return part, links, outside


def fewest_stripes(graph: Graph, chain: Sequence[Link], limit_bytes: int) -> list[list[RowSpan]]:
    """The stripes of the chain, as few as keep what is between its steps within the limit; empty if none do."""
    height = graph.type_of(Entry(chain[-1].group.nodes[-1])).shape[chain[-1].axis]
    for size in sorted({-(-height // count) for count in range(2, height + 1)}, reverse=True):
        stripes = stripe_rows(graph, chain, -(-height // size))
        reads = [chain[0].needs(rows[0]) for rows in stripes]
        if any(stop <= start for rows in (*stripes, reads) for start, stop in rows):
            return []  # a stripe of nothing but padding
        if max(stripe_bytes(graph, chain, rows) for rows in stripes) <= limit_bytes:
            return stripes
    return []
