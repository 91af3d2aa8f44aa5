"""What all views share: controls tied to traits, errors shown and kept, the static twin."""

from __future__ import annotations

import re

import pytest
import traitlets

from npu_kit.errors import PlanError
from npu_kit.render.picture import Picture
from npu_kit_widgets import SvgView, View
from npu_kit_widgets.controls import check_callable, check_mapping, slider
from npu_kit_widgets.markup import call_markup, error_markup, paragraph, preformatted

SVG = '<svg xmlns="http://www.w3.org/2000/svg"><text>{}</text></svg>'


class Halves(View):
    """Draws 100 // number."""

    number = traitlets.Int(4)

    def __init__(self):
        self.drawing = SvgView()
        control = slider("number", 4, -10, 10)
        super().__init__("How much is a part of 100?", [control], [self.drawing], [self.drawing])
        self._tie("number", control)
        self.observe(lambda _: self.draw(), "number")
        self.draw()

    def _state(self):
        return f"number={self.number}"

    def draw(self):
        with self._guarded(f"Dividing by {self.number}"):
            if self.number < 0:
                raise PlanError(f"no part of {self.number}", "parts start at <1>", "a larger number")
            self.drawing.show(Picture(SVG.format(100 // self.number), f"100 by {self.number}"))


def test_control_and_trait_are_one():
    view = Halves()
    control = view.children[1].children[0]
    control.value = 5
    assert (view.number, view.drawing.alt) == (5, "100 by 5")
    view.number = 10
    assert (control.value, view.drawing.alt) == (10, "100 by 10")


def test_an_error_of_the_kit_is_shown_in_its_three_parts_and_the_picture_stays():
    view = Halves()
    view.number = -3
    shown = view._alert.value
    assert 'role="alert"' in shown
    for part in ("Dividing by -3 failed", "no part of -3", "Why: parts start at &lt;1&gt;", "Try: a larger number"):
        assert part in shown
    assert "Traceback" not in shown
    assert isinstance(view.error, PlanError)
    assert view.drawing.alt == "100 by 4"


def test_any_other_error_is_shown_with_its_traceback():
    view = Halves()
    view.number = 0
    assert "ZeroDivisionError" in view._alert.value
    assert "in draw" in view._alert.value
    assert isinstance(view.error, ZeroDivisionError)
    assert view.drawing.alt == "100 by 4"


def test_what_works_again_clears_the_error():
    view = Halves()
    view.number = 0
    view.number = 2
    assert view.error is None
    assert view._alert.value == ""
    assert view.drawing.alt == "100 by 2"


def test_what_goes_well_clears_its_own_topic_only():
    view = Halves()
    with view._guarded("Planning", "machine"):
        raise PlanError("no room")
    with view._guarded("Looking", "place"):
        raise ValueError("no such place")
    assert "no room" in view._alert.value
    assert "no such place" in view._alert.value
    with view._guarded("Looking", "place"):
        pass
    assert "no such place" not in view._alert.value
    assert isinstance(view.error, PlanError)


def test_a_message_does_not_speak_of_an_earlier_picture_that_is_not_there():
    assert "before this change" in error_markup("Drawing", ValueError("x"))
    assert "before this change" not in error_markup("Drawing", ValueError("x"), is_first=True)


class Wordless(Exception):
    def __str__(self):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("error", "told"),
    [(SystemExit(3), "SystemExit: 3"), (Wordless(), r"Wordless: \(its __str__ raises KeyboardInterrupt\)")],
)
def test_what_would_end_the_kernel_is_shown(error, told):
    """sys.exit() in a callback of a widget ends the kernel."""
    view = Halves()
    with view._guarded("Looking"):
        raise error
    assert view.error is error
    assert re.search(f"Looking failed: {told}", view._alert.value)


def test_an_interrupt_is_not_swallowed():
    view = Halves()
    with pytest.raises(KeyboardInterrupt), view._guarded("Waiting"):
        raise KeyboardInterrupt


def test_twin_and_repr():
    view = Halves()
    bundle = view._repr_mimebundle_()
    assert bundle["text/plain"] == repr(view) == "Halves(number=4)"
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert "How much is a part of 100?" in bundle["text/html"]
    assert bundle["text/html"].count("<img") == 1


def test_text_from_outside_stays_text(fused):
    hostile = "<img src=x onerror=alert(1)>"
    for markup in (
        paragraph(hostile),
        preformatted(hostile),
        error_markup(hostile, PlanError(hostile, hostile, hostile)),
        error_markup(hostile, ValueError(hostile)),
        call_markup(type(fused.report[3])(**{**vars(fused.report[3]), "name": hostile, "reason": hostile})),
    ):
        assert "<img" not in markup
        assert "&lt;img" in markup


def test_arguments_are_checked():
    with pytest.raises(TypeError, match="run must be a function"):
        check_callable("run", "partition")
    with pytest.raises(TypeError, match="models must map"):
        check_mapping("models", ["digits"])
    with pytest.raises(ValueError, match="models is empty"):
        check_mapping("models", {})
