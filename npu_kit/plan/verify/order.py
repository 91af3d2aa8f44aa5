"""Rules on time: every read comes after its write, from a place that holds the tensor then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from npu_kit.graph.ir import Entry
from npu_kit.graph.ops import is_reshape
from npu_kit.plan.ir import Buffer, Plan, Step
from npu_kit.plan.steps import is_copied
from npu_kit.plan.storage import JOIN, VIEW, homes, shared_homes


def _reads_follow_writes(plan: Plan) -> Iterator[str]:
    nodes = plan.graph.nodes
    written = {Entry(node) for node in plan.graph.arg_nodes}

    def is_written(entry: Entry) -> bool:
        node = nodes[entry.node]
        is_place = node.kind in (VIEW, JOIN) or is_reshape(node)
        return entry in written or (is_place and all(is_written(one) for one in node.inputs))

    for step in plan.steps:
        for entry in (*step.prefetch, *(operand.entry for operand in step.reads)):
            if not is_written(entry):
                yield f"step {step.index} reads node {entry.node} before it is written"
        written.add(step.output)


def _reads_find_their_tensor_live(plan: Plan) -> Iterator[str]:
    owner, places = homes(plan.graph), _Places(plan)
    for step in plan.steps:
        for operand in step.reads:
            entry, tier = operand.entry, operand.tier
            copy = places.copy(entry, step.index)
            if copy is not None and tier != copy.tier:
                yield f"{operand.name} of step {step.index} is read from {tier}, and its copy is in {copy.tier}"
            elif copy is None and not places.holds(owner[entry], tier, step.index):
                yield f"{operand.name} of step {step.index} is not in {tier} then"


def _copies_are_made_when_they_begin(plan: Plan) -> Iterator[str]:
    owner, places = homes(plan.graph), _Places(plan)
    made = Counter((entry, step.index) for step in plan.steps for entry in step.prefetch)
    begin = {(buffer.entry, buffer.first_step) for buffer in plan.buffers if buffer.role == "resident"}
    for (entry, step), times in made.items():
        if (entry, step) not in begin:
            yield f"node {entry.node} is prefetched by step {step} and has no place in L2"
        if not places.holds(owner[entry], "L3", step):
            yield f"node {entry.node} is prefetched by step {step} and is not in L3 then"
        if times > 1:
            yield f"node {entry.node} is prefetched {times} times by step {step}"
    for entry, step in sorted(begin - set(made)):
        yield f"the copy of node {entry.node} begins at step {step}, which does not make it"


def _spills_follow_the_last_use_in_l2(plan: Plan) -> Iterator[str]:
    """A spilled tensor is in L2 until the end of the step that copies it, and is read from L3 only after that.

    It is read under its own name alone: what views and joins show of a tensor stays where it was.
    """
    places, in_pieces = _Places(plan), shared_homes(plan.graph)
    spills = [(entry, step.index) for step in plan.steps for entry in step.spills]
    moved = dict(spills)
    if len(moved) != len(spills):
        yield "a tensor is spilled more than once"
    for entry, index in moved.items():
        near, far = places.own(entry, "L2"), places.own(entry, "L3")
        if near is None or far is None or plan.graph.nodes[entry.node].kind != "kernel":
            yield f"step {index} spills node {entry.node}, which has no place in both L2 and L3"
        elif entry in in_pieces:
            yield f"step {index} spills node {entry.node}, which other nodes show parts of"
        elif near.last_step != index or far.first_step != index:
            lives = f"in L2 until step {near.last_step} and in L3 from step {far.first_step}"
            yield f"step {index} spills node {entry.node}, which is {lives}"
    for step in plan.steps:
        for entry in (*step.prefetch, *(one.entry for one in step.reads if one.tier == "L3")):
            if step.index <= moved.get(entry, -1):
                yield f"step {step.index} reads node {entry.node} from L3, and step {moved[entry]} spills it"


def _outputs_have_a_place(plan: Plan) -> Iterator[str]:
    owner, places = homes(plan.graph), _Places(plan)
    for step in plan.steps:
        if _is_echo(plan, step):
            continue  # written straight to the caller's array
        if not places.holds(owner[step.output], step.output_tier, step.index):
            yield f"step {step.index} writes node {step.output.node} to {step.output_tier}, where it has no place then"


def _tensors_live_from_their_first_write(plan: Plan) -> Iterator[str]:
    """Arguments are there before the first step, and what the region returns is there after the last.

    What is returned as a copy has to live until that is made, as anything that is read.
    """
    first: dict[Entry, int] = {Entry(node): 0 for node in plan.graph.arg_nodes}
    owner = homes(plan.graph)
    for step in plan.steps:
        first.setdefault(owner[step.output], step.index)
    last = len(plan.steps) - 1
    returned = {owner[head] for head in plan.graph.heads if not is_copied(plan.graph.nodes[head.node])}
    spilled = {(entry, "L3") for step in plan.steps for entry in step.spills}
    for buffer in plan.buffers:
        if buffer.role == "resident":
            continue
        if (buffer.entry, buffer.tier) in spilled:
            continue
        if buffer.entry in first and buffer.first_step > first[buffer.entry]:
            yield f"{buffer.name} lives from step {buffer.first_step}, it is written at {first[buffer.entry]}"
        if buffer.entry in returned and buffer.last_step < last:
            yield f"{buffer.name} is returned after step {last} and lives until {buffer.last_step}"


def _heads_are_written_to_dram(plan: Plan) -> Iterator[str]:
    written = {step.output for step in plan.steps if step.output_tier == "L3"}
    for head in plan.graph.heads:
        node = plan.graph.nodes[head.node]
        if not (head in written or (node.kind == JOIN and written.issuperset(node.inputs))):
            yield f"node {head.node} is returned and never written to L3"


def _is_echo(plan: Plan, step: Step) -> bool:
    return step.family == "copy" and step.output in plan.graph.heads and step.output_tier == "L3"


class _Places:
    """Where each tensor is at a step."""

    def __init__(self, plan: Plan) -> None:
        self._own: dict[tuple[Entry, str], Buffer] = {}
        self._copies: dict[Entry, list[Buffer]] = {}
        for buffer in plan.buffers:
            if buffer.role == "resident":
                self._copies.setdefault(buffer.entry, []).append(buffer)
            else:
                self._own[buffer.entry, buffer.tier] = buffer

    def own(self, entry: Entry, tier: str) -> Buffer | None:
        """The tensor's own place in ``tier``."""
        return self._own.get((entry, tier))

    def holds(self, entry: Entry, tier: str, step: int) -> bool:
        """Whether the tensor's own place is in ``tier`` at ``step``."""
        buffer = self._own.get((entry, tier))
        return buffer is not None and buffer.first_step <= step <= buffer.last_step

    def copy(self, entry: Entry, step: int) -> Buffer | None:
        """The copy of the tensor that is live at ``step``."""
        live = (b for b in self._copies.get(entry, ()) if b.first_step <= step <= b.last_step)
        return next(live, None)


RULES = (
    _reads_follow_writes,
    _copies_are_made_when_they_begin,
    _reads_find_their_tensor_live,
    _spills_follow_the_last_use_in_l2,
    _outputs_have_a_place,
    _tensors_live_from_their_first_write,
    _heads_are_written_to_dram,
)
