"""Metrics: identities that must hold between them, and three layers by hand."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest
from graphs import conv_relu_pool, first_layer_of_resnet18, graphs, matmul_chain, random_arrays
from hypothesis import given

from npu_kit.graph.ir import Graph
from npu_kit.hw.presets import load_spec, preset_names
from npu_kit.plan.metrics import metrics_by_power_mode, plan_metrics, total_metrics
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


def test_the_page_that_computes_a_layer_by_hand(repository: Path) -> None:
    failed, tried = doctest.testfile(str(repository / "docs" / "by-hand.md"), module_relative=False)
    assert tried > 15 and failed == 0


def test_fewer_lanes_and_a_slower_clock_take_longer() -> None:
    metrics = metrics_by_power_mode(make_plan(first_layer_of_resnet18(), SPEC))
    times = {mode: one.microseconds for mode, one in metrics.items()}
    assert times["high_performance"] < times["balanced"] < times["low_power"]


def test_a_large_product_is_compute_bound_and_a_vector_is_not() -> None:
    assert total_metrics(make_plan(matmul_chain(256, 256, 256), SPEC)).bound == "compute"
    assert total_metrics(make_plan(matmul_chain(1, 512, 512), SPEC)).bound == "memory"


def test_waits_have_causes() -> None:
    metrics = total_metrics(make_plan(matmul_chain(), SPEC, double_buffer=False))
    assert metrics.stalled_cycles["operand"] > 0


MACHINES = [(name, mode.name) for name in preset_names() for mode in load_spec(name).power_modes]


@pytest.mark.parametrize(("machine", "mode"), MACHINES)
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_time_and_energy_follow_from_the_counters(machine: str, mode: str, dtype: str) -> None:
    """Counted by fast mode, which knows nothing of events: MACs, bytes by boundary; the rest is multiplication."""
    spec = load_spec(machine)
    graph = matmul_chain(m=90, k=200, n=70, dtype=dtype)
    plan = make_plan(graph, spec, power_mode=mode)
    with record() as trace:
        execute(plan, random_arrays(graph))
    counted, metrics = total(trace.runs[0].counters), total_metrics(plan)
    assert counted.macs == metrics.macs == 90 * 200 * 70
    expected = {tier.name: 0.0 for tier in spec.tiers}
    for (source, target), nbytes in counted.nbytes.items():
        expected[source] += nbytes * spec.tier(source).energy_pj_per_byte
        expected[target] += nbytes * spec.tier(target).energy_pj_per_byte
    # Each sum that leaves the array is added to the one in the accumulator, which is read and written.
    assert counted.sum_bytes == metrics.sum_bytes > 0
    expected["L0"] += 2 * counted.sum_bytes * spec.tier("L0").energy_pj_per_byte
    expected = {tier: pj for tier, pj in expected.items() if pj} | {"MACs": counted.macs * spec.mac_energy_pj[dtype]}
    assert metrics.energy_pj == pytest.approx(expected)
    assert metrics.total_energy_pj == pytest.approx(sum(expected.values()))
    clock = next(one for one in spec.power_modes if one.name == mode).clock_mhz
    assert metrics.microseconds == pytest.approx(metrics.cycles / clock)


def test_a_dataflow_pays_for_the_sums_that_leave_the_array() -> None:
    """288 products are one sum where outputs stay, and one for each of the 18 folds of 16 rows where weights do."""
    graph = matmul_chain(m=32, k=288, n=32)
    outputs, weights = (
        total_metrics(make_plan(graph, SPEC, dataflow=dataflow))
        for dataflow in ("output_stationary", "weight_stationary")
    )
    assert (outputs.sum_bytes, weights.sum_bytes) == (4 * 32 * 32, 18 * 4 * 32 * 32)
    for metrics in (outputs, weights):
        moved = sum(nbytes for boundary, nbytes in metrics.nbytes.items() if "L0" in boundary)
        assert metrics.energy_pj["L0"] == pytest.approx(1.25 * (moved + 2 * metrics.sum_bytes))


@pytest.mark.parametrize("machine", preset_names())
def test_a_power_mode_changes_the_clock_and_the_powered_columns(machine: str) -> None:
    spec = load_spec(machine)
    for mode, metrics in metrics_by_power_mode(make_plan(conv_relu_pool(), spec)).items():
        power, array = spec.power_mode(mode), spec.engine("conv")
        powered = array.rows * max(1, int(array.columns * power.active_share))
        assert metrics.clock_mhz == power.clock_mhz
        assert metrics.peak_macs_per_cycle == powered
        assert metrics.macs <= metrics.lane_cycles
        assert metrics.lane_cycles % powered == 0 and metrics.lane_cycles <= powered * metrics.cycles
