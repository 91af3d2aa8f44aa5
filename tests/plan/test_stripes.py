"""Chains in stripes: the same bits, fewer bytes, and only where it pays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graphs import GraphBuilder, random_arrays
from hypothesis import given
from hypothesis import strategies as st

from npu_kit.graph.ir import Entry, Graph
from npu_kit.hw.presets import load_spec
from npu_kit.hw.spec import NpuSpec
from npu_kit.plan.forecast import forecast
from npu_kit.plan.planner import make_plan
from npu_kit.plan.storage import JOIN, VIEW, is_computed
from npu_kit.plan.traffic import plan_counters
from npu_kit.plan.verify import verify_plan
from npu_kit.runtime.execute import execute
from npu_kit.runtime.record import record
from npu_kit.runtime.reference import run_graph
from npu_kit.trace.counters import total

SPEC = load_spec("example")


def small_l2(nbytes: int) -> NpuSpec:
    return SPEC.replace(capacity_bytes={"L2": nbytes})


def conv_chain(
    channels: int, height: int, width: int, *, layout: str = "NCHW", deeper: bool = False, **pool: Any
) -> Graph:
    """conv2d, bias, ReLU, optionally a second convolution, and a pool: tensors between them that L2 may not hold."""
    b = GraphBuilder()
    sizes = {"N": 1, "C": 3, "H": height, "W": width}
    bias = {"N": 1, "C": channels, "H": 1, "W": 1}
    x = b.input([sizes[letter] for letter in layout])
    conv = {"data_layout": layout, "kernel_layout": "OIHW", "padding": (1, 1, 1, 1)}
    value = b.op("conv2d", x, b.input((channels, 3, 3, 3)), composite="conv#0", **conv)
    value = b.op("add", value, b.input([bias[letter] for letter in layout]), composite="conv#0")
    value = b.op("relu", value, composite="conv#0")
    if deeper:
        value = b.op("conv2d", value, b.input((channels, channels, 3, 3)), composite="conv#1", **conv)
    b.op("max_pool2d", value, composite="pool#2", layout=layout, **(pool or {"pool_size": (2, 2), "strides": (2, 2)}))
    return b.graph()


def is_striped(graph: Graph) -> bool:
    return any(node.kind == JOIN for node in graph.nodes)


def check(graph: Graph, spec: NpuSpec) -> tuple[int, int]:
    """Everything that holds of a plan holds of one in stripes; returns DRAM bytes with and without chains."""
    arrays = random_arrays(graph)
    plan, whole = make_plan(graph, spec), make_plan(graph, spec, chains=False)
    verify_plan(plan)
    with record() as trace:
        fast = execute(plan, arrays)
        step = execute(plan, arrays, mode="step", poison=True)
    (expected,) = execute(whole, arrays)
    assert fast[0].tobytes() == step[0].tobytes() == expected.tobytes()
    np.testing.assert_allclose(fast[0], run_graph(graph, arrays)[0], rtol=2e-5, atol=2e-4)
    assert trace.runs[0].counters == trace.runs[1].counters == plan_counters(plan)
    assert np.array_equal(forecast(plan), trace.runs[1].events)
    return total(plan_counters(plan)).dram_bytes, total(plan_counters(whole)).dram_bytes


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("deeper", [False, True])
def test_a_chain_keeps_its_rows_on_the_chip(layout: str, deeper: bool) -> None:
    graph = conv_chain(40, 61, 59, layout=layout, deeper=deeper)
    assert is_striped(make_plan(graph, SPEC).graph)
    striped, whole = check(graph, SPEC)
    assert striped < 0.5 * whole


def test_every_argument_crosses_the_border_about_once() -> None:
    graph = conv_chain(40, 61, 59)
    striped, _ = check(graph, SPEC)
    arguments = sum(graph.nodes[node].outputs[0].nbytes for node in graph.arg_nodes)
    result = graph.type_of(graph.heads[0]).nbytes
    assert striped < 1.1 * (arguments + result)  # rows of the halo are read twice


def test_what_fits_is_left_whole() -> None:
    plan = make_plan(conv_chain(12, 20, 20), SPEC)
    assert not is_striped(plan.graph) and not any(reason.decision == "chain" for reason in plan.reasons)


def test_the_reason_has_both_sides_of_the_comparison() -> None:
    (reason,) = (one for one in make_plan(conv_chain(40, 61, 59), SPEC).reasons if one.decision == "chain")
    assert reason.chosen.endswith("stripes")
    assert reason.numbers["dram_bytes"] < reason.numbers["whole_dram_bytes"]


def test_weights_stay_in_l2_from_stripe_to_stripe() -> None:
    plan = make_plan(conv_chain(40, 61, 59, deeper=True), SPEC)
    weights = plan.graph.arg_nodes[1]
    assert sum(entry.node == weights for step in plan.steps for entry in step.prefetch) <= 1


@given(
    st.integers(4, 24),
    st.integers(12, 40),
    st.integers(5, 20),
    st.sampled_from(["NCHW", "NHWC"]),
    st.booleans(),
    st.integers(2, 3),
    st.integers(1, 3),
    st.integers(0, 1),
    st.sampled_from([6_000, 12_000, 40_000]),
)
def test_any_chain(
    channels: int, height: int, width: int, layout: str, deeper: bool, kernel: int, stride: int, padding: int, l2: int
) -> None:
    pool = {"pool_size": (kernel, kernel), "strides": (stride, stride), "padding": (padding,) * 4}
    check(conv_chain(channels, height, width, layout=layout, deeper=deeper, **pool), small_l2(l2))


def test_a_view_is_named_after_what_it_shows() -> None:
    """Rows of an argument are prefetched, rows of a result filled in again."""
    graph = conv_chain(40, 61, 59)
    plan = make_plan(graph, SPEC)
    views = [i for i, node in enumerate(plan.graph.nodes) if node.kind == VIEW]
    joins = [i for i, node in enumerate(plan.graph.nodes) if node.kind == JOIN]
    assert views and joins
    assert not any(is_computed(plan.graph, Entry(view)) for view in views)
    assert all(is_computed(plan.graph, Entry(join)) for join in joins)
    assert not is_computed(plan.graph, Entry(plan.graph.arg_nodes[0]))
