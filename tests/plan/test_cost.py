"""Cycle formulas against an independent simulator."""

from __future__ import annotations

import pytest

from npu_kit.errors import PlanError
from npu_kit.hw.presets import load_spec
from npu_kit.plan.cost import DATAFLOWS, CostModel, systolic_cycles

# SCALE-Sim v3, column "Total Cycles", which counts from 0: the run takes one cycle more.
SCALE_SIM = [
    ((16, 16, 16), "output_stationary", 45),
    ((16, 16, 16), "weight_stationary", 61),
    ((16, 16, 16), "input_stationary", 61),
    ((64, 64, 64), "output_stationary", 1503),
    ((64, 64, 64), "weight_stationary", 1759),
    ((64, 64, 64), "input_stationary", 1759),
    ((56 * 56, 64, 64 * 3 * 3), "weight_stationary", 458207),
]


@pytest.mark.parametrize(("sizes", "dataflow", "total"), SCALE_SIM)
def test_systolic_cycles_are_those_of_scale_sim(sizes: tuple[int, int, int], dataflow: str, total: int) -> None:
    assert systolic_cycles(*sizes, 16, 16, dataflow) == total + 1


def test_wrong_sizes_and_dataflows_are_refused() -> None:
    with pytest.raises(PlanError, match="k is 0"):
        systolic_cycles(4, 4, 0, 16, 16)
    with pytest.raises(PlanError, match=", ".join(DATAFLOWS)):
        systolic_cycles(4, 4, 4, 16, 16, "row_stationary")


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
