"""Tiles: the scene is checked against the program that the runtime executes, the picture for being readable."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import pytest
from graphs import GraphBuilder, graphs
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import SVG, check, words

from npu_kit import render
from npu_kit.errors import RenderError
from npu_kit.hw.presets import load_spec
from npu_kit.hw.spec import NpuSpec
from npu_kit.plan.forecast import forecast
from npu_kit.plan.geometry import chunk_count, output_axes, problem_of, tile_count
from npu_kit.plan.ir import Plan
from npu_kit.plan.planner import make_plan
from npu_kit.plan.program import instructions
from npu_kit.render import tiles
from npu_kit.render.tile.grid import MAX_SIDE, sample
from npu_kit.render.tile.scene import tile_scene
from npu_kit.trace.events import KINDS


@settings(max_examples=60)
@given(graphs(), st.sampled_from([8, 16, 32]), st.data())
def test_a_scene_agrees_with_the_program(graph: object, tile: int, data: st.DataObject) -> None:
    plan = make_plan(graph, load_spec(), tile=tile)  # type: ignore[arg-type]
    for step in plan.steps:
        stores = [one for one in instructions(step, problem_of(plan.graph, step.nodes[0])) if one.kind == "store"]
        assert tile_count(step) == len(stores)
        if not stores:
            continue
        store = stores[data.draw(st.integers(0, len(stores) - 1))]
        scene = tile_scene(plan, step.index, store.tile)
        at = {axis.name: index for axis, index in zip(step.axes, store.at, strict=True)}
        assert scene.at == (at.get(scene.rows.name, 0), at.get(scene.columns.name, 0))
        assert scene.number(*scene.at) == store.tile
        spans = [axis.span(at[axis.name]) for axis in output_axes(step)]
        assert scene.elements == math.prod(stop - start for start, stop in spans)
        check(tiles(plan, step.index, store.tile))


@settings(max_examples=40)
@given(graphs())
def test_operands_move_the_bytes_of_the_forecast(graph: object) -> None:
    """Per tile, what the picture says an operand moves is what the load instructions move (panels move it once)."""
    plan = make_plan(graph, load_spec())  # type: ignore[arg-type]
    for step in plan.steps:
        entries = [operand.entry for operand in step.reads]
        loads_again = step.family == "rows" and not step.operands[0].is_panel  # in each of its passes
        if loads_again or len(set(entries)) < len(entries) or tile_count(step) > 60:
            continue  # one tensor read twice cannot be told apart in events
        events = forecast(plan, (step.index,))
        moved: dict[tuple[int, int], int] = defaultdict(int)
        for event in events[events["kind"] == KINDS.index("load")]:
            moved[int(event["tile"]), int(event["node"])] += int(event["nbytes"])
        panels = {operand.name for operand in step.operands if operand.is_panel}
        for tile in range(tile_count(step)):
            operands = tile_scene(plan, step.index, tile).operands
            for entry, operand in zip(entries, operands, strict=True):
                if operand.name not in panels:
                    assert operand.nbytes == moved[tile, entry.node], (step.family, operand.name)


def test_chunks_add_up_to_the_tile(matmul_plan: Plan) -> None:
    step = matmul_plan.steps[0]
    assert chunk_count(step) > 1
    whole = tile_scene(matmul_plan, 0, 3)
    chunks = [tile_scene(matmul_plan, 0, 3, chunk) for chunk in range(chunk_count(step))]
    for number, operand in enumerate(whole.operands):
        if operand.name in ("x", "w"):
            assert operand.elements == sum(scene.operands[number].elements for scene in chunks)


def test_the_halo_is_what_a_neighbour_reads_too(conv_plan: Plan) -> None:
    """Without halo the boxes of two tiles side by side do not overlap, with it they do."""
    first, second = tile_scene(conv_plan, 0, 0).operands[0], tile_scene(conv_plan, 0, 1).operands[0]
    assert first.columns.own[1] <= second.columns.own[0]
    assert first.columns.span[1] > second.columns.span[0]


def test_a_strided_1x1_kernel_has_no_halo(spec: NpuSpec) -> None:
    b = GraphBuilder()
    b.op("conv2d", b.input((1, 8, 40, 40)), b.input((8, 8, 1, 1)), strides=(2, 2))
    x = tile_scene(make_plan(b.graph(), spec), 0, 1).operands[0]
    assert (x.rows.own, x.columns.own) == (x.rows.span, x.columns.span)


@pytest.mark.parametrize("family", ["conv", "matmul", "softmax"])
def test_every_tile_is_drawn_without_overlaps(plans: dict[str, Plan], family: str) -> None:
    plan = plans[family]
    for step in plan.steps:
        count = tile_count(step)
        for tile in {0, 1, count // 2, count - 1}:
            check(tiles(plan, step.index, tile))
            check(tiles(plan, step.index, tile, 0))


def test_pictures_of_one_step_have_one_size(conv_plan: Plan) -> None:
    """Or everything jumps while a slider moves."""
    roots = [check(tiles(conv_plan, 0, tile)) for tile in range(tile_count(conv_plan.steps[0]))]
    assert len({root.get("viewBox") for root in roots}) == 1


def test_many_small_operands_leave_no_large_gap(spec: NpuSpec) -> None:
    """Those that do not fit beside the grid stand below it, in order, and both columns end at about one height."""
    b = GraphBuilder()
    x, weights = b.input((1, 64, 28, 28)), b.input((64, 64, 3, 3))
    value = b.op("conv2d", x, weights, composite="c#0", padding=(1, 1, 1, 1))
    value = b.op("add", value, b.input((1, 64, 1, 1)), composite="c#0")
    b.op("batch_norm", value, *(b.input((64,)) for _ in range(4)), composite="c#0", axis=1)
    plan = make_plan(b.graph(), spec)
    root = check(tiles(plan, 0, 3))
    titles = {t.text: (float(t.get("x", "")), float(t.get("y", ""))) for t in root.iter(f"{SVG}text")}
    stands = [place for text, place in titles.items() if text and " = " in text]
    assert len(stands) == 7
    assert stands == sorted(stands, key=lambda place: (-place[0], place[1]))
    ends = [max(y for left, y in stands if left == column) for column in {left for left, _ in stands}]
    assert len(ends) == 2
    assert float(root.get("height", "")) - min(ends) < 200


def test_each_drawn_tile_can_be_found_by_its_number(matmul_plan: Plan) -> None:
    root = check(tiles(matmul_plan, 0, 2))
    numbers = [element.get("data-tile") for element in root.iter() if element.get("data-tile")]
    assert sorted(map(int, filter(None, numbers))) == list(range(tile_count(matmul_plan.steps[0])))


def test_ragged_tiles_are_smaller_and_hatched(matmul_plan: Plan) -> None:
    """70 rows and 45 columns in tiles of 32: the last row and column are ragged."""
    root = check(tiles(matmul_plan, 0, 0))
    cells = [element for element in root.iter(f"{SVG}g") if element.get("data-tile")]
    ragged = {cell.get("data-tile") for cell in cells if cell.find(f"{SVG}path") is not None}
    named = {cell.get("data-tile") for cell in cells if "ragged" in (cell.findtext(f"{SVG}title") or "")}
    assert ragged == named
    assert len(ragged) == 4
    last = tile_scene(matmul_plan, 0, 5)
    assert sorted(last.ragged) == ["M", "N"]
    assert any(word.endswith("a full tile has 1,024.") for word in words(check(tiles(matmul_plan, 0, 5))))


@pytest.mark.parametrize("tile", [0, 1700, 5699])
def test_a_huge_grid_is_sampled_and_says_so(spec: NpuSpec, tile: int) -> None:
    b = GraphBuilder()
    b.op("conv2d", b.input((1, 3, 302, 302)), b.input((64, 3, 3, 3)))
    plan = make_plan(b.graph(), spec)
    assert tile_count(plan.steps[0]) == 5700
    root = check(tiles(plan, 0, tile))
    numbers = [int(e.get("data-tile", "")) for e in root.iter() if e.get("data-tile")]
    assert tile in numbers
    assert len(numbers) <= MAX_SIDE**2
    assert any("a sample is drawn" in word for word in words(root))


@given(st.integers(1, 500), st.data())
def test_a_sample_has_both_ends_and_the_current_tile(count: int, data: st.DataObject) -> None:
    current = data.draw(st.integers(0, count - 1))
    shown = sample(count, current)
    kept = [index for index in shown if index is not None]
    assert {0, current, count - 1} <= set(kept)
    assert kept == sorted(set(kept))
    assert len(kept) <= MAX_SIDE
    for before, index in itertools.pairwise(shown):
        if before is not None and index is not None:
            assert index == before + 1  # a gap is always marked


@pytest.mark.parametrize(
    ("step", "tile", "chunk", "message"),
    [
        (9, 0, None, r"no step 9: there are 2 steps"),
        (-1, 0, None, r"no step -1"),
        (0, 10_000, None, r"no tile 10000: there are"),
        (0, 0, 50, r"no chunk 50"),
    ],
)
def test_what_is_not_there_is_refused_with_numbers(
    conv_plan: Plan, step: int, tile: int, chunk: int | None, message: str
) -> None:
    with pytest.raises(RenderError, match=message):
        render.tiles(conv_plan, step, tile, chunk)
