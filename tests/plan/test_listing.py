"""The proof that the runtime executes exactly the program that is listed: row by row, place by place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graphs import GraphBuilder, conv_relu_pool, graphs, matmul_chain, random_arrays
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npu_kit.errors import PlanError
from npu_kit.graph.ir import Graph
from npu_kit.hw.presets import load_spec
from npu_kit.plan.cost import DATAFLOWS
from npu_kit.plan.geometry import problem_of
from npu_kit.plan.ir import Plan
from npu_kit.plan.listing import list_program, place_of_row
from npu_kit.plan.planner import make_plan
from npu_kit.plan.program import WHOLE, Instruction, instructions
from npu_kit.runtime.execute import execute
from npu_kit.runtime.memory import TierMemory
from npu_kit.runtime.record import record
from npu_kit.runtime.step import StepRunner
from npu_kit.trace.events import EVENT_DTYPE, KINDS

SPEC = load_spec("example")
NEAR = {"load": "L1", "fill": "L1", "spill": "L1", "drain": "L1", "store": "L1", "prefetch": "L2"}  # others: L0


class Spy:
    """What step mode does to memory between one event and the next, and the instructions that it is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.instructions: list[tuple[int, Instruction]] = []
        self.touched: list[set[tuple[str, int]]] = []
        now: set[tuple[str, int]] = set()
        view, keep = TierMemory.view, StepRunner._record

        def watched_view(memory: TierMemory, offset: int, *rest: Any) -> Any:
            now.add((memory.tier.name, offset))
            return view(memory, offset, *rest)

        def watched_record(runner: StepRunner, instruction: Instruction, *rest: Any) -> None:
            keep(runner, instruction, *rest)
            self.instructions.append((runner.step.index, instruction))
            self.touched.append(set(now))
            now.clear()

        monkeypatch.setattr(TierMemory, "view", watched_view)
        monkeypatch.setattr(StepRunner, "_record", watched_record)


