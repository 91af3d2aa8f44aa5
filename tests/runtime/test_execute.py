"""The tiled runtime: right values, the same bits and counters in both modes, and nothing outside its tiers."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from graphs import (
    GraphBuilder,
    conv_relu_pool,
    convolutions,
    first_layer_of_resnet18,
    graphs,
    matmul_chain,
    matmuls,
    random_arrays,
    regions,
)
from hypothesis import given
from hypothesis import strategies as st

from npu_kit.errors import ExecutionError, InputError
from npu_kit.graph.ir import Graph
from npu_kit.hw.presets import load_spec
from npu_kit.hw.spec import NpuSpec
from npu_kit.plan.cost import DATAFLOWS
from npu_kit.plan.forecast import forecast
from npu_kit.plan.planner import make_plan
from npu_kit.plan.traffic import plan_counters
from npu_kit.plan.verify import verify_plan
from npu_kit.runtime.execute import execute
from npu_kit.runtime.fast import FastPlan
from npu_kit.runtime.record import record
from npu_kit.runtime.reference import run_graph
from npu_kit.trace.counters import total
from npu_kit.trace.events import EVENT_DTYPE, EventLog, bytes_by_boundary, to_events

SPEC = load_spec("example")


def third(spec: NpuSpec = SPEC) -> NpuSpec:
    """The machine with L1 and L2 shrunk to a third."""
    return spec.replace(capacity_bytes={name: spec.tier(name).capacity_bytes // 3 for name in ("L1", "L2")})


def tolerance(dtype: str) -> dict[str, float]:
    return {"rtol": 4e-3, "atol": 4e-3} if dtype == "float16" else {"rtol": 2e-5, "atol": 2e-4}


def assert_close(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    if actual.dtype.kind == "f":
        np.testing.assert_allclose(
            actual.astype(np.float64), expected.astype(np.float64), **tolerance(actual.dtype.name)
        )
    else:
        np.testing.assert_array_equal(actual, expected)


def check_everything(graph: Graph, spec: NpuSpec, seed: int = 0, **choices: Any) -> None:
    """Values against the reference; bits, counters and events against each other."""
    arrays = random_arrays(graph, seed)
    untouched = [array.copy() for array in arrays]
    plan = make_plan(graph, spec, **choices)
    verify_plan(plan)
    with record() as trace:
        fast = execute(plan, arrays, mode="fast")
        outputs = [np.full(graph.type_of(h).shape, 77, graph.type_of(h).dtype) for h in graph.heads]
        step = execute(plan, arrays, outputs, mode="step", poison=True)
    for array, before in zip(arrays, untouched, strict=True):
        np.testing.assert_array_equal(array, before)
    for one, other, expected in zip(fast, step, run_graph(graph, arrays), strict=True):
        assert one.tobytes() == other.tobytes()
        assert_close(one, expected)
    planned, (fast_run, step_run) = plan_counters(plan), trace.runs
    assert fast_run.counters == step_run.counters == planned
    assert np.array_equal(forecast(plan), step_run.events)
    assert bytes_by_boundary(step_run.events) == total(planned).nbytes
    assert int(step_run.events["macs"].sum()) == total(planned).macs


@given(graphs(), st.integers(0, 2**31))
def test_any_graph(graph: Graph, seed: int) -> None:
    check_everything(graph, SPEC, seed)


@given(graphs(), st.sampled_from([8, 16, (8, 24), (16, 48)]))
def test_any_graph_with_another_tile_and_less_memory(graph: Graph, tile: int | tuple[int, int]) -> None:
    check_everything(graph, third().replace(tile=tile))


@given(st.one_of(convolutions(), matmuls(), regions()), st.sampled_from(DATAFLOWS), st.booleans())
def test_any_contraction_under_any_dataflow(graph: Graph, dataflow: str, double_buffer: bool) -> None:
    check_everything(graph, SPEC.replace(tile=16), dataflow=dataflow, double_buffer=double_buffer)


@pytest.mark.parametrize("graph", [matmul_chain(), conv_relu_pool(channels=100, size=9)])
def test_the_dataflow_changes_no_bit(graph: Graph) -> None:
    arrays = random_arrays(graph)
    results = [execute(make_plan(graph, SPEC, dataflow=dataflow), arrays, mode="step") for dataflow in DATAFLOWS]
    assert len({one[0].tobytes() for one in results}) == 1


@pytest.mark.parametrize("graph", [matmul_chain(), conv_relu_pool(), matmul_chain(dtype="float16")])
def test_less_memory_gives_the_same_bits(graph: Graph) -> None:
    arrays = random_arrays(graph)
    wanted = execute(make_plan(graph, SPEC), arrays)
    for mode in ("fast", "step"):
        got = execute(make_plan(graph, third()), arrays, mode=mode, poison=True)
        assert [a.tobytes() for a in got] == [a.tobytes() for a in wanted]


def test_less_memory_costs_dram_traffic_where_the_tensors_no_longer_fit() -> None:
    graph = conv_relu_pool(channels=60, filters=90)
    arrays = random_arrays(graph)
    totals = {}
    for name, spec in {"whole": SPEC, "third": third()}.items():
        with record() as trace:
            (values,) = execute(make_plan(graph, spec), arrays, mode="step", poison=True)
        totals[name] = trace.counters.dram_bytes, values.tobytes()
    assert totals["third"][1] == totals["whole"][1]
    assert totals["third"][0] > totals["whole"][0]


def test_a_layer_larger_than_l2_streams() -> None:
    graph = first_layer_of_resnet18()
    types = [graph.nodes[0].outputs[0], graph.nodes[-1].outputs[0]]
    assert all(kind.nbytes > SPEC.tier("L2").capacity_bytes for kind in types)
    check_everything(graph, SPEC)
    check_everything(graph, third())


def test_the_intermediate_of_a_merged_region_never_reaches_dram() -> None:
    graph = conv_relu_pool()
    plan = make_plan(graph, SPEC)
    with record() as trace:
        execute(plan, random_arrays(graph), mode="step")
    convolution, pool = trace.runs[0].counters
    (kept,) = (buffer for buffer in plan.buffers if buffer.role == "intermediate")
    assert kept.tier == "L2" and convolution.nbytes["L1", "L2"] == kept.nbytes
    assert ("L1", "L3") not in convolution.nbytes
    assert ("L3", "L1") not in pool.nbytes and pool.nbytes["L2", "L1"] > 0
    # What does cross the border: every argument once, and the result.
    arguments = sum(graph.nodes[i].outputs[0].nbytes for i in graph.arg_nodes)
    assert trace.counters.dram_bytes == arguments + graph.type_of(graph.heads[0]).nbytes


def test_fusing_changes_no_bit() -> None:
    b = GraphBuilder()
    x, w, bias = b.input((40, 50), "float16"), b.input((50, 41), "float16"), b.input((41,), "float16")
    fused = b.op("matmul", x, w, composite="a#0")
    fused = b.op("gelu", b.op("add", fused, bias, composite="a#0"), composite="a#0")
    alone = b.op("gelu", b.op("add", b.op("matmul", x, w), bias))
    graph = b.graph(fused, alone)
    plan = make_plan(graph, SPEC)
    assert sorted(len(step.nodes) for step in plan.steps) == [1, 1, 1, 3]
    one, other = execute(plan, random_arrays(graph))
    assert one.tobytes() == other.tobytes()


def test_infinite_weights_meet_padding_as_in_the_reference() -> None:
    b = GraphBuilder()
    x, w = b.input((1, 3, 7, 9)), b.input((5, 3, 3, 3))
    b.op("conv2d", x, w, padding=(1, 1, 1, 1))
    graph = b.graph()
    x_array, w_array = random_arrays(graph)
    w_array[2, 1, 0, 0] = np.inf
    (expected,) = run_graph(graph, [x_array, w_array])
    for mode in ("fast", "step"):
        (got,) = execute(make_plan(graph, SPEC), [x_array, w_array], mode=mode, poison=True)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        np.testing.assert_array_equal(np.isinf(got), np.isinf(expected))


@pytest.mark.parametrize("shape", [(40, 1000), (40, 2000), (3, 5000)])
def test_a_softmax_whose_rows_do_not_fit_l1_reads_them_three_times(shape: tuple[int, int]) -> None:
    b = GraphBuilder()
    b.op("softmax", b.input(shape), axis=1)
    graph = b.graph()
    small = SPEC.replace(capacity_bytes={"L1": 64 * 1024})
    check_everything(graph, small)
    with record() as trace:
        execute(make_plan(graph, small), random_arrays(graph), mode="step")
    size = graph.nodes[0].outputs[0].nbytes
    passes = 1 if shape[0] == 3 else 3
    assert trace.counters.dram_bytes in (size * (passes + 1), size * 2)


def test_an_infinity_stays_in_the_outputs_that_read_it() -> None:
    """A 7x7 kernel is cut into four and three rows: the fourth row of the second piece is no tap."""
    b = GraphBuilder()
    x, w = b.input((1, 10, 9, 6)), b.input((7, 7, 6, 3))
    b.op("conv2d", x, w, data_layout="NHWC", kernel_layout="HWIO")
    graph = b.graph()
    x_array, w_array = random_arrays(graph)
    x_array[0, 9, 4, 0] = np.inf
    (expected,) = run_graph(graph, [x_array, w_array])
    for mode in ("fast", "step"):
        (got,) = execute(make_plan(graph, SPEC), [x_array, w_array], mode=mode, poison=True)
        np.testing.assert_array_equal(np.isfinite(got), np.isfinite(expected))


def test_an_integer_divide_by_zero_names_the_operation() -> None:
    b = GraphBuilder()
    b.op("divide", b.input((3, 5), "int32"), b.input((3, 5), "int32"))
    graph = b.graph()
    arrays = [np.ones((3, 5), "int32"), np.zeros((3, 5), "int32")]
    for mode in ("fast", "step"):
        with pytest.raises(ZeroDivisionError, match="divide") as caught:
            execute(make_plan(graph, SPEC), arrays, mode=mode)
        assert "step 0, divide" in caught.value.npu_kit_node  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a[:1], "takes 3: a0, a1, a2"),
        (lambda a: [a[0].astype("float64"), *a[1:]], "must be 70x300 float32, it is 70x300 float64"),
        (lambda a: [a[0][:-1], *a[1:]], "it is 69x300 float32"),
        (lambda a: [a[0].astype(">f4"), *a[1:]], "it is 70x300 >f4"),
    ],
)
def test_wrong_arrays_are_refused_before_anything_runs(change, message: str) -> None:  # type: ignore[no-untyped-def]
    graph = matmul_chain()
    with pytest.raises(InputError, match=message):
        execute(make_plan(graph, SPEC), change(random_arrays(graph)))


def test_an_unknown_mode_is_refused() -> None:
    graph = matmul_chain()
    with pytest.raises(ExecutionError, match="fast and step"):
        execute(make_plan(graph, SPEC), random_arrays(graph), mode="slow")


def test_recordings_nest_and_end() -> None:
    graph = matmul_chain()
    plan, arrays = make_plan(graph, SPEC), random_arrays(graph)
    with record() as outer:
        execute(plan, arrays)
        with record() as inner:
            execute(plan, arrays)
    execute(plan, arrays)
    assert (len(outer.runs), len(inner.runs)) == (2, 1)


def test_a_trace_of_fast_mode_has_the_events_of_step_mode() -> None:
    plan = make_plan(conv_relu_pool(), SPEC)
    arrays = random_arrays(plan.graph)
    with record() as fast:
        execute(plan, arrays)
    with record() as step:
        execute(plan, arrays, mode="step")
    assert len(fast.events) and np.array_equal(fast.events, step.events)


def test_a_trace_of_a_million_tiles_is_small_and_there_at_once() -> None:
    b = GraphBuilder()
    b.op("matmul", b.input((8192, 8)), b.input((8, 8192)))
    plan = make_plan(b.graph(), SPEC, tile=8)
    arrays, out = random_arrays(plan.graph), [np.empty((8192, 8192), np.float32)]
    prepared = FastPlan(plan)
    execute(plan, arrays, out, prepared=prepared)
    tracemalloc.start()
    try:
        with record() as trace:
            execute(plan, arrays, out, prepared=prepared)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert trace.counters.tiles == 1024 * 1024
    assert held < 1 << 20


def test_events_are_kept_in_columns_as_they_come() -> None:
    log = EventLog()
    rows = [(i, *[i % 5] * (len(EVENT_DTYPE.names or ()) - 1)) for i in range(2 * EventLog.FLUSH + 3)]
    for row in rows:
        log.append(row)
    assert np.array_equal(log.events(), to_events(rows))
    assert len(EventLog().events()) == 0


EMPTY: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    ("matmul", [(3, 0), (0, 5)], {}),
    ("conv2d", [(2, 4, 6, 6), (0, 4, 3, 3)], {}),
    ("conv2d_transpose", [(0, 4, 6, 6), (4, 8, 3, 3)], {}),
    ("conv2d_transpose", [(2, 4, 6, 6), (4, 0, 3, 3)], {"groups": 2}),
    ("max_pool2d", [(0, 4, 6, 6)], {"pool_size": (2, 2)}),
    ("softmax", [(3, 0, 5)], {"axis": 2}),
    ("log_softmax", [(3, 0, 5)], {"axis": 0}),
    ("log_softmax", [(3, 0, 5)], {"axis": 1}),
    ("layer_norm", [(3, 0, 5), (5,), (5,)], {"axis": 2}),
    ("layer_norm", [(3, 0, 5), (0,), (0,)], {"axis": 1}),
    ("rms_norm", [(0, 4), (4,)], {"axis": 1}),
    ("permute_dims", [(3, 0, 5)], {"axes": (2, 0, 1)}),
    ("pad", [(0, 4)], {"pad_width": (1, 2, 0, 0), "pad_value": 7.0}),
    ("concat", [(3, 0), (3, 2)], {"axis": 1}),
]


@pytest.mark.parametrize(("name", "shapes", "attrs"), EMPTY)
def test_what_has_no_elements_is_computed_too(name: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any]) -> None:
    b = GraphBuilder()
    b.op(name, *map(b.input, shapes), **attrs)
    graph = b.graph()
    plan, arrays = make_plan(graph, SPEC), random_arrays(graph)
    (right,) = run_graph(graph, arrays)
    for mode in ("step", "fast"):
        (found,) = execute(plan, arrays, mode=mode)
        assert found.shape == graph.type_of(graph.heads[0]).shape
        assert np.array_equal(found, right)
