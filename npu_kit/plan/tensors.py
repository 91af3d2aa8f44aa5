"""Where the tensors between steps are kept: L2 where they fit for as long as they live, DRAM otherwise.

Where a tensor finds no place in L2, one that is there may go: it is copied to DRAM once (a spill), and is read from
there by what still needs it. That is done where it saves traffic, counted as every tensor crossing once for each step
that writes or reads it; what the tiles of a step read more than once is not known yet.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from npu_kit.graph.ir import Entry, Graph
from npu_kit.hw.spec import NpuSpec
from npu_kit.plan.fusion import Group
from npu_kit.plan.ir import Buffer, Reason
from npu_kit.plan.no_room import refuse_tensor
from npu_kit.plan.placement import FarMemory, TensorMemory
from npu_kit.plan.steps import is_copied, label
from npu_kit.plan.storage import homes, shared_homes
from npu_kit.plan.windows import verify_windows


def copied_heads(graph: Graph) -> tuple[Entry, ...]:
    """What the region returns and nothing computes: inputs, constants and reshapes. A step copies each."""
    return tuple(dict.fromkeys(entry for entry in graph.heads if is_copied(graph.nodes[entry.node])))


@dataclass(frozen=True)
class Places:
    """Where every tensor is."""

    dram: FarMemory
    on_chip: TensorMemory
    spills: dict[int, list[Entry]] = field(default_factory=dict)  # step -> what is copied to DRAM at its end
    moved: list[Entry] = field(default_factory=list)  # all that left L2 for others, copied or not
    said: dict[tuple[str, str], Reason] = field(default_factory=dict)  # by decision and subject

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why the tensors are where they are, in the order in which that was last decided."""
        return tuple(self.said.values())


def place_tensors(
    graph: Graph,
    spec: NpuSpec,
    groups: tuple[Group, ...],
    outside: Collection[Entry] = (),
    l2_bytes: int | None = None,
    *,
    may_spill: bool = True,
) -> Places:
    """A place for every tensor that exists between steps.

    Args:
        graph, spec, groups: what is planned.
        outside: tensors that have a place already.
        l2_bytes: how much of L2 is free; None for all of it.
        may_spill: whether a tensor may leave L2 before its last use.

    Raises:
        NoRoomError: a tensor does not fit DRAM.
    """
    verify_windows(graph)
    placer = _Placer(graph, spec, groups, l2_bytes)
    for node_id in graph.arg_nodes:
        node = graph.nodes[node_id]
        if Entry(node_id) not in outside:
            placer.place_in_dram(node.name, Entry(node_id), "argument" if node.kind == "input" else "constant")
    placed = set(outside)
    for index, group in enumerate(groups):
        entry = placer.owner[Entry(group.nodes[-1])]
        if entry not in placed:  # another piece of the same join may have been here
            placed.add(entry)
            placer.place_result(index, label(graph, group.nodes), entry, may_spill)
    return placer.places


