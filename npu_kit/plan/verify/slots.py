"""Rules on slots: each tile finds room in one, in the tier and parts that the program takes, and stays if kept."""

from __future__ import annotations

import math
from collections.abc import Iterator

from npu_kit.graph.ir import DTYPE_BYTES
from npu_kit.plan.geometry import Contraction, Rows, aligned_operand, chunk_count, problem_of
from npu_kit.plan.geometry.rows import GATHERED
from npu_kit.plan.ir import Plan, Step
from npu_kit.plan.verify.tiles import LOOPS

_SINGLE = {"accumulator", "patches", "partials", *GATHERED}  # nothing is loaded into them


def _slots_hold_their_tiles(plan: Plan) -> Iterator[str]:
    for step in plan.steps:
        slots = {slot.name: slot for slot in step.slots}
        if len(slots) != len(step.slots):
            yield f"two slots of step {step.index} have one name"
        for name, (tier, needed) in _needs(plan, step).items():
            if name not in slots:
                yield f"step {step.index} has no slot {name}"
            elif slots[name].tier != tier:
                yield f"slot {name} of step {step.index} is in {slots[name].tier}, the program looks for it in {tier}"
            elif min(slots[name].parts, slots[name].copies) < 1 or slots[name].place()[1] < needed:
                have = slots[name].nbytes
                parts = f"{slots[name].parts} x {slots[name].copies} parts"
                yield f"slot {name} of step {step.index} has {have} bytes in {parts} for tiles of {needed}"
        for operand in step.reads:
            if slots.get(operand.name) != operand.slot:
                yield f"operand {operand.name} of step {step.index} has another slot than the step"


def _needs(plan: Plan, step: Step) -> dict[str, tuple[str, int]]:
    """Slot -> its tier, and the bytes of one part of one copy."""
    graph, problem = plan.graph, problem_of(plan.graph, step.nodes[0])
    layouts = problem.layouts(step.axes)
    tile = {axis.name: axis.tile for axis in step.axes}
    out = math.prod(layouts["out"].shape)
    needs = {operand.name: ("L1", layouts[operand.name].nbytes) for operand in step.operands}
    for node, position, operand in step.epilogue_reads:
        needs[operand.name] = "L1", aligned_operand(graph, node, position).layout(layouts["out"]).nbytes
    needs["out"] = "L1", out * DTYPE_BYTES[graph.type_of(step.output).dtype]
    needs["accumulator"] = "L0", out * DTYPE_BYTES["float32"]
    if isinstance(problem, Contraction):
        # The array writes whole rows of the machine's tile.
        needs["accumulator"] = "L0", max(plan.spec.tile.rows * tile["n"], out) * DTYPE_BYTES["float32"]
        if tile["kh"] * tile["kw"] > 1:
            depth = tile["c"] * tile["kh"] * tile["kw"]
            needs["patches"] = "L1", tile["y"] * tile["x"] * depth * DTYPE_BYTES[problem.x.dtype]
        if chunk_count(step) > 1 and step.dataflow != "output_stationary":
            needs["partials"] = "L1", out * DTYPE_BYTES["float32"]
    if isinstance(problem, Rows):
        needs |= {name: ("L1", tile["inner"] * DTYPE_BYTES["float32"]) for name in problem.stages[:-1]}
    return needs


def _slots_have_a_part_for_each_tile_kept(plan: Plan) -> Iterator[str]:
    for step in plan.steps:
        for name, wanted in _parts(step).items():
            if step.slot(name).parts != wanted:
                yield f"slot {name} of step {step.index} has {step.slot(name).parts} parts for {wanted} tiles"
        for slot in step.slots:
            if slot.copies > 1 and slot.name in _SINGLE:
                yield f"slot {slot.name} of step {step.index} has {slot.copies} copies, the program knows one"


def _parts(step: Step) -> dict[str, int]:
    """How many tiles lie side by side in each slot."""
    chunks = chunk_count(step)
    parts = {slot.name: 1 for slot in step.slots if slot.name != "partials"}
    for operand in step.reads:
        if operand.is_panel and step.family == "rows":
            parts[operand.name] = max(1, step.axis("k").count)
        elif operand.is_panel and step.dataflow == "output_stationary":
            parts[operand.name] = max(1, chunks)
    if step.dataflow not in ("", "output_stationary") and chunks > 1:
        passing = ("batch", "y", "x") if step.dataflow == "weight_stationary" else ("n",)
        parts["partials"] = math.prod(step.axis(name).count for name in passing)
    return parts


def _panels_are_what_the_loops_keep(plan: Plan) -> Iterator[str]:
    """Any operand may pass tile by tile under output stationary; under the others one has to stay."""
    for step in plan.steps:
        may, must = {"x"} if step.family == "rows" else set[str](), set[str]()
        if step.family == "contraction":
            kept = LOOPS[step.dataflow][tuple(axis.name for axis in step.axes)]
            may = {kept}
            must = may if step.dataflow != "output_stationary" else must
        for operand in step.reads:
            if operand.is_panel and operand.name not in may:
                yield f"operand {operand.name} of step {step.index} is called a panel, and its loops load it each time"
            if operand.name in must and not operand.is_panel:
                yield f"operand {operand.name} of step {step.index} stays on the array and is not called a panel"


RULES = (_slots_hold_their_tiles, _slots_have_a_part_for_each_tile_kept, _panels_are_what_the_loops_keep)