def check(plan: Plan, arrays: list[Any]) -> None:
    """Listing and run are the same, row by row."""
    with pytest.MonkeyPatch.context() as patch:
        spy = Spy(patch)
        with record() as trace:
            execute(plan, arrays, mode="step")
    listing, events = list_program(plan), trace.runs[0].events
    for name in EVENT_DTYPE.names or ():  # step, tile, node, kind, engine, tiers, bytes, MACs, start, cycles, cause
        np.testing.assert_array_equal(listing.rows[name], events[name], name)
    assert len(listing.rows) == len(spy.touched)
    all_touched: set[tuple[str, int]] = set()
    lives = {(b.entry.node, b.offset_bytes) for b in plan.buffers if b.tier == "L2"}
    for row, (index, instruction), touched in zip(listing.rows, spy.instructions, spy.touched, strict=True):
        kind = KINDS[row["kind"]]
        if instruction.tile < 0:  # a whole tensor
            assert (row["node"], row["offset"]) in lives
            assert kind == "spill" or ("L2", row["offset"]) in touched
            continue
        assert (kind, row["tile"], row["step"]) == (instruction.kind, instruction.tile, index)
        assert place_of_row(plan.steps[index], int(row["at"])) == instruction.at
        near = "L1" if instruction.stage in ("maximum", "sum", "squares") else NEAR.get(kind, "L0")
        if instruction.tile == WHOLE:
            near = "L2"
            if kind == "spill":  # its place in L2 was touched by the step that wrote it
                touched = all_touched
        all_touched |= touched
        assert (near, row["offset"]) in touched
    # And nothing else: all that was touched in L0 and L1 are places of slots.
    for (index, _), touched in zip(spy.instructions, spy.touched, strict=True):
        step = plan.steps[index]
        places = {
            (slot.tier, slot.place(part, copy)[0])
            for slot in step.slots
            for part in range(slot.parts)
            for copy in range(slot.copies)
        }
        assert {place for place in touched if place[0] in ("L0", "L1")} <= places


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(graphs(), st.sampled_from([None, *DATAFLOWS]), st.booleans(), st.sampled_from([1, 3]))
def test_the_runtime_executes_the_listed_program(
    graph: Graph, dataflow: str | None, double_buffer: bool, share: int
) -> None:
    sizes = {name: SPEC.tier(name).capacity_bytes // share // 64 * 64 for name in ("L1", "L2")}
    spec = SPEC.replace(capacity_bytes=sizes, tile=16)
    try:
        plan = make_plan(graph, spec, dataflow=dataflow, double_buffer=double_buffer)
    except PlanError:
        return  # partial sums that do not fit
    check(plan, random_arrays(graph))


def test_a_chain_in_stripes_executes_the_listed_program() -> None:
    b = GraphBuilder()
    conv = b.op("conv2d", b.input((1, 3, 40, 40)), b.input((20, 3, 3, 3)), composite="a#0", padding=(1, 1, 1, 1))
    b.op("max_pool2d", conv, composite="b#1", pool_size=(2, 2), strides=(2, 2))
    graph = b.graph()
    plan = make_plan(graph, SPEC.replace(capacity_bytes={"L2": 64 * 1024}))
    assert any(node.kind == "join" for node in plan.graph.nodes)
    check(plan, random_arrays(graph))


def test_a_spill_is_listed_where_the_tensor_stands() -> None:
    b = GraphBuilder()
    early = b.op("sigmoid", b.input((64, 100)))
    value = b.op("relu", b.op("tanh", early))
    b.op("add", b.op("multiply", b.op("gelu", value), value), early)
    graph = b.graph()
    plan = make_plan(graph, SPEC.replace(capacity_bytes={"L2": 51_800}))
    assert any(step.spills for step in plan.steps)
    check(plan, random_arrays(graph))


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "rms_norm"])
def test_what_rows_gather_is_listed_where_it_stands_in_l1(name: str) -> None:
    b = GraphBuilder()
    parameters = [b.input((100,)) for _ in range({"layer_norm": 2, "rms_norm": 1}.get(name, 0))]
    b.op(name, b.input((40, 100)), *parameters, axis=1)
    plan = make_plan(b.graph(), SPEC)
    check(plan, random_arrays(plan.graph))
    listing, step = list_program(plan), plan.steps[0]
    gathered = [slot for slot in step.slots if slot.name in listing.names and slot.copies == slot.parts == 1]
    assert len(gathered) == (1 if name == "rms_norm" else 2)
    for slot in gathered:
        offsets = listing.rows["offset"][listing.rows["what"] == listing.names.index(slot.name)]
        assert set(offsets) == {slot.offset_bytes}


def test_the_runtime_is_given_every_instruction_of_the_program_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(conv_relu_pool(), SPEC)
    given_ones: list[Instruction] = []
    for kind in ("clear", "load", "compute", "epilogue", "drain", "store"):
        action = getattr(StepRunner, f"_{kind}")

        def watched(runner: StepRunner, instruction: Instruction, action: Any = action) -> None:
            given_ones.append(instruction)
            action(runner, instruction)

        monkeypatch.setattr(StepRunner, f"_{kind}", watched)
    execute(plan, random_arrays(plan.graph), mode="step")
    wanted = [one for step in plan.steps for one in instructions(step, problem_of(plan.graph, step.nodes[0]))]
    assert given_ones == wanted


def test_some_steps_are_listed_as_they_stand_in_the_whole() -> None:
    plan = make_plan(conv_relu_pool(), SPEC)
    whole, second = list_program(plan), list_program(plan, [1])
    chosen = whole.rows[whole.rows["step"] == 1]
    for name in ("tile", "at", "offset", "start", "nbytes"):
        np.testing.assert_array_equal(second.rows[name], chosen[name])
    assert [second.names[i] for i in second.rows["what"]] == [whole.names[i] for i in chosen["what"]]
    assert len(list_program(plan, []).rows) == 0


def test_a_listing_takes_69_bytes_a_row() -> None:
    rows = list_program(make_plan(matmul_chain(), SPEC)).rows
    assert rows.nbytes == 69 * len(rows)
