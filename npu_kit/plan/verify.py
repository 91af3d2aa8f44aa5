"""Rules that every plan keeps, derived again from the plan alone: nothing here asks how the planner decided."""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from npu_kit.errors import PlanError
from npu_kit.graph.ir import DTYPE_BYTES, Entry
from npu_kit.graph.ops import is_reshape
from npu_kit.plan.geometry import problem_of, spans_of
from npu_kit.plan.ir import Buffer, Plan
from npu_kit.plan.program import instructions
from npu_kit.plan.steps import engine_of, label
from npu_kit.plan.storage import homes
from npu_kit.plan.stripes import JOIN, VIEW

Rule = Callable[[Plan], Iterator[str]]


def verify_plan(plan: Plan) -> None:
    """Check every rule.

    Raises:
        PlanError: the first violations, each with the rule, the step or tensor, and both numbers.
    """
    found = [f"{rule.__name__[1:].replace('_', ' ')}: {text}" for rule in RULES for text in rule(plan)]
    if found:
        more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
        raise PlanError(f"the plan of {plan.graph.symbol[:80]} breaks {len(found)} rules", "; ".join(found[:3]) + more)


def _slots_lie_within_their_tier(plan: Plan) -> Iterator[str]:
    for step in plan.steps:
        for slot in step.slots:
            capacity = plan.spec.tier(slot.tier).capacity_bytes
            if slot.offset_bytes < 0 or slot.offset_bytes + slot.nbytes > capacity:
                end = slot.offset_bytes + slot.nbytes
                yield f"slot {slot.name} of step {step.index} ends at {end}, {slot.tier} has {capacity}"


def _slots_do_not_overlap(plan: Plan) -> Iterator[str]:
    for step in plan.steps:
        for tier in ("L0", "L1"):
            slots = sorted((s for s in step.slots if s.tier == tier), key=lambda s: s.offset_bytes)
            for one, other in itertools.pairwise(slots):
                if one.offset_bytes + one.nbytes > other.offset_bytes:
                    yield f"{one.name} and {other.name} of step {step.index} in {tier}"


def _buffers_lie_within_their_tier(plan: Plan) -> Iterator[str]:
    for buffer in plan.buffers:
        capacity = plan.spec.tier(buffer.tier).capacity_bytes
        if buffer.offset_bytes < 0 or buffer.offset_bytes + buffer.nbytes > capacity:
            yield f"{buffer.name} ends at {buffer.offset_bytes + buffer.nbytes}, {buffer.tier} has {capacity}"


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
            if first.offset_bytes + first.nbytes > second.offset_bytes:
                yield f"{first.name} and {second.name} in {buffer.tier}"
        beside.insert(place, here)
        heapq.heappush(ends, (buffer.last_step, number, buffer))


def _buffers_have_their_tensor_s_size(plan: Plan) -> Iterator[str]:
    for buffer in plan.buffers:
        needed = plan.graph.type_of(buffer.entry).nbytes
        if buffer.nbytes != needed:
            yield f"{buffer.name} has {buffer.nbytes} bytes, its tensor {needed}"


def _every_kernel_runs_once(plan: Plan) -> Iterator[str]:
    runs = Counter(node for step in plan.steps if step.family != "copy" for node in step.nodes)
    for node in plan.graph.kernels:
        if runs[node] != 1 and not is_reshape(plan.graph.nodes[node]):
            yield f"node {node} ({plan.graph.nodes[node].name}) runs {runs[node]} times"


def _reads_follow_writes(plan: Plan) -> Iterator[str]:
    nodes = plan.graph.nodes
    written = {Entry(node) for node in plan.graph.arg_nodes}

    def is_written(entry: Entry) -> bool:
        node = nodes[entry.node]
        return entry in written or (
            (node.kind in (VIEW, JOIN) or is_reshape(node)) and all(is_written(one) for one in node.inputs)
        )

    for step in plan.steps:
        for operand in step.reads:
            if not is_written(operand.entry):
                yield f"step {step.index} reads node {operand.entry.node} before it is written"
        written.add(step.output)


def _reads_find_their_tensor_live(plan: Plan) -> Iterator[str]:
    owner = homes(plan.graph)
    copies = {(b.entry, b.first_step) for b in plan.buffers if b.role == "resident"}
    places: dict[tuple[Entry, str], list[Buffer]] = {}
    for buffer in plan.buffers:
        places.setdefault((buffer.entry, buffer.tier), []).append(buffer)

    def is_live(entry: Entry, tier: str, step: int) -> bool:
        return any(b.first_step <= step <= b.last_step for b in places.get((entry, tier), ()))

    for step in plan.steps:
        for entry in step.prefetch:
            if (entry, step.index) not in copies:
                yield f"node {entry.node} is prefetched by step {step.index} and has no place in L2"
        for operand in step.reads:
            entry, tier = operand.entry, operand.tier
            if not (is_live(entry, tier, step.index) or is_live(owner[entry], tier, step.index)):
                yield f"{operand.name} of step {step.index} is not in {tier} then"


