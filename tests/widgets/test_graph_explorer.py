"""What a call becomes in the JSON graph: the framed nodes, their text, the way back from a node to its call."""

from __future__ import annotations

import json

import pytest
import traitlets

from npu_kit.graph.serialize import to_json
from npu_kit_widgets import GraphExplorer
from npu_kit_widgets.graph_explorer import node_texts


@pytest.fixture
def lowered():
    return []


@pytest.fixture
def explorer(fused, conv_relu, lowered):
    def lower(function, symbol):
        lowered.append((function, symbol))
        return conv_relu, {"w": "an array"}

    return GraphExplorer(fused, lower)


def test_it_lowers_a_region_once(explorer, lowered):
    assert lowered == [("function of region0", "symbol_of_region0")]
    for span in ("main:1", "main:0", "main:2"):
        explorer.selected = span
    assert len(lowered) == 1


def test_it_starts_in_the_largest_composite(explorer):
    assert (explorer.selected, explorer.nodes) == ("main:0", (2,))
    assert "becomes node 2 of region0" in explorer._status.value


def test_another_call_frames_another_node(explorer):
    before = explorer._picture.svg
    explorer.selected = "main:1"
    assert explorer.nodes == (3,)
    assert explorer._picture.svg != before
    assert "relu" in explorer._text.value
    assert "strides" not in explorer._text.value


def test_a_node_leads_back_to_its_call(explorer):
    assert explorer._picture.part_ids() == ["node 2", "node 3"]  # the kernels
    explorer._picture._handle_custom_msg({"pick": "node 3"}, [])
    assert explorer.selected == "main:1"


def test_a_call_on_the_host_has_no_node_and_says_why(explorer):
    explorer.selected = "main:2"
    assert explorer.nodes == ()
    assert explorer._text.value == ""
    assert "stays on the host" in explorer._status.value
    assert "no pattern names relax.reshape" in explorer._status.value


def test_the_text_is_what_stands_in_the_graph(conv_relu):
    stored = json.loads(to_json(conv_relu))["nodes"]
    for node, text in zip((2, 3), node_texts(conv_relu, (2, 3)), strict=True):
        name, _, written = text.partition(" = ")
        assert name == f"nodes[{node}]"
        assert json.loads(written) == stored[node]
        assert "\n" in written


def test_lower_may_return_the_graph_alone(fused, conv_relu):
    assert GraphExplorer(fused, lambda *_: conv_relu).nodes == (2,)


def test_an_error_of_lower_is_shown(fused):
    def lower(_function, _symbol):
        raise ValueError("cannot lower <this>")

    explorer = GraphExplorer(fused, lower)
    assert "Lowering region0 failed: ValueError: cannot lower &lt;this&gt;" in explorer._alert.value
    assert explorer.nodes == ()


def test_wrong_arguments_and_state_are_refused(explorer, fused, conv_relu):
    with pytest.raises(TypeError, match="lower"):
        GraphExplorer(fused, conv_relu)
    with pytest.raises(traitlets.TraitError, match="main:99"):
        explorer.selected = "main:99"
    assert repr(explorer) == "GraphExplorer(main:0, 1 node)"
