"""Short text for numbers and names."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures import HOSTILE_NAMES

from npu_kit.render.format import (
    clean,
    format_bytes,
    format_cycles,
    format_share,
    format_value,
    shorten,
)
from npu_kit.render.text import fit, text_width, wrap
from npu_kit.render.timeline_picture import ticks


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1 KB"),
        (1536, "1.5 KB"),
        (256 * 1024, "256 KB"),
        (1024**2 - 1, "1 MB"),  # never "1024 KB"
        (1024**3, "1 GB"),
        (5 * 1024**5, "5120 TB"),
    ],
)
def test_bytes(count: int, words: str) -> None:
    assert format_bytes(count) == words


def test_other_numbers() -> None:
    assert format_cycles(1) == "1 cycle"
    assert format_cycles(12345) == "12,345 cycles"


@pytest.mark.parametrize(
    ("part", "whole", "words"),
    [(0, 10, "0 %"), (1, 1000, "<1 %"), (43, 100, "43 %"), (999, 1000, ">99 %"), (10, 10, "100 %"), (1, 0, "-")],
)
def test_shares_never_round_to_nothing_or_all(part: int, whole: int, words: str) -> None:
    assert format_share(part, whole) == words


def test_values_look_like_python() -> None:
    assert format_value((1, (2,), "NCHW")) == '(1, (2,), "NCHW")'
    assert format_value(1e-5) == "1e-05"
    assert format_value(True) == "True"


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_clean_text_is_one_drawable_line(name: str) -> None:
    text = clean(name)
    assert all(char.isprintable() for char in text)
    text.encode("utf-8")  # no lone surrogate is left


def test_cleaning_keeps_words_apart() -> None:
    assert clean("line\nbreak\ttab") == "line break tab"
    assert clean("名前 é") == "名前 é"


@given(st.text(max_size=60), st.integers(5, 40))
def test_shortened_text_keeps_both_ends(text: str, limit: int) -> None:
    short = shorten(text, limit)
    whole = clean(text)
    assert len(short) <= limit
    if len(whole) > limit:
        head, tail = short.split("...", 1) if "..." not in whole else (short[:1], short[-1:])
        assert whole.startswith(head)
        assert whole.endswith(tail)
    else:
        assert short == whole


@given(st.text(max_size=60), st.floats(0, 300), st.booleans())
def test_fitted_text_fits(text: str, width: float, bold: bool) -> None:
    assert text_width(fit(text, width, 12, bold), 12, bold) <= width


def test_fitting_takes_all_the_room() -> None:
    name = "a" * 100
    kept = fit(name, 200, 12)
    assert text_width(kept, 12) <= 200 < text_width(kept + "a", 12)
    assert fit("short", 200, 12) == "short"


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(2, 12))
def test_ticks_are_few_evenly_spaced_and_inside(start: int, extent: int, at_most: int) -> None:
    positions = ticks(start, start + extent, at_most)
    assert len(positions) <= at_most
    assert all(start <= position <= start + extent for position in positions)
    assert len({b - a for a, b in itertools.pairwise(positions)}) <= 1


def test_ticks_are_round() -> None:
    assert ticks(0, 100, 6) == [0, 20, 40, 60, 80, 100]
    assert ticks(7, 7) == [7]


@given(st.text(max_size=200), st.floats(30, 300))
def test_wrapped_lines_fit_and_lose_no_short_word(text: str, width: float) -> None:
    lines = wrap(text, width, 12)
    assert all(text_width(line, 12) <= width for line in lines)
    words = [word for word in clean(text).split() if text_width(word, 12) <= width]
    assert [word for word in words if word not in " ".join(lines)] == []
