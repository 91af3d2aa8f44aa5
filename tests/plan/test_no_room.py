"""What does not fit is refused with its numbers, and every way out that the error names is one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from graphs import GraphBuilder, conv_relu_pool, first_layer_of_resnet18, graphs, matmul_chain
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_kit.errors import NpuKitError, PlanError, SpecError
from npu_kit.graph.ir import Graph
from npu_kit.hw import NpuSpec, load_spec
from npu_kit.plan.planner import make_plan
from npu_kit.plan.verify import verify_plan

SPEC = load_spec("example")


def softmax(rows: int = 40, columns: int = 900) -> Graph:
    b = GraphBuilder()
    b.op("softmax", b.input((rows, columns)), axis=1)
    return b.graph()


def large_kernel_pool() -> Graph:
    b = GraphBuilder()
    b.op("max_pool2d", b.input((1, 70, 90, 90)), pool_size=(60, 60), strides=(20, 20))
    return b.graph()


def sum_of_vectors() -> Graph:
    b = GraphBuilder()
    b.op("add", b.input((3000,)), b.input((3000,)))
    return b.graph()


REGIONS = {
    "matmul": matmul_chain,
    "conv and pool": conv_relu_pool,
    "first layer": first_layer_of_resnet18,
    "softmax": softmax,
    "pool": large_kernel_pool,
    "add": sum_of_vectors,
}


def smaller(**capacities: int) -> NpuSpec:
    return SPEC.replace(capacity_bytes=capacities)


def refusal(graph: Graph, spec: NpuSpec, **options: Any) -> PlanError:
    with pytest.raises(PlanError) as caught:
        make_plan(graph, spec, **options)
    return caught.value


def ways_out(error: NpuKitError) -> list[str]:
    return [way.rstrip(".") for way in error.hint.split(", or ") if way != "a smaller batch"]


def try_all(graph: Graph, spec: NpuSpec, error: NpuKitError, **options: Any) -> int:
    """Plan the region in each way that the error names; returns how many there are."""
    for way in ways_out(error):
        if way.startswith("dataflow=None"):
            verify_plan(make_plan(graph, spec, **{**options, "dataflow": None}))
        else:
            assert re.fullmatch(r"spec\.replace\(.*\)", way), way
            changed = eval(way, {"__builtins__": {}}, {"spec": spec})
            for chains in (True, False):
                verify_plan(make_plan(graph, changed, **options, chains=chains))
    return len(ways_out(error))


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("l1_bytes", [1_000, 3_000, 9_000, 20_000])
def test_l1_that_is_too_small(region: str, l1_bytes: int) -> None:
    graph, spec = REGIONS[region](), smaller(L1=l1_bytes)
    try:
        verify_plan(make_plan(graph, spec))
        return
    except PlanError as error:
        refused = error
    needed, have, missing = map(int, re.findall(r"needs (\d+).*has (\d+), (\d+) are missing", refused.why)[0])
    assert "does not fit L1 SRAM" in refused.what
    assert (have, missing) == (l1_bytes, needed - l1_bytes)
    filling = sum(int(nbytes) for nbytes in re.findall(r"[a-z0-9.]+ (\d+)", refused.why.split("(")[1].split(")")[0]))
    assert filling <= needed and (filling == needed or "more" in refused.why)
    assert try_all(graph, spec, refused) >= 1


def test_each_family_is_refused_somewhere() -> None:
    for region in REGIONS.values():
        refusal(region(), smaller(L1=128))


def test_the_nearest_tile_is_the_largest_that_fits() -> None:
    spec = smaller(L1=20_000)
    error = refusal(matmul_chain(), spec)
    assert ways_out(error)[0] == "spec.replace(tile=(32, 16))"
    refusal(matmul_chain(), spec.replace(tile=(16, 32)))
    refusal(matmul_chain(), spec.replace(tile=32))


def test_where_no_tile_fits_none_is_named() -> None:
    error = refusal(matmul_chain(), smaller(L1=4_200))
    assert "tile=" not in error.hint
    assert try_all(matmul_chain(), smaller(L1=4_200), error) == 1


def test_a_capacity_that_is_named_is_the_least_that_is_enough() -> None:
    graph, spec = conv_relu_pool(), smaller(L1=4_000)
    (way,) = ways_out(refusal(graph, spec))
    needed = int(re.findall(r"'L1': (\d+)", way)[0])
    refusal(graph, smaller(L1=needed - 64))
    make_plan(graph, smaller(L1=needed))


@pytest.mark.parametrize("dataflow", ["weight_stationary", "input_stationary"])
def test_partial_sums_that_do_not_fit(dataflow: str) -> None:
    """A learner's override: refused with the bytes of the partial sums, and with what fits instead."""
    graph = matmul_chain(m=20_000, k=600, n=40) if dataflow == "weight_stationary" else matmul_chain(40, 600, 20_000)
    error = refusal(graph, SPEC, dataflow=dataflow)
    assert re.search(r"partials \d+", error.why)
    assert "dataflow=None" in error.hint
    assert try_all(graph, SPEC, error, dataflow=dataflow) >= 2


