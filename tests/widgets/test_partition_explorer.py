"""What goes where: the options that ``run`` gets, the picture, the story of a call."""

from __future__ import annotations

import pytest
import traitlets

from npu_kit.hw import load_spec
from npu_kit_widgets import PartitionExplorer


@pytest.fixture
def runs():
    return []


@pytest.fixture
def explorer(fused, apart, describe, runs):
    def run(mod, options):
        runs.append((mod, options))
        return fused if options["merge"] == "safe" else apart

    return PartitionExplorer({"small": "module a", "large": "module b"}, run, describe=describe)


def test_run_gets_the_keywords_of_partition(explorer, runs):
    ((mod, options),) = runs
    assert mod == "module a"
    assert set(options) == {"spec", "merge", "bind_constants"}
    assert options["spec"] == load_spec("example").replace(capacity_bytes={"L1": 16 * 1024})
    explorer.merge, explorer.bind_constants, explorer.l1_bytes = False, False, 256 * 1024
    _, options = runs[-1]
    assert (options["merge"], options["bind_constants"]) == ("never", False)
    assert options["spec"].tier("L1").capacity_bytes == 256 * 1024
    assert len(runs) == 4


def test_it_starts_where_something_is_refused(explorer):
    assert explorer.selected == "main:3"
    assert "needs 16 KB of L1, found 4 KB" in explorer._story.value
    assert "1 call matched a pattern whose check refused" in explorer._status.value


def test_a_call_is_chosen_in_the_picture_or_in_the_list(explorer, fused):
    assert explorer._picture.part_ids() == [call.span for call in fused.report]
    explorer._picture._handle_custom_msg({"pick": "main:0"}, [])
    assert explorer._call.value == explorer.selected == explorer._picture.selected == "main:0"
    assert "in example_npu.conv2d_relu_fused#0" in explorer._story.value
    explorer._call.value = "main:2"
    assert explorer._picture.selected == "main:2"
    assert "no pattern names relax.reshape" in explorer._story.value
    explorer.selected = ""
    assert explorer._picture.selected == ""
    assert "Click an operation" in explorer._story.value


def test_a_chosen_call_stays_chosen_while_it_is_there(explorer):
    explorer.selected = "main:2"
    explorer.merge = False
    assert explorer.selected == "main:2"
    assert "example_npu.conv2d#2" in explorer._story.value
    explorer.merge = True
    explorer.selected = "main:3"
    explorer.merge = False  # no call 3 any more
    assert explorer.selected == "main:0"


def test_the_picture_follows(explorer):
    before = explorer._picture.svg
    explorer.merge = False
    assert explorer._picture.svg != before


def test_an_error_is_shown_and_the_last_result_stays(explorer, fused):
    picture = explorer._picture.svg
    explorer._run = lambda *_: 1 / 0
    explorer.merge = False
    assert "Partitioning small failed: ZeroDivisionError" in explorer._alert.value
    assert (explorer._picture.svg, explorer.partition) == (picture, fused)


def test_the_machines_own_capacity_is_among_the_sizes(fused, describe):
    spec = load_spec("example").replace(capacity_bytes={"L1": 10_000})
    explorer = PartitionExplorer({"m": 1}, lambda *_: fused, spec=spec, describe=describe)
    explorer.l1_bytes = 10_000
    assert explorer.options["spec"] == spec


def test_unknown_state_and_keywords_are_refused(explorer, fused):
    for name, value in (("model", "huge"), ("l1_bytes", 5), ("selected", "main:99"), ("merge", "maybe")):
        with pytest.raises(traitlets.TraitError):
            setattr(explorer, name, value)
    with pytest.raises(TypeError, match="machine"):
        PartitionExplorer({"m": 1}, lambda *_: fused, machine="example")


def test_repr(explorer):
    assert repr(explorer) == "PartitionExplorer(small, merge=True, bind_constants=True, L1=16 KB)"
