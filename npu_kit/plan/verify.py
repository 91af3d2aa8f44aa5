"""Rules that every plan keeps, derived again from the plan alone: nothing here asks how the planner decided."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from npu_kit.errors import PlanError
from npu_kit.graph.ir import Entry
from npu_kit.plan.geometry import problem_of
from npu_kit.plan.ir import Plan, Step
from npu_kit.plan.steps import label
from npu_kit.plan.storage import homes
from npu_kit.plan.stripes import JOIN, VIEW
from npu_kit.plan.traffic import out_tiles

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
    for i, one in enumerate(plan.buffers):
        for other in plan.buffers[i + 1 :]:
            meet_in_time = one.first_step <= other.last_step and other.first_step <= one.last_step
            meet_in_space = (
                one.tier == other.tier
                and one.offset_bytes < other.offset_bytes + other.nbytes
                and other.offset_bytes < one.offset_bytes + one.nbytes
            )
            if meet_in_time and meet_in_space:
                yield f"{one.name} and {other.name} in {one.tier}"


def _buffers_have_their_tensor_s_size(plan: Plan) -> Iterator[str]:
    for buffer in plan.buffers:
        needed = plan.graph.type_of(buffer.entry).nbytes
        if buffer.nbytes != needed:
            yield f"{buffer.name} has {buffer.nbytes} bytes, its tensor {needed}"


def _every_kernel_runs_once(plan: Plan) -> Iterator[str]:
    run = [node for step in plan.steps if step.family != "copy" for node in step.nodes]
    for node in plan.graph.kernels:
        if run.count(node) != 1:
            yield f"node {node} ({plan.graph.nodes[node].name}) runs {run.count(node)} times"


def _reads_follow_writes(plan: Plan) -> Iterator[str]:
    nodes = plan.graph.nodes
    written = {Entry(node) for node in plan.graph.arg_nodes}

    def is_written(entry: Entry) -> bool:
        node = nodes[entry.node]
        return entry in written or (node.kind in (VIEW, JOIN) and all(is_written(one) for one in node.inputs))

    for step in plan.steps:
        for entry in _reads(step):
            if not is_written(entry):
                yield f"step {step.index} reads node {entry.node} before it is written"
        written.add(step.output)


def _reads_find_their_tensor_live(plan: Plan) -> Iterator[str]:
    owner = homes(plan.graph)
    copies = {(b.entry, b.first_step) for b in plan.buffers if b.role == "resident"}
    for step in plan.steps:
        for entry in step.prefetch:
            if (entry, step.index) not in copies:
                yield f"node {entry.node} is prefetched by step {step.index} and has no place in L2"
        operands = [*step.operands, *(o for group in step.epilogue_operands for o in group if o is not None)]
        for operand in operands:
            live = (
                buffer
                for buffer in plan.buffers
                if buffer.tier == operand.tier and buffer.first_step <= step.index <= buffer.last_step
            )
            if not any(b.entry == (operand.entry if b.role == "resident" else owner[operand.entry]) for b in live):
                yield f"{operand.name} of step {step.index} is not in {operand.tier} then"


def _heads_are_written_to_dram(plan: Plan) -> Iterator[str]:
    written = {step.output for step in plan.steps if step.output_tier == "L3"}
    for head in plan.graph.heads:
        node = plan.graph.nodes[head.node]
        if not (head in written or (node.kind == JOIN and written.issuperset(node.inputs))):
            yield f"node {head.node} is returned and never written to L3"


def _tiles_cover_the_output_once(plan: Plan) -> Iterator[str]:
    for step in plan.steps:
        problem = problem_of(plan.graph, step.nodes[0])
        for axis in step.axes:
            covered = sum(stop - start for start, stop in (axis.span(i) for i in range(axis.count)))
            if covered != axis.extent or axis.extent != problem.extents[axis.name]:
                extent = problem.extents[axis.name]
                yield f"axis {axis.name} of {label(plan.graph, step.nodes)}: tiles cover {covered} of {extent}"
        elements = plan.graph.type_of(step.output).elements
        if (out_tiles(problem, step.axes) == 0) != (elements == 0):
            yield f"{label(plan.graph, step.nodes)} has {elements} elements and {out_tiles(problem, step.axes)} tiles"


def _tiles_fit_the_accumulator(plan: Plan) -> Iterator[str]:
    for step in plan.steps:
        shape = problem_of(plan.graph, step.nodes[0]).layouts(step.axes)["out"].shape
        elements, limit = 1, plan.spec.tile.rows * plan.spec.tile.columns
        for size in shape:
            elements *= size
        if elements > limit:
            yield f"an output tile of step {step.index} has {elements} elements, the accumulator {limit}"


def _reads(step: Step) -> Iterator[Entry]:
    for operand in step.operands:
        yield operand.entry
    for group in step.epilogue_operands:
        for beside in group:
            if beside is not None:
                yield beside.entry


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
    _tiles_cover_the_output_once,
    _tiles_fit_the_accumulator,
)
