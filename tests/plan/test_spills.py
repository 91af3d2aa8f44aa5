"""A tensor that leaves L2 before its last use: only where it saves traffic, exactly once, and read where it then is."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from graphs import GraphBuilder, random_arrays
from hypothesis import given
from hypothesis import strategies as st

from npu_kit.errors import PlanError
from npu_kit.graph.ir import Entry, Graph
from npu_kit.hw.presets import load_spec
from npu_kit.plan.forecast import forecast
from npu_kit.plan.ir import Buffer, Plan, Step
from npu_kit.plan.planner import make_plan
from npu_kit.plan.traffic import plan_counters
from npu_kit.plan.verify import verify_coverage, verify_plan
from npu_kit.render.memory_picture import memory_map
from npu_kit.render.occupancy_picture import occupancy
from npu_kit.runtime.execute import execute
from npu_kit.runtime.record import record
from npu_kit.runtime.reference import run_graph
from npu_kit.trace.counters import total
from npu_kit.trace.events import KINDS, TIERS

SPEC = load_spec("example")
ROWS, COLUMNS = 64, 100
NBYTES = 4 * ROWS * COLUMNS
TWO = SPEC.replace(capacity_bytes={"L2": 2 * NBYTES + 600})  # room for two tensors, and not for a third


def skip(*, twice: bool = True, reads_early: bool = True) -> Graph:
    """A tensor that waits for the end while another one, which is read twice, needs a place."""
    b = GraphBuilder()
    x = b.input((ROWS, COLUMNS))
    early = b.op("sigmoid", x)
    value = b.op("relu", b.op("tanh", early if reads_early else x))
    value = b.op("multiply", b.op("gelu", value), value) if twice else b.op("relu", b.op("gelu", value))
    b.op("add", value, early)
    return b.graph()


def spilled(plan: Plan) -> list[tuple[int, Entry]]:
    return [(step.index, entry) for step in plan.steps for entry in step.spills]


def check(plan: Plan) -> None:
    """Both modes give the reference's values, the same bits and counters, and step mode the events forecast."""
    verify_plan(plan)
    verify_coverage(plan)
    arrays = random_arrays(plan.graph)
    with record() as trace:
        fast = execute(plan, arrays)
        step = execute(plan, arrays, mode="step", poison=True)
    assert [x.tobytes() for x in fast] == [x.tobytes() for x in step]
    for found, expected in zip(fast, run_graph(plan.graph, arrays), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    assert trace.runs[0].counters == trace.runs[1].counters == plan_counters(plan)
    assert np.array_equal(forecast(plan), trace.runs[1].events)


def test_the_tensor_that_waits_longest_makes_room() -> None:
    graph = skip()
    plan = make_plan(graph, TWO)
    (early,) = (i for i, node in enumerate(graph.nodes) if node.name == "sigmoid")
    assert spilled(plan) == [(1, Entry(early))]
    check(plan)


def test_a_spill_is_an_event_and_its_bytes_are_counted() -> None:
    plan = make_plan(skip(), TWO)
    events = forecast(plan)
    (event,) = events[(events["kind"] == KINDS.index("spill"))]
    assert (TIERS[event["src"]], TIERS[event["dst"]], event["nbytes"]) == ("L2", "L3", NBYTES)
    assert plan_counters(plan)[1].nbytes["L2", "L3"] == NBYTES


def test_it_saves_what_the_reason_says() -> None:
    plan = make_plan(skip(), TWO)
    (reason,) = (one for one in plan.reasons if one.decision == "spill")
    assert reason.chosen == "to L3 after step 1"
    # The new tensor would be written once and read twice; the one that waits is written and read once.
    assert reason.numbers == {"saved_bytes": 3 * NBYTES, "cost_bytes": 2 * NBYTES}
    # With room for all, only the input and the result cross the border.
    roomy = make_plan(skip(), SPEC)
    assert not spilled(roomy)
    dram = [total(plan_counters(one)).dram_bytes for one in (plan, roomy)]
    assert dram == [6 * NBYTES, 2 * NBYTES]  # the waiting tensor out and in, the product out and in


def test_nothing_is_spilled_for_a_tensor_that_saves_no_more() -> None:
    plan = make_plan(skip(twice=False), TWO)
    assert not spilled(plan)
    check(plan)


def test_a_tensor_that_nobody_has_read_yet_goes_to_dram_at_once() -> None:
    plan = make_plan(skip(reads_early=False), TWO)
    assert not spilled(plan) and plan.steps[0].output_tier == "L3"
    check(plan)


def test_a_spilled_tensor_whose_tiles_are_read_again_is_filled() -> None:
    b = GraphBuilder()
    early = b.op("sigmoid", b.input((ROWS, COLUMNS)))
    value = b.op("relu", b.op("tanh", early))
    b.op("multiply", b.op("gelu", value), value)
    b.op("matmul", early, b.input((COLUMNS, 300)))
    plan = make_plan(b.graph(), TWO, dataflow="weight_stationary")
    events = forecast(plan)
    fills = events[(events["kind"] == KINDS.index("fill")) & (events["tile"] < 0)]
    assert len(spilled(plan)) == 1 and fills["nbytes"].tolist() == [NBYTES]
    check(plan)


def test_a_plan_without_its_spill_is_refused() -> None:
    plan = make_plan(skip(), TWO)
    steps = tuple(dataclasses.replace(step, spills=()) for step in plan.steps)
    with pytest.raises(PlanError, match="a tensor has one place"):
        verify_plan(dataclasses.replace(plan, steps=steps))


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=3, max_size=9), st.integers(1, 5))
def test_any_order_of_reads_in_any_room(reads: list[tuple[int, int]], room: int) -> None:
    b = GraphBuilder()
    values = [b.op("sigmoid", b.input((20, 30)))]
    for one, other in reads:
        values.append(b.op("multiply", values[one % len(values)], values[other % len(values)]))
    plan = make_plan(b.graph(), SPEC.replace(capacity_bytes={"L2": room * 2400 + 300}))
    check(plan)


