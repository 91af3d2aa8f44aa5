"""Where the tensors between steps are kept: L2 where they fit for as long as they live, DRAM otherwise."""

from __future__ import annotations

from npu_kit.errors import PlanError
from npu_kit.graph.ir import Entry, Graph
from npu_kit.hw.spec import NpuSpec
from npu_kit.plan.fusion import Group
from npu_kit.plan.ir import Reason
from npu_kit.plan.placement import FarMemory, TensorMemory
from npu_kit.plan.steps import is_copied, label
from npu_kit.plan.storage import homes


def copied_heads(graph: Graph) -> tuple[Entry, ...]:
    """What the region returns and nothing computes: inputs, constants and reshapes. A step copies each."""
    return tuple(dict.fromkeys(entry for entry in graph.heads if is_copied(graph.nodes[entry.node])))


def place_tensors(
    graph: Graph, spec: NpuSpec, groups: tuple[Group, ...]
) -> tuple[FarMemory, TensorMemory, list[Reason]]:
    """A place for every tensor that exists between steps."""
    copies = copied_heads(graph)
    last = len(groups) + len(copies) - 1
    reasons: list[Reason] = []
    dram = FarMemory(spec.tier("L3").capacity_bytes, last)
    on_chip = TensorMemory("L2", spec.tier("L2").capacity_bytes)

    def place_in_dram(name: str, entry: Entry, role: str) -> None:
        nbytes = graph.type_of(entry).nbytes
        if dram.place(name, entry, role, nbytes) is None:
            raise PlanError(
                f"tensor {name} ({graph.type_of(entry)}) does not fit {spec.tier('L3')}",
                f"it needs {nbytes} bytes beside {dram.used_bytes} already there, "
                f"and the tier has {dram.capacity_bytes}",
                "a smaller batch, or a machine with more memory",
            )

    for node_id in graph.arg_nodes:
        node = graph.nodes[node_id]
        place_in_dram(node.name, Entry(node_id), "argument" if node.kind == "input" else "constant")
    owner = homes(graph)
    readers_of: dict[Entry, list[int]] = {}
    for index, group in enumerate(groups):
        for node_id in group.nodes:
            for entry in graph.nodes[node_id].inputs:
                readers_of.setdefault(owner[entry], []).append(index)
    for index, entry in enumerate(copies, start=len(groups)):
        readers_of.setdefault(owner[entry], []).append(index)
    placed: set[Entry] = set()
    for index, group in enumerate(groups):
        entry = owner[Entry(group.nodes[-1])]
        if entry in placed:
            continue  # another piece of the same join
        placed.add(entry)
        name, nbytes = label(graph, group.nodes), graph.type_of(entry).nbytes
        readers = [reader for reader in readers_of.get(entry, []) if reader > index]
        if entry in graph.heads:
            place_in_dram(name, entry, "output")
            reasons.append(Reason("tier", name, "L3", "the region returns it", {"bytes": nbytes}))
            continue
        buffer = on_chip.place(name, entry, "intermediate", nbytes, index, max(readers, default=index))
        numbers = {"bytes": nbytes, "capacity": on_chip.capacity_bytes}
        if buffer is None:
            place_in_dram(name, entry, "intermediate")
            because = f"it needs {nbytes} bytes and L2 has no gap of that size among {on_chip.capacity_bytes}"
            reasons.append(Reason("tier", name, "L3", because, numbers))
        else:
            because = f"it is read by step {readers[0] if readers else index} and fits: {nbytes} bytes never go to DRAM"
            reasons.append(Reason("tier", name, "L2", because, numbers))
    return dram, on_chip, reasons
