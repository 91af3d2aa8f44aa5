"""The picture with parts to choose: what it takes, what it reports, what it leaves in a stored notebook."""

from __future__ import annotations

import base64
import re

import pytest
import traitlets

from npu_kit.render.picture import Picture
from npu_kit_widgets import SvgView

SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="120.5" height="40">'
    '<g data-key="a"/><g data-key="b &amp; &quot;c&quot;"/><g data-tile="7"/></svg>'
)


def press(view, content):
    """What arrives when the front end sends ``content``."""
    view._handle_custom_msg(content, [])


def test_parts_are_the_elements_with_the_chosen_attribute():
    assert SvgView(SVG, "Parts").part_ids() == ["a", 'b & "c"']
    assert SvgView(SVG, "Tiles", part="tile").part_ids() == ["7"]
    assert SvgView(SVG, "Some", choices=['b & "c"', "gone"]).part_ids() == ['b & "c"']


def test_a_choice_is_reported_each_time():
    view, heard = SvgView(SVG, "Parts"), []
    view.on_pick(heard.append)
    for _ in range(2):
        press(view, {"pick": "a"})
    assert view.picked == "a"
    assert heard == ["a", "a"]


@pytest.mark.parametrize("content", [{"pick": "elsewhere"}, {"pick": 3}, {"pick": ["a"]}, {}, "a", None])
def test_what_is_no_choice_of_a_part_is_ignored(content):
    view, heard = SvgView(SVG, "Parts"), []
    view.on_pick(heard.append)
    press(view, content)
    assert heard == []
    assert view.picked == ""


def test_only_choices_can_be_chosen():
    view, heard = SvgView(SVG, "Parts", choices=()), []
    view.on_pick(heard.append)
    press(view, {"pick": "a"})
    assert heard == []


@pytest.mark.parametrize(
    "wrong",
    [{"svg": "<img src=x>"}, {"svg": "plain text"}, {"part": 'key"] *'}, {"part": ""}, {"choices": (1, 2)}, {"alt": 3}],
)
def test_wrong_state_is_refused(wrong):
    with pytest.raises(traitlets.TraitError):
        SvgView(**{"svg": SVG, "alt": "Parts", **wrong})
    view = SvgView(SVG, "Parts")
    ((name, value),) = wrong.items()
    with pytest.raises(traitlets.TraitError):
        setattr(view, name, value)
    assert view.svg == SVG


def test_unknown_keywords_are_refused():
    with pytest.raises(TypeError, match="colour"):
        SvgView(SVG, "Parts", colour="red")


def test_state_from_the_front_end_is_validated_too():
    view = SvgView(SVG, "Parts")
    view.set_state({"selected": "a"})
    assert view.selected == "a"
    assert view.get_state(["selected", "part"]) == {"selected": "a", "part": "key"}
    with pytest.raises(traitlets.TraitError):
        view.set_state({"svg": "<script>"})


def test_a_picture_brings_its_own_name_and_size():
    view = SvgView(Picture(SVG, "Two groups"))
    assert view.alt == "Two groups"
    assert view.width_pixels == 120.5
    view.show(Picture(SVG.replace("120.5", "80"), "Narrower"), choices=["a"], selected="a")
    assert (view.alt, view.width_pixels, view.choices, view.selected) == ("Narrower", 80, ("a",), "a")
    assert SvgView().width_pixels == 0


def test_repr_is_short_and_has_no_address():
    assert repr(SvgView(SVG, "Two groups")) == "SvgView('Two groups')"


def test_a_stored_notebook_keeps_a_static_picture():
    alt = 'a "quoted" <b>name</b>'
    data, _ = SvgView(SVG, alt)._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "<b>" not in data["text/html"]
    assert 'alt="a &quot;quoted&quot; &lt;b&gt;' in data["text/html"]
    encoded = re.search(r"base64,([^\"]+)", data["text/html"])[1]
    assert base64.b64decode(encoded).decode() == SVG
