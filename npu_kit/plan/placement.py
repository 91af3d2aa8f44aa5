"""Where things stand in memory: tensors in L2 and L3 by lifetime, tiles in L0 and L1 one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from npu_kit.errors import PlanError
from npu_kit.graph.ir import Entry
from npu_kit.hw.spec import NpuSpec
from npu_kit.plan.ir import Buffer, Slot

ALIGNMENT_BYTES = 64  # one cache line of the host, so that views of every dtype are aligned


def aligned(nbytes: int) -> int:
    """``nbytes`` rounded up to the alignment."""
    return -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


@dataclass
class TensorMemory:
    """The tensors in one tier; two of them share bytes only if they are never live at once."""

    tier: str
    capacity_bytes: int
    buffers: list[Buffer] = field(default_factory=list)

    def gap(self, nbytes: int, first_step: int, last_step: int) -> int | None:
        """The lowest free offset for a tensor that lives from first to last step, None if there is none."""
        alive = sorted(
            (b.offset_bytes, b.offset_bytes + aligned(b.nbytes))
            for b in self.buffers
            if b.first_step <= last_step and first_step <= b.last_step
        )
        offset = 0
        for start, stop in alive:
            if offset + aligned(nbytes) <= start:
                break
            offset = max(offset, stop)
        return offset if offset + nbytes <= self.capacity_bytes else None

    def place(self, name: str, entry: Entry, role: str, nbytes: int, first_step: int, last_step: int) -> Buffer | None:
        """Give the tensor a place; None if there is none."""
        offset = self.gap(nbytes, first_step, last_step)
        if offset is None:
            return None
        buffer = Buffer(name, entry, role, self.tier, offset, nbytes, first_step, last_step)
        self.buffers.append(buffer)
        return buffer

    def extended(self, entry: Entry, last_step: int) -> Buffer | None:
        """The copy of ``entry`` that is there already, kept until ``last_step``; None if there is none or no room."""
        for place, old in enumerate(self.buffers):
            if old.entry != entry or old.role != "resident":
                continue
            others = [b for b in self.buffers if b is not old and b.last_step > old.last_step]
            is_free = all(
                b.first_step > last_step
                or b.offset_bytes + aligned(b.nbytes) <= old.offset_bytes
                or old.offset_bytes + aligned(old.nbytes) <= b.offset_bytes
                for b in others
            )
            if is_free:
                self.buffers[place] = replace(old, last_step=max(last_step, old.last_step))
                return self.buffers[place]
        return None


class SlotMemory:
    """The slots of one step in L0 and L1."""

    def __init__(self, spec: NpuSpec) -> None:
        self._capacity = {name: spec.tier(name).capacity_bytes for name in ("L0", "L1")}
        self._used = {"L0": 0, "L1": 0}
        self.slots: list[Slot] = []

    def add(self, name: str, tier: str, nbytes: int, parts: int = 1, copies: int = 1) -> Slot:
        """Give a slot of ``copies`` times ``parts`` pieces of ``nbytes`` bytes a place behind the others."""
        size = aligned(nbytes) * parts * copies
        slot = Slot(name, tier, self._used[tier], size, parts, copies)
        self._used[tier] += size
        self.slots.append(slot)
        return slot

    def missing(self) -> dict[str, tuple[int, int]]:
        """Tier -> bytes needed and bytes there are, for each tier that is too small."""
        return {tier: (used, self._capacity[tier]) for tier, used in self._used.items() if used > self._capacity[tier]}


def refuse_slots(label: str, memory: SlotMemory, spec: NpuSpec) -> PlanError:
    """The error for a step whose smallest tile does not fit: names the tier, what fills it, and what is missing."""
    tier, (needed, have) = next(iter(memory.missing().items()))
    fillers = sorted((slot for slot in memory.slots if slot.tier == tier), key=lambda slot: -slot.nbytes)
    listed = ", ".join(f"{slot.name} {slot.nbytes}" for slot in fillers)
    return PlanError(
        f"{label} does not fit {spec.tier(tier)}",
        f"its smallest tile needs {needed} bytes ({listed}), the tier has {have}, {needed - have} are missing",
        f"spec.replace(capacity_bytes={{{tier!r}: {aligned(needed)}}}), or a smaller tile than "
        f"{spec.tile.rows}x{spec.tile.columns}",
    )
