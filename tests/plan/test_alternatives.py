"""Prices of what was not chosen: each is what the estimate says of a step that could really run that way."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from graphs import GraphBuilder, conv_relu_pool, graphs, matmul_chain
from hypothesis import given, settings

from npu_kit.graph.ir import Graph
from npu_kit.hw.presets import load_spec
from npu_kit.plan.alternatives import CAUSES_IN_WORDS, alternatives, waits
from npu_kit.plan.cost import CostModel, systolic_cycles
from npu_kit.plan.estimate import Cost, estimate_cost
from npu_kit.plan.ir import Plan, Reason
from npu_kit.plan.metrics import plan_metrics
from npu_kit.plan.planner import make_plan
from npu_kit.plan.reasons import against
from npu_kit.plan.traffic import plan_counters
from npu_kit.trace.events import CAUSES

SPEC = load_spec("example")


def about(plan: Plan, decision: str) -> list[Reason]:
    return [reason for reason in alternatives(plan) if reason.decision == decision]


@settings(max_examples=25)
@given(graphs())
def test_every_alternative_has_both_prices(graph: Graph) -> None:
    plan = make_plan(graph, SPEC)
    for reason in alternatives(plan):
        if "no other engine" in reason.because:
            continue
        cycles, other = (int(reason.numbers[key]) for key in ("cycles", "other_cycles"))
        assert str(cycles) in reason.because and (str(other) in reason.because or "tie" in reason.because)
    assert len(about(plan, "engine")) == len(plan.steps)


def test_a_tile_is_compared_with_the_best_other_shape() -> None:
    plan = make_plan(matmul_chain(), SPEC)
    (reason,) = about(plan, "tile")
    (shape,) = re.findall(r"a tile of (\d+x\d+)", reason.because)
    rows, columns = map(int, shape.split("x"))
    other = make_plan(matmul_chain(), SPEC, tile=(rows, columns), dataflow=plan.steps[0].dataflow)
    cost = CostModel(plan.spec, plan.power_mode)
    assert reason.numbers["cycles"] == estimate_cost(plan.graph, plan.steps[0], cost).cycles
    names = [axis.name for axis in plan.steps[0].axes]
    if [axis.name for axis in other.steps[0].axes] == names and other.steps[0].prefetch == plan.steps[0].prefetch:
        assert reason.numbers["other_cycles"] == estimate_cost(plan.graph, other.steps[0], cost).cycles


@pytest.mark.parametrize(
    ("operation", "shape", "weights", "attrs", "engine", "other"),
    [
        ("matmul", (64, 64), (64, 64), {}, "matrix", "conv"),
        ("conv2d", (1, 8, 9, 9), (8, 8, 1, 1), {}, "conv", "matrix"),
        ("conv2d", (1, 8, 9, 9), (8, 8, 3, 3), {}, "conv", ""),
        ("conv2d", (1, 8, 9, 9), (8, 1, 3, 3), {"groups": 8}, "vector", "conv"),
        ("relu", (64, 64), None, {}, "activation", "vector"),
        ("leaky_relu", (64, 64), None, {}, "activation", "vector"),
        ("conv2d_transpose", (1, 8, 9, 9), (8, 8, 1, 1), {"strides": 2}, "conv", "matrix"),
        ("add", (64, 64), (64, 64), {}, "vector", ""),
        ("max_pool2d", (1, 8, 9, 9), None, {"pool_size": (2, 2)}, "pooling", "vector"),
        ("sigmoid", (64, 64), None, {}, "activation", ""),
    ],
)
def test_another_engine_is_priced_where_there_is_one(
    operation: str, shape: tuple[int, ...], weights: tuple[int, ...] | None, attrs: dict, engine: str, other: str
) -> None:
    b = GraphBuilder()
    inputs = [b.input(shape)] + ([b.input(weights)] if weights else [])
    b.op(operation, *inputs, **attrs)
    plan = make_plan(b.graph(), SPEC)
    (reason,) = about(plan, "engine")
    assert reason.chosen == engine == plan.steps[0].engine
    if not other:
        assert reason.because == "no other engine of the machine can do this" and not reason.numbers
        return
    assert f"the {other} engine" in reason.because
    cost = CostModel(SPEC, plan.power_mode)
    if operation == "conv2d" and attrs:
        # By hand: every channel of every 3x3 tap is a product with a single column.
        rows, columns = cost.array_shape("conv")
        axis = {one.name: one for one in plan.steps[0].axes}
        tiles = [(axis["y"].span(y), axis["x"].span(x)) for y in range(axis["y"].count) for x in range(axis["x"].count)]
        sizes = [(y1 - y0) * (x1 - x0) for (y0, y1), (x0, x1) in tiles]
        array = sum(8 * systolic_cycles(size, 1, 9, rows, columns) for size in sizes)
        lanes = sum(cost.lanes("vector", (size, 8), 9) for size in sizes)
        assert reason.numbers["other_cycles"] - reason.numbers["cycles"] == array - lanes
    else:
        moved = replace(plan.steps[0], engine=other)
        assert reason.numbers["other_cycles"] == estimate_cost(plan.graph, moved, cost).cycles


def test_a_place_near_is_compared_with_dram() -> None:
    plan = make_plan(conv_relu_pool(), SPEC)
    (reason,) = about(plan, "tier")
    kept = next(buffer for buffer in plan.buffers if buffer.role == "intermediate")
    assert reason.chosen == "L2" == kept.tier
    # Through DRAM it is written once, and the pool reads its tiles from there.
    read = plan_counters(plan)[1].nbytes["L2", "L1"]
    assert reason.numbers["other_dram_bytes"] - reason.numbers["dram_bytes"] == kept.nbytes + read
    assert reason.numbers["other_cycles"] > reason.numbers["cycles"]


@given(graphs())
def test_waits_are_those_of_the_timeline(graph: Graph) -> None:
    plan = make_plan(graph, SPEC)
    for reason, metrics in zip(waits(plan), plan_metrics(plan), strict=True):
        stalls = {key: value for key, value in reason.numbers.items() if key in CAUSES}
        assert stalls == dict(metrics.stalled_cycles)
        for cause, cycles in metrics.stalled_cycles.items():
            assert not cycles or f"{cycles} cycles {CAUSES_IN_WORDS[cause]}" in reason.because
    assert set(CAUSES_IN_WORDS) == set(CAUSES) - {""}


@pytest.mark.parametrize(
    ("chosen", "other", "sentence"),
    [
        ((7, 5), (7, 5), "it is a tie with B, 7 cycles and 5 bytes of DRAM traffic each"),
        ((7, 5), (7, 6), "both take about 7 cycles; it moves 5 bytes to and from DRAM, and B 6"),
        ((7, 5), (9, 5), "it takes about 7 cycles, and B 9"),
        ((9, 5), (8, 5), "B, about 8 cycles for 9, is not clearly better by an estimate"),
    ],
)
def test_a_tie_reads_as_a_tie(chosen: tuple[int, int], other: tuple[int, int], sentence: str) -> None:
    assert against(Cost(*chosen), Cost(*other), "B")[0] == sentence


@given(graphs())
def test_no_sentence_compares_equal_numbers(graph: Graph) -> None:
    for reason in make_plan(graph, SPEC).reasons:
        cycles = re.search(r"it takes about (\d+) cycles, and .*?(\d+)$", reason.because)
        assert cycles is None or cycles[1] != cycles[2], reason
