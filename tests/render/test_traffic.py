"""Bytes per boundary, for one run and several."""

from __future__ import annotations

import pytest
from pictures import HOSTILE_NAMES, SVG, check, tooltips, words

from npu_kit.errors import RenderError
from npu_kit.plan.ir import Plan
from npu_kit.plan.traffic import plan_counters
from npu_kit.render import traffic
from npu_kit.trace.counters import total
from npu_kit.trace.events import Events, bytes_by_boundary

ONE = {("L3", "L1"): 4096, ("L1", "L3"): 1024, ("L1", "L0"): 9000}
TWO = {("L3", "L2"): 2048, ("L2", "L1"): 2048, ("L1", "L3"): 1024, ("L0", "L1"): 100}


def test_every_boundary_of_every_run_has_its_bytes() -> None:
    root = check(traffic({"unmerged": ONE, "merged": TWO}))
    tips = tooltips(root)
    assert "unmerged: 4 KB (4,096 bytes) from L3 to L1" in tips
    assert "merged: 0 B (0 bytes) from L3 to L1" in tips
    assert "merged: 2 KB (2,048 bytes) from L2 to L1" in tips


def test_the_sentences_compare_with_the_first_run() -> None:
    shown = words(check(traffic({"unmerged": ONE, "merged": TWO})))
    assert "unmerged: 5 KB to and from L3 in all." in shown
    assert "merged: 3 KB to and from L3 in all, 60 % of 'unmerged'." in shown


def test_registers_are_drawn_on_request() -> None:
    assert "L1 to L0" not in words(check(traffic({"run": ONE})))
    assert "L1 to L0" in words(check(traffic({"run": ONE}, with_registers=True)))


def test_bars_are_in_proportion_and_runs_differ_by_hatch() -> None:
    root = check(traffic({"unmerged": ONE, "merged": TWO}))
    widths = {}
    for rect in root.iter(f"{SVG}rect"):
        tip = rect.findtext(f"{SVG}title") or ""
        if "bytes)" in tip:
            widths[tip] = float(rect.get("width", ""))
    assert (
        widths["unmerged: 4 KB (4,096 bytes) from L3 to L1"] == 2 * widths["merged: 2 KB (2,048 bytes) from L3 to L2"]
    )
    assert len(list(root.iter(f"{SVG}path"))) > len(list(check(traffic({"unmerged": ONE})).iter(f"{SVG}path")))


def test_a_forecast_and_its_events_give_the_same_picture(conv_plan: Plan, events: Events) -> None:
    forecast = total(plan_counters(conv_plan)).nbytes
    assert traffic({"run": forecast}) == traffic({"run": bytes_by_boundary(events)})


def test_nothing_moved_is_a_picture_that_says_so() -> None:
    assert "nothing was moved" in words(check(traffic({"run": {}})))


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_are_only_text(name: str) -> None:
    check(traffic({name: ONE, "other": TWO}, title=name or "untitled"))


def test_the_number_of_runs_is_limited() -> None:
    with pytest.raises(RenderError, match="cannot compare 0 runs"):
        traffic({})
    with pytest.raises(RenderError, match="cannot compare 5 runs: the picture has room for 1 to 4"):
        traffic({str(i): ONE for i in range(5)})
