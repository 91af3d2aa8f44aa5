"""What the planner decides, and that it answers a changed machine with a changed plan."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import numpy as np
import pytest
from graphs import GraphBuilder, conv_relu_pool, first_layer_of_resnet18, graphs, matmul_chain, random_arrays
from hypothesis import given
from hypothesis import strategies as st

from npu_kit.errors import PlanError, SpecError
from npu_kit.graph.ir import Graph
from npu_kit.hw.presets import load_spec, preset_names
from npu_kit.plan import choose
from npu_kit.plan.cost import CostModel
from npu_kit.plan.estimate import estimate_cost
from npu_kit.plan.forecast import forecast, total_cycles
from npu_kit.plan.geometry import problem_of
from npu_kit.plan.metrics import total_metrics
from npu_kit.plan.placement import TensorMemory, aligned
from npu_kit.plan.planner import make_plan
from npu_kit.plan.step_builder import StepBuilder
from npu_kit.plan.tiling import balanced, reduction_chunk
from npu_kit.plan.traffic import plan_counters
from npu_kit.plan.verify import verify_coverage
from npu_kit.runtime.execute import execute
from npu_kit.runtime.reference import run_graph
from npu_kit.trace.counters import total
from npu_kit.trace.events import CAUSES, KINDS

SPEC = load_spec("example")


def test_a_composite_is_one_step_and_its_values_stay_in_the_tile() -> None:
    plan = make_plan(conv_relu_pool(), SPEC)
    assert [step.family for step in plan.steps] == ["contraction", "window"]
    names = [[plan.graph.nodes[n].name for n in step.nodes] for step in plan.steps]
    assert names == [["conv2d", "add", "relu"], ["max_pool2d"]]
    assert [step.engine for step in plan.steps] == ["conv", "pooling"]


def test_a_value_that_is_read_twice_leaves_the_tile() -> None:
    b = GraphBuilder()
    x = b.input((4, 50))
    relu = b.op("relu", x, composite="twice#0")
    b.op("multiply", b.op("sigmoid", relu, composite="twice#0"), relu, composite="twice#0")
    plan = make_plan(b.graph(), SPEC)
    assert [[plan.graph.nodes[n].name for n in step.nodes] for step in plan.steps] == [
        ["relu"],
        ["sigmoid", "multiply"],
    ]


def test_neighbours_of_different_composites_stay_apart() -> None:
    b = GraphBuilder()
    b.op("relu", b.op("relu", b.input((4, 50)), composite="a#0"), composite="b#1")
    assert len(make_plan(b.graph(), SPEC).steps) == 2


def test_tile_and_capacity_change_the_plan() -> None:
    graph = matmul_chain()
    plans = {tile: make_plan(graph, SPEC, tile=tile) for tile in (8, 16, 32)}
    tiles = {tile: total(plan_counters(plan)).tiles for tile, plan in plans.items()}
    assert tiles == {8: 9 * 6, 16: 5 * 3, 32: 3 * 2}
    slots = {plan.steps[0].slot("accumulator").nbytes for plan in plans.values()}
    assert slots == {8 * 8 * 4, 16 * 16 * 4, 32 * 32 * 4}


def test_the_cheaper_loop_order_wins() -> None:
    order = {}
    for name, (m, n) in {"many rows": (500, 40), "many columns": (40, 500)}.items():
        b = GraphBuilder()
        b.op("matmul", b.input((m, 600)), b.input((600, n)))
        plan = make_plan(b.graph(), SPEC.replace(capacity_bytes={"L2": 1 << 19}))
        order[name] = [axis.name for axis in plan.steps[0].axes if axis.name in ("x", "n")]
    assert order["many rows"] != order["many columns"]


def test_every_decision_carries_its_reason() -> None:
    reasons = make_plan(first_layer_of_resnet18(), SPEC).reasons
    assert {"tile", "engine", "order", "buffering", "tier", "chunk"} <= {reason.decision for reason in reasons}
    order = next(reason for reason in reasons if reason.decision == "order")
    assert order.numbers["cycles"] <= order.numbers["other_cycles"]


def test_a_tensor_larger_than_dram_is_refused_with_both_numbers() -> None:
    small = SPEC.replace(capacity_bytes={"L3": 1 << 20})
    with pytest.raises(PlanError, match=r"a0 \(70x300 float32\)|does not fit L3 DRAM") as caught:
        make_plan(first_layer_of_resnet18(), small)
    assert str(1 << 20) in str(caught.value)


def test_a_step_that_fits_no_tile_names_what_fills_the_tier() -> None:
    tiny = SPEC.replace(capacity_bytes={"L0": 4096, "L1": 4200, "L2": 8192})
    with pytest.raises(PlanError, match=r"L1 SRAM.*smallest tile needs \d+ bytes \(.*the tier has 4200"):
        make_plan(matmul_chain(), tiny)


def test_the_refusal_names_what_would_be_enough() -> None:
    b = GraphBuilder()
    b.op("matmul", b.input((512, 512)), b.input((512, 512)))
    graph = b.graph()
    with pytest.raises(PlanError) as caught:
        make_plan(graph, SPEC.replace(capacity_bytes={"L1": 30_000}))
    needed = int(re.search(r"needs (\d+) bytes", str(caught.value)).group(1))  # type: ignore[union-attr]
    make_plan(graph, SPEC.replace(capacity_bytes={"L1": needed}))
    with pytest.raises(PlanError):
        make_plan(graph, SPEC.replace(capacity_bytes={"L1": needed - 64}))


def calls_of(function: Callable[[], object]) -> int:
    """Python functions that are entered: a measure of work that no other user of the machine disturbs."""
    count = 0

    def entered(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(entered)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("width", [8, 200_000], ids=["in L2", "through DRAM"])
def test_the_work_of_planning_grows_with_the_number_of_nodes(width: int) -> None:
    calls = []
    for length in (100, 400):
        b = GraphBuilder()
        value = b.input((2, width))
        for i in range(length):
            value = b.op("relu", value, composite=f"relu#{i}")
        graph = b.graph()
        calls.append(calls_of(lambda graph=graph: make_plan(graph, SPEC)))
    assert calls[1] < 4.2 * calls[0]


def test_the_work_of_planning_grows_with_the_number_of_tensors_that_live_for_long() -> None:
    """The first result is read last: every tensor lives as long as the next one, and two steps more."""
    calls = []
    for length in (50, 200):
        b = GraphBuilder()
        values = [b.input((2, 8))]
        for _ in range(length):
            values.append(b.op("exp", values[-1]))
        total = values.pop()
        while values:
            total = b.op("add", total, values.pop())
        graph = b.graph()
        calls.append(calls_of(lambda graph=graph: make_plan(graph, SPEC)))
    assert calls[1] < 4.5 * calls[0]


def test_a_tile_that_l0_cannot_hold_is_refused() -> None:
    with pytest.raises(SpecError, match="L0"):
        make_plan(matmul_chain(), SPEC, tile=64)


def test_an_unknown_power_mode_is_refused() -> None:
    with pytest.raises(SpecError, match="turbo"):
        make_plan(matmul_chain(), SPEC, power_mode="turbo")


@given(graphs())
def test_double_buffering_never_costs_cycles(graph: Graph) -> None:
    spec = SPEC.replace(tile=16)
    double, single = (total_cycles(forecast(make_plan(graph, spec, double_buffer=db))) for db in (True, False))
    assert double <= single


def test_double_buffering_hides_transfers_behind_compute() -> None:
    graph = matmul_chain(m=300, k=500, n=300)
    double, single = (total_metrics(make_plan(graph, SPEC, double_buffer=db)) for db in (True, False))
    assert double.cycles < single.cycles
    # The engines do the same work; only the waiting differs.
    assert double.busy_cycles["matrix"] == single.busy_cycles["matrix"]


def test_events_follow_what_they_need() -> None:
    events = forecast(make_plan(conv_relu_pool(), SPEC))
    for engine in np.unique(events["engine"]):
        mine = events[events["engine"] == engine]
        assert (mine["start"][1:] >= mine["start"][:-1] + mine["cycles"][:-1]).all()
    for step in np.unique(events["step"]):
        stores = events[(events["step"] == step) & (events["kind"] == KINDS.index("store"))]
        drains = events[(events["step"] == step) & (events["kind"] == KINDS.index("drain"))]
        assert (stores["start"] >= drains["start"] + drains["cycles"]).all()


def test_a_wait_names_its_cause() -> None:
    events = forecast(make_plan(matmul_chain(), SPEC, double_buffer=False))
    waits = events[events["cause"] > 0]
    assert {CAUSES[cause] for cause in waits["cause"]} >= {"operand", "slot"}


def test_partial_sums_that_do_not_fit_are_refused_with_numbers() -> None:
    graph = matmul_chain(m=20_000, k=600, n=40)
    with pytest.raises(PlanError, match=r"L1 SRAM.*partials \d+") as caught:
        make_plan(graph, SPEC, dataflow="weight_stationary")
    assert "262144" in str(caught.value)


def test_an_unknown_dataflow_is_refused() -> None:
    with pytest.raises(PlanError, match=r"row_stationary.*output_stationary, weight_stationary"):
        make_plan(matmul_chain(), SPEC, dataflow="row_stationary")


@given(st.integers(1, 4000), st.integers(1, 300))
def test_balanced_tiles_cover_in_the_fewest_pieces(extent: int, limit: int) -> None:
    tile = balanced(extent, limit)
    assert 1 <= tile <= max(limit, 1)
    if limit % 8 == 0:
        assert -(-extent // tile) == -(-extent // limit)


@given(graphs())
def test_the_depth_of_a_chunk_never_depends_on_memory(graph: Graph) -> None:
    small = SPEC.replace(capacity_bytes={name: SPEC.tier(name).capacity_bytes // 3 for name in ("L1", "L2")})
    for one, other in zip(make_plan(graph, SPEC).steps, make_plan(graph, small).steps, strict=True):
        if one.family == "contraction":
            assert [a for a in one.axes if a.name in ("c", "kh", "kw")] == [
                a for a in other.axes if a.name in ("c", "kh", "kw")
            ]
            assert reduction_chunk(problem_of(graph, one.nodes[0])) is not None


@given(graphs())
def test_every_output_element_is_stored_once(graph: Graph) -> None:
    verify_coverage(make_plan(graph, SPEC.replace(tile=16)))


@given(st.lists(st.tuples(st.integers(1, 900), st.integers(0, 9), st.integers(0, 9)), max_size=20))
def test_tensors_that_live_together_do_not_overlap(wanted: list[tuple[int, int, int]]) -> None:
    from npu_kit.graph.ir import Entry

    memory = TensorMemory("L2", 4096)
    for i, (nbytes, first, length) in enumerate(wanted):
        memory.place(f"t{i}", Entry(i), "intermediate", nbytes, first, first + length)
    for i, one in enumerate(memory.buffers):
        assert one.offset_bytes + one.nbytes <= 4096
        for other in memory.buffers[i + 1 :]:
            together = one.first_step <= other.last_step and other.first_step <= one.last_step
            apart = (
                one.offset_bytes + aligned(one.nbytes) <= other.offset_bytes
                or other.offset_bytes + aligned(other.nbytes) <= one.offset_bytes
            )
            assert apart or not together


@pytest.mark.parametrize("machine", preset_names())
@pytest.mark.parametrize("double_buffer", [False, True])
@pytest.mark.parametrize("sizes", [(64, 256, 256), (100, 300, 80), (40, 600, 500)])
def test_the_estimate_is_near_the_timeline(machine: str, double_buffer: bool, sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    b = GraphBuilder()
    b.op("matmul", b.input((m, k)), b.input((k, n)))
    plan = make_plan(b.graph(), load_spec(machine), double_buffer=double_buffer)
    estimate = estimate_cost(plan.graph, plan.steps[0], CostModel(plan.spec, plan.power_mode)).cycles
    assert 0.75 < estimate / total_cycles(forecast(plan)) < 1.1


@pytest.mark.parametrize("double_buffer", [False, True])
@pytest.mark.parametrize("shape", [(70, 300), (3, 40, 50), (2, 9, 9, 11)])
@pytest.mark.parametrize("operation", ["concat", "permute_dims", "returned input"])
def test_what_is_only_moved_has_single_slots_and_an_exact_estimate(
    operation: str, shape: tuple[int, ...], double_buffer: bool
) -> None:
    b = GraphBuilder()
    x = b.input(shape)
    if operation == "concat":
        b.op("concat", x, b.input(shape), axis=0)
    elif operation == "permute_dims":
        b.op("permute_dims", x, axes=tuple(reversed(range(len(shape)))))
    plan = make_plan(b.graph(), load_spec("example"), double_buffer=double_buffer)
    (step,) = plan.steps
    assert step.engine == "dma" and not step.is_double_buffered
    assert [(one.chosen, "dma" in one.because) for one in plan.reasons if one.decision == "buffering"] == (
        [] if step.family == "copy" else [("single slots", True)]
    )
    estimate = estimate_cost(plan.graph, step, CostModel(plan.spec, plan.power_mode)).cycles
    assert estimate == pytest.approx(total_cycles(forecast(plan)), rel=0.005)


@pytest.mark.parametrize("layers", [3, 30])
def test_equal_layers_are_searched_once(layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []

    def counted(builder: StepBuilder, *args: object, **kwargs: object) -> object:
        searched.append(builder.index)
        return candidates(builder, *args, **kwargs)

    candidates = StepBuilder.candidates
    monkeypatch.setattr(StepBuilder, "candidates", counted)
    b = GraphBuilder()
    value, weights = b.input((1, 8, 12, 12)), b.input((8, 8, 3, 3))
    for _ in range(layers):
        value = b.op("conv2d", value, weights, padding=(1, 1, 1, 1))
    plan = make_plan(b.graph(), SPEC)
    # The first reads from DRAM, the last writes to it, all between them are alike.
    assert searched == [0, 1, layers - 1]
    assert len({step.slots for step in plan.steps[1:-1]}) == 1


def test_tiles_stream_from_dram_where_a_copy_would_only_delay_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    b = GraphBuilder()
    b.op("matmul", b.input((196, 384)), b.input((384, 64)))
    graph = b.graph()
    streamed = make_plan(graph, SPEC)
    monkeypatch.setattr(choose, "CLEARLY_BETTER", 0)
    copied = make_plan(graph, SPEC)
    assert not any(step.prefetch for step in streamed.steps) and any(step.prefetch for step in copied.steps)
    assert total_cycles(forecast(streamed)) < 0.9 * total_cycles(forecast(copied))
    (reason,) = (one for one in streamed.reasons if one.decision == "resident")
    assert reason.numbers["cycles"] < reason.numbers["other_cycles"]
    assert reason.numbers["other_dram_bytes"] < reason.numbers["dram_bytes"]
    assert reason.numbers["dram_bytes"] == total(plan_counters(streamed)).dram_bytes


@pytest.mark.parametrize("double_buffer", [False, True])
def test_a_step_between_two_that_share_a_copy_reads_it_too(double_buffer: bool) -> None:
    """It reads the tensor once only, and so would not have made a copy."""
    b = GraphBuilder()
    x = b.input((16, 2, 17, 3), "int8")
    wide = b.op("broadcast_to", x, newshape=(3, 16, 2, 17, 3))
    once = b.op("multiply", b.input((16, 2, 17, 1), "int8"), x)
    wider = b.op("broadcast_to", x, newshape=(4, 16, 2, 17, 3))
    graph = b.graph(wide, once, wider)
    plan = make_plan(graph, SPEC.replace(capacity_bytes={"L2": 4000}), tile=(8, 32), double_buffer=double_buffer)
    (copied,) = (buffer for buffer in plan.buffers if buffer.role == "resident")
    assert (copied.first_step, copied.last_step) == (0, 2)
    assert [entry for step in plan.steps for entry in step.prefetch] == [copied.entry]
    assert "the copy that step 0 made is still there" in " ".join(reason.because for reason in plan.reasons)
    arrays = random_arrays(graph)
    for found, right in zip(execute(plan, arrays, mode="step", poison=True), run_graph(graph, arrays), strict=True):
        assert np.array_equal(found, right)
