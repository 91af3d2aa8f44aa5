"""Which operations match: the choices, the picture, what is told about a call."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest
import traitlets

from npu_kit.errors import PartitionError
from npu_kit_widgets import PatternExplorer
from npu_kit_widgets.pattern_explorer import pattern_names

FUSED, CONV, RELU = "example_npu.conv2d_relu_fused", "example_npu.conv2d", "example_npu.relu"


@pytest.fixture
def runs():
    """What ``run`` was called with."""
    return []


@pytest.fixture
def explorer(fused, apart, runs):
    """The fused pattern takes part if it comes before the plain conv."""

    def run(mod, table):
        names = pattern_names(table)
        runs.append((mod, names))
        return fused if FUSED in names and names.index(FUSED) < names.index(CONV) else apart

    specific = [SimpleNamespace(name=FUSED), (CONV, "a pattern"), (RELU, "a pattern")]
    tables = {"specific first": specific, "general first": specific[1:] + specific[:1]}
    return PatternExplorer({"small": "module a", "large": "module b"}, tables, run)


def test_it_starts_with_the_first_model_and_table(explorer, runs):
    assert runs == [("module a", [FUSED, CONV, RELU])]
    assert repr(explorer) == "PatternExplorer(small, specific first)"
    assert "2 of 4 calls matched, in 1 composite from 1 of 3 patterns" in explorer._status.value


def test_the_order_of_the_patterns_changes_picture_and_sentence(explorer):
    before = explorer._picture.svg
    explorer.table = "general first"
    assert explorer._picture.svg != before
    assert "3 of 3 calls matched, in 3 composites from 2 of 3 patterns" in explorer._status.value
    assert "Before this change: 2 of 4 calls" in explorer._status.value


def test_the_picture_has_a_line_per_call_with_its_composite_and_the_patterns_place(explorer, fused):
    assert explorer._picture.part_ids() == [call.span for call in fused.report]
    assert explorer._picture.svg.count("conv2d_relu_fused#0</text>") == 1  # once for both calls
    assert "pattern 1 of 3" in explorer._picture.svg
    explorer.table = "general first"
    assert "pattern 2 of 3" in explorer._picture.svg  # relu
    assert "1 conv2d" not in explorer._order.value  # a list numbers itself
    assert explorer._order.value.index("conv2d: 2") < explorer._order.value.index("conv2d_relu_fused: 0")


def test_a_pattern_that_took_something_can_be_left_out(explorer, runs):
    assert [value for _, value in explorer._leave_out.options] == ["", FUSED]
    explorer.without = FUSED
    assert runs[-1] == ("module a", [CONV, RELU])
    assert "without conv2d_relu_fused" in repr(explorer)
    assert "of 2 patterns" in explorer._status.value
    with pytest.raises(traitlets.TraitError, match="pattern to leave out"):
        explorer.without = RELU


def test_another_model_puts_the_pattern_back(explorer, runs):
    explorer.without = FUSED
    runs.clear()
    explorer.model = "large"
    assert explorer.without == ""
    assert runs == [("module b", [FUSED, CONV, RELU])]


def test_each_choice_runs_once(explorer, runs):
    runs.clear()
    explorer.table = "general first"
    explorer.table = "specific first"
    explorer.model = "large"
    assert len(runs) == 3


def test_a_refused_call_is_told_first_and_another_on_request(explorer):
    assert explorer.selected == "main:3"
    assert "memory: needs 16 KB of L1, found 4 KB (try: a larger L1)" in explorer._story.value
    explorer._picture._handle_custom_msg({"pick": "main:2"}, [])
    assert explorer.selected == explorer._picture.selected == "main:2"
    assert "no pattern names relax.reshape" in explorer._story.value


def test_unknown_choices_are_refused(explorer):
    for name, value in (("model", "huge"), ("table", "none"), ("selected", "main:99")):
        before = getattr(explorer, name)
        with pytest.raises(traitlets.TraitError, match=value):
            setattr(explorer, name, value)
        assert getattr(explorer, name) == before


def test_an_error_in_run_is_shown_and_the_last_result_stays(fused):
    def run(mod, _table):
        if mod == "bad":
            raise PartitionError("the patterns cannot be fused", "one of them is <wrong>", "another table")
        return fused

    explorer = PatternExplorer({"good": "good", "bad": "bad"}, {"table": [(FUSED, None)]}, run)
    picture = explorer._picture.svg
    explorer.model = "bad"
    assert "Matching bad with table failed: the patterns cannot be fused" in explorer._alert.value
    assert (explorer._picture.svg, explorer.partition) == (picture, fused)
    explorer.model = "good"
    assert explorer.error is None


def test_wrong_arguments_are_refused(fused):
    with pytest.raises(TypeError, match="run"):
        PatternExplorer({"m": 1}, {"t": []}, fused)
    with pytest.raises(ValueError, match="tables is empty"):
        PatternExplorer({"m": 1}, {}, lambda *_: fused)
    with pytest.raises(TypeError, match="unknown"):
        PatternExplorer({"m": 1}, {"t": []}, lambda *_: fused, unknown=1)


def test_changes_from_two_threads_are_handled_in_turn_and_the_newest_state_is_drawn(fused, apart):
    """JupyterLab sends a view's first messages to the main thread and later ones to a subshell's."""
    running, most = [], []

    def run(mod, table):
        running.append(mod)
        most.append(len(running))
        time.sleep(0.05 if mod == "module b" and len(table) == 3 else 0)  # the older change takes longer
        running.pop()
        return fused if len(table) == 3 else apart

    tables = {"three": [(FUSED, ""), (CONV, ""), (RELU, "")], "two": [(CONV, ""), (RELU, "")]}
    view = PatternExplorer({"small": "module a", "large": "module b"}, tables, run)
    for _ in range(5):
        threads = [
            threading.Thread(target=view.set_trait, args=change) for change in (("model", "large"), ("table", "two"))
        ]
        for thread in threads:
            thread.start()
            time.sleep(0.01)
        for thread in threads:
            thread.join()
        assert view.partition is apart and "large, two" in view._picture.svg
        view.model, view.table = "small", "three"
    assert max(most) == 1
    assert view.error is None