def _spilled_tensors_are_read_where_they_are(plan: Plan) -> Iterator[str]:
    """A tensor that is computed into L2 and has a place in L3, too, is there only after the step that spills it."""
    lives: dict[Entry, dict[str, Buffer]] = {}
    for buffer in plan.buffers:
        if buffer.role == "intermediate":
            lives.setdefault(buffer.entry, {})[buffer.tier] = buffer
    spilled = Counter((entry, step.index) for step in plan.steps for entry in step.spills)
    moved = {entry: place["L2"].last_step for entry, place in lives.items() if len(place) > 1}
    if spilled != Counter(moved.items()):
        yield f"tensors that move to L3 after a step: {dict(moved)}, spills: {dict(spilled)}"
    residents = [buffer for buffer in plan.buffers if buffer.role == "resident" and buffer.entry in moved]
    copied = {(b.entry, step) for b in residents for step in range(b.first_step, b.last_step + 1)}
    for step in plan.steps:
        for operand in step.reads:
            if operand.entry not in moved or (operand.entry, step.index) in copied:
                continue
            where = "L2" if step.index <= moved[operand.entry] else "L3"
            if operand.tier != where:
                yield f"{operand.name} of step {step.index} is read from {operand.tier}, its tensor is in {where} then"


def _outputs_have_a_place(plan: Plan) -> Iterator[str]:
    owner = homes(plan.graph)
    places = {(b.entry, b.tier): b for b in plan.buffers if b.role != "resident"}
    returned = set(plan.graph.heads)
    for step in plan.steps:
        buffer = places.get((owner[step.output], step.output_tier))
        is_returned = step.family == "copy" and step.output in returned  # written straight to the caller's array
        if not is_returned and (buffer is None or not buffer.first_step <= step.index <= buffer.last_step):
            yield f"step {step.index} writes node {step.output.node} to {step.output_tier}, where it has no place then"


def _slots_hold_their_tiles(plan: Plan) -> Iterator[str]:
    for step in plan.steps:
        layouts = problem_of(plan.graph, step.nodes[0]).layouts(step.axes)
        sizes = {operand.name: layouts[operand.name].nbytes for operand in step.operands}
        tile = math.prod(layouts["out"].shape)
        sizes["accumulator"] = tile * DTYPE_BYTES["float32"]
        sizes["out"] = tile * DTYPE_BYTES[plan.graph.type_of(step.output).dtype]
        slots = {slot.name: slot for slot in step.slots}
        for name, needed in sizes.items():
            have = slots[name].place()[1] if name in slots else 0
            if have < needed:
                yield f"slot {name} of step {step.index} has {have} bytes for a tile of {needed}"


def _engines_can_do_their_work(plan: Plan) -> Iterator[str]:
    for step in plan.steps:
        wanted = engine_of(plan.graph, step.nodes[0], problem_of(plan.graph, step.nodes[0]))
        if step.engine != wanted:
            yield f"step {step.index} runs {plan.graph.nodes[step.nodes[0]].name} on {step.engine}, not {wanted}"


def _heads_are_written_to_dram(plan: Plan) -> Iterator[str]:
    written = {step.output for step in plan.steps if step.output_tier == "L3"}
    for head in plan.graph.heads:
        node = plan.graph.nodes[head.node]
        if not (head in written or (node.kind == JOIN and written.issuperset(node.inputs))):
            yield f"node {head.node} is returned and never written to L3"


def _axes_are_those_of_the_operation(plan: Plan) -> Iterator[str]:
    for step in plan.steps:
        extents = problem_of(plan.graph, step.nodes[0]).extents
        found = {axis.name: axis.extent for axis in step.axes}
        if found != extents:
            yield f"{label(plan.graph, step.nodes)} has the axes {found}, its operation {extents}"
        for axis in step.axes:
            if axis.tile < 1:
                yield f"axis {axis.name} of {label(plan.graph, step.nodes)} has a tile of {axis.tile}"


def verify_coverage(plan: Plan) -> None:
    """Check, instruction by instruction, that every output element is stored exactly once. Takes as long as a run.

    Raises:
        PlanError: an element is stored never or more than once; names the step.
    """
    for step in plan.steps:
        problem = problem_of(plan.graph, step.nodes[0])
        stored = np.zeros(plan.graph.type_of(step.output).shape, np.int64)
        for instruction in instructions(step, problem):
            if instruction.kind == "store":
                stored[problem.box("out", step.axes, spans_of(step.axes, instruction.inside)).index] += 1
        if not (stored == 1).all():
            wrong = int((stored != 1).sum())
            why = f"{wrong} of {stored.size} elements are stored never or more than once"
            raise PlanError(f"step {step.index}, {label(plan.graph, step.nodes)}", why)


RULES: tuple[Rule, ...] = (
    _slots_lie_within_their_tier,
    _slots_do_not_overlap,
    _buffers_lie_within_their_tier,
    _live_buffers_do_not_overlap,
    _buffers_have_their_tensor_s_size,
    _every_kernel_runs_once,
    _reads_follow_writes,
    _reads_find_their_tensor_live,
    _heads_are_written_to_dram,
    _spilled_tensors_are_read_where_they_are,
    _outputs_have_a_place,
    _slots_hold_their_tiles,
    _engines_can_do_their_work,
    _axes_are_those_of_the_operation,
)
