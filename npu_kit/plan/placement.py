"""Where things stand in memory: tensors in L2 and L3 by lifetime, tiles in L0 and L1 one after the other."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from npu_kit.graph.ir import Entry
from npu_kit.hw.spec import NpuSpec
from npu_kit.plan.ir import Buffer, Slot

ALIGNMENT_BYTES = 64  # one cache line of the host, so that views of every dtype are aligned
SPAN = 64  # steps that are looked up together: a thousand tensors may each live for a thousand steps


def aligned(nbytes: int) -> int:
    """``nbytes`` rounded up to the alignment."""
    return -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


@dataclass(frozen=True)
class _Change:
    """One buffer that was placed, or that lives longer than before."""

    number: int
    before: Buffer | None
    entry: Entry | None  # of a new copy
    copy_before: int | None


class TensorMemory:
    """The tensors in one tier; two of them share bytes only if they are never live at once."""

    def __init__(self, tier: str, capacity_bytes: int) -> None:
        self.tier, self.capacity_bytes = tier, capacity_bytes
        self._buffers: dict[int, Buffer] = {}
        self._bytes: dict[int, tuple[int, int]] = {}  # of each buffer: where they begin and where they end
        # By span of steps: the buffers that are live in one of them, and those that begin there.
        self._live: defaultdict[int, set[int]] = defaultdict(set)
        self._begin: defaultdict[int, set[int]] = defaultdict(set)
        self._copies: dict[Entry, int] = {}  # the last copy of a tensor
        self._log: list[_Change] = []
        self._next = 0  # number of the next buffer

    def mark(self) -> int:
        """The state as it is now, for ``undo``."""
        return len(self._log)

    def undo(self, mark: int) -> None:
        """Take back everything that was placed since ``mark``."""
        while len(self._log) > mark:
            change = self._log.pop()
            self._set(change.number, change.before)
            if change.entry is not None:
                self._copies.pop(change.entry, None)
                if change.copy_before is not None:
                    self._copies[change.entry] = change.copy_before

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """All tensors placed so far, in order."""
        return tuple(self._buffers.values())

    def gap(self, nbytes: int, first_step: int, last_step: int, without: Buffer | None = None) -> int | None:
        """The lowest free offset for a tensor that lives from first to last step, None if there is none.

        ``without`` is a buffer that counts as gone.
        """
        live = self._at(first_step, last_step)
        if without is not None:
            live = [number for number in live if self._buffers[number] is not without]
        offset, needed = 0, aligned(nbytes)
        for start, stop in sorted(map(self._bytes.__getitem__, live)):
            if offset + needed <= start:
                break
            if stop > offset:
                offset = stop
        return offset if offset + nbytes <= self.capacity_bytes else None

    def place(self, name: str, entry: Entry, role: str, nbytes: int, first_step: int, last_step: int) -> Buffer | None:
        """Give the tensor a place; None if there is none."""
        offset = self.gap(nbytes, first_step, last_step)
        if offset is None:
            return None
        buffer = Buffer(name, entry, role, self.tier, offset, nbytes, first_step, last_step)
        self._keep(self._next, buffer)
        return buffer

    def live(self, step: int) -> list[Buffer]:
        """The buffers that are live during ``step``, in the order in which they were placed."""
        return [self._buffers[number] for number in sorted(self._at(step, step))]

    def evict(self, buffer: Buffer, step: int) -> None:
        """From ``step`` on the buffer's place is free; cannot be undone."""
        number = next(number for number in self._at(step, step) if self._buffers[number] is buffer)
        self._set(number, replace(buffer, last_step=step - 1) if step > buffer.first_step else None)

    def copy(self, name: str, entry: Entry, nbytes: int, step: int) -> Buffer | None:
        """A place for a copy of a tensor during ``step``: that of an earlier step's copy where nothing came between.

        None if there is no room.
        """
        kept = self.keep_copy(entry, step)
        if kept is not None:
            return kept
        offset = self.gap(nbytes, step, step)
        if offset is None:
            return None
        buffer = Buffer(name, entry, "resident", self.tier, offset, nbytes, step, step)
        self._keep(self._next, buffer, entry)
        return buffer

    def keep_copy(self, entry: Entry, step: int) -> Buffer | None:
        """The copy that an earlier step made, if it can stay until ``step``."""
        number = self._copies.get(entry)
        if number is None:
            return None
        old = self._buffers[number]
        if not self._is_free(old, old.last_step + 1, step):
            return None
        longer = replace(old, last_step=max(step, old.last_step))
        self._keep(number, longer)
        return longer

    def _at(self, first_step: int, last_step: int) -> list[int]:
        """The numbers of the buffers that are live in any step from first to last."""
        if first_step > last_step:
            return []
        first_span, last_span = first_step // SPAN, last_step // SPAN
        found = set().union(self._live.get(first_span, ()))
        for span in range(first_span + 1, last_span + 1):
            found |= self._begin.get(span, set())
        buffers = self._buffers
        return [n for n in found if first_step <= buffers[n].last_step and buffers[n].first_step <= last_step]

    def _is_free(self, place: Buffer, first_step: int, last_step: int) -> bool:
        start, stop = place.offset_bytes, place.offset_bytes + aligned(place.nbytes)
        others = (self._bytes[number] for number in self._at(first_step, last_step))
        return all(other_stop <= start or stop <= other_start for other_start, other_stop in others)

    def _keep(self, number: int, buffer: Buffer, copy_of: Entry | None = None) -> None:
        before = self._copies.get(copy_of) if copy_of is not None else None
        self._log.append(_Change(number, self._buffers.get(number), copy_of, before))
        self._next = max(self._next, number + 1)
        self._set(number, buffer)
        if copy_of is not None:
            self._copies[copy_of] = number

    def _set(self, number: int, buffer: Buffer | None) -> None:
        """Let ``number`` stand for ``buffer``, or for none."""
        before = self._buffers.get(number)
        if before is not None:
            self._begin[before.first_step // SPAN].discard(number)
            for span in _spans(before):
                self._live[span].discard(number)
        if buffer is None:
            del self._buffers[number]
            return
        self._buffers[number] = buffer
        self._bytes[number] = (buffer.offset_bytes, buffer.offset_bytes + aligned(buffer.nbytes))
        self._begin[buffer.first_step // SPAN].add(number)
        for span in _spans(buffer):
            self._live[span].add(number)


def _spans(buffer: Buffer) -> range:
    return range(buffer.first_step // SPAN, buffer.last_step // SPAN + 1)


class FarMemory:
    """DRAM: the tensors lie one behind the other, for as long as the region runs."""

    def __init__(self, capacity_bytes: int, last_step: int) -> None:
        self.capacity_bytes, self.used_bytes = capacity_bytes, 0
        self._last_step = last_step
        self.buffers: list[Buffer] = []

    def place(self, name: str, entry: Entry, role: str, nbytes: int, first_step: int = 0) -> Buffer | None:
        """Give the tensor a place; None if there is none."""
        if self.used_bytes + nbytes > self.capacity_bytes:
            return None
        buffer = Buffer(name, entry, role, "L3", self.used_bytes, nbytes, first_step, self._last_step)
        self.used_bytes += aligned(nbytes)
        self.buffers.append(buffer)
        return buffer


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

    @property
    def missing_bytes(self) -> int:
        """Bytes that all tiers together are too small by."""
        return sum(needed - have for needed, have in self.missing().values())