def test_a_tensor_that_a_reshape_shows_is_never_spilled() -> None:
    """The copy in DRAM would be known under its own name alone."""
    b = GraphBuilder()
    early = b.op("sigmoid", b.input((ROWS, COLUMNS)))
    shown = b.op("reshape", early, newshape=(ROWS, COLUMNS))
    value = b.op("relu", b.op("tanh", early))
    b.op("add", b.op("multiply", b.op("gelu", value), value), shown)
    plan = make_plan(b.graph(), TWO)
    assert not spilled(plan)
    check(plan)
    (index,) = (step.index for step in plan.steps if step.output == Entry(early))
    dram = next(buffer for buffer in plan.buffers if buffer.tier == "L3")
    far = dataclasses.replace(dram, entry=Entry(early), role="intermediate", offset_bytes=1 << 20, nbytes=NBYTES)
    far = dataclasses.replace(far, name="far", first_step=index + 1, last_step=len(plan.steps) - 1)
    buffers = (*(_until(one, Entry(early), index + 1) for one in plan.buffers), far)
    steps = tuple(_reading_from_dram(step, Entry(shown), index + 1, Entry(early)) for step in plan.steps)
    with pytest.raises(PlanError, match="which other nodes show parts of"):
        verify_plan(dataclasses.replace(plan, steps=steps, buffers=buffers))


def _until(buffer: Buffer, entry: Entry, step: int) -> Buffer:
    return dataclasses.replace(buffer, last_step=step) if buffer.entry == entry else buffer


def _reading_from_dram(step: Step, entry: Entry, spilling: int, spilled: Entry) -> Step:
    """The step with ``entry`` read from DRAM, and with the spill if it is the one that makes it."""
    operands = (dataclasses.replace(one, tier="L3") if one.entry == entry else one for one in step.operands)
    return dataclasses.replace(step, operands=tuple(operands), spills=(spilled,) if step.index == spilling else ())


def test_the_pictures_of_memory_say_what_is_spilled() -> None:
    plan = make_plan(skip(), TWO)
    ((index, entry),) = spilled(plan)
    said = f"Spilled from L2 to L3, to make room: sigmoid (node {entry.node}) after step {index}."
    assert said in str(occupancy(plan)) and said in str(memory_map(plan, index))
    assert "Spilled" not in str(memory_map(plan, index + 1))
    assert "Spilled" not in str(occupancy(make_plan(skip(), SPEC)))
