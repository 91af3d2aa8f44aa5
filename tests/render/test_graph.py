"""The picture of a JSON graph."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from graphs import conv_relu_pool
from pictures import HOSTILE_NAMES, parse, rename, tooltips, words

from npu_kit import render
from npu_kit.errors import RenderError
from npu_kit.graph.ir import Graph
from npu_kit.plan.ir import Plan
from npu_kit.render import graph_diagram, outline, to_dot


@pytest.fixture
def graph() -> Graph:
    return conv_relu_pool()


def test_there_is_a_box_per_node_and_an_arrow_per_entry(graph: Graph) -> None:
    diagram = graph_diagram(graph)
    assert len(diagram.boxes) == len(graph.nodes) + len(graph.heads)
    entries = [(entry.node, i) for i, node in enumerate(graph.nodes) for entry in node.inputs]
    drawn = [(arrow.source, arrow.target) for arrow in diagram.arrows]
    heads = [(f"node {head.node}", f"head {i}") for i, head in enumerate(graph.heads)]
    assert drawn == [(f"node {source}", f"node {target}") for source, target in entries] + heads


def test_composites_are_frames_around_their_nodes(graph: Graph) -> None:
    diagram = graph_diagram(graph)
    assert [group.title for group in diagram.groups] == ["conv2d_bias_relu#0", "max_pool2d#1"]
    for node_id, node in enumerate(graph.nodes):
        assert diagram.boxes[node_id].group == (f"composite {node.composite}" if node.composite else "")


def test_attributes_and_types_are_rows(graph: Graph) -> None:
    (conv,) = [box for box in graph_diagram(graph).boxes if box.title.endswith(": conv2d")]
    assert conv.rows[0] == "2x40x21x24 float32"
    assert "padding = (1, 1, 1, 1)" in conv.rows
    assert 'data_layout = "NCHW"' in conv.rows
    (short,) = [b for b in graph_diagram(graph, attributes=False).boxes if b.title.endswith(": conv2d")]
    assert short.rows == ("2x40x21x24 float32",)


def test_the_outline_of_a_graph_is_as_in_the_golden_file(graph: Graph, golden: Callable[[str, str], None]) -> None:
    golden("graph_outline.txt", outline(graph_diagram(graph)) + "\n")


def test_highlighted_nodes_are_framed_and_named(graph: Graph) -> None:
    assert to_dot(graph_diagram(graph, highlight=[3, 4])).count("penwidth=4") == 2
    assert "Framed: node 3, node 4." in words(parse(render.graph(graph, highlight=[4, 3])))
    with pytest.raises(RenderError, match=r"cannot highlight node 99: the graph has nodes 0 to 6"):
        render.graph(graph, highlight=[99])


def test_engines_of_a_plan_are_drawn(conv_plan: Plan) -> None:
    engines = {
        node: engine
        for step in conv_plan.steps
        for node, engine in zip(step.nodes, (step.engine, *step.epilogue_engines), strict=True)
    }
    shown = words(parse(render.graph(conv_plan.graph, engines=engines)))
    for label in ("conv engine", "vector engine", "activation engine", "pooling engine"):
        assert label in shown


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_are_only_text(graph: Graph, name: str) -> None:
    root = parse(render.graph(rename(graph, name)))
    assert len([e for e in root.iter() if e.get("class") == "node"]) == len(graph.nodes) + len(graph.heads)
    assert any("conv2d" in tip for tip in tooltips(root))