class _Placer:
    def __init__(self, graph: Graph, spec: NpuSpec, groups: tuple[Group, ...], l2_bytes: int | None) -> None:
        self.graph, self.spec, self.owner = graph, spec, homes(graph)
        last_step = len(groups) + len(copied_heads(graph)) - 1
        capacity = spec.tier("L2").capacity_bytes if l2_bytes is None else l2_bytes
        self.places = Places(FarMemory(spec.tier("L3").capacity_bytes, last_step), TensorMemory("L2", capacity))
        self.readers: dict[Entry, list[int]] = {}  # steps that read a tensor, in order
        for index, group in enumerate(groups):
            for entry in {self.owner[one] for node in group.nodes for one in graph.nodes[node].inputs}:
                self.readers.setdefault(entry, []).append(index)
        for index, entry in enumerate(copied_heads(graph), start=len(groups)):
            self.readers.setdefault(self.owner[entry], []).append(index)
        self.in_pieces = shared_homes(graph)

    def place_in_dram(self, name: str, entry: Entry, role: str, first_step: int = 0) -> None:
        kind = self.graph.type_of(entry)
        if self.places.dram.place(name, entry, role, kind.nbytes, first_step) is None:
            raise refuse_tensor(name, kind, self.places.dram, self.spec)

    def place_result(self, index: int, name: str, entry: Entry, may_spill: bool) -> None:
        """A place for what step ``index`` computes."""
        on_chip, nbytes = self.places.on_chip, self.graph.type_of(entry).nbytes
        if entry in self.graph.heads:
            self.place_in_dram(name, entry, "output")
            self._say("tier", name, "L3", "the region returns it", bytes=nbytes)
            return
        reads = [reader for reader in self.readers.get(entry, []) if reader > index]
        life = index, max(reads, default=index)
        if may_spill and on_chip.gap(nbytes, *life) is None:
            self._make_room(name, entry, life)
        if on_chip.place(name, entry, "intermediate", nbytes, *life) is None:
            self.place_in_dram(name, entry, "intermediate")
            because = f"it needs {nbytes} bytes and L2 has no gap of that size among {on_chip.capacity_bytes}"
            self._say("tier", name, "L3", because, bytes=nbytes, capacity=on_chip.capacity_bytes)
        else:
            because = f"it is read by step {reads[0] if reads else index} and fits: {nbytes} bytes never go to DRAM"
            self._say("tier", name, "L2", because, bytes=nbytes, capacity=on_chip.capacity_bytes)

    def _make_room(self, name: str, entry: Entry, life: tuple[int, int]) -> None:
        """Move the tensor out of L2 that costs the least traffic there, if that is less than what the new one saves."""
        step, on_chip = life[0], self.places.on_chip
        nbytes = self.graph.type_of(entry).nbytes
        saved = nbytes * (1 + sum(reader > step for reader in self.readers.get(entry, [])))
        victims = [
            (self._traffic_after(buffer, step), buffer.entry, buffer)
            for buffer in on_chip.live(step)
            if buffer.first_step < step and buffer.entry not in self.in_pieces
        ]
        for cost, _, victim in sorted(victims, key=lambda one: one[:2]):
            if cost < saved and on_chip.gap(nbytes, *life, without=victim) is not None:
                self._evict(victim, step, name, cost, saved)
                return

    def _traffic_after(self, buffer: Buffer, step: int) -> int:
        """Bytes to and from DRAM if the buffer's tensor is there from ``step`` on."""
        return buffer.nbytes * (1 + sum(reader >= step for reader in self.readers[buffer.entry]))

    def _evict(self, victim: Buffer, step: int, name: str, cost: int, saved: int) -> None:
        self.places.moved.append(victim.entry)
        was_read = any(victim.first_step < reader < step for reader in self.readers[victim.entry])
        because = f"{name} takes its place: that saves {saved} bytes of DRAM traffic and costs {cost}"
        if was_read:
            self.places.on_chip.evict(victim, step)
            self.place_in_dram(victim.name, victim.entry, "intermediate", step - 1)
            self.places.spills.setdefault(step - 1, []).append(victim.entry)
            self._say("spill", victim.name, f"to L3 after step {step - 1}", because, saved_bytes=saved, cost_bytes=cost)
        else:  # nobody has read it yet: it goes to DRAM at once
            self.places.on_chip.evict(victim, victim.first_step)
            self.place_in_dram(victim.name, victim.entry, "intermediate")
            self._say("tier", victim.name, "L3", because, saved_bytes=saved, cost_bytes=cost)

    def _say(self, decision: str, subject: str, chosen: str, because: str, **numbers: float) -> None:
        """Note a reason; it replaces an older one of the same decision on the same tensor."""
        self.places.said.pop((decision, subject), None)
        self.places.said[decision, subject] = Reason(decision, subject, chosen, because, numbers)
