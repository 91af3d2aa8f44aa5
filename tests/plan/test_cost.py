"""Cycle formulas against an independent simulator."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from graphs import GraphBuilder
from systolic_array import simulate

from npu_kit.errors import PlanError
from npu_kit.hw.presets import load_spec
from npu_kit.plan.cost import DATAFLOWS, CostModel, systolic_accesses, systolic_cycles
from npu_kit.plan.forecast import forecast
from npu_kit.plan.planner import make_plan
from npu_kit.trace.events import KINDS

TABLE = Path(__file__).with_name("scale_sim.csv")

# SCALE-Sim 3.0.0 (PyPI scalesim), column "Total Cycles", which counts from 0: the run takes one cycle more.
# (M, N, K), (rows, columns), then output, weight and input stationary.
SCALE_SIM = [
    ((16, 16, 16), (16, 16), 45, 61, 61),
    ((64, 64, 64), (16, 16), 1503, 1759, 1759),
    ((17, 5, 9), (16, 16), 77, 62, 101),
    ((33, 40, 70), (16, 16), 899, 1184, 1289),
    ((100, 20, 7), (16, 16), 517, 291, 461),
    ((1, 10, 360), (16, 16), 389, 1080, 1287),
    ((5, 130, 3), (16, 16), 296, 458, 175),
    ((50, 50, 50), (16, 16), 1279, 1535, 1535),
    ((16, 16, 16), (8, 32), 107, 123, 123),
    ((17, 5, 9), (8, 32), 140, 125, 101),
    ((33, 40, 70), (8, 32), 1079, 1421, 1547),
    ((100, 20, 7), (8, 32), 584, 145, 263),
    ((1, 10, 360), (8, 32), 397, 2114, 2519),
    ((5, 130, 3), (8, 32), 204, 254, 175),
]


@pytest.mark.parametrize(("sizes", "array", "output", "weight", "inputs"), SCALE_SIM)
def test_systolic_cycles_are_those_of_scale_sim(
    sizes: tuple[int, int, int], array: tuple[int, int], output: int, weight: int, inputs: int
) -> None:
    for dataflow, total in zip(DATAFLOWS, (output, weight, inputs), strict=True):
        assert systolic_cycles(*sizes, *array, dataflow) == total + 1


@pytest.mark.parametrize("dataflow", DATAFLOWS)
@pytest.mark.parametrize("array", [(4, 4), (3, 5), (6, 2)])
@pytest.mark.parametrize("sizes", [(4, 4, 4), (1, 9, 7), (9, 1, 4), (8, 10, 1), (7, 11, 13)])
def test_what_enters_an_array_is_counted_on_a_simulated_one(
    sizes: tuple[int, int, int], array: tuple[int, int], dataflow: str
) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(m * n * k)
    x, w = rng.integers(-9, 9, (m, k)).astype(float), rng.integers(-9, 9, (k, n)).astype(float)
    found = simulate(x, w, *array, dataflow)
    assert (found.product == x @ w).all()
    assert systolic_accesses(m, n, k, *array, dataflow) == (found.x, found.w, found.sums)


def test_what_stays_on_the_array_is_not_read_again() -> None:
    cost = CostModel(load_spec("example"), "high_performance")  # 16 x 16
    assert cost.array_accesses("matrix", 32, 16, 16, "weight_stationary") == (512, 256, 512)
    assert cost.array_accesses("matrix", 32, 16, 16, "weight_stationary", refills=False) == (512, 0, 512)
    assert cost.array_accesses("matrix", 32, 16, 17, "weight_stationary", refills=False)[1] == 272  # two folds
    assert cost.array_accesses("matrix", 16, 32, 16, "input_stationary", refills=False) == (0, 512, 512)


def test_many_more_arrays_agree_with_scale_sim() -> None:
    """Arrays of one cell, of one row or column and of odd sides; products smaller and larger than the array."""
    lines = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    rows = [{name: int(text) for name, text in row.items()} for row in csv.DictReader(lines)]
    assert len(rows) >= 60
    for row in rows:
        sizes = (row["m"], row["n"], row["k"], row["rows"], row["columns"])
        found = {dataflow: systolic_cycles(*sizes, dataflow) for dataflow in DATAFLOWS}
        assert found == {dataflow: row[dataflow] + 1 for dataflow in DATAFLOWS}, sizes


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_the_planner_s_own_cycles_are_these(dataflow: str) -> None:
    """What the forecast charges for a product is the function's count, less ``rows`` where nothing is filled in."""
    b = GraphBuilder()
    b.op("matmul", b.input((50, 20)), b.input((20, 40)))
    plan = make_plan(b.graph(), load_spec("example"), dataflow=dataflow, power_mode="high_performance")
    events = forecast(plan)
    products = events[events["macs"] > 0]
    (step,) = plan.steps
    rows = [min(step.axis("x").tile, 50 - start) for start in range(0, 50, step.axis("x").tile)]
    columns = [min(step.axis("n").tile, 40 - start) for start in range(0, 40, step.axis("n").tile)]
    expected = sum(systolic_cycles(m, n, 20, 16, 16, dataflow) for m in rows for n in columns)
    # A reduction of 20 is two folds of 16 rows, so nothing stays on the array from tile to tile.
    assert products["cycles"].sum() == expected
    assert products["macs"].sum() == 50 * 20 * 40


