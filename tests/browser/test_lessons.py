"""Every notebook as a learner meets it: run it, move each control of each view once, watch the picture follow."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VIEWS = Path(__file__).parent / "data" / "views.ipynb"
NOTEBOOKS = [VIEWS, *sorted((ROOT / "notebooks").glob("*.ipynb"))]

USUAL = {"width": 1280, "height": 900}
TALL = {"width": 1280, "height": 1900}  # no view is cut in its screenshot
PRESSES = 8  # of an arrow key, until a slider changes what is seen: a larger L1 need not change a plan at once
PATIENCE_MILLISECONDS = 30_000
A_MOMENT_MILLISECONDS = 1_500

# What a view shows: its pictures, and what is wrong.
SEEN = ".npu-picture svg, .npu-error"
SEEN_OR_TOLD = f"{SEEN}, .npu-text"  # the story beside a picture may be all that a choice changes
MARKUP = "([view, parts]) => [...view.querySelectorAll(parts)].map((part) => part.outerHTML).join('')"
HAS_CHANGED = f"([view, parts, before]) => ({MARKUP})([view, parts]) !== before"


def wait_for_change(view, act, parts=SEEN, timeout=PATIENCE_MILLISECONDS):
    """Do ``act`` and wait until what ``view`` shows in ``parts`` is something else."""
    handle = view.element_handle()
    before = view.page.evaluate(MARKUP, [handle, parts])
    act()
    view.page.wait_for_function(HAS_CHANGED, arg=[handle, parts, before], timeout=timeout)


def changes(view, act):
    """Whether ``act`` changes what ``view`` shows, soon."""
    playwright = pytest.importorskip("playwright.sync_api")
    try:
        wait_for_change(view, act, timeout=A_MOMENT_MILLISECONDS)
    except playwright.TimeoutError:
        return False
    return True


def move_sliders(view):
    """Move each slider with the arrow keys until the picture changes, and back."""
    moved = 0
    for handle in view.locator(".widget-slider .noUi-handle").all():
        low, now, high = (float(handle.get_attribute(f"aria-value{end}")) for end in ("min", "now", "max"))
        if low == high:
            continue
        handle.scroll_into_view_if_needed()
        handle.focus()
        there, back = ("ArrowRight", "ArrowLeft") if now < high else ("ArrowLeft", "ArrowRight")
        presses = 1
        while not changes(view, lambda key=there: view.page.keyboard.press(key)):
            assert presses < PRESSES, f"slider {moved} of the view changes nothing in {PRESSES} steps"
            presses += 1
        for _ in range(presses):
            view.page.keyboard.press(back)
        moved += 1
    return moved


def move_dropdowns(view):
    """Choose another option of each list, and the first one again."""
    moved = 0
    for select in view.locator("select").all():
        options = select.locator("option").count()
        if options < 2:
            continue
        now = select.evaluate("(list) => list.selectedIndex")
        other = (now + 1) % options
        wait_for_change(view, lambda s=select, o=other: s.select_option(index=o))
        wait_for_change(view, lambda s=select, o=now: s.select_option(index=o))
        moved += 1
    return moved


def tick_boxes(view):
    """Tick or untick each box, and back."""
    moved = 0
    for box in view.locator("input[type=checkbox]").all():
        for _ in range(2):
            wait_for_change(view, box.click)
        moved += 1
    return moved


def click_parts(view):
    """Click a part in each picture that has any."""
    moved = 0
    for picture in view.locator(".npu-picture").all():
        parts = picture.locator(".npu-part[aria-selected=false]")
        if parts.count():
            wait_for_change(view, parts.last.click, SEEN_OR_TOLD)
            moved += 1
    return moved


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_control_moves_its_picture(path, lesson, screenshots):
    lesson.open(path).run_all()
    moved = 0
    for number, view in enumerate(lesson.views()):
        assert view.locator(".npu-error").count() == 0, view.locator(".npu-error").inner_text()
        lesson.page.set_viewport_size(TALL)
        view.screenshot(path=screenshots / f"{path.stem}-{number}.png")
        lesson.page.set_viewport_size(USUAL)
        moves = [move(view) for move in (move_sliders, move_dropdowns, tick_boxes, click_parts)]
        assert any(moves), f"view {number} has nothing to move"
        moved += sum(moves)
    lesson.page.screenshot(path=screenshots / f"{path.stem}.png")
    lesson.assert_clean()
    assert path != VIEWS or moved >= 18, f"only {moved} controls of the views were found"
