"""Folded programs: the loops repeat what is executed, and their sums are those of the rows."""

from __future__ import annotations

import time
import tracemalloc
from collections import Counter

import pytest
from graphs import GraphBuilder, graphs, matmul_chain
from hypothesis import given
from hypothesis import strategies as st

from npu_kit.errors import PlanError, RenderError
from npu_kit.graph.ir import Entry, Graph, Node, TensorType
from npu_kit.hw.presets import load_spec
from npu_kit.plan.alternatives import waits
from npu_kit.plan.cost import DATAFLOWS
from npu_kit.plan.folding import FoldedItem, Repeat, fold_step, lines_of
from npu_kit.plan.forecast import MAX_INSTRUCTIONS, forecast
from npu_kit.plan.geometry import problem_of
from npu_kit.plan.listing import list_program, name_of
from npu_kit.plan.metrics import plan_metrics
from npu_kit.plan.nest import instruction_count
from npu_kit.plan.planner import make_plan
from npu_kit.plan.program import instructions
from npu_kit.render import program, summary_table, tiles
from npu_kit.trace.events import ENGINES, KINDS, TIERS

SPEC = load_spec("example")


@given(graphs(), st.sampled_from([None, *DATAFLOWS]), st.sampled_from([8, 16, 32]))
def test_a_folded_program_counts_what_the_rows_count(graph: Graph, dataflow: str | None, tile: int) -> None:
    try:
        plan = make_plan(graph, SPEC, dataflow=dataflow, tile=tile)
    except PlanError:
        return
    listing = list_program(plan)
    for step in plan.steps:
        rows = listing.rows[listing.rows["step"] == step.index]
        lines = list(lines_of(fold_step(plan, step)))
        times: Counter[tuple[str, str]] = Counter()
        for one in instructions(step, problem_of(graph if plan.graph == graph else plan.graph, step.nodes[0])):
            times[one.kind, name_of(plan, step, one)] += 1
        times.update(("prefetch", plan.graph.nodes[entry.node].name) for entry in step.prefetch)
        folded: Counter[tuple[str, str]] = Counter()
        for line in lines:
            folded[line.kind, line.what] += line.times
        assert +folded == +times
        for line in {(line.kind, line.what, line.node) for line in lines}:
            kind, what, node = line
            same = [one for one in lines if (one.kind, one.what, one.node) == line]
            if kind == "clear" or what not in listing.names:
                assert sum(one.nbytes for one in same) == 0
                continue
            chosen = (rows["kind"] == KINDS.index(kind)) & (rows["node"] == node)
            mine = rows[chosen & (rows["what"] == listing.names.index(what))]
            assert sum(one.nbytes for one in same) == mine["nbytes"].sum(), line
            assert max(one.tile_bytes for one in same) == mine["nbytes"].max(initial=0), line
            for row in mine[:1]:
                assert {one.engine for one in same} == {ENGINES[row["engine"]]}
                assert {one.ends for one in same} == {(TIERS[row["src"]], TIERS[row["dst"]])}
                assert row["offset"] in {one.offset_bytes for one in same}
    assert instruction_count(plan) >= len(listing.rows)


def _shape(items: tuple[FoldedItem, ...]) -> list[object]:
    return [
        (" ".join(axis.name for axis in item.axes), _shape(item.body))
        if isinstance(item, Repeat)
        else f"{item.kind} {item.what}".strip() + (f" [{item.condition}]" if item.condition else "")
        for item in items
    ]


def test_what_comes_once_stands_outside_of_the_loops() -> None:
    plan = make_plan(matmul_chain(), SPEC, dataflow="output_stationary")
    loads = [line for line in _shape(fold_step(plan, plan.steps[0])) if isinstance(line, str)]
    (loop,) = (line for line in _shape(fold_step(plan, plan.steps[0])) if not isinstance(line, str))
    assert loads == ["prefetch a0", "prefetch a2"]
    assert loop == (
        "n",
        [
            "load w",
            (
                "x",
                [
                    "clear",
                    ("c", ["load x", "compute accumulate"]),
                    "load epilogue0.1",
                    "epilogue add",
                    "epilogue relu",
                    "drain out",
                    "store out",
                ],
            ),
        ],
    )
    weights = make_plan(matmul_chain(), SPEC, dataflow="weight_stationary")
    inner = _shape(fold_step(weights, weights.steps[0]))[-1]
    assert inner == (
        "n c",
        [
            "load w",
            (
                "x",
                [
                    "load x",
                    "load epilogue0.1 [last c only]",
                    "clear [first c only]",
                    "fill partials [not first c]",
                    "compute accumulate",
                    "epilogue add [last c only]",
                    "epilogue relu [last c only]",
                    "drain out [last c only]",
                    "store out [last c only]",
                    "spill partials [not last c]",
                ],
            ),
        ],
    )


def test_two_million_tiles_are_folded_at_once_and_in_no_memory() -> None:
    x, w, out = (TensorType(shape, "float16") for shape in ((32768, 256), (256, 16384), (32768, 16384)))
    nodes = (Node("input", "x", (x,)), Node("input", "w", (w,)), Node("kernel", "matmul", (out,), (Entry(0), Entry(1))))
    graph = Graph("large", nodes, (0, 1), (Entry(2),))
    plan = make_plan(graph, SPEC.replace(capacity_bytes={"L3": 1 << 32}), tile=16)
    tracemalloc.start()
    started = time.perf_counter()
    lines = list(lines_of(fold_step(plan, plan.steps[0])))
    seconds, (_, peak) = time.perf_counter() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    (store,) = (line for line in lines if line.kind == "store")
    assert (store.times, store.nbytes) == (2048 * 1024, out.nbytes)
    assert instruction_count(plan) > 10_000_000
    assert peak < 1_000_000 and seconds < 1


def test_a_timeline_that_no_memory_holds_is_refused_at_once() -> None:
    """Each instruction has a row: 777 million of them would take 38 GB and four hours."""
    b = GraphBuilder()
    b.op("exp", b.input((2**20, 2**15)))
    plan = make_plan(b.graph(), load_spec("example").replace(capacity_bytes={"L3": 2**40}))
    assert instruction_count(plan) > MAX_INSTRUCTIONS
    for show in (
        *(forecast, waits, summary_table, plan_metrics, lambda plan: program(plan).rows),
        lambda plan: program(plan).filter(tile=0),
    ):
        with pytest.raises(PlanError, match=r"a timeline of \d+,\d{3},\d{3} instructions.*the limit is 10,000,000"):
            str(show(plan))
    str(program(plan))


def test_a_tile_of_millions_of_chunks_is_drawn_chunk_by_chunk() -> None:
    b = GraphBuilder()
    b.op("matmul", b.input((1, 2**30)), b.input((2**30, 1)))
    plan = make_plan(b.graph(), load_spec("example").replace(capacity_bytes={"L3": 2**40}))
    with pytest.raises(RenderError, match=r"chunks, and what at most 100,000 need is shown together. Try: chunk=0"):
        tiles(plan, 0)
    assert "Chunk 1000000 of" in str(tiles(plan, 0, chunk=1_000_000))
