"""On-chip memory: each tier is one byte buffer of exactly its capacity, and a tile is a view into it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.errors import ExecutionError
from npu_kit.graph.ir import DTYPE_BYTES
from npu_kit.hw.spec import MemoryTier, NpuSpec
from npu_kit.plan.ir import Buffer, Plan, Slot

Array = NDArray[Any]


# Up to here a tier is as large as the machine says. A spec may describe a petabyte of L1, and no computer can stand in
# for that: beyond, a tier ends where the plan ends.
LARGEST_TIER_BYTES = 1 << 30


class TierMemory:
    """The bytes of one on-chip tier.

    Args:
        tier: which.
        reach_bytes: the end of the last byte that will be used, for a tier that is too large to be there as a whole.
    """

    def __init__(self, tier: MemoryTier, reach_bytes: int | None = None) -> None:
        self.tier = tier
        nbytes = tier.capacity_bytes
        if nbytes > LARGEST_TIER_BYTES and reach_bytes is not None:
            nbytes = reach_bytes
        self._bytes = np.zeros(nbytes, np.uint8)
        self.peak_bytes = 0  # highest address ever handed out

    def view(self, offset_bytes: int, shape: Sequence[int], dtype: str) -> Array:
        """A view of ``shape`` and ``dtype`` at ``offset_bytes``.

        Raises:
            ExecutionError: the view would end behind the tier's capacity; the kit has no such dtype.
        """
        if dtype not in DTYPE_BYTES:
            raise ExecutionError(f"a view of {dtype!r}", f"the kit has {', '.join(DTYPE_BYTES)}")
        end = offset_bytes + math.prod(shape) * DTYPE_BYTES[dtype]
        if offset_bytes < 0 or end > self.tier.capacity_bytes:
            raise ExecutionError(
                f"a tile of {'x'.join(map(str, shape))} {dtype} at offset {offset_bytes} leaves {self.tier}",
                f"it ends at byte {end}, the tier has {self.tier.capacity_bytes}",
                "npu_kit.plan.verify.verify_plan(plan), which names the slot or buffer that is wrong",
            )
        self.peak_bytes = max(self.peak_bytes, end)
        return self._bytes[offset_bytes:end].view(dtype).reshape(tuple(shape))

    def poison(self, offset_bytes: int, nbytes: int) -> None:
        """Fill bytes with ones: NaN in every float dtype, -1 or the largest value in every integer dtype."""
        self._bytes[offset_bytes : offset_bytes + nbytes] = 0xFF


class OnChipMemory:
    """The tiers L0, L1 and L2 of one machine, for a plan or for whatever comes."""

    def __init__(self, spec: NpuSpec, plan: Plan | None = None) -> None:
        reach = {} if plan is None else _reach_of(plan)
        self._tiers: Mapping[str, TierMemory] = {
            tier.name: TierMemory(tier, reach.get(tier.name, 0) if plan else None)
            for tier in spec.tiers
            if tier.name != "L3"
        }

    def __getitem__(self, name: str) -> TierMemory:
        try:
            return self._tiers[name]
        except KeyError:
            raise ExecutionError(f"no tier {name!r} on the chip", f"it has {', '.join(self._tiers)}") from None


def _reach_of(plan: Plan) -> dict[str, int]:
    """By tier, the end of the last slot or buffer."""
    reach: dict[str, int] = {}
    places: list[Slot | Buffer] = [slot for step in plan.steps for slot in step.slots]
    for place in [*places, *plan.buffers]:
        reach[place.tier] = max(reach.get(place.tier, 0), place.offset_bytes + place.nbytes)
    return reach
