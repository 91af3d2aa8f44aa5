"""Checks of exercises: right, wrong and not yet, whatever the learner's code does."""

from __future__ import annotations

import re

import numpy as np
import pytest

from npu_kit.errors import NpuKitError
from npu_kit.exercises import Exercise, check, exercises_on, function_exercise, topics, value_exercise
from npu_kit.exercises.exercise import NOT_YET, RIGHT, WRONG


def tile_count(extent: int, tile: int) -> int:
    return -(-extent // tile)


COUNT = function_exercise("tiles.count", tile_count, lambda: [(8, 8), (10, 4)], hint="the last tile may be ragged")
MACS = value_exercise("tiles.macs", lambda: 512, hint="M * N * K")


def not_written(extent, tile):
    raise NotImplementedError


@pytest.mark.parametrize("answer", [None, ..., lambda extent, tile: None, lambda extent, tile: ..., not_written])
def test_a_stub_is_not_done_yet(answer):
    outcome = COUNT.check(answer)
    assert outcome.state == NOT_YET
    assert not outcome
    assert repr(outcome).startswith("not done yet: tiles.count")


def test_right():
    outcome = COUNT.check(lambda extent, tile: (extent + tile - 1) // tile)
    assert outcome.state == RIGHT
    assert outcome
    assert repr(outcome) == "right: tiles.count"


def test_wrong_names_the_call_both_values_and_the_hint():
    def floor_count(extent, tile):
        return extent // tile

    assert repr(COUNT.check(floor_count)) == (
        "wrong: tiles.count: floor_count(10, 4): found 2, expected 3. Hint: the last tile may be ragged"
    )


def test_an_answer_that_raises_is_wrong_and_does_not_stop_the_notebook():
    def broken(extent, tile):
        return extent / 0

    outcome = COUNT.check(broken)
    assert outcome.state == WRONG
    told = r"tiles\.count: broken\(8, 8\) raised ZeroDivisionError: division by zero"
    assert re.fullmatch(told + r" \(broken, line \d+ of test_exercise\.py: return extent / 0\)", outcome.message)


def test_a_forgotten_return_is_told_from_a_stub():
    def forgets(extent, tile):
        count = np.zeros(1)
        count[...] = extent // tile

    def unfinished(extent, tile):
        count = ...  # the rest
        return count

    def falls_through(extent, tile): ...  # your code here

    assert COUNT.check(forgets).message == "tiles.count: forgets(8, 8): it returned None: is a return missing?"
    assert COUNT.check(unfinished).state == NOT_YET
    assert COUNT.check(falls_through).state == NOT_YET


def test_a_case_can_have_a_name():
    exercise = function_exercise("x.size", len, lambda: [([1],), ([1, 2],)], labels=["one", "two"])
    assert "half(two): found 1, expected 2" in exercise.check(lambda items: 1).message.replace("<lambda>", "half")


def test_an_answer_can_have_to_be_written_into_an_argument():
    def fill(array):
        array[...] = 1
        return array

    exercise = function_exercise("x.fill", fill, lambda: [(np.zeros(3),)], into=0)
    assert exercise.check(fill)
    assert "in a new array" in exercise.check(np.ones_like).message


def test_an_answer_of_another_kind_is_wrong():
    assert "expected a function" in COUNT.check(3).message

    class Odd:
        def __eq__(self, other):
            raise RuntimeError("no comparing")

    assert "no comparing" in Exercise("x.y", lambda answer: str(answer == 1)).check(Odd()).message


def test_neither_function_sees_what_the_other_did_to_an_array():
    def add_one(array):
        array += 1
        return array

    exercise = function_exercise("x.add", add_one, lambda: [(np.zeros(3),), (np.zeros(3),)])
    assert exercise.check(add_one)
    assert exercise.check(lambda array: array + 1)
    assert not exercise.check(lambda array: array + 2)


def test_a_predicted_value_is_judged_without_giving_it_away():
    assert MACS.check(512)
    for answer, side in ((500, "too small"), (600, "too large")):
        outcome = MACS.check(answer)
        assert outcome.state == WRONG
        assert side in outcome.message
        assert "512" not in outcome.message
    assert MACS.check("many").message == "tiles.macs: 'many' is not it. Hint: M * N * K"


class Wordless(Exception):
    def __str__(self):
        raise SystemExit


@pytest.mark.parametrize("error", [SystemExit, Wordless, GeneratorExit])
def test_nothing_that_an_answer_raises_stops_the_notebook(error):
    def leaves(extent, tile):
        raise error

    assert COUNT.check(leaves).state == WRONG
    assert Exercise("tiles.any", leaves_at_once(error)).check(3).state == WRONG


def leaves_at_once(error):
    def judge(answer):
        raise error

    return judge


def test_keyboard_interrupt_passes_through():
    def interrupted(extent, tile):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        COUNT.check(interrupted)


def test_strict_mode_raises_on_anything_but_right(monkeypatch):
    monkeypatch.setenv("NPU_KIT_EXERCISES", "strict")
    assert COUNT.check(tile_count)
    for answer in (None, lambda extent, tile: 0):
        with pytest.raises(NpuKitError, match=r"tiles\.count"):
            COUNT.check(answer)


def test_unknown_names_are_errors_that_list_the_known_ones():
    with pytest.raises(NpuKitError, match="the topics are"):
        check("no_such_topic.count", 1)
    for topic in topics():
        with pytest.raises(NpuKitError, match="there are"):
            check(f"{topic}.no_such_exercise", 1)


def test_each_exercise_has_its_topic_in_its_name_and_takes_a_stub():
    for topic in topics():
        exercises = exercises_on(topic)
        assert exercises, f"npu_kit.exercises.on_{topic} has no exercise"
        for name in exercises:
            assert name.startswith(f"{topic}.")
            assert check(name, ...).state == NOT_YET
