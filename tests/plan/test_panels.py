"""The rule that ties a panel to the parts of its slot."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graphs import GraphBuilder

from npu_kit.errors import PlanError
from npu_kit.hw.presets import load_spec
from npu_kit.plan.planner import make_plan
from npu_kit.plan.verify import verify_plan


def with_operand(plan, change):
    """The plan with the left operand of its first step changed, and its slot with it."""
    step = plan.steps[0]
    changed = change(step.operands[0])
    slots = tuple(changed.slot if slot.name == changed.slot.name else slot for slot in step.slots)
    first = replace(step, operands=(changed, *step.operands[1:]), slots=slots)
    return replace(plan, steps=(first, *plan.steps[1:]))


@pytest.mark.parametrize("dataflow", [None, "output_stationary", "weight_stationary", "input_stationary"])
def test_a_panel_has_a_part_for_each_chunk_and_nothing_else_has(dataflow):
    b = GraphBuilder()
    b.op("matmul", b.input((70, 200)), b.input((200, 50)))
    plan = make_plan(b.graph(), load_spec(), dataflow=dataflow)
    verify_plan(plan)
    for wrong in (
        lambda operand: replace(operand, slot=replace(operand.slot, parts=operand.slot.parts + 1)),
        lambda operand: replace(operand, is_panel=True, slot=replace(operand.slot, parts=3)),
        lambda operand: replace(operand, is_panel=False, slot=replace(operand.slot, parts=2)),
    ):
        with pytest.raises(PlanError, match=r"panels hold every chunk: x of step 0 is (no|a) panel and has"):
            verify_plan(with_operand(plan, wrong))
