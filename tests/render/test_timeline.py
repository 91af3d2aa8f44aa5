"""The engine timeline: lanes, stalls, windows, the cursor."""

from __future__ import annotations

import numpy as np
import pytest
from pictures import HOSTILE_NAMES, SVG, check, tooltips, words

from npu_kit.errors import RenderError
from npu_kit.plan.ir import Plan
from npu_kit.render import timeline
from npu_kit.render.lanes import WINDOW, Stall, lanes_of
from npu_kit.trace.events import CAUSES, ENGINES, EVENT_DTYPE, KINDS, TIERS, Events


def row(
    kind: str,
    engine: str,
    start: int,
    cycles: int,
    *,
    step: int = 0,
    tile: int = 0,
    ends: str = "L3 L1",
    cause: str = "",
) -> tuple[int, ...]:
    source, target = (TIERS.index(name) for name in ends.split())
    nbytes = 4096 if engine == "dma" else 0
    macs = 1000 if kind == "compute" else 0
    place = (step, tile, 7, KINDS.index(kind), ENGINES.index(engine), source, target)
    return (*place, nbytes, macs, start, cycles, CAUSES.index(cause))


@pytest.fixture
def short_run() -> Events:
    """Two loads, a compute, a load that makes the engine wait, a compute, an epilogue, a store; then the next step."""
    return np.array(
        [
            row("prefetch", "dma", 0, 100, ends="L3 L2", tile=-1),
            row("load", "dma", 100, 50, ends="L2 L1"),
            row("compute", "conv", 150, 200),
            row("load", "dma", 350, 80, tile=1, ends="L2 L1"),
            row("compute", "conv", 430, 200, tile=1, cause="operand"),
            row("epilogue", "activation", 630, 30, tile=1),
            row("store", "dma", 660, 40, tile=1, ends="L1 L3"),
            row("compute", "conv", 900, 100, step=1),
        ],
        EVENT_DTYPE,
    )


def test_every_event_is_in_the_lane_of_its_engine(events: Events) -> None:
    lanes = lanes_of(events, count=len(events))
    assert sorted(piece.index for lane in lanes for piece in lane.slices) == list(range(len(events)))
    for lane in lanes:
        for piece in lane.slices:
            event = events[piece.index]
            assert ENGINES[event["engine"]] == lane.engine
            assert (piece.start, piece.stop) == (event["start"], event["start"] + event["cycles"])
            if lane.engine == "dma":
                assert lane.label == f"dma {TIERS[event['src']]} to {TIERS[event['dst']]}"


def test_slices_of_a_lane_stand_one_behind_the_other(events: Events) -> None:
    for lane in lanes_of(events, count=len(events)):
        for before, piece in zip(lane.slices, lane.slices[1:], strict=False):
            assert before.stop <= piece.start


def test_a_stall_is_the_wait_between_two_computes_and_knows_its_cause(short_run: Events) -> None:
    stalls = {lane.label: lane.stalls for lane in lanes_of(short_run, {7: "conv1"})}
    assert stalls["conv"] == (Stall(350, 430, "load conv1", "operand"),)  # not the wait between the steps
    assert stalls["activation"] == stalls["dma L2 to L1"] == ()


def test_the_picture_names_lanes_steps_and_stalls(short_run: Events) -> None:
    root = check(timeline(short_run, names={7: "conv1"}))
    shown = words(root)
    for text in ("dma L3 to L2", "dma L2 to L1", "dma L1 to L3", "conv", "activation", "step 0", "step 1", "stall"):
        assert text in shown, text
    assert "conv waits 80 cycles for its operand, until the end of load conv1" in tooltips(root)
    assert any(
        tip.startswith("event 4: compute conv1; step 0, tile 1; conv, 200 cycles from cycle 430")
        for tip in tooltips(root)
    )
    assert "8 events of 8. Cycles 0 to 1,000." in shown


def test_positions_are_in_proportion_to_cycles(short_run: Events) -> None:
    root = check(timeline(short_run))
    bars = {}
    for group in root.iter(f"{SVG}g"):
        if group.get("data-event"):
            rect = group.find(f"{SVG}rect")
            assert rect is not None
            bars[int(group.get("data-event", ""))] = float(rect.get("x", "")), float(rect.get("width", ""))
    scale = bars[2][1] / 200
    origin = bars[0][0]
    for index, event in enumerate(short_run):
        assert bars[index][0] == pytest.approx(origin + event["start"] * scale, abs=0.02)
        assert bars[index][1] == pytest.approx(event["cycles"] * scale, abs=0.02)


def test_a_window_says_what_it_leaves_out(events: Events) -> None:
    root = check(timeline(events, first=10, count=25))
    drawn = [int(e.get("data-event", "")) for e in root.iter() if e.get("data-event")]
    assert sorted(drawn) == list(range(10, 35))
    assert any(f"25 events of {len(events):,}: numbers 10 to 34; the others are not drawn" in w for w in words(root))


def test_more_than_a_window_is_never_drawn(conv_plan: Plan, events: Events) -> None:
    many = np.concatenate([events] * 3)
    root = check(timeline(many, count=10**6))
    assert len([e for e in root.iter() if e.get("data-event")]) == WINDOW


@pytest.mark.parametrize("first", [0, 3, 60])
def test_windows_of_a_real_forecast_are_readable(events: Events, first: int) -> None:
    check(timeline(events, first=first, count=40, cursor=first + 5))
    check(timeline(events, first=first))


def test_the_cursor_marks_its_event_by_more_than_colour(short_run: Events) -> None:
    root = check(timeline(short_run, cursor=4))
    thick = [
        g.get("data-event")
        for g in root.iter(f"{SVG}g")
        for r in g.findall(f"{SVG}rect")
        if r.get("stroke-width") == "2.5"
    ]
    assert thick == ["4"]


def test_a_cursor_outside_the_window_is_not_drawn(short_run: Events) -> None:
    assert timeline(short_run, count=3, cursor=7) == timeline(short_run, count=3)


def test_no_events_is_a_picture_that_says_so() -> None:
    assert "no events" in words(check(timeline(np.empty(0, EVENT_DTYPE))))


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_are_only_text(short_run: Events, name: str) -> None:
    check(timeline(short_run, names={7: name}, title=name or "untitled"))


@pytest.mark.parametrize(("first", "cursor"), [(8, None), (-1, None), (0, 8), (0, -1)])
def test_an_event_that_is_not_there_is_refused(short_run: Events, first: int, cursor: int | None) -> None:
    with pytest.raises(RenderError, match="there are 8, counted from 0"):
        timeline(short_run, first=first, cursor=cursor)
