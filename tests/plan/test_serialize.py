"""Plans as text: they come back equal and run to the same bits; text that was changed is refused, or harmless."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import GraphBuilder, conv_relu_pool, graphs, matmul_chain, random_arrays
from hypothesis import given
from hypothesis import strategies as st

from npu_kit.errors import GraphError, NpuKitError, PlanError, SpecError
from npu_kit.graph.ir import Graph
from npu_kit.hw.presets import load_spec, preset_names
from npu_kit.plan.cost import DATAFLOWS
from npu_kit.plan.ir import Plan
from npu_kit.plan.planner import make_plan
from npu_kit.plan.serialize import load_plan, plan_from_json, plan_to_json, save_plan
from npu_kit.runtime.execute import execute
from npu_kit.runtime.record import record

SPEC = load_spec("example")


def striped_chain() -> Graph:
    """A convolution and a pool with a tensor between them that does not fit the L2 of ``striped``."""
    b = GraphBuilder()
    conv = b.op("conv2d", b.input((1, 3, 40, 40)), b.input((20, 3, 3, 3)), composite="a#0", padding=(1, 1, 1, 1))
    b.op("max_pool2d", conv, composite="b#1", pool_size=(2, 2), strides=(2, 2))
    return b.graph()


def striped() -> Plan:
    plan = make_plan(striped_chain(), SPEC.replace(capacity_bytes={"L2": 64 * 1024}))
    assert {node.kind for node in plan.graph.nodes} >= {"view", "join"}
    return plan


@given(graphs(), st.sampled_from([None, *DATAFLOWS]), st.booleans(), st.sampled_from([1, 3]))
def test_any_plan_comes_back_equal(graph: Graph, dataflow: str | None, double_buffer: bool, share: int) -> None:
    sizes = {name: SPEC.tier(name).capacity_bytes // share // 64 * 64 for name in ("L1", "L2")}
    try:
        plan = make_plan(graph, SPEC.replace(capacity_bytes=sizes), dataflow=dataflow, double_buffer=double_buffer)
    except PlanError:
        return  # partial sums that do not fit
    text = plan_to_json(plan)
    assert plan_from_json(text) == plan
    assert plan_to_json(plan_from_json(text)) == text


@pytest.mark.parametrize("machine", preset_names())
@pytest.mark.parametrize("make", [conv_relu_pool, matmul_chain, striped_chain])
def test_a_loaded_plan_runs_to_the_same_bits_and_counters(machine: str, make: Any, tmp_path: Path) -> None:
    graph = make()
    plan = striped() if make is striped_chain else make_plan(graph, load_spec(machine))
    loaded = load_plan(save_plan(plan, tmp_path / "plan.json"))
    assert loaded == plan and loaded is not plan
    arrays = random_arrays(graph)
    for mode in ("fast", "step"):
        with record() as trace:
            one, other = (execute(each, arrays, mode=mode) for each in (plan, loaded))
        assert [array.tobytes() for array in one] == [array.tobytes() for array in other]
        assert trace.runs[0].counters == trace.runs[1].counters
        assert np.array_equal(trace.runs[0].events, trace.runs[1].events)


def test_files_are_not_overwritten_unasked(tmp_path: Path) -> None:
    plan = make_plan(matmul_chain(), SPEC)
    path = save_plan(plan, tmp_path / "plan.json")
    with pytest.raises(PlanError, match="it exists"):
        save_plan(plan, path)
    save_plan(plan, path, overwrite=True)
    with pytest.raises(PlanError, match="cannot write"):
        save_plan(plan, tmp_path / "no" / "folder.json")
    with pytest.raises(PlanError, match="cannot read"):
        load_plan(tmp_path / "none.json")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(PlanError, match="not ASCII text"):
        load_plan(path)


def edited(plan: Plan, *keys: str | int, value: Any) -> str:
    root = json.loads(plan_to_json(plan))
    place = root
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return json.dumps(root)


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("format_version",), 2, "format_version: it is 2 and this kit reads 1"),
        (("format_version",), True, "needs an integer and got True"),
        (("colour",), "red", "'colour' does not belong there"),
        (("power_mode",), "turbo", "no power mode 'turbo'"),
        (("steps", 0, "dataflow"), "row_stationary", "has no loops of row_stationary"),
        (("steps", 0, "engine"), "pooling", "engines can do their work"),
        (("steps", 0, "family"), "window", "is called window, it is contraction"),
        (("steps", 0, "nodes"), [99], "names output 0 of node 99"),
        (("steps", 0, "nodes"), [-1], "names output 0 of node -1"),
        (("steps", 0, "axes", 0, 2), 0, "has a tile of 0"),
        (("steps", 0, "axes", 0, 2), 10**30, "group, at most 1"),
        (("steps", 0, "axes", 3, 2), 10**30, "rows, at most 32"),
        (("steps", 0, "axes", 5, 2), 8, "its sums are in those of|slots have a part"),
        (("steps", 0, "slots", 0, "offset_bytes"), 10**12, "slots lie within their tier"),
        (("steps", 0, "slots", 1, "offset_bytes"), 0, "slots do not overlap"),
        (("steps", 0, "slots", 0, "copies"), 0, "1 x 0 parts"),
        (("steps", 0, "operands", 0, "name"), "y", "no slot 'y'"),
        (("steps", 0, "operands", 0, "tier"), "L9", "is read from L9"),
        (("steps", 0, "operands", 0, "is_panel"), 1, "needs true or false and got 1"),
        (("steps", 0, "output_tier"), "L0", "to L0, where it has no place"),
        (("steps", 0, "prefetch"), [[0, 0], [0, 0]], "prefetched 2 times"),
        (("buffers", 0, "offset_bytes"), -64, "buffers lie within their tier"),
        (("buffers", 0, "role"), "resident", "the copy of a0 is in L3"),
        (("buffers", 0, "nbytes"), 1e3, "needs an integer and got 1000.0"),
        (("reasons", 0, "numbers"), {"x": "many"}, "needs a number and got 'many'"),
        (("reasons", 0, "because"), "\ud800", "half of a surrogate pair"),
        (("graph", "nodes", 0, "op"), "view", "graph|kind"),
        (("spec", "tiers", 0, "capacity_bytes"), -1, "capacity_bytes"),
        (("places",), [{"kind": "kernel"}], "needs an object of kind 'view' or 'join'"),
    ],
)
def test_what_is_wrong_is_named(keys: tuple[str | int, ...], value: Any, message: str) -> None:
    plan = make_plan(matmul_chain(), SPEC)
    with pytest.raises((PlanError, GraphError, SpecError), match=message):
        plan_from_json(edited(plan, *keys, value=value))


@pytest.mark.parametrize(
    "text", ["", "[]", "nul", '{"a":1,"a":2}', "[" * 100_000, '{"format_version":' + "9" * 50 + "}", "NaN"]
)
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="plan JSON"):
        plan_from_json(text)
    with pytest.raises(PlanError, match="it must be text"):
        plan_from_json(text.encode())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start": 5, "stop": 5}, "are not rows of"),
        ({"stop": 99}, "are not rows of"),
        ({"axis": 7}, "axis 7 is none of its 4"),
        ({"inputs": [[9999, 0]]}, "may read nodes before it"),
        ({"inputs": [[0, 1]]}, "needs .node, 0."),
        ({"node": 3}, "places"),
        ({"name": ""}, "name"),
    ],
)
def test_a_view_that_shows_no_rows_is_refused(change: dict[str, Any], message: str) -> None:
    root = json.loads(plan_to_json(striped()))
    view = next(place for place in root["places"] if place["kind"] == "view")
    view.update(change)
    with pytest.raises((PlanError, GraphError), match=message):
        plan_from_json(json.dumps(root))


def test_a_join_has_its_pieces_for_itself() -> None:
    root = json.loads(plan_to_json(striped()))
    join = next(place for place in root["places"] if place["kind"] == "join")
    join["inputs"][1] = join["inputs"][0]
    with pytest.raises(PlanError, match="belongs to this join alone"):
        plan_from_json(json.dumps(root))


def _leaves(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [leaf for key, item in items for leaf in _leaves(item, (*path, key))] or [path]
    return [path]


def _mutations(value: Any, rng: np.random.Generator) -> list[Any]:
    if isinstance(value, bool):
        return [not value, 0]
    if isinstance(value, int):
        return [value + 1, value - 1, value * 2 + 64, -value - 1, 0]
    if isinstance(value, str):
        return ["", "L2", "x", "out", "output_stationary", None]
    return [0, [], {}, "x"]


@pytest.mark.parametrize("name", ["matmul", "weights stay", "conv", "striped", "softmax"])
def test_a_changed_plan_is_refused_or_still_computes_the_same(name: str) -> None:
    """Every leaf of steps, buffers and places, one at a time: no plan that passes may crash, or give other values."""
    b = GraphBuilder()
    b.op("softmax", b.op("add", b.input((5, 70)), b.input((70,))))
    made = {
        "matmul": lambda: make_plan(matmul_chain(20, 300, 20), SPEC.replace(tile=16)),
        "weights stay": lambda: make_plan(matmul_chain(20, 300, 20), SPEC.replace(tile=16), dataflow=DATAFLOWS[1]),
        "conv": lambda: make_plan(conv_relu_pool(4, 10, 8), SPEC.replace(tile=16)),
        "striped": striped,
        "softmax": lambda: make_plan(b.graph(), SPEC.replace(tile=16)),
    }
    plan = made[name]()
    rng = np.random.default_rng(11)
    arrays = _arrays(plan)
    wanted = [array.tobytes() for array in execute(plan, arrays)]
    root = json.loads(plan_to_json(plan))
    leaves = [leaf for key in ("steps", "buffers", "places") for leaf in _leaves(root[key], (key,))]
    passed = refused = 0
    for leaf in rng.permutation(len(leaves))[:120]:
        changed = copy.deepcopy(root)
        place = changed
        for key in leaves[leaf][:-1]:
            place = place[key]
        choices = _mutations(place[leaves[leaf][-1]], rng)
        place[leaves[leaf][-1]] = choices[int(rng.integers(len(choices)))]
        try:
            other = plan_from_json(json.dumps(changed))
        except NpuKitError:
            refused += 1
            continue
        passed += 1
        if math.prod(axis.count for step in other.steps for axis in step.axes if axis.count) > 1e7:
            continue
        for mode in ("fast", "step"):
            assert [array.tobytes() for array in execute(other, arrays, mode=mode)] == wanted, leaves[leaf]
    assert refused > passed > 0


def _arrays(plan: Plan) -> list[Any]:
    rng = np.random.default_rng(3)
    types = [plan.graph.nodes[node].outputs[0] for node in plan.graph.arg_nodes]
    return [rng.standard_normal(kind.shape).astype(kind.dtype) for kind in types]
