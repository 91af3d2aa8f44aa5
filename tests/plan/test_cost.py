"""Cycle formulas against an independent simulator."""

from __future__ import annotations

import numpy as np
import pytest
from systolic_array import simulate

from npu_kit.errors import PlanError
from npu_kit.hw.presets import load_spec
from npu_kit.plan.cost import DATAFLOWS, CostModel, systolic_accesses, systolic_cycles

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


def test_a_power_mode_with_fewer_lanes_takes_longer() -> None:
    spec = load_spec("example")
    cycles = [CostModel(spec, mode).array("matrix", 64, 64, 64) for mode in ("high_performance", "low_power")]
    assert cycles[0] < cycles[1]
    lanes = [CostModel(spec, mode).lanes("vector", 6400) for mode in ("high_performance", "low_power")]
    assert lanes == [100, 400]
