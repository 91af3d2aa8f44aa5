"""The picture at the top of each lesson."""

from __future__ import annotations

import pytest
from pictures import check, words

from npu_kit import render
from npu_kit.errors import RenderError
from npu_kit.render.flow_picture import STAGES

PLACES = [name for stage in STAGES for name in (stage.name, *stage.parts)]


@pytest.mark.parametrize("here", PLACES)
def test_one_stage_is_marked(here: str) -> None:
    root = check(render.flow(here))
    shown = words(root)
    assert shown.count("you are here") == 1
    assert [stage.name for stage in STAGES] == [word for word in shown if word in {stage.name for stage in STAGES}]
    assert root.get("aria-label", "").endswith(f"you are at {here}")


def test_the_plain_picture_marks_nothing() -> None:
    assert "you are here" not in words(check(render.flow()))


def test_pictures_of_different_places_differ() -> None:
    assert len({render.flow(here) for here in ["", *PLACES]}) == len(PLACES) + 1


def test_an_unknown_stage_is_refused_by_name() -> None:
    with pytest.raises(RenderError, match=r"no stage 'codgen'.*codegen"):
        render.flow("codgen")
