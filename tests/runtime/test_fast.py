"""Fast mode's own machinery: plans that are bound once and run often, threads, batches of stripes, memory."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import pytest
from graphs import (
    GraphBuilder,
    conv_relu_pool,
    first_layer_of_resnet18,
    matmul_chain,
    movements,
    norms,
    random_arrays,
    reductions,
    regions,
)
from hypothesis import given
from hypothesis import strategies as st

from npu_kit.graph.ir import Entry, Graph, Node
from npu_kit.hw.presets import load_spec
from npu_kit.plan.chains import chains, stripe_rows
from npu_kit.plan.fusion import group_nodes
from npu_kit.plan.ir import Plan
from npu_kit.plan.planner import make_plan
from npu_kit.plan.storage import homes
from npu_kit.plan.stripes import cut as cut_stripes
from npu_kit.runtime import fast, fast_contraction, fast_window, workspace
from npu_kit.runtime.execute import execute
from npu_kit.runtime.fast import FastPlan, threads_allowed
from npu_kit.runtime.fast_batches import batches, stack
from npu_kit.runtime.record import record
from npu_kit.runtime.workspace import Scratch, TensorPool, cut

SPEC = load_spec("example")


def chain(height: int = 40, channels: int = 40) -> Graph:
    """conv, depthwise conv and 1x1 conv with relu6 and a residual: tensors larger than L2, so a chain in stripes."""
    b = GraphBuilder()
    x, wide = b.input((1, channels, height, 90)), 3 * channels
    expand = b.op("conv2d", x, b.input((wide, channels, 1, 1)), composite="expand#0")
    expand = b.op("clip", expand, composite="expand#0", min=0.0, max=6.0)
    deep = b.op("conv2d", expand, b.input((wide, 1, 3, 3)), composite="deep#1", groups=wide, padding=(1, 1, 1, 1))
    deep = b.op(
        "clip", b.op("add", deep, b.input((1, wide, 1, 1)), composite="deep#1"), composite="deep#1", min=0.0, max=6.0
    )
    project = b.op("conv2d", deep, b.input((channels, wide, 1, 1)), composite="project#2")
    b.op("add", x, project, composite="project#2")
    return b.graph()


def with_constants(graph: Graph) -> Graph:
    """The graph with all inputs but the first as constants."""
    first, *others = graph.arg_nodes
    nodes = [Node("const", node.name, node.outputs) if i in others else node for i, node in enumerate(graph.nodes)]
    return Graph(graph.symbol, tuple(nodes), (first, *others), graph.heads)


def bits(arrays: Any) -> list[bytes]:
    return [np.ascontiguousarray(array).tobytes() for array in arrays]


# --- runs ------------------------------------------------------------------------------------------------------------


@given(st.one_of(regions(), movements(), reductions(), norms()), st.integers(1, 2))
def test_a_prepared_plan_runs_again_on_other_arrays(graph: Graph, threads: int) -> None:
    plan = make_plan(graph, SPEC)
    prepared = FastPlan(plan, threads=threads)
    for seed in range(3):
        arrays = random_arrays(graph, seed)
        assert bits(execute(plan, arrays, prepared=prepared)) == bits(execute(plan, arrays, mode="step"))


@pytest.mark.parametrize("graph", [matmul_chain(), conv_relu_pool(), first_layer_of_resnet18(), chain()])
@pytest.mark.parametrize("threads", [1, 2])
def test_constants_are_given_once(graph: Graph, threads: int) -> None:
    graph = with_constants(graph)
    plan = make_plan(graph, SPEC)
    _, *constants = random_arrays(graph)
    prepared = FastPlan(plan, constants, threads=threads)
    for seed in range(3):
        argument = random_arrays(graph, seed)[0]
        assert bits(execute(plan, [argument], prepared=prepared)) == bits(execute(plan, [argument, *constants]))


def test_constants_that_come_with_each_run_may_differ() -> None:
    graph = with_constants(conv_relu_pool())
    plan = make_plan(graph, SPEC)
    prepared = FastPlan(plan)
    for seed in range(3):
        arrays = random_arrays(graph, seed)
        assert bits(execute(plan, arrays, prepared=prepared)) == bits(execute(plan, arrays))


def test_results_of_one_run_are_not_those_of_the_next() -> None:
    graph = conv_relu_pool()
    plan = make_plan(graph, SPEC)
    prepared = FastPlan(plan)
    (first,) = execute(plan, random_arrays(graph, 0), prepared=prepared)
    kept = first.copy()
    (second,) = execute(plan, random_arrays(graph, 1), prepared=prepared)
    np.testing.assert_array_equal(first, kept)
    assert not np.array_equal(first, second) and not np.shares_memory(first, second)


def test_one_prepared_plan_serves_threads_at_the_same_time() -> None:
    graph = chain(height=12)
    plan = make_plan(graph, SPEC)
    prepared = FastPlan(plan)
    wanted = {seed: bits(execute(plan, random_arrays(graph, seed))) for seed in range(4)}
    found: dict[int, list[list[bytes]]] = {}

    def work(seed: int) -> None:
        arrays = random_arrays(graph, seed)
        found[seed] = [bits(execute(plan, arrays, prepared=prepared)) for _ in range(5)]

    workers = [threading.Thread(target=work, args=(seed,)) for seed in wanted]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == {seed: [result] * 5 for seed, result in wanted.items()}


@pytest.mark.parametrize("block_bytes", [1, 50_000, 500_000])
@pytest.mark.parametrize("threads", [1, 2])
def test_neither_blocks_nor_threads_change_a_bit(
    monkeypatch: pytest.MonkeyPatch, block_bytes: int, threads: int
) -> None:
    for graph in (matmul_chain(), conv_relu_pool(), chain(height=12)):
        arrays = random_arrays(graph)
        plan = make_plan(graph, SPEC)
        wanted = bits(execute(plan, arrays))
        with monkeypatch.context() as patched:
            for module in (fast_contraction, fast_window):
                patched.setattr(module, "BLOCK_BYTES", block_bytes)
                patched.setattr(module, "WORTH_SHARING", 0)
            assert bits(execute(plan, arrays, prepared=FastPlan(plan, threads=threads))) == wanted


def test_an_error_in_the_second_thread_names_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = conv_relu_pool()
    plan = make_plan(graph, SPEC)
    main, where = threading.current_thread(), []

    def fail(calls: Any) -> None:
        where.append(threading.current_thread())
        if threading.current_thread() is not main:
            raise ValueError("in the helper")

    monkeypatch.setattr(fast_contraction, "WORTH_SHARING", 0)
    monkeypatch.setattr(fast, "_run", fail)
    with pytest.raises(ValueError, match="in the helper") as caught:
        execute(plan, random_arrays(graph), prepared=FastPlan(plan, threads=2))
    assert "step 0, conv2d" in caught.value.npu_kit_node  # type: ignore[attr-defined]
    assert main in where
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("npu_kit")]


@pytest.mark.parametrize(
    ("name", "value", "most"),
    [
        ("NPU_KIT_THREADS", "1", 1),
        ("OMP_NUM_THREADS", "1", 1),
        ("OMP_NUM_THREADS", "1,4", 1),
        ("NPU_KIT_THREADS", "64", fast.MOST_THREADS),
        ("OMP_NUM_THREADS", "many", fast.MOST_THREADS),
        ("NPU_KIT_THREADS", "0", 1),
    ],
)
def test_the_environment_can_ask_for_fewer_threads(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, most: int
) -> None:
    for variable in fast.THREADS_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    unasked = threads_allowed()
    monkeypatch.setenv(name, value)
    assert threads_allowed() == min(unasked, most)


def test_a_recorded_run_counts_each_step_of_a_batch() -> None:
    plan = striped()
    with record() as trace:
        execute(plan, random_arrays(plan.graph))
        execute(plan, random_arrays(plan.graph), mode="step")
    quick, slow = trace.runs
    assert quick.counters == slow.counters and len(quick.counters) == len(plan.steps)


# --- numbers that are easy to get wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [0.0, -0.0, -1e-30, None])
@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("is_deep", [False, True])
def test_products_that_underflow_give_the_same_zero(bias: float | None, kernel: int, is_deep: bool) -> None:
    """-1e-30 * 1e-30 rounds to -0.0, and 0.0 + -0.0 is 0.0: the accumulator starts from 0.0."""
    b = GraphBuilder()
    x, w = b.input((1, 3, 5, 5)), b.input((3, 1 if is_deep else 3, kernel, kernel))
    value = b.op("conv2d", x, w, composite="a#0", groups=3 if is_deep else 1)
    if bias is not None:
        value = b.op("add", value, b.input((1, 3, 1, 1)), composite="a#0")
    graph = b.graph(value)
    arrays = [np.full((1, 3, 5, 5), -1e-30, np.float32), np.full(graph.nodes[1].outputs[0].shape, 1e-30, np.float32)]
    if bias is not None:
        arrays.append(np.full((1, 3, 1, 1), bias, np.float32))
    plan = make_plan(graph, SPEC)
    assert bits(execute(plan, arrays)) == bits(execute(plan, arrays, mode="step"))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_the_largest_integers_sum_exactly_over_many_chunks(dtype: str) -> None:
    b = GraphBuilder()
    x, w = b.input((3, 5000), dtype), b.input((5000, 4), dtype)
    b.op("matmul", x, w, out_dtype="int32")
    graph = b.graph()
    plan, lowest = make_plan(graph, SPEC), int(np.iinfo(dtype).min)
    worst = lowest if lowest else int(np.iinfo(dtype).max)
    arrays = [np.full(graph.nodes[i].outputs[0].shape, worst, dtype) for i in graph.arg_nodes]
    exact = (5000 * worst**2 + 2**31) % 2**32 - 2**31
    for mode in ("fast", "step"):
        (found,) = execute(plan, arrays, mode=mode)
        assert (found == exact).all()


# --- batches of stripes ----------------------------------------------------------------------------------------------


def striped(count: int = 7) -> Plan:
    """The plan of a chain in stripes, whatever the planner thinks of it."""
    graph = chain()
    groups = group_nodes(graph)
    (links,) = chains(graph, groups, {Entry(group.nodes[-1]) for group in groups})
    return make_plan(cut_stripes(graph, [(links, stripe_rows(graph, links, count))]), SPEC, chains=False)


def test_stripes_give_the_bits_of_the_step_mode_and_the_values_of_the_whole() -> None:
    plan = striped()
    arrays = random_arrays(plan.graph)
    found = execute(plan, arrays, prepared=FastPlan(plan, threads=1))
    assert bits(found) == bits(execute(plan, arrays, mode="step"))
    # Not its bits: there are BLAS kernels in which a row's last bit depends on its place in the tile.
    (whole,) = execute(make_plan(chain(), SPEC, chains=False), arrays)
    np.testing.assert_allclose(found[0], whole, rtol=1e-4, atol=1e-4)


def test_every_step_is_in_one_batch_after_what_it_reads() -> None:
    plan = striped()
    found = batches(plan)
    assert sorted(itertools.chain(*found)) == list(range(len(plan.steps)))
    assert len(found) < len(plan.steps) / 2
    owner = homes(plan.graph)
    writers: dict[Entry, list[int]] = {}
    for step in plan.steps:
        writers.setdefault(owner[step.output], []).append(step.index)
    place = {index: number for number, batch in enumerate(found) for index in batch}
    for step in plan.steps:
        for operand in step.reads:
            # A join is whole when the last step before this one has written its piece.
            earlier = [index for index in writers.get(owner[operand.entry], []) if index < step.index]
            assert all(place[index] < place[step.index] for index in earlier)


def test_stripes_that_do_not_lie_side_by_side_run_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = striped()
    arrays = random_arrays(plan.graph)
    wanted = bits(execute(plan, arrays))
    monkeypatch.setattr(fast, "stack", lambda arrays: None)
    assert bits(execute(plan, arrays)) == wanted


def test_a_plan_without_stripes_is_not_reordered() -> None:
    plan = make_plan(chain(), SPEC, chains=False)
    assert batches(plan) == [(index,) for index in range(len(plan.steps))]


def test_arrays_are_stacked_where_they_lie_the_same_distance_apart() -> None:
    memory = np.arange(60).reshape(1, 10, 6)
    pieces = [memory[:, start : start + 3] for start in (1, 3, 5, 7)]
    stacked = stack(pieces)
    assert stacked is not None and np.shares_memory(stacked, memory)
    np.testing.assert_array_equal(stacked, np.concatenate(pieces))
    assert stack([pieces[0], pieces[1], pieces[3]]) is None
    assert stack([memory[:, :2], memory[:, 2:5]]) is None
    assert stack([np.zeros((1, 4)), np.zeros((1, 4))]) is None
    assert stack([memory, memory]) is memory


# --- memory ----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 200), st.integers(1, 50), st.integers(1, 4))
def test_cut_covers_everything_once_in_parts_of_nearly_one_size(count: int, most: int, parts_of: int) -> None:
    parts = list(cut(count, most, parts_of))
    assert [i for start, stop in parts for i in range(start, stop)] == list(range(count))
    sizes = [stop - start for start, stop in parts]
    assert max(sizes) <= most and max(sizes) - min(sizes) <= 1
    assert len(parts) % parts_of == 0 or len(parts) == count


def test_arrays_of_a_block_do_not_overlap() -> None:
    shapes = {"a": ((3, 5), np.dtype("f4")), "b": ((0,), np.dtype("f8")), "c": ((7,), np.dtype("f8"))}
    arrays = Scratch(workspace.shapes_bytes(shapes)).arrays(shapes)
    assert [(array.shape, array.dtype) for array in arrays.values()] == list(shapes.values())
    assert not np.shares_memory(arrays["a"], arrays["c"])


def test_a_pool_gives_memory_again_only_after_its_release() -> None:
    pool = TensorPool()
    first, second = pool.take((2, 3, 4), "float32", [0, 2, 1]), pool.take((2, 3, 4), "float32", [0, 1, 2])
    assert not np.shares_memory(first, second)
    assert first.shape == (2, 3, 4) and first.transpose(0, 2, 1).flags.c_contiguous
    pool.release(first)
    third = pool.take((5,), "int8", [0])
    assert np.shares_memory(third, first) and not np.shares_memory(third, second)
