"""Peaks by hand, and against the cost model that plans are made with."""

from __future__ import annotations

import pytest

from npu_kit.errors import SpecError
from npu_kit.hw import (
    active_lanes,
    bytes_per_second,
    load_spec,
    peak_macs_per_second,
    preset_names,
    ridge_macs_per_byte,
)
from npu_kit.plan.cost import CostModel

ALL_MODES = [(name, mode.name) for name in preset_names() for mode in load_spec(name).power_modes]


def test_the_example_by_hand() -> None:
    spec = load_spec("example")  # balanced: 700 MHz, half of 16 columns of 16 MACs; DRAM 16 bytes a cycle
    assert active_lanes(spec, "matrix") == 128
    assert peak_macs_per_second(spec) == 89_600_000_000
    assert bytes_per_second(spec) == 11_200_000_000
    assert ridge_macs_per_byte(spec) == 8
    assert ridge_macs_per_byte(spec, "L2", "high_performance") == 4


@pytest.mark.parametrize(("name", "mode"), ALL_MODES)
def test_the_cost_model_has_the_same_lanes(name: str, mode: str) -> None:
    spec = load_spec(name)
    cost = CostModel(spec.replace(vector_elements=1), mode)
    for engine in spec.engines:
        lanes = active_lanes(spec, engine.name, mode)
        assert cost.lanes(engine.name, (7 * lanes,)) == 7
        assert cost.lanes(engine.name, (7 * lanes + 1,)) == 8


def test_a_small_share_leaves_one_column() -> None:
    spec = load_spec("ethos_u65_like")
    assert active_lanes(spec, "activation", "low_power") == 1
    assert active_lanes(spec, "dma", "low_power") == 1


def test_a_wrong_name_is_a_spec_error() -> None:
    spec = load_spec("example")
    for call in (
        lambda: active_lanes(spec, "tensor"),
        lambda: peak_macs_per_second(spec, "turbo"),
        lambda: bytes_per_second(spec, "L4"),
        lambda: ridge_macs_per_byte(spec, "L3", "turbo"),
    ):
        with pytest.raises(SpecError, match=r"no (engine|power mode|tier) "):
            call()
