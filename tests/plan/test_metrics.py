"""Metrics: identities that must hold between them, and one layer by hand."""

from __future__ import annotations

import pytest
from graphs import GraphBuilder, conv_relu_pool, first_layer_of_resnet18, graphs, matmul_chain, random_arrays
from hypothesis import given

from npu_kit.graph.ir import Graph
from npu_kit.hw.presets import load_spec
from npu_kit.plan.metrics import plan_metrics, time_by_power_mode, total_metrics
from npu_kit.plan.planner import make_plan
from npu_kit.plan.traffic import plan_counters
from npu_kit.runtime.execute import execute
from npu_kit.runtime.record import record
from npu_kit.trace.counters import total

SPEC = load_spec("example")


@given(graphs())
def test_steps_add_up_to_the_whole(graph: Graph) -> None:
    plan = make_plan(graph, SPEC)
    steps, whole = plan_metrics(plan), total_metrics(plan)
    assert sum(one.cycles for one in steps) == whole.cycles
    assert sum(one.macs for one in steps) == whole.macs == total(plan_counters(plan)).macs
    assert sum(one.dram_bytes for one in steps) == whole.dram_bytes == total(plan_counters(plan)).dram_bytes
    assert sum(one.total_energy_pj for one in steps) == pytest.approx(whole.total_energy_pj)
    for one in (*steps, whole):
        assert 0 <= one.temporal_utilization <= 1 and 0 <= one.spatial_utilization <= 1
        assert max(one.busy_cycles.values(), default=0) <= one.cycles
        # The roofline cannot be passed.
        if one.macs and one.cycles:
            assert one.macs / one.cycles <= one.attainable_macs_per_cycle * (1 + 1e-9)


def test_a_run_has_the_metrics_of_its_forecast() -> None:
    graph = conv_relu_pool()
    plan = make_plan(graph, SPEC)
    with record() as trace:
        execute(plan, random_arrays(graph), mode="step")
    assert plan_metrics(plan, trace.runs[0].events) == plan_metrics(plan)


def test_one_matmul_by_hand() -> None:
    """64 x 128 by 128 x 32, float32, every lane on, no second copy: the sums of docs/by-hand.md."""
    b = GraphBuilder()
    b.op("matmul", b.input((64, 128)), b.input((128, 32)))
    plan = make_plan(b.graph(), SPEC, power_mode="high_performance", double_buffer=False)
    one = total_metrics(plan)
    # Two output tiles of 32x32. Each: 2 x 2 folds of a 16x16 array, 128 + 16 + 16 - 2 cycles each.
    compute = 2 * (2 * 2 * (128 + 30))
    # The weights once, two tiles of x in, two tiles out: 100 cycles and 16 bytes a cycle each.
    weights = 100 + 128 * 32 * 4 // 16
    x = 2 * (100 + 32 * 128 * 4 // 16)
    out = 2 * (100 + 32 * 32 * 4 // 16)
    drain = 2 * (1 + 32 * 32 * 4 // 128)
    assert one.cycles == weights + x + compute + drain + out
    assert one.dram_bytes == 4 * (128 * 32 + 64 * 128 + 64 * 32)
    assert one.macs == 64 * 128 * 32
    assert one.spatial_utilization == one.macs / (256 * (compute + drain))
    pj = SPEC.mac_energy_pj["float32"] * one.macs
    assert one.energy_pj["MACs"] == pytest.approx(pj)
    assert one.energy_pj["L3"] == pytest.approx(one.dram_bytes * SPEC.tier("L3").energy_pj_per_byte)


def test_fewer_lanes_and_a_slower_clock_take_longer() -> None:
    times = {mode: one.microseconds for mode, one in time_by_power_mode(first_layer_of_resnet18(), SPEC).items()}
    assert times["high_performance"] < times["balanced"] < times["low_power"]


def test_a_large_product_is_compute_bound_and_a_vector_is_not() -> None:
    assert total_metrics(make_plan(matmul_chain(256, 256, 256), SPEC)).bound == "compute"
    assert total_metrics(make_plan(matmul_chain(1, 512, 512), SPEC)).bound == "memory"


def test_waits_have_causes() -> None:
    metrics = total_metrics(make_plan(matmul_chain(), SPEC, double_buffer=False))
    assert metrics.stalled_cycles["operand"] > 0
