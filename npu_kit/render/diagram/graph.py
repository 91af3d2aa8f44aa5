"""The JSON graph of one region: what codegen hands to the planner, node by node."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from npu_kit.errors import RenderError
from npu_kit.graph.ir import Graph, Node
from npu_kit.plan.storage import JOIN, VIEW
from npu_kit.render.diagram.model import Arrow, Box, Diagram, Group
from npu_kit.render.diagram.picture import draw
from npu_kit.render.format import format_value, shorten
from npu_kit.render.picture import Picture
from npu_kit.render.wanted import shows

_KINDS = {"input": "input", "const": "constant", VIEW: "view", JOIN: "join"}  # kind of a node -> kind of its box


def graph_diagram(
    graph: Graph,
    *,
    highlight: Collection[int] = (),
    engines: Mapping[int, str] | None = None,
    attributes: bool = True,
) -> Diagram:
    """Extract what a picture of ``graph`` shows: a box per node with its id, composites as frames, heads as outputs.

    Args:
        graph: a verified graph.
        highlight: ids of nodes to frame, for instance those that came from one call of the model.
        engines: the engine of each kernel node, by id; a plan knows it.
        attributes: whether operator attributes are listed in the boxes.

    Raises:
        RenderError: an id in ``highlight`` is not in the graph.
    """
    for node_id in highlight:
        if not 0 <= node_id < len(graph.nodes):
            raise RenderError(f"cannot highlight node {node_id}", f"the graph has nodes 0 to {len(graph.nodes) - 1}")
    highlighted = frozenset(highlight)
    composites = dict.fromkeys(node.composite for node in graph.nodes if node.composite)
    groups = {label: Group(f"composite {label}", "composite", label) for label in composites}
    boxes, arrows = [], []
    for node_id, node in enumerate(graph.nodes):
        boxes.append(
            Box(
                key=f"node {node_id}",
                kind=_KINDS.get(node.kind, "op"),
                title=f"{node_id}: {node.name}",
                rows=_rows(node, attributes),
                engine=(engines or {}).get(node_id, ""),
                place="npu" if node.is_kernel else "",
                tooltip=_tooltip(node_id, node),
                group=groups[node.composite].key if node.composite else "",
                is_highlighted=node_id in highlighted,
            )
        )
        for position, entry in enumerate(node.inputs):
            label = str(graph.type_of(entry))
            tip = f"input {position} of node {node_id}: [{entry.node}, {entry.output}, 0], {label}"
            shown = (
                label if graph.nodes[entry.node].is_kernel else ""
            )  # the box of an input or constant says it already
            arrows.append(Arrow(f"node {entry.node}", f"node {node_id}", shown, tip))
    for position, entry in enumerate(graph.heads):
        label = str(graph.type_of(entry))
        boxes.append(Box(f"head {position}", "output", f"head {position}", tooltip=f"result {position}: {label}"))
        arrows.append(Arrow(f"node {entry.node}", f"head {position}", label, f"[{entry.node}, {entry.output}, 0]"))
    notes = (f"Framed: {', '.join(f'node {i}' for i in sorted(highlight))}.",) if highlight else ()
    title = f"JSON graph of {shorten(graph.symbol, 60)}"
    return Diagram(title, tuple(boxes), tuple(arrows), tuple(groups.values()), notes)


@shows(Graph)
def graph(
    graph: Graph,
    *,
    highlight: Collection[int] = (),
    engines: Mapping[int, str] | None = None,
    attributes: bool = True,
) -> Picture:
    """Draw ``graph``; the arguments are those of ``graph_diagram``.

    Raises:
        RenderError: an id in ``highlight`` is not in the graph.
        ToolError: no Graphviz on this machine.
    """
    return draw(graph_diagram(graph, highlight=highlight, engines=engines, attributes=attributes))


def _rows(node: Node, attributes: bool) -> tuple[str, ...]:
    types = tuple(str(output) for output in node.outputs)
    listed = tuple(f"{key} = {format_value(value)}" for key, value in node.attrs.items()) if attributes else ()
    return types + listed


def _tooltip(node_id: int, node: Node) -> str:
    parts = [f"node {node_id} {node.kind} {node.name}", *map(str, node.outputs)]
    parts += [f"{key} = {format_value(value)}" for key, value in node.attrs.items()]
    parts += [f"composite {node.composite}"] if node.composite else []
    parts += [f"from call {node.span}"] if node.span else []
    return "; ".join(parts)
