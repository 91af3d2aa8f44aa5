"""Programs as text: folded and unfolded, filtered, sliced and compared; the same in a notebook."""

from __future__ import annotations

import doctest
import html
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pictures import HOSTILE_NAMES

from npu_kit.errors import RenderError
from npu_kit.plan.ir import Plan
from npu_kit.plan.planner import make_plan
from npu_kit.render import program
from npu_kit.render.listing import program as module
from npu_kit.render.listing.folded_text import moves
from npu_kit.trace.events import ENGINES, KINDS, TIERS, Events


def test_the_folded_program_of_a_layer(matmul_plan: Plan, golden: Callable[[str, str], None]) -> None:
    golden("program.txt", f"{program(matmul_plan)}\n\n{program(matmul_plan)[4:12]}\n")


def test_a_notebook_shows_the_text(plans: dict[str, Plan]) -> None:
    for plan in plans.values():
        shown = program(plan)
        assert html.unescape(re.sub("<[^>]*>", "", shown._repr_html_())) == str(shown)
        assert repr(shown).startswith("Program(sample on example") and "\n" not in repr(shown)
        assert all(len(line) < 160 for line in str(shown).splitlines())


def test_rows_are_the_forecast(conv_plan: Plan, events: Events) -> None:
    rows = program(conv_plan).rows
    for name in events.dtype.names or ():
        np.testing.assert_array_equal(rows.rows[name], events[name])
    lines = str(rows[10:13]).splitlines()
    assert len(rows) == len(events) and len(rows[10:13]) == 3 == len(lines) - 1
    first = events[10]
    assert lines[1].split()[:3] == [str(first["step"]), str(first["tile"]), KINDS[first["kind"]]]
    assert f"{first['start'] + first['cycles']:,}" in lines[1]
    assert "other rows not shown" in rows._repr_html_() and repr(rows) == f"ProgramRows({len(rows):,} rows)"


@pytest.mark.parametrize(
    ("criteria", "chosen"),
    [
        ({"engine": "dma"}, lambda e: e["engine"] == ENGINES.index("dma")),
        ({"tier": "L2"}, lambda e: (e["src"] == TIERS.index("L2")) | (e["dst"] == TIERS.index("L2"))),
        ({"kind": "store"}, lambda e: e["kind"] == KINDS.index("store")),
        ({"step": 1}, lambda e: e["step"] == 1),
        ({"tile": 3}, lambda e: e["tile"] == 3),
        ({"node": 0}, lambda e: e["node"] == 0),
        ({"step": 0, "engine": "conv", "tile": 1}, lambda e: (e["step"] == 0) & (e["engine"] == 2) & (e["tile"] == 1)),
    ],
)
def test_filters_choose_rows(conv_plan: Plan, events: Events, criteria: dict, chosen: Callable) -> None:
    shown = program(conv_plan).filter(**criteria)
    np.testing.assert_array_equal(shown.rows.rows["start"], events["start"][chosen(events)])
    one_by_one = program(conv_plan)
    for key, value in criteria.items():
        one_by_one = one_by_one.filter(**{key: value})
    assert one_by_one == shown
    assert len(shown.rows) > 0


def test_filters_choose_lines_and_keep_the_loops_around_them(conv_plan: Plan) -> None:
    text = str(program(conv_plan).filter(step=0, kind="store"))
    assert "store out" in text and "compute" not in text and "for batch" in text and "step 1" not in text
    assert "step 0" not in str(program(conv_plan).filter(engine="pooling"))
    assert "clear" in str(program(conv_plan).filter(kind="clear"))
    assert "max_pool2d" in str(program(conv_plan).filter(node="max_pool2d"))
    assert "nothing that was asked for" in str(program(conv_plan).filter(engine="matrix"))
    assert str(program(conv_plan).filter(tile=2)) == str(program(conv_plan).filter(tile=2).rows)


@pytest.mark.parametrize(
    ("criteria", "message"),
    [
        ({"engine": "gpu"}, "no engine 'gpu': there are matrix, conv"),
        ({"tier": "L4"}, "no tier 'L4': there are L0, L1, L2, L3"),
        ({"kind": "jump"}, "no kind of instruction 'jump'"),
        ({"step": 2}, "no step 2: the plan has 2 steps"),
        ({"step": -1}, "no step -1"),
        ({"node": 99}, "no node 99"),
        ({"node": "softmax"}, "operations are add, conv2d, max_pool2d, relu"),
    ],
)
def test_what_is_not_there_is_refused(conv_plan: Plan, criteria: dict, message: str) -> None:
    with pytest.raises(RenderError, match=re.escape(message)):
        program(conv_plan).filter(**criteria)


def test_a_long_program_is_shown_without_a_timeline(conv_plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMED_INSTRUCTIONS", 10)
    monkeypatch.setattr(module, "list_program", lambda plan: pytest.fail("it was timed"))
    text = str(program(conv_plan))
    assert "about" in text and "Too long to be timed" in text and "cycles 0 to" not in text


@pytest.mark.parametrize(
    ("kind", "ends", "text"),
    [
        ("load", ("L3", "L1"), "L3 -> L1@64"),
        ("prefetch", ("L3", "L2"), "L3 -> L2@64"),
        ("store", ("L1", "L3"), "L1@64 -> L3"),
        ("drain", ("L0", "L1"), "L0 -> L1@64"),
        ("fill", ("L1", "L0"), "L1@64 -> L0"),
        ("spill", ("L0", "L1"), "L0 -> L1@64"),
        ("fill", ("L3", "L2"), "L3 -> L2@64"),
        ("spill", ("L2", "L3"), "L2@64 -> L3"),
    ],
)
def test_the_offset_stands_where_the_tile_stands(kind: str, ends: tuple[str, str], text: str) -> None:
    assert moves(kind, "out", ends, 64) == text
    assert moves("compute", "maximum", ("L1", "L0"), 64) == "L1 -> L1@64"


def test_two_tiles_are_compared(matmul_plan: Plan) -> None:
    other = make_plan(matmul_plan.graph, matmul_plan.spec, tile=16)
    gap = program(matmul_plan).diff(program(other))
    assert gap and str(gap) == str(program(matmul_plan).diff(other))
    assert re.search(r"tile of x +32 +16 +-16", str(gap))
    assert repr(gap) == f"PlanDifference({len(gap.changes)} changes)"
    assert html.unescape(re.sub("<[^>]*>", "", gap._repr_html_())) == str(gap)
    same = program(matmul_plan).diff(matmul_plan)
    assert not same and str(same) == "The plans are equal in everything that is executed."


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_stay_text(conv_plan: Plan, name: str) -> None:
    nodes = tuple(replace(node, name=name) if node.kind == "input" else node for node in conv_plan.graph.nodes)
    plan = replace(conv_plan, graph=replace(conv_plan.graph, nodes=nodes, symbol=name))
    shown = program(plan)
    for text in (shown._repr_html_(), shown.rows[:3]._repr_html_(), program(conv_plan).diff(plan)._repr_html_()):
        assert set(re.findall("<(/?[a-z]+)", text)) <= {"pre", "/pre"}
    assert len(str(shown).splitlines()) == len(str(program(conv_plan)).splitlines())


def test_the_page_on_programs(repository: Path) -> None:
    page = str(repository / "docs" / "programs.md")
    failed, tried = doctest.testfile(page, module_relative=False, optionflags=doctest.ELLIPSIS)
    assert tried > 15 and failed == 0
