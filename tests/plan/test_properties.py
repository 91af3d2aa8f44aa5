"""What holds of every plan, over random regions, machines and choices."""

from __future__ import annotations

import numpy as np
from graphs import graphs, random_arrays, regions
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from machines import machines

from npu_kit.errors import PlanError
from npu_kit.graph.ir import Graph
from npu_kit.hw import NpuSpec, load_spec
from npu_kit.plan.cost import DATAFLOWS
from npu_kit.plan.forecast import forecast, total_cycles
from npu_kit.plan.ir import Plan
from npu_kit.plan.planner import make_plan
from npu_kit.plan.traffic import plan_counters
from npu_kit.plan.verify import verify_coverage, verify_plan
from npu_kit.runtime.execute import execute
from npu_kit.runtime.record import record
from npu_kit.runtime.reference import run_graph
from npu_kit.trace.counters import total

SPEC = load_spec("example")


def plan_or_skip(graph: Graph, spec: NpuSpec, **options: object) -> Plan:
    try:
        return make_plan(graph, spec, **options)  # type: ignore[arg-type]
    except PlanError as error:
        assert error.why and error.hint  # both numbers, and a way out
        assume(False)
        raise


def close(found: np.ndarray, right: np.ndarray) -> None:
    if right.dtype.kind != "f":
        np.testing.assert_array_equal(found, right)
        return
    scale = max(1.0, float(np.abs(right.astype(float)).max(initial=0, where=np.isfinite(right))))
    epsilon = 2e-3 if right.dtype == np.float16 else 1e-5
    np.testing.assert_allclose(found.astype(float), right.astype(float), rtol=0, atol=epsilon * scale)


@settings(max_examples=80)
@given(graphs(), machines(), st.sampled_from([None, *DATAFLOWS]), st.booleans(), st.booleans())
def test_every_plan_is_right(graph: Graph, spec: NpuSpec, dataflow: str | None, double: bool, chains: bool) -> None:
    """It verifies, covers each element once, runs as forecast in both modes, and gives the reference's values."""
    plan = plan_or_skip(graph, spec, dataflow=dataflow, double_buffer=double, chains=chains)
    verify_plan(plan)
    verify_coverage(plan)
    arrays = random_arrays(graph)
    with record() as trace:
        step, fast = execute(plan, arrays, mode="step", poison=True), execute(plan, arrays)
    for one, other, right in zip(step, fast, run_graph(graph, arrays), strict=True):
        assert one.tobytes() == other.tobytes()
        close(one, right)
    assert trace.runs[0].counters == trace.runs[1].counters == plan_counters(plan)
    assert np.array_equal(trace.runs[0].events, forecast(plan))


@settings(max_examples=80)
@given(graphs(), machines())
def test_double_buffering_never_costs_cycles_on_any_machine(graph: Graph, spec: NpuSpec) -> None:
    double, single = (total_cycles(forecast(plan_or_skip(graph, spec, double_buffer=db))) for db in (True, False))
    assert double <= single


@settings(max_examples=60)
@given(regions(), machines())
def test_chains_never_change_a_bit(graph: Graph, spec: NpuSpec) -> None:
    chained, whole = (plan_or_skip(graph, spec, chains=chains) for chains in (True, False))
    arrays = random_arrays(graph)
    for one, other in zip(execute(chained, arrays), execute(whole, arrays), strict=True):
        assert one.tobytes() == other.tobytes()


@settings(max_examples=80)
@given(graphs(), machines(), st.sampled_from(["L1", "L2"]), st.sampled_from([2, 5]))
def test_a_bigger_tier_never_costs_more(graph: Graph, spec: NpuSpec, tier: str, times: int) -> None:
    """More traffic only where it buys cycles, which the search puts first."""
    bigger = spec.replace(capacity_bytes={tier: times * spec.tier(tier).capacity_bytes})
    small, large = (plan_or_skip(graph, one) for one in (spec, bigger))
    traffic = [total(plan_counters(plan)).dram_bytes for plan in (small, large)]
    assert traffic[1] <= traffic[0] or total_cycles(forecast(large)) < total_cycles(forecast(small))
