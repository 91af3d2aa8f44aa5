"""The door for text and files from outside: limits first, then strict parsing."""

from __future__ import annotations

import codecs
import json
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_kit.errors import SpecError
from npu_kit.hw.presets import load_spec, save_spec, spec_to_json
from npu_kit.lessons import FIRST, copy_lessons
from npu_kit.outside import MAX_DEPTH, MAX_VALUES, OutsideError, parse_json, read_text, verify_target

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**39), 10**38)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


@given(PLAIN)
def test_json_is_read_as_it_was_written(content):
    assert parse_json(json.dumps(content)) == content
    assert parse_json(json.dumps(content, ensure_ascii=False)) == content


def test_what_editors_and_shells_of_windows_save_is_read_or_told(tmp_path):
    path, text = tmp_path / "mine.json", spec_to_json(load_spec())
    path.write_bytes(codecs.BOM_UTF8 + text.replace("\n", "\r\n").encode())
    assert load_spec(path) == load_spec()
    path.write_text(text, encoding="utf-16")
    with pytest.raises(SpecError, match=r"it is UTF-16, not UTF-8 text. Try: saving it as UTF-8; the > of Windows"):
        load_spec(path)


@pytest.mark.parametrize(
    ("text", "where", "why"),
    [
        ("{", "", "at line 1 column 2"),
        ('{"a": [{"b": 1, "b": 2}]}', "a[0].b", "the key 'b' stands there twice"),
        ('{"a": [0, "\\ud800"]}', "a[1]", "half of a surrogate pair"),
        ('{"a": {"\\udfff": 1}}', "a", "half of a surrogate pair"),
        ('["\udc80"]', "[0]", "half of a surrogate pair"),
        ("[NaN]", "a number", "NaN is not JSON"),
        ("[-Infinity]", "a number", "-Infinity is not JSON"),
        ("[1e400]", "a number", "larger than any float"),
        ("9" * 5000, "a number", "it has 5000 characters and the limit is 40"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "[0]" * 26 + "[0", f"the limit is {MAX_DEPTH}"),
        ("[" * 500_000, "", "nested too deep"),
        ("[" + "[]," * MAX_VALUES + "0]", "", f"the limit is {MAX_VALUES:,}"),
    ],
    ids=range(12),
)
def test_what_is_not_plain_json_is_refused_with_its_place(text, where, why):
    with pytest.raises(OutsideError) as caught:
        parse_json(text)
    assert caught.value.where == where and why in caught.value.why
    assert len(str(caught.value)) < 400
    str(caught.value).encode()


def test_a_pair_of_surrogates_is_one_character():
    assert parse_json('"\\ud83d\\ude00"') == "\U0001f600"


def test_a_pipe_is_not_waited_for(tmp_path):
    pipe = tmp_path / "spec.json"
    os.mkfifo(pipe)
    started = time.monotonic()
    with pytest.raises(OutsideError, match="not an ordinary file"):
        read_text(pipe, 100)
    with pytest.raises(SpecError, match="not an ordinary file"):
        load_spec(pipe)
    with pytest.raises(SpecError, match="not an ordinary file"):
        save_spec(load_spec(), pipe, overwrite=True)
    assert time.monotonic() - started < 1


@pytest.mark.parametrize(
    ("path", "why"),
    [("/dev/zero", "not an ordinary file"), ("a\0b", "null byte"), ("x" * 5000, "too long"), ("nothing", "No such")],
)
def test_a_path_that_is_no_file_is_refused(path, why, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutsideError, match=why):
        read_text(path, 100)


def test_nothing_is_written_through_a_link(tmp_path):
    elsewhere, link = tmp_path / "elsewhere.json", tmp_path / "mine.json"
    link.symlink_to(elsewhere)
    with pytest.raises(OutsideError, match=r"it is a link to .*elsewhere"):
        verify_target(link)
    for overwrite in (False, True):
        with pytest.raises(SpecError, match=r"cannot write .*mine\.json: it is a link"):
            save_spec(load_spec(), link, overwrite=overwrite)
    assert not elsewhere.exists()
    with pytest.raises(SpecError, match="cannot write"):
        save_spec(load_spec(), "a\0b.json")


def test_lessons_are_not_written_through_a_link_that_leads_nowhere(tmp_path):
    elsewhere = tmp_path / "elsewhere.ipynb"
    (tmp_path / "lessons").mkdir()
    (tmp_path / "lessons" / FIRST).symlink_to(elsewhere)
    written, kept = copy_lessons(tmp_path / "lessons")
    assert tmp_path / "lessons" / FIRST in kept and written
    assert not elsewhere.exists()
