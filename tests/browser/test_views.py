"""What a view must be beyond following its controls: safe, readable, usable by keyboard, honest about errors, quick."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

VIEWS = Path(__file__).parent / "data" / "views.ipynb"
THEMES = ("JupyterLab Light", "JupyterLab Dark")
WIDE, NARROW = 1280, 860  # pixels of the window
TALL = 2600  # so that no view is cut in a screenshot
SMALLEST_TEXT = 8.5  # pixels
SLOWEST_MOVE_SECONDS = 1.0  # from a key to a new picture, on a busy machine; see the printed medians for a quiet one

SVG = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="200" height="60">'
HOSTILE = f"""{SVG}
<script>window.hacked = 'script'</script>
<g data-key="a" onclick="window.hacked = 'onclick'" onload="window.hacked = 'onload'"><rect width="90" height="40"/></g>
<a href="javascript:window.hacked = 'link'" xlink:href="javascript:1"><text y="50">text</text></a>
<foreignObject width="50" height="50"><body xmlns="http://www.w3.org/1999/xhtml">
<img src="x" onerror="window.hacked = 'onerror'"/></body></foreignObject>
<image href="http://example.invalid/x.png"/><use href="http://example.invalid/y.svg#z"/>
<rect style="fill:url(http://example.invalid/z)" fill="url(http://example.invalid/z)" width="5" height="5"/>
<animate attributeName="href" to="javascript:1"/></svg>"""

TEXT_SIZES = """(view) => [...view.querySelectorAll('.npu-picture svg')].flatMap((svg) => {
  const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  return [...svg.querySelectorAll('text')].map((text) => parseFloat(getComputedStyle(text).fontSize) * scale);
})"""
OVERHANGS = """(view) => [view, ...view.querySelectorAll('*')].filter((part) => part.scrollWidth > part.clientWidth + 1
  && part.clientWidth > 0 && !part.closest('svg, select, .widget-readout, .slider-container'))
  .map((part) => `${part.className}: ${part.scrollWidth} > ${part.clientWidth}`)"""


def test_no_svg_can_run_load_or_lead_anywhere(lesson, notebook):
    path = notebook("hostile", f"from npu_kit_widgets import SvgView\nSvgView({HOSTILE!r}, 'Hostile')")
    page = lesson.open(path).run_all().page
    picture = page.locator(".npu-picture svg")
    picture.locator("[data-key=a]").click()
    kept = picture.evaluate("(svg) => [...svg.querySelectorAll('*')].map((part) => part.localName)")
    assert set(kept) <= {"g", "rect"}
    attributes = picture.evaluate("(svg) => [...svg.querySelectorAll('*')].flatMap((part) => part.getAttributeNames())")
    assert not [name for name in attributes if name.startswith("on") or "href" in name or name == "style"]
    assert page.evaluate("() => window.hacked") is None
    lesson.assert_clean()


def test_what_is_no_svg_shows_nothing(lesson, notebook):
    path = notebook("broken", "from npu_kit_widgets import SvgView\nSvgView('<svg><g></svg>', 'Not closed')")
    page = lesson.open(path).run_all().page
    page.locator(".npu-picture").wait_for(state="attached")
    assert page.locator(".npu-picture *").count() == 0
    lesson.assert_clean()


def test_an_error_in_a_callable_is_shown_and_the_picture_stays(lesson, notebook):
    path = notebook(
        "failing",
        "import npu_kit\nfrom npu_kit.zoo import build\nfrom npu_kit_widgets import PartitionExplorer\n"
        "def run(mod, options):\n"
        "    if options['merge'] == 'never':\n"
        "        raise ValueError('this <b>callable</b> fails')\n"
        "    return npu_kit.partition(mod, **options)\n"
        "PartitionExplorer({'digits': build('digits')}, run)",
    )
    (view,) = lesson.open(path).run_all().views()
    before = view.locator(".npu-picture svg").evaluate("(svg) => svg.outerHTML")
    merge = view.get_by_label("merge composites into regions")
    merge.click()
    alert = view.get_by_role("alert")
    alert.get_by_text("ValueError: this <b>callable</b> fails").first.wait_for()
    alert.get_by_text("Traceback", exact=True).click()
    assert "in run" in alert.locator("pre").inner_text()
    assert view.locator(".npu-picture svg").evaluate("(svg) => svg.outerHTML") == before
    merge.click()
    alert.wait_for(state="detached")
    lesson.assert_clean()


def test_the_keyboard_reaches_and_picks_each_part(lesson, notebook):
    part = '<g data-key="k{}"><title>part {}</title><rect x="{}" width="30" height="30"/></g>'
    svg = "".join([SVG, *(part.format(i, i, 40 * i) for i in range(3)), "</svg>"])
    path = notebook(
        "keyboard",
        "import ipywidgets\nfrom npu_kit_widgets import SvgView\n"
        f"view, said = SvgView({svg!r}, 'Three parts'), ipywidgets.Label()\n"
        "view.on_pick(lambda key: said.set_trait('value', said.value + key))\n"
        "view.on_pick(lambda key: view.set_trait('selected', key))\n"
        "ipywidgets.VBox([view, said])",
    )
    page = lesson.open(path).run_all().page
    parts = page.get_by_role("listbox", name="Three parts").get_by_role("option")
    assert [part.get_attribute("aria-label") for part in parts.all()] == ["part 0", "part 1", "part 2"]
    assert [part.get_attribute("tabindex") for part in parts.all()] == ["0", "-1", "-1"]
    parts.first.focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    page.get_by_text("k2", exact=True).wait_for()
    assert parts.nth(2).get_attribute("aria-selected") == "true"
    assert page.locator(".npu-frame").count() == 1
    for key in ("Home", " "):
        page.keyboard.press(key)
    page.get_by_text("k2k0", exact=True).wait_for()
    page.keyboard.press("Enter")  # the same part again is a choice too
    page.get_by_text("k2k0k0", exact=True).wait_for()
    page.wait_for_function("() => document.querySelector('[data-key=k0]').getAttribute('aria-selected') === 'true'")
    assert page.locator(".npu-frame").count() == 1
    lesson.assert_clean()


def test_playing_moves_the_tiles(lesson):
    view = lesson.open(VIEWS).run_all().views()[-1]
    said = {view.get_by_role("status").inner_text()}
    view.locator(".widget-play button").first.click()
    for _ in range(3):
        lesson.page.wait_for_function(
            "([view, said]) => !said.includes(view.querySelector('[role=status]').innerText)",
            arg=[view.element_handle(), list(said)],
        )
        said.add(view.get_by_role("status").inner_text())
    assert len(said) == 4
    lesson.assert_clean()


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_views_fit_the_page_in_each_theme(width, lesson, screenshots):
    lesson.open(VIEWS).run_all()
    lesson.page.set_viewport_size({"width": width, "height": TALL})
    for theme in THEMES:
        lesson.use_theme(theme)
        for number, view in enumerate(lesson.views()):
            view.screenshot(path=screenshots / f"fit-{number}-{width}-{theme.split()[-1].lower()}.png")
            assert view.evaluate(OVERHANGS) == []
            if width == WIDE:
                assert min(view.evaluate(TEXT_SIZES)) >= SMALLEST_TEXT
    lesson.assert_clean()


def test_a_notebook_that_nobody_ran_shows_the_static_pictures(lesson, tmp_path, screenshots):
    stored = nbformat.read(VIEWS, as_version=4)
    NotebookClient(stored, timeout=120, store_widget_state=False).execute()
    path = tmp_path / "stored.ipynb"
    nbformat.write(stored, path)
    page = lesson.open(path).page
    pictures = page.locator(".jp-OutputArea-output img[alt]")
    pictures.first.wait_for()
    assert pictures.count() == 6  # three views with one picture, one with three
    for picture in pictures.all():
        picture.scroll_into_view_if_needed()
        assert picture.get_attribute("alt")
        page.wait_for_function("(image) => image.naturalWidth > 100", arg=picture.element_handle())
    page.screenshot(path=screenshots / "stored.png")
    lesson.assert_clean()


def test_a_slider_is_followed_at_once(lesson):
    view = lesson.open(VIEWS).run_all().views()[-1]
    handles = view.locator(".widget-slider .noUi-handle")
    # A larger tile shows in the tiles; an earlier event in the timeline.
    for name, number, key, follower in (("tile", 0, "ArrowRight", 1), ("event", 2, "ArrowLeft", 0)):
        handles.nth(number).scroll_into_view_if_needed()
        handles.nth(number).focus()
        times = []
        for _ in range(8):
            picture = view.locator(".npu-picture").nth(follower)
            picture.locator("svg").evaluate("(svg) => { svg.dataset.old = '' }")
            start = time.perf_counter()
            lesson.page.keyboard.press(key)
            picture.locator("svg:not([data-old])").wait_for(state="attached")
            times.append(time.perf_counter() - start)
        print(f"{name}: from key to picture {1000 * statistics.median(times):.0f} ms, at most {1000 * max(times):.0f}")
        assert statistics.median(times) < SLOWEST_MOVE_SECONDS
    lesson.assert_clean()
