"""Tiles: the plan follows the sliders at once, the sentence says what the events hold, errors leave the picture."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import traitlets

from npu_kit.errors import PlanError
from npu_kit.graph.ir import Entry, Graph, Node, TensorType
from npu_kit.hw import load_spec
from npu_kit.hw.sources import sources_after
from npu_kit.plan.cost import DATAFLOWS
from npu_kit.plan.forecast import forecast
from npu_kit.plan.geometry import chunk_count, tile_count
from npu_kit.plan.nest import instruction_count
from npu_kit.plan.planner import make_plan
from npu_kit.trace.events import KINDS
from npu_kit_widgets import TileExplorer, tile_explorer
from npu_kit_widgets.tile_explorer import in_time
from npu_kit_widgets.tile_moment import moment_of

KB = 1024
WORDS = {  # what the sentence of each kind of event says
    "prefetch": "copies",
    "load": "loads",
    "compute": "computes",
    "epilogue": "applies",
    "drain": "result out of the accumulator",
    "store": "stores",
    "fill": "partial sum back into the accumulator",
    "spill": "partial sum out of the accumulator",
}


@pytest.fixture
def plans():
    """The machines for which a plan was asked."""
    return []


@pytest.fixture
def explorer(conv_relu, plans):
    def plan(graph, spec):
        plans.append(spec)
        return make_plan(graph, spec)

    return TileExplorer(conv_relu, "example", plan, forecast)


def test_it_starts_with_tiles_done_and_tiles_to_come(explorer):
    tile = int(explorer._events[explorer.position]["tile"])
    assert 0 < tile < tile_count(explorer.plan.steps[0]) - 1
    assert KINDS[int(explorer._events[explorer.position]["kind"])] == "compute"


def test_each_move_of_a_slider_plans_once_for_that_machine(explorer, plans):
    plans.clear()
    explorer._controls["tile"].value = 8
    explorer._controls["l1_bytes"].value = 64 * KB
    example = load_spec("example")
    capacity = example.tier("L1").capacity_bytes
    assert plans == [
        example.replace(tile=8, capacity_bytes={"L1": capacity}),
        example.replace(tile=8, capacity_bytes={"L1": 64 * KB}),
    ]
    explorer.position = 0
    assert len(plans) == 2  # looking elsewhere in a plan makes no other


def test_every_picture_follows_the_tile(explorer):
    before = [picture.svg for picture in explorer._pictures]
    explorer.tile = 8
    assert all(picture.svg != old for picture, old in zip(explorer._pictures, before, strict=True))


def test_what_does_not_fit_is_said_and_the_last_plan_stays(explorer):
    explorer.tile = 32
    plan, pictures = explorer.plan, [picture.svg for picture in explorer._pictures]
    explorer.l1_bytes = 2 * KB
    assert isinstance(explorer.error, PlanError)
    assert "Planning tile 32 with 2 KB of L1 failed" in explorer._alert.value
    assert "does not fit L1 SRAM" in explorer._alert.value
    assert "Try:" in explorer._alert.value
    assert explorer.plan is plan
    assert [picture.svg for picture in explorer._pictures] == pictures
    explorer.position = 3  # the plan that is shown can still be looked at, and the message stays
    assert [picture.svg for picture in explorer._pictures] != pictures
    assert "does not fit L1 SRAM" in explorer._alert.value
    explorer.l1_bytes = 256 * KB
    assert (explorer.error, explorer._alert.value) == (None, "")


def test_the_sentence_says_what_the_event_holds(explorer):
    for position, event in enumerate(explorer._events):
        explorer.position = position
        sentence = explorer._status.value
        assert f"Cycle {int(event['start']):,}:" in sentence
        assert f" {int(event['cycles']):,} cycle" in sentence
        assert ("after waiting for" in sentence) == (event["cause"] > 0)
        if event["nbytes"]:
            assert f" {int(event['nbytes']):,} byte" in sentence
        if event["macs"]:
            assert f" {int(event['macs']):,} MACs" in sentence
        if event["tile"] >= 0:
            assert f"tile {int(event['tile'])} of {tile_count(explorer.plan.steps[0])} " in sentence


def test_the_position_walks_through_time(explorer):
    starts = explorer._events["start"]
    assert (np.diff(starts) >= 0).all()
    assert (np.diff(forecast(explorer.plan, (0,))["start"]) < 0).any(), "in order already: this test is weak"


def test_spans_in_the_sentence_cover_each_output_element_once(explorer):
    covered = np.zeros((20, 12, 12), int)
    for tile in range(tile_count(explorer.plan.steps[0])):
        explorer._go_to_tile(tile)
        words = explorer._status.value.partition("(")[2].partition(")")[0]
        spans = {letter: span for letter, span in (part.split() for part in words.split(", "))}
        index = tuple(slice(*map(int, spans[letter].split(":"))) for letter in "CHW")
        covered[index] += 1
    assert (covered == 1).all()


def test_a_tile_or_an_event_is_chosen_in_its_picture(explorer):
    current = int(explorer._events[explorer.position]["tile"])
    number = next(name for name in explorer._tiles.part_ids() if name != str(current))
    explorer._tiles._handle_custom_msg({"pick": number}, [])
    event = explorer._events[explorer.position]
    assert (str(event["tile"]), KINDS[int(event["kind"])]) == (number, "compute")
    explorer._timeline._handle_custom_msg({"pick": "2"}, [])
    assert explorer.position == explorer._controls["position"].value == 2


def test_chunks_are_numbered_by_the_computes_of_their_tile(long_matmul):
    plan = make_plan(long_matmul, load_spec("example"), tile=16)
    (step,) = plan.steps
    events = in_time(forecast(plan, (0,)))
    assert chunk_count(step) > 1, "one chunk would make this test weak"
    for tile in range(tile_count(step)):
        computes = [i for i, e in enumerate(events) if e["tile"] == tile and KINDS[int(e["kind"])] == "compute"]
        assert [moment_of(plan, step, events, i).chunk for i in computes] == list(range(chunk_count(step)))
    stores = [i for i, e in enumerate(events) if KINDS[int(e["kind"])] == "store"]
    assert [moment_of(plan, step, events, i).chunk for i in stores] == [None] * tile_count(step)


@pytest.mark.parametrize("dataflow", DATAFLOWS)
@pytest.mark.parametrize("model", ["conv_relu", "long_matmul"])
def test_each_kind_of_event_has_its_sentence(model, dataflow, request):
    plan = make_plan(request.getfixturevalue(model), load_spec("example"), tile=16, dataflow=dataflow)
    for step in plan.steps:
        events = in_time(forecast(plan, (step.index,)))
        assert len(events) <= instruction_count(plan, (step.index,))
        for position, event in enumerate(events):
            assert WORDS[KINDS[int(event["kind"])]] in moment_of(plan, step, events, position).sentence
    if model == "long_matmul" and dataflow != "output_stationary":
        assert {"fill", "spill"} <= {KINDS[kind] for kind in events["kind"]}


def test_too_many_events_leave_the_tiles_and_no_timeline(explorer, monkeypatch):
    monkeypatch.setattr(tile_explorer, "MAX_INSTRUCTIONS", 10)
    explorer.tile = 8
    tiles = tile_count(explorer.plan.steps[0])
    assert explorer._controls["position"].max == tiles - 1
    assert explorer._controls["position"].description == "tile"
    assert explorer._timeline.svg == ""
    assert "There is no timeline: at most 10 instructions" in explorer._status.value
    explorer.position = 1
    assert f"Tile 1 of {tiles} " in explorer._status.value
    number = explorer._tiles.part_ids()[-1]
    explorer._tiles._handle_custom_msg({"pick": number}, [])
    assert explorer.position == int(number)


def test_wrong_state_is_refused(explorer):
    last = len(explorer._events) - 1
    wrong = {"tile": (4, 33), "l1_bytes": (5,), "step": (1, -1), "position": (last + 1, -1)}
    for name, value in ((name, value) for name, values in wrong.items() for value in values):
        before = getattr(explorer, name)
        with pytest.raises(traitlets.TraitError):
            setattr(explorer, name, value)
        assert getattr(explorer, name) == before


def test_wrong_arguments_are_refused(conv_relu):
    with pytest.raises(TypeError, match="plan must be a function"):
        TileExplorer(conv_relu, "example", None, forecast)
    with pytest.raises(TypeError, match="graph must be a Graph"):
        TileExplorer("conv", "example", make_plan, forecast)
    with pytest.raises(TypeError, match="steps"):
        TileExplorer(conv_relu, "example", make_plan, forecast, steps=1)


def test_repr(explorer):
    explorer.position = 3
    assert repr(explorer) == "TileExplorer(tile=16, L1=256 KB, step=0, position=3)"


def test_a_machine_whose_smallest_tile_is_large(conv_relu):
    """The first tile is the smallest that the machine has, where the usual one is smaller."""
    example = load_spec("example")
    spec = dataclasses.replace(example, tile=dataclasses.replace(example.tile, minimum=20))
    spec = dataclasses.replace(spec, sources=sources_after(example, spec))
    explorer = TileExplorer(conv_relu, spec, make_plan, forecast)
    assert explorer.tile == explorer._controls["tile"].value == explorer._controls["tile"].min == 20
    assert explorer.plan.spec.tile.rows == 20


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0,)])
def test_a_graph_without_elements_has_no_tile_and_no_error(shape):
    kind = TensorType(shape, "float32")
    nodes = (Node("input", "x", (kind,)), Node("kernel", "relu", (kind,), (Entry(0),), {}, "c#0"))
    explorer = TileExplorer(Graph("empty", nodes, (0,), (Entry(1),)), "example", make_plan, forecast)
    assert "Step 0 has no tile: its result has no elements." in explorer._status.value
    assert explorer._alert.value == ""
    explorer._controls["tile"].value = 8
    assert explorer._alert.value == ""
