"""Rules on places: all lies within its tier, on its alignment, and shares no byte with what is live beside it."""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections.abc import Iterator

from npu_kit.graph.ir import Entry
from npu_kit.plan.ir import Buffer, Plan, Slot
from npu_kit.plan.storage import homes

ALIGNMENT_BYTES = 64  # a view of any dtype, and a line of the host's cache, may begin there


def _slots_lie_within_their_tier(plan: Plan) -> Iterator[str]:
    for step in plan.steps:
        for slot in step.slots:
            capacity = plan.spec.tier(slot.tier).capacity_bytes
            end = slot.offset_bytes + slot.nbytes
            if slot.offset_bytes < 0 or end > capacity:
                yield f"slot {slot.name} of step {step.index} ends at {end}, {slot.tier} has {capacity}"


def _slots_do_not_overlap(plan: Plan) -> Iterator[str]:
    for step in plan.steps:
        for tier in ("L0", "L1"):
            slots = sorted((s for s in step.slots if s.tier == tier), key=lambda s: s.offset_bytes)
            for one, other in itertools.pairwise(slots):
                end = one.offset_bytes + one.nbytes
                if end > other.offset_bytes:
                    where = f"in {tier}: one ends at {end}, the other begins at {other.offset_bytes}"
                    yield f"{one.name} and {other.name} of step {step.index} {where}"


def _buffers_lie_within_their_tier(plan: Plan) -> Iterator[str]:
    for buffer in plan.buffers:
        if buffer.tier not in ("L2", "L3"):
            yield f"{buffer.name} is a whole tensor in {buffer.tier}; these are kept in L2 and L3"
            continue
        capacity = plan.spec.tier(buffer.tier).capacity_bytes
        if buffer.offset_bytes < 0 or buffer.offset_bytes + buffer.nbytes > capacity:
            yield f"{buffer.name} ends at {buffer.offset_bytes + buffer.nbytes}, {buffer.tier} has {capacity}"


def _buffers_have_the_role_of_their_tensor(plan: Plan) -> Iterator[str]:
    kinds = {"input": "argument", "const": "constant"}
    for buffer in plan.buffers:
        node = plan.graph.nodes[buffer.entry.node]
        wanted = kinds.get(node.kind, "output" if buffer.entry in plan.graph.heads else "intermediate")
        if buffer.role not in (wanted, "resident"):
            yield f"{buffer.name} is called {buffer.role}, its tensor is {wanted}"
        elif buffer.tier != "L3" and wanted != "intermediate" and buffer.role != "resident":
            yield f"{buffer.name} ({wanted}) is kept in {buffer.tier}, and the border of the region is L3"


def _places_are_aligned(plan: Plan) -> Iterator[str]:
    for buffer in plan.buffers:
        if buffer.offset_bytes % ALIGNMENT_BYTES:
            yield f"{buffer.name} begins at {buffer.offset_bytes} in {buffer.tier}, no multiple of {ALIGNMENT_BYTES}"
    for step in plan.steps:
        for slot in step.slots:
            if slot.offset_bytes % ALIGNMENT_BYTES or _part_bytes(slot) % ALIGNMENT_BYTES:
                where = f"begins at {slot.offset_bytes} and has parts of {_part_bytes(slot)} bytes"
                yield f"slot {slot.name} of step {step.index} {where}, no multiples of {ALIGNMENT_BYTES}"


def _part_bytes(slot: Slot) -> int:
    pieces = slot.parts * slot.copies
    return slot.nbytes // pieces if slot.nbytes % pieces == 0 else slot.nbytes


def _live_buffers_do_not_overlap(plan: Plan) -> Iterator[str]:
    """Sweep over the steps with the live buffers of each tier in order of their offsets."""
    ends: list[tuple[int, int, Buffer]] = []
    live: dict[str, list[tuple[int, int, Buffer]]] = {}
    for number, buffer in sorted(enumerate(plan.buffers), key=lambda pair: pair[1].first_step):
        while ends and ends[0][0] < buffer.first_step:
            _, old, gone = heapq.heappop(ends)
            live[gone.tier].remove((gone.offset_bytes, old, gone))
        if not buffer.nbytes:
            continue
        beside = live.setdefault(buffer.tier, [])
        here = (buffer.offset_bytes, number, buffer)
        place = bisect.bisect(beside, here[:2], key=lambda entry: entry[:2])
        for _, _, other in beside[max(0, place - 1) : place + 1]:
            first, second = sorted((buffer, other), key=lambda one: one.offset_bytes)
            end = first.offset_bytes + first.nbytes
            if end > second.offset_bytes:
                where = f"one ends at {end}, the other begins at {second.offset_bytes}"
                yield f"{first.name} and {second.name} in {buffer.tier}: {where}"
        beside.insert(place, here)
        heapq.heappush(ends, (buffer.last_step, number, buffer))


def _buffers_have_their_tensor_s_size(plan: Plan) -> Iterator[str]:
    for buffer in plan.buffers:
        needed = plan.graph.type_of(buffer.entry).nbytes
        if buffer.nbytes != needed:
            yield f"{buffer.name} has {buffer.nbytes} bytes, its tensor {needed}"


def _a_tensor_has_one_place(plan: Plan) -> Iterator[str]:
    """Beside it only copies, which are L2's, and the place in L3 of what is spilled."""
    owner = homes(plan.graph)
    spilled = {entry for step in plan.steps for entry in step.spills}
    seen: dict[Entry, Buffer] = {}
    for buffer in plan.buffers:
        if buffer.role == "resident":
            if buffer.tier != "L2":
                yield f"the copy of {buffer.name} is in {buffer.tier}, copies are kept in L2"
            continue
        if owner[buffer.entry] != buffer.entry:
            yield f"{buffer.name} has a place of its own and is a part of node {owner[buffer.entry].node}"
        before = seen.get(buffer.entry)
        if before is not None and (buffer.entry not in spilled or before.tier == buffer.tier):
            places = " and ".join(f"in {one.tier} at {one.offset_bytes}" for one in (seen[buffer.entry], buffer))
            yield f"{buffer.name} is {places}"
        seen[buffer.entry] = buffer


RULES = (
    _slots_lie_within_their_tier,
    _slots_do_not_overlap,
    _buffers_lie_within_their_tier,
    _buffers_have_their_tensor_s_size,
    _buffers_have_the_role_of_their_tensor,
    _places_are_aligned,
    _a_tensor_has_one_place,
    _live_buffers_do_not_overlap,
)
