"""The SVG writer: elements only, the same text each time, nothing a browser would run."""

from __future__ import annotations

import base64
import re

import pytest
from pictures import HOSTILE_NAMES, SVG, check, parse, tooltips, words

from npu_kit.render.format import clean
from npu_kit.render.picture import Picture
from npu_kit.render.svg import HATCHES, Canvas


def drawing(name: str) -> Picture:
    canvas = Canvas(300, 100, name or "untitled", name)
    with canvas.group(name, key=name):
        canvas.rect(10, 10, 50, 30, fill="#FFFFFF", tooltip=name)
        canvas.text(10, 60, name, width=280)
        canvas.text(10, 80, "plain", tooltip=name)
    return canvas.picture()


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_names_become_text_and_nothing_else(name: str) -> None:
    root = parse(drawing(name))
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {"svg", "title", "desc", "g", "rect", "text"}
    assert clean(name) in ["", *tooltips(root)]


def test_a_cut_name_keeps_its_whole_as_tooltip() -> None:
    root = check(drawing("x" * 10_000))
    assert any(word.startswith("xxx") and len(word) < 60 for word in words(root))
    assert "x" * 10_000 in tooltips(root)


def test_the_same_calls_give_the_same_text() -> None:
    assert drawing("conv1") == drawing("conv1")


def test_numbers_are_short() -> None:
    canvas = Canvas(100, 100, "numbers")
    canvas.rect(1 / 3, -0.0001, 2.5, 10.0)
    assert 'x="0.33" y="0" width="2.5" height="10"' in canvas.picture()


@pytest.mark.parametrize("hatch", HATCHES)
@pytest.mark.parametrize(("width", "height"), [(60, 20), (20, 60), (3, 3), (0.5, 40)])
def test_hatches_stay_inside_their_rectangle(hatch: str, width: float, height: float) -> None:
    canvas = Canvas(100, 100, "hatch")
    canvas.rect(20, 20, width, height, hatch=hatch)
    root = check(canvas.picture())
    paths = [path.get("d", "") for path in root.iter(f"{SVG}path")]
    for x, y in re.findall(r"[ML](\S+) ([^ML]+)", "".join(paths)):
        assert 20 <= float(x) <= 20 + width + 0.01
        assert 20 <= float(y) <= 20 + height + 0.01


def test_a_wide_rectangle_really_gets_a_hatch() -> None:
    for hatch in HATCHES:
        canvas = Canvas(100, 100, "hatch")
        canvas.rect(20, 20, 60, 40)
        plain = len(canvas.picture())
        canvas.rect(20, 20, 60, 40, hatch=hatch)
        assert len(canvas.picture()) > 1.2 * plain, hatch


def test_groups_close_even_after_an_error() -> None:
    canvas = Canvas(100, 100, "groups")
    with pytest.raises(RuntimeError), canvas.group(key="a"):
        raise RuntimeError
    canvas.text(5, 50, "outside")
    root = check(canvas.picture())
    assert [child.tag.removeprefix(SVG) for child in root] == ["title", "rect", "g", "text"]


def test_a_notebook_shows_the_picture_as_an_image() -> None:
    picture = drawing('a"<b>')
    shown = picture._repr_html_()
    source = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', shown)
    assert source is not None
    assert base64.b64decode(source[1]).decode() == picture
    assert 'alt="a&quot;&lt;b&gt;"' in shown
    assert repr(picture) == f"Picture('a\"<b>', {len(picture):,} characters of SVG)"
