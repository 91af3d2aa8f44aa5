"""A renderer that is given something else than it shows says so, and where that is to be had."""

from __future__ import annotations

import pytest

from npu_kit import render
from npu_kit.errors import RenderError

SHOWN = {
    "Plan": ("program", "steps_table", "reasons_table", "summary_table", "tiles", "memory_map", "occupancy"),
    "Graph": ("graph",),
    "Diagram": ("draw", "hide_constants"),
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in SHOWN.items() for name in names])
def test_another_kind_is_told(kind, name):
    draw = getattr(render, name)
    for given, words in (((), "a tuple of 0"), (3, "int"), (None, "NoneType")):
        with pytest.raises(RenderError, match=rf"render\.{name}: it shows one {kind}, and was given {words}\. Try: "):
            draw(given)
    assert draw.__doc__ and draw.__name__ == name
