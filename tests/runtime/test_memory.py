"""A tier is real memory: exactly its capacity, and no view leaves it."""

from __future__ import annotations

import numpy as np
import pytest

from npu_kit.errors import ExecutionError
from npu_kit.hw.presets import load_spec
from npu_kit.runtime.memory import OnChipMemory, TierMemory

L0 = load_spec("example").tier("L0")


def test_a_view_may_end_with_the_tier_and_not_one_element_later() -> None:
    memory = TierMemory(L0)
    assert memory.view(0, (32, 32), "float32").nbytes == L0.capacity_bytes
    with pytest.raises(ExecutionError, match="ends at byte 4100, the tier has 4096"):
        memory.view(4, (32, 32), "float32")
    with pytest.raises(ExecutionError, match="offset -4"):
        memory.view(-4, (1,), "float32")
    assert memory.peak_bytes == L0.capacity_bytes


def test_views_share_the_tier_s_bytes() -> None:
    memory = TierMemory(L0)
    memory.view(64, (4,), "float32")[...] = 1
    assert memory.view(64, (16,), "uint8").tobytes() == np.ones(4, "float32").tobytes()
    memory.poison(64, 16)
    assert np.isnan(memory.view(64, (4,), "float32")).all()
    assert np.isnan(memory.view(64, (8,), "float16")).all()


def test_dram_is_not_on_the_chip() -> None:
    memory = OnChipMemory(load_spec("example"))
    assert memory["L2"].tier.label == "CMX"
    with pytest.raises(ExecutionError, match="no tier 'L3' on the chip: it has L0, L1, L2"):
        memory["L3"]


def test_a_dtype_that_the_kit_has_not_is_told() -> None:
    with pytest.raises(ExecutionError, match="a view of 'float8': the kit has float16"):
        TierMemory(L0).view(0, (4,), "float8")
