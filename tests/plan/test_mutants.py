"""Nothing wrong gets through: a plan with anything in it changed is refused, or it is another right plan."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from breakable_plans import PLANS, step, with_slot
from graphs import random_arrays
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_kit.errors import PlanError
from npu_kit.graph.ir import Entry
from npu_kit.hw.spec import ENGINE_NAMES, TIER_NAMES
from npu_kit.plan.forecast import forecast
from npu_kit.plan.ir import Axis, Buffer, Operand, Plan, Slot, Step
from npu_kit.plan.traffic import plan_counters
from npu_kit.plan.verify import verify_coverage, verify_plan
from npu_kit.runtime.execute import execute
from npu_kit.runtime.record import record

FIELDS: dict[type, dict[str, st.SearchStrategy[Any]]] = {
    Buffer: {
        "tier": st.sampled_from(TIER_NAMES),
        "offset_bytes": st.integers(-2, 300).map(lambda n: 64 * n),
        "nbytes": st.integers(0, 12_000),
        "first_step": st.integers(0, 5),
        "last_step": st.integers(0, 5),
        "entry": st.integers(0, 6).map(Entry),
        "role": st.sampled_from(["argument", "intermediate", "output", "resident"]),
    },
    Slot: {
        "tier": st.sampled_from(["L0", "L1"]),
        "offset_bytes": st.integers(-2, 300).map(lambda n: 64 * n),
        "nbytes": st.integers(0, 300).map(lambda n: 64 * n),
        "parts": st.integers(0, 4),
        "copies": st.integers(0, 3),
    },
    Operand: {
        "tier": st.sampled_from(TIER_NAMES),
        "entry": st.integers(0, 6).map(Entry),
        "is_panel": st.booleans(),
        "name": st.sampled_from(["x", "w", "x0", "out"]),
    },
    Axis: {"tile": st.integers(0, 300), "extent": st.integers(0, 100), "name": st.sampled_from(["x", "y", "n", "c"])},
    Step: {
        "index": st.integers(0, 5),
        "family": st.sampled_from(["contraction", "window", "elementwise", "softmax", "copy"]),
        "engine": st.sampled_from(ENGINE_NAMES),
        "dataflow": st.sampled_from(["", "output_stationary", "weight_stationary", "input_stationary"]),
        "output": st.integers(0, 6).map(Entry),
        "output_tier": st.sampled_from(TIER_NAMES),
        "prefetch": st.lists(st.integers(0, 6).map(Entry), max_size=2).map(tuple),
    },
}


def changed(draw: st.DrawFn, value: Any) -> Any:
    """One field of a part of a plan changed, or its order."""
    name = draw(st.sampled_from(sorted(FIELDS[type(value)])))
    return dataclasses.replace(value, **{name: draw(FIELDS[type(value)][name])})


def rearranged(draw: st.DrawFn, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """One of several changed, left out, put elsewhere or there twice."""
    if not values:
        return values
    number, listed = draw(st.integers(0, len(values) - 1)), list(values)
    how = draw(st.sampled_from(["change", "change", "change", "drop", "move", "repeat"]))
    one = listed.pop(number)
    if how == "change":
        listed.insert(number, changed(draw, one))
    elif how != "drop":
        listed.insert(draw(st.integers(0, len(listed))), one)
        if how == "repeat":
            listed.insert(number, one)
    return tuple(listed)


@st.composite
def mutants(draw: st.DrawFn) -> tuple[Plan, Plan]:
    """A plan and the same with one thing changed."""
    plan = draw(st.sampled_from(PLANS))()
    what = draw(st.sampled_from(["buffers", "steps", "step", "slots", "operands", "axes"]))
    if what in ("buffers", "steps"):
        return plan, dataclasses.replace(plan, **{what: rearranged(draw, getattr(plan, what))})
    number = draw(st.integers(0, len(plan.steps) - 1))
    one = plan.steps[number]
    if what == "step":
        one = changed(draw, one)
    elif what == "slots" and draw(st.booleans()):
        name = draw(st.sampled_from([s.name for s in one.slots]))
        field = draw(st.sampled_from(sorted(FIELDS[Slot])))
        one = with_slot(one, name, **{field: draw(FIELDS[Slot][field])})
    else:
        one = dataclasses.replace(one, **{what: rearranged(draw, getattr(one, what))})
    return plan, step(number, **{f.name: getattr(one, f.name) for f in dataclasses.fields(one)})(plan)


@settings(max_examples=200)
@given(mutants())
def test_a_changed_plan_is_refused_or_right(plans: tuple[Plan, Plan]) -> None:
    """What verify_plan lets through runs: the same values on poisoned memory, in both modes, and the forecast holds."""
    plan, mutant = plans
    try:
        verify_plan(mutant)
    except PlanError:
        return
    arrays = random_arrays(plan.graph)
    expected = execute(plan, arrays)
    with record() as trace:
        found = execute(mutant, arrays, mode="step", poison=True)
        fast = execute(mutant, arrays, mode="fast")
    for one, other, right in zip(found, fast, expected, strict=True):
        assert one.tobytes() == other.tobytes()
        np.testing.assert_allclose(one, right, rtol=1e-4, atol=1e-4)
    verify_coverage(mutant)
    assert trace.runs[0].counters == trace.runs[1].counters == plan_counters(mutant)
    assert np.array_equal(trace.runs[0].events, forecast(mutant))