@pytest.mark.parametrize(("tile", "side"), [(64, "16x64"), ((32, 400), "32x32"), ((400, 32), "32x32"), (33, "31x33")])
def test_a_tile_that_l0_cannot_hold(tile: int | tuple[int, int], side: str) -> None:
    numbers = r"accumulators takes [\d,]+ bytes and L0 holds 4,096, [\d,]+ are missing"
    with pytest.raises(SpecError, match=numbers) as one:
        make_plan(matmul_chain(), SPEC, tile=tile)
    assert f"a tile of {side}, or L0 of " in str(one.value)
    rows, columns = map(int, side.split("x"))
    make_plan(matmul_chain(), SPEC, tile=(rows, columns))
    larger = SPEC.replace(capacity_bytes={"L0": int(re.findall(r"L0 of (\d+) bytes", str(one.value))[0])})
    assert larger.replace(tile=tile).tile != SPEC.tile


def test_a_tile_below_the_least_side() -> None:
    with pytest.raises(SpecError, match=r"tile\.rows .*: it is 4 and the smallest .* is 8\. Try: a side of 8"):
        make_plan(matmul_chain(), SPEC, tile=4)


def test_an_l0_for_no_tile_names_none() -> None:
    with pytest.raises(SpecError, match=r"holds 128, .* are missing\. Try: L0 of 4096 bytes") as caught:
        smaller(L0=128)
    assert "a tile of" not in caught.value.hint


@pytest.mark.parametrize("region", REGIONS)
def test_l2_never_refuses(region: str) -> None:
    """What finds no place in L2 goes through DRAM."""
    plan = make_plan(REGIONS[region](), smaller(L2=1))
    assert all(buffer.tier == "L3" for buffer in plan.buffers if buffer.nbytes)


@pytest.mark.parametrize("region", ["first layer", "conv and pool"])
@pytest.mark.parametrize("share", [0.3, 0.7, 0.99])
def test_l3_that_is_too_small(region: str, share: float) -> None:
    graph = REGIONS[region]()
    whole = max(b.offset_bytes + b.nbytes for b in make_plan(graph, smaller(L2=1, L1=1 << 18)).buffers)
    spec = smaller(L0=4096, L1=1 << 16, L2=1, L3=int(share * whole))
    error = refusal(graph, spec)
    assert "does not fit L3 DRAM" in error.what
    assert re.search(r"tier has \d+: \d+ are missing", error.why)
    assert "a smaller batch" in error.hint
    assert try_all(graph, spec, error) == 1


@settings(max_examples=40)
@given(graphs(), st.sampled_from([500, 2_000, 6_000, 15_000]), st.sampled_from([1, 3_000, 60_000]))
def test_a_smaller_machine_plans_or_says_what_would_do(graph: Graph, l1_bytes: int, l2_bytes: int) -> None:
    spec = smaller(L1=l1_bytes, L2=l2_bytes)
    try:
        verify_plan(make_plan(graph, spec))
    except PlanError as error:
        assert try_all(graph, spec, error) >= 1
