"""What does not fit: errors that name the tier, what fills it and the bytes missing, and a way out that was tried.

A way out is only named after the region was planned with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from npu_kit.errors import PlanError, SpecError
from npu_kit.graph.ir import TensorType
from npu_kit.hw.spec import NpuSpec
from npu_kit.hw.verify import MAX_CAPACITY_BYTES
from npu_kit.plan.ir import Buffer, Step
from npu_kit.plan.placement import FarMemory, SlotMemory, aligned
from npu_kit.plan.tiling import halved

MOST_NAMED = 4  # of what fills a tier
MOST_TRIED = 64  # capacities, each one more step's need


class NoRoomError(PlanError):
    """Something does not fit a tier of this machine."""

    def __init__(self, what: str, why: str, hint: str = "", *, tier: str, needed_bytes: int) -> None:
        super().__init__(what, why, hint)
        self.tier, self.needed_bytes = tier, needed_bytes


def refuse_slots(label: str, memory: SlotMemory, spec: NpuSpec) -> NoRoomError:
    """The error for a step whose smallest tile does not fit L0 or L1."""
    tier, (needed, have) = next(iter(memory.missing().items()))
    filling = [(slot.name, slot.nbytes) for slot in memory.slots if slot.tier == tier]
    return NoRoomError(
        f"{label} does not fit {spec.tier(tier)}",
        f"its smallest tile needs {needed} bytes ({_largest_first(filling)}), the tier has {have}, "
        f"{needed - have} are missing",
        tier=tier,
        needed_bytes=aligned(needed),
    )


def refuse_tensor(name: str, kind: TensorType, memory: FarMemory, spec: NpuSpec) -> NoRoomError:
    """The error for a tensor that finds no room in DRAM."""
    needed, have = memory.used_bytes + kind.nbytes, memory.capacity_bytes
    filling = [(buffer.name, buffer.nbytes) for buffer in memory.buffers]
    beside = f" beside {memory.used_bytes} already there ({_largest_first(filling)})" if filling else ""
    return NoRoomError(
        f"tensor {name} ({kind}) does not fit {spec.tier('L3')}",
        f"it needs {kind.nbytes} bytes{beside}, and the tier has {have}: {needed - have} are missing",
        tier="L3",
        needed_bytes=needed,
    )


def _largest_first(filling: Iterable[tuple[str, int]]) -> str:
    ordered = sorted(filling, key=lambda one: -one[1])
    named = ", ".join(f"{name} {nbytes}" for name, nbytes in ordered[:MOST_NAMED])
    return f"{named} and {len(ordered) - MOST_NAMED} more" if len(ordered) > MOST_NAMED else named


class Planned(Protocol):
    """What a trial gives back."""

    @property
    def steps(self) -> Sequence[Step]: ...

    @property
    def buffers(self) -> Sequence[Buffer]: ...


Trial = Callable[[NpuSpec, str | None], Planned]  # machine, dataflow; raises NoRoomError


def with_ways_out(error: NoRoomError, spec: NpuSpec, dataflow: str | None, trial: Trial) -> NoRoomError:
    """The same error, with everything as its hint that lets the region be planned.

    Args:
        error: why it cannot be planned as asked.
        spec, dataflow: what was asked for.
        trial: plans the region on another machine or with another dataflow.
    """
    ways = []
    if error.tier != "L3":
        if dataflow is not None and _succeeds(trial, spec, None):
            ways.append("dataflow=None, which leaves the choice to the planner")
        ways += [f"spec.replace(tile=({rows}, {columns}))" for rows, columns in _nearest_tile(spec, dataflow, trial)]
    needed = _enough(error, spec, dataflow, trial)
    if needed is not None:
        ways.append(f"spec.replace(capacity_bytes={{{error.tier!r}: {needed}}})")
    if error.tier == "L3":
        ways.append("a smaller batch")
    return NoRoomError(error.what, error.why, ", or ".join(ways), tier=error.tier, needed_bytes=error.needed_bytes)


def _succeeds(trial: Trial, spec: NpuSpec, dataflow: str | None) -> bool:
    try:
        trial(spec, dataflow)
    except NoRoomError:
        return False
    return True


def _nearest_tile(spec: NpuSpec, dataflow: str | None, trial: Trial) -> Iterator[tuple[int, int]]:
    """The largest of the tiles with halved sides with which the region can be planned, if there is one."""
    sides = [list(halved(side, spec.tile.minimum)) for side in (spec.tile.rows, spec.tile.columns)]
    tiles = [(rows, columns) for rows in sides[0] for columns in sides[1]][1:]
    for tile in sorted(tiles, key=lambda one: (-math.prod(one), abs(one[0] - one[1]))):
        if _succeeds(trial, spec.replace(tile=tile), dataflow):
            yield tile
            return


def _enough(error: NoRoomError, spec: NpuSpec, dataflow: str | None, trial: Trial) -> int | None:
    """A capacity of the tier that is enough for the region, None if the machine cannot have it."""
    try:
        if error.tier == "L3":  # tensors lie there one behind the other, so one trial tells
            plan = trial(spec.replace(capacity_bytes={"L3": MAX_CAPACITY_BYTES}), dataflow)
            return max(b.offset_bytes + b.nbytes for b in plan.buffers if b.tier == "L3")
        needed = error.needed_bytes
        for _ in range(MOST_TRIED):
            try:
                trial(spec.replace(capacity_bytes={error.tier: needed}), dataflow)
                return needed
            except NoRoomError as another:
                if another.tier != error.tier or another.needed_bytes <= needed:
                    return None
                needed = another.needed_bytes
    except (SpecError, NoRoomError):
        pass
    return None
