"""What steps, tensors and slots are called: by role and number, a stripe by its rows."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from graphs import GraphBuilder, conv_relu_pool
from pictures import check, tooltips, words

from npu_kit.graph.ir import Entry, Graph
from npu_kit.hw.spec import NpuSpec
from npu_kit.plan.ir import Plan
from npu_kit.plan.planner import make_plan
from npu_kit.plan.storage import JOIN
from npu_kit.render import graph_diagram, memory_map, occupancy, steps_table, tiles
from npu_kit.render.diagram import verify_diagram
from npu_kit.render.names import node_names, operand_roles, step_title, step_titles, tensor_name

HASH = "const_0123456789abcdef0123456789abcdef"


def with_constants(graph: Graph, *ids: int) -> Graph:
    """``graph`` with some inputs turned into constants, which are named after content."""
    nodes = [replace(n, kind="const", name=f"{HASH}{i}") if i in ids else n for i, n in enumerate(graph.nodes)]
    arguments = (*(i for i in graph.arg_nodes if i not in ids), *ids)
    return replace(graph, nodes=tuple(nodes), arg_nodes=arguments)


@pytest.fixture(scope="module")
def plan(spec: NpuSpec) -> Plan:
    """conv2d + bias + relu and a pool, weights and bias constant."""
    return make_plan(with_constants(conv_relu_pool(), 1, 2), spec)


@pytest.fixture(scope="module")
def striped(spec: NpuSpec) -> Plan:
    """Two convolutions and a pool, with tensors between them that L2 does not hold."""
    b = GraphBuilder()
    value = b.input((1, 3, 61, 59))
    for number, channels in enumerate((3, 40)):
        weights = b.input((40, channels, 3, 3))
        value = b.op("conv2d", value, weights, composite=f"npu.conv2d#{number}", padding=(1, 1, 1, 1))
    b.op("max_pool2d", value, composite="npu.pool#2", pool_size=(2, 2), strides=(2, 2))
    plan = make_plan(b.graph(), spec)
    assert any(node.kind == JOIN for node in plan.graph.nodes), "not in stripes: the tests below say nothing"
    return plan


def test_a_title_is_the_operations_and_the_composite_on_request(plan: Plan) -> None:
    assert step_titles(plan) == ("conv2d + add + relu", "max_pool2d")
    assert step_title(plan, plan.steps[0], with_composite=True) == "conv2d + add + relu (conv2d_bias_relu#0)"


def test_one_title_is_that_of_all(striped: Plan) -> None:
    assert step_titles(striped) == tuple(step_title(striped, step) for step in striped.steps)


def test_a_step_that_copies_says_what(spec: NpuSpec) -> None:
    graph = with_constants(conv_relu_pool(), 1, 2)
    plan = make_plan(replace(graph, heads=(*graph.heads, Entry(0), Entry(1))), spec)
    assert step_titles(plan)[2:] == ("copy of a0", "copy of constant 1")
    assert words(check(tiles(plan, 3)))[0].startswith("Step 3, copy of constant 1: tile 0 of ")


def test_a_reshape_that_the_region_returns_is_a_copy(spec: NpuSpec) -> None:
    b = GraphBuilder()
    b.op("reshape", b.op("relu", b.input((4, 6))), newshape=(8, 3))
    plan = make_plan(b.graph(), spec)
    assert step_titles(plan) == ("relu", "copy of reshape")
    assert operand_roles(plan, plan.steps[1]) == {"x0": "x0 of copy"}


def test_the_rows_of_stripes_cover_the_result_once(striped: Plan) -> None:
    """And each stripe goes through all three steps of the chain, only the last of which writes these rows."""
    found = [re.fullmatch(r"(\S+), (for )?rows (\d+):(\d+)", title) for title in step_titles(striped)]
    rows: dict[tuple[int, int], list[tuple[str, bool]]] = {}
    for match in found:
        assert match is not None
        rows.setdefault((int(match[3]), int(match[4])), []).append((match[1], match[2] is None))
    assert [row for start, stop in rows for row in range(start, stop)] == list(range(30))
    assert len(rows) > 2
    for steps in rows.values():
        assert steps == [("conv2d", False), ("conv2d", False), ("max_pool2d", True)]


def test_the_rows_are_those_that_the_step_writes(striped: Plan) -> None:
    for step, title in zip(striped.steps, step_titles(striped), strict=True):
        start, stop = map(int, title.rpartition(" ")[2].split(":"))
        if ", rows" in title:
            assert striped.graph.type_of(step.output).shape[2] == stop - start


def test_a_plan_on_whole_tensors_has_no_rows(spec: NpuSpec, striped: Plan, plan: Plan) -> None:
    assert not any("rows" in title for title in step_titles(plan))


def test_every_picture_of_a_step_has_its_title(striped: Plan) -> None:
    title = step_title(striped, striped.steps[1])
    assert f"Memory during step 1: {title}" in words(check(memory_map(striped, 1)))
    assert words(check(tiles(striped, 1)))[0].startswith(f"Step 1, {title}: tile 0 of ")
    assert steps_table(striped).rows[1][1] == title
    assert any(tip.startswith(f"step 1, {title}: ") for tip in tooltips(check(occupancy(striped))))


def test_tensors_have_short_names(striped: Plan, plan: Plan) -> None:
    assert tensor_name(plan.graph, Entry(0)) == "a0"
    assert tensor_name(plan.graph, Entry(1)) == "constant 1"
    views = [i for i, node in enumerate(striped.graph.nodes) if node.kind == "view"]
    assert re.fullmatch(r"a0\[0:\d+\]", tensor_name(striped.graph, Entry(views[0])))
    long = replace(plan.graph, nodes=(replace(plan.graph.nodes[0], name="n" * 500), *plan.graph.nodes[1:]))
    assert len(tensor_name(long, Entry(0))) < 30


def test_slots_are_called_after_the_operand_they_hold(plan: Plan) -> None:
    step = plan.steps[0]
    assert operand_roles(plan, step) == {"x": "x of conv2d", "w": "w of conv2d", "epilogue0.0": "operand 0 of add"}
    assert set(operand_roles(plan, step)) <= {slot.name for slot in step.slots}


def test_moved_nodes_are_named_constants_by_role(plan: Plan) -> None:
    names = node_names(plan, plan.steps[0])
    assert names == {0: "a0", 1: "w of conv2d", 2: "operand 0 of add", 3: "conv2d", 4: "add", 5: "relu"}


def test_pictures_show_short_names_and_keep_the_full_ones_in_tooltips(plan: Plan) -> None:
    for picture, shown, full in (
        (tiles(plan, 0), "operand 0 of add = constant 2: 1x40x1x1 float32", f"slot epilogue0.0, tensor {HASH}2"),
        (memory_map(plan, 0), "w of conv2d", f"{HASH}1"),
    ):
        root = check(picture)
        assert not [word for word in words(root) if HASH[:10] in word or "epilogue" in word]
        assert any(shown in word for word in words(root))
        assert any(full in tip for tip in tooltips(root))


def test_results_are_named_without_the_backend(striped: Plan) -> None:
    shown = words(check(memory_map(striped, 1)))
    for name in ("conv2d (conv2d#0)", "conv2d (conv2d#1)", "max_pool2d (pool#2)"):
        assert any(name in word for word in shown), name
    assert not any("npu." in word for word in shown)


def test_views_and_joins_are_drawn_as_what_they_are(striped: Plan) -> None:
    diagram = graph_diagram(striped.graph)
    verify_diagram(diagram)
    for box, node in zip(diagram.boxes, striped.graph.nodes, strict=False):
        assert (box.kind == node.kind) == (node.kind in ("input", "view", "join"))
