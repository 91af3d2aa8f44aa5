"""The form that places have to have: the slots of a step, the tensors between steps, and the tiers they are in."""

from __future__ import annotations

import math
from collections.abc import Iterator

from npu_kit.graph.ir import DTYPE_BYTES
from npu_kit.plan.geometry import Contraction, Problem, Rows, aligned_operand, problem_of
from npu_kit.plan.geometry.rows import STATISTICS
from npu_kit.plan.ir import Buffer, Operand, Plan, Step
from npu_kit.plan.placement import ALIGNMENT_BYTES
from npu_kit.plan.stripes import JOIN

_MAX_COPIES = 2
_STATISTICS = frozenset(name for names in STATISTICS.values() for name in names)
_SINGLE = frozenset({"accumulator", "partials", "patches"}) | _STATISTICS  # slots that nothing is loaded into
_TIERS = {
    "argument": ("L3",),
    "constant": ("L3",),
    "output": ("L3",),
    "intermediate": ("L2", "L3"),
    "resident": ("L2",),
}


def slots_are_those_of_the_step(plan: Plan) -> Iterator[str]:
    """Every slot that the program names is there, in its tier, aligned, and large enough in each part."""
    for step in plan.steps:
        slots = {slot.name: slot for slot in step.slots}
        if len(slots) != len(step.slots):
            yield f"step {step.index} has two slots of one name"
        for slot in step.slots:
            named = f"slot {slot.name!r:.80} of step {step.index}"
            pieces = slot.parts * slot.copies
            copies = 1 if slot.name in _SINGLE else _MAX_COPIES
            if slot.parts < 1 or not 1 <= slot.copies <= copies or slot.nbytes < 0 or slot.nbytes % pieces:
                yield f"{named} has {slot.copies} x {slot.parts} parts in {slot.nbytes} bytes"
                return
            if slot.tier != ("L0" if slot.name == "accumulator" else "L1"):
                yield f"{named} is in {slot.tier!r:.40}"
            if slot.nbytes // pieces % ALIGNMENT_BYTES or slot.offset_bytes % ALIGNMENT_BYTES:
                yield f"{named} is not aligned to {ALIGNMENT_BYTES} bytes"
        for name, (nbytes, parts) in _needed(plan, step).items():
            if name not in slots:
                yield f"step {step.index} has no slot {name}"
            elif slots[name].place()[1] < nbytes or slots[name].parts != parts:
                found = f"{slots[name].parts} parts of {slots[name].place()[1]} bytes"
                yield f"slot {name} of step {step.index} has {found}; it needs {parts} of {nbytes}"


def _needed(plan: Plan, step: Step) -> dict[str, tuple[int, int]]:
    """Bytes of a part, and parts, of each slot that the program of a step names."""
    graph, problem = plan.graph, problem_of(plan.graph, step.nodes[0])
    layouts, axis = problem.layouts(step.axes), {one.name: one for one in step.axes}
    tile, sum_bytes = math.prod(layouts["out"].shape), DTYPE_BYTES["float32"]
    needed = {one.name: (layouts[one.name].nbytes, _parts(problem, step, one)) for one in step.operands}
    for node, group in zip(step.nodes[1:], step.epilogue_operands, strict=True):
        for position, beside in enumerate(group):
            if beside is not None:
                needed[beside.name] = (aligned_operand(graph, node, position).layout(layouts["out"]).nbytes, 1)
    needed["out"] = (tile * DTYPE_BYTES[graph.type_of(step.output).dtype], 1)
    needed["accumulator"] = (tile * sum_bytes, 1)
    if isinstance(problem, Contraction):
        needed["accumulator"] = (plan.spec.tile.rows * axis["n"].tile * sum_bytes, 1)
        depth = math.prod(axis[name].tile for name in problem.reduction)
        if axis["kh"].tile * axis["kw"].tile > 1:
            needed["patches"] = (axis["y"].tile * axis["x"].tile * depth * DTYPE_BYTES[problem.x.dtype], 1)
        if step.dataflow != "output_stationary" and chunks_of(problem, step) > 1:
            passing = ("batch", "y", "x") if step.dataflow == "weight_stationary" else ("n",)
            needed["partials"] = (tile * sum_bytes, max(1, math.prod(axis[name].count for name in passing)))
    if isinstance(problem, Rows):
        needed |= {name: (axis["inner"].tile * sum_bytes, 1) for name in problem.stages[:-1]}
    return needed


def chunks_of(problem: Problem, step: Step) -> int:
    """Number of chunks of a step's reduction."""
    return math.prod(axis.count for axis in step.axes if axis.name in problem.reduction)


def _parts(problem: Problem, step: Step, operand: Operand) -> int:
    """Tiles side by side in an operand's slot: all chunks of a panel."""
    if operand.is_panel and isinstance(problem, Rows):
        return max(1, step.axes[-1].count)
    is_kept = operand.is_panel and isinstance(problem, Contraction) and step.dataflow == "output_stationary"
    return max(1, chunks_of(problem, step)) if is_kept else 1


def places_have_a_role_and_a_time(plan: Plan) -> Iterator[str]:
    """A tensor has one place, of its role; a copy in L2 is made by the step in which its life begins."""
    for buffer in plan.buffers:
        named, role = f"{buffer.name!r:.80}", _role(plan, buffer)
        kind = plan.graph.nodes[buffer.entry.node].kind
        if role != buffer.role or buffer.tier not in _TIERS[role]:
            yield f"{named} is {buffer.role!r:.40} in {buffer.tier!r:.40}; its tensor is {role}"
        if role != "resident" and kind not in ("input", "const", "kernel", JOIN):
            yield f"{named} is a place for a {kind}, which has none of its own"
        if not 0 <= buffer.first_step <= buffer.last_step < max(1, len(plan.steps)):
            yield f"{named} lives from step {buffer.first_step} to {buffer.last_step}"
        elif role == "resident" and buffer.entry not in plan.steps[buffer.first_step].prefetch:
            yield f"no step copies {named} to L2"
        if buffer.nbytes < 0 or buffer.offset_bytes % ALIGNMENT_BYTES:
            yield f"{named} has {buffer.nbytes} bytes at {buffer.offset_bytes}"
    # What is spilled has one in each of two tiers; ``verify`` holds the two against the steps.
    places = [(b.entry, b.tier, b.first_step if b.role == "resident" else -1) for b in plan.buffers]
    if len(set(places)) != len(places):
        yield "a tensor has two places"


def _role(plan: Plan, buffer: Buffer) -> str:
    if buffer.role == "resident":
        return "resident"
    kind = plan.graph.nodes[buffer.entry.node].kind
    between = "output" if buffer.entry in plan.graph.heads else "intermediate"
    return {"input": "argument", "const": "constant"}.get(kind, between)


def tiers_are_reached_by_the_dma_engine(plan: Plan) -> Iterator[str]:
    """Tiles come from L2 or L3 and go there."""
    for step in plan.steps:
        if step.output_tier not in ("L2", "L3"):
            yield f"step {step.index} writes to {step.output_tier!r:.40}"
        for operand in step.reads:
            if operand.tier not in ("L2", "L3"):
                yield f"{operand.name!r:.80} of step {step.index} comes from {operand.tier!r:.40}"
        if len(set(step.prefetch)) != len(step.prefetch):
            yield f"step {step.index} prefetches a tensor twice"
