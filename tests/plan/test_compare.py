"""Differences between plans: none between equal ones, and what was changed is named with both values."""

from __future__ import annotations

import dataclasses

from graphs import GraphBuilder, conv_relu_pool, graphs, matmul_chain
from hypothesis import given

from npu_kit.graph.ir import Graph
from npu_kit.hw.presets import load_spec
from npu_kit.plan.compare import Change, compare_plans
from npu_kit.plan.forecast import forecast, total_cycles
from npu_kit.plan.ir import Plan
from npu_kit.plan.planner import make_plan
from npu_kit.plan.traffic import plan_counters
from npu_kit.trace.counters import total

SPEC = load_spec("example")


def found(one: Plan, other: Plan) -> dict[tuple[str, str], Change]:
    return {(change.where, change.what): change for change in compare_plans(one, other)}


@given(graphs())
def test_a_plan_does_not_differ_from_itself(graph: Graph) -> None:
    assert compare_plans(make_plan(graph, SPEC), make_plan(graph, SPEC)) == ()


def test_another_tile_changes_tiles_slots_cycles_and_bytes() -> None:
    one, other = (make_plan(matmul_chain(), SPEC, tile=tile) for tile in (16, 32))
    changes = found(one, other)
    step = "step 0, matmul+add+relu (matmul_bias_relu#0)"
    assert changes["machine", "tile.rows"] == Change("machine", "tile.rows", 16, 32)
    assert changes[step, "tile of x"].difference == 16
    tiles, cycles = changes["plan", "tiles"], changes["plan", "cycles"]
    assert (tiles.one, tiles.other) == tuple(total(plan_counters(plan)).tiles for plan in (one, other))
    assert (cycles.one, cycles.other) == tuple(total_cycles(forecast(plan)) for plan in (one, other))
    for (source, target), nbytes in total(plan_counters(other)).nbytes.items():
        change = changes.get(("plan", f"{source} to {target}"))
        assert change is None or change.other == nbytes
    moved = changes[step, "slot accumulator"]
    assert str(moved.one).startswith("L0@0, 1024 bytes") and moved.difference is None


def test_a_machine_with_less_memory_moves_tensors() -> None:
    one = make_plan(conv_relu_pool(), SPEC)
    other = make_plan(conv_relu_pool(), SPEC.replace(capacity_bytes={"L2": 4096}))
    changes = found(one, other)
    assert changes["machine", "tiers[2].capacity_bytes"].other == 4096
    assert any(change.where == "tensors" and "L2@" in f"{change.one}{change.other}" for change in changes.values())
    assert {change.where for change in changes.values()} >= {"machine", "plan", "tensors"}


def test_steps_that_one_plan_has_alone_stand_alone() -> None:
    b = GraphBuilder()
    x = b.input((8, 8))
    relu = b.op("relu", x)
    short = make_plan(b.graph(), SPEC)
    b.op("tanh", relu)
    long = make_plan(b.graph(), SPEC)
    alone = [change for change in compare_plans(short, long) if change.where == "step 1, tanh (node 2)"]
    assert ("engine", "", "activation") in [(change.what, change.one, change.other) for change in alone]
    assert all(change.one == "" for change in alone)


def test_a_moved_slot_and_another_attribute_are_seen() -> None:
    plan = make_plan(matmul_chain(), SPEC)
    (step,) = plan.steps
    out = step.slot("out")
    lower = dataclasses.replace(out, offset_bytes=out.offset_bytes + 64)
    slots = tuple(lower if slot is out else slot for slot in step.slots)
    moved = dataclasses.replace(plan, steps=(dataclasses.replace(step, slots=slots),))
    (change,) = compare_plans(plan, moved)
    assert change.what == "slot out" and change.one != change.other
    b = GraphBuilder()
    x = b.input((4, 4))
    b.op("clip", x, min=0.0, max=6.0)
    c = GraphBuilder()
    c.op("clip", c.input((4, 4)), min=0.0, max=5.0)
    (change,) = compare_plans(make_plan(b.graph(), SPEC), make_plan(c.graph(), SPEC))
    assert change.what == "attributes"