def test_a_convolution_is_its_implicit_matmul() -> None:
    """56x56 outputs of a 3x3 convolution from 64 to 64 channels: SCALE-Sim counts 458,207."""
    assert systolic_cycles(56 * 56, 64, 64 * 3 * 3, 16, 16, "weight_stationary") == 458_207 + 1


def test_wrong_sizes_and_dataflows_are_refused() -> None:
    with pytest.raises(PlanError, match="k is 0"):
        systolic_cycles(4, 4, 0, 16, 16)
    with pytest.raises(PlanError, match=", ".join(DATAFLOWS)):
        systolic_cycles(4, 4, 4, 16, 16, "row_stationary")
    with pytest.raises(PlanError, match=", ".join(DATAFLOWS)):
        systolic_accesses(4, 4, 4, 16, 16, "row_stationary")


def test_a_transfer_pays_the_slower_tier_s_latency_and_bandwidth() -> None:
    spec = load_spec("example")
    cost = CostModel(spec, "balanced")
    dram = spec.tier("L3")
    assert cost.transfer("L3", "L1", 1000) == dram.access_cycles + -(-1000 // dram.bytes_per_cycle)


def test_lanes_are_filled_by_vectors_along_the_last_axis() -> None:
    cost = CostModel(load_spec("example"), "high_performance")  # vectors of 16, 64 vector lanes, 16 for activations
    assert [cost.lanes("vector", (4, channels)) for channels in (1, 16, 17, 20, 32, 64)] == [1, 1, 2, 2, 2, 4]
    assert cost.lanes("activation", (3, 5, 20)) == 3 * 5 * 32 // 16
    assert cost.lanes("pooling", (2, 2, 7), times=9) == 9 * 4
    assert cost.lanes("vector", ()) == 1
    assert cost.lanes("vector", (4, 0)) == 0
    wide = CostModel(load_spec("example").replace(vector_elements=1), "high_performance")
    assert wide.lanes("activation", (3, 5, 20)) == -(-3 * 5 * 20 // 16)


def test_channels_last_fill_the_lanes_that_short_rows_do_not() -> None:
    """The same image, 7x7 with 64 channels, in both layouts: an activation takes 16 places for each row of 7."""
    cycles = {}
    for layout, shape in {"NHWC": (1, 7, 7, 64), "NCHW": (1, 64, 7, 7)}.items():
        b = GraphBuilder()
        b.op("relu", b.input(shape))
        events = forecast(make_plan(b.graph(), load_spec("example")))
        work = events[events["kind"] == KINDS.index("compute")]
        cycles[layout] = int(work["cycles"].sum())
    assert cycles == {"NHWC": 7 * 7 * 64 // 8, "NCHW": 64 * 7 * 16 // 8}


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_what_is_only_moved_takes_as_long_as_its_bytes(dtype: str) -> None:
    b = GraphBuilder()
    b.op("strided_slice", b.input((40, 70), dtype), begin=(0, 3), end=(40, 47), strides=(1, 1))
    spec = load_spec("example")
    plan = make_plan(b.graph(), spec)
    events = forecast(plan)
    computes = events[events["kind"] == KINDS.index("compute")]
    assert len(computes) > 1
    near = spec.tier("L1")
    wanted = near.access_cycles + -(-computes["nbytes"] // near.bytes_per_cycle)  # L0 is faster in both
    np.testing.assert_array_equal(computes["cycles"], wanted)


def test_a_power_mode_with_fewer_lanes_takes_longer() -> None:
    spec = load_spec("example")
    cycles = [CostModel(spec, mode).array("matrix", 64, 64, 64) for mode in ("high_performance", "low_power")]
    assert cycles[0] < cycles[1]
    lanes = [CostModel(spec, mode).lanes("vector", (100, 64)) for mode in ("high_performance", "low_power")]
    assert lanes == [100, 400]
