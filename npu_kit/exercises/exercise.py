"""What an exercise is, what its outcome is, and two common kinds: a function to write and a value to predict."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from npu_kit.errors import NpuKitError
from npu_kit.exercises.compare import describe, first_difference, is_number

NOT_YET, WRONG, RIGHT = "not done yet", "wrong", "right"


class NotDone(Exception):
    """Raised by a judge that meets a stub: the learner has not answered yet."""


@dataclass(frozen=True)
class Outcome:
    """What a check found. It is true when the answer is right; its text is what the learner reads."""

    exercise: str
    state: str  # NOT_YET, WRONG or RIGHT
    message: str

    def __bool__(self) -> bool:
        return self.state == RIGHT

    def __repr__(self) -> str:
        return f"{self.state}: {self.message}"


@dataclass(frozen=True)
class Exercise:
    """One exercise: a name ``topic.what`` and a judge.

    The judge is given the learner's answer and returns "" where it is right, else one sentence about the first thing
    that is wrong. It may raise anything: a learner's code is arbitrary.
    """

    name: str
    judge: Callable[[Any], str]
    hint: str = ""

    def check(self, answer: Any) -> Outcome:
        """Judge ``answer``; never raises because of the answer, except in strict mode.

        ``None``, ``...`` and NotImplementedError mean that there is no answer yet. Strict mode, the environment
        variable ``NPU_KIT_EXERCISES=strict``, is how CI holds the solved notebooks to being right.

        Raises:
            NpuKitError: in strict mode, when the answer is not right.
        """
        outcome = self._judge(answer)
        if not outcome and os.environ.get("NPU_KIT_EXERCISES") == "strict":
            raise NpuKitError(f"exercise {self.name} is {outcome!r}", "NPU_KIT_EXERCISES is strict")
        return outcome

    def _judge(self, answer: Any) -> Outcome:
        if is_stub(answer):
            return self._outcome(NOT_YET)
        try:
            difference = self.judge(answer)
        except (NotDone, NotImplementedError):
            return self._outcome(NOT_YET)
        except Exception as error:
            # Learners' code fails in every possible way, and a failing check must not stop "Run All".
            difference = f"{type(error).__name__}: {error}"
        return self._outcome(WRONG, difference) if difference else self._outcome(RIGHT)

    def _outcome(self, state: str, difference: str = "") -> Outcome:
        if state == NOT_YET:
            return Outcome(self.name, state, f"{self.name}. Put your answer where the ... is; run that cell, then this")
        hint = f". Hint: {self.hint}" if difference and self.hint else ""
        return Outcome(self.name, state, self.name + (f": {difference}" if difference else "") + hint)


def is_stub(answer: Any) -> bool:
    """Is this what a stub holds or returns?"""
    return answer is None or answer is ...


def function_exercise(
    name: str,
    reference: Callable[..., Any],
    cases: Callable[[], Iterable[tuple[Any, ...]]],
    *,
    tolerance: float = 0.0,
    hint: str = "",
) -> Exercise:
    """An exercise whose answer is a function that has to agree with ``reference``.

    Args:
        name: ``topic.what``.
        reference: the kit's own function.
        cases: returns the argument tuples to try, the simplest first, the same at each call. It is called once for the
            learner's function and once for ``reference``, so that neither sees what the other did to an array.
        tolerance: see ``first_difference``.
        hint: one sentence that is shown with a wrong answer.
    """

    def judge(function: Any) -> str:
        if not callable(function):
            return f"found {describe(function)}, expected a function"
        label = getattr(function, "__name__", "your function")
        for arguments, fresh in zip(cases(), cases(), strict=True):
            call = f"{label}({', '.join(map(describe, arguments))})"
            expected = reference(*fresh)
            try:
                found = function(*arguments)
            except NotImplementedError:
                raise NotDone from None
            except Exception as error:
                return f"{call} raised {type(error).__name__}: {error}"
            if is_stub(found) and not is_stub(expected):
                raise NotDone
            if difference := first_difference(found, expected, tolerance):
                return f"{call}: {difference}"
        return ""

    return Exercise(name, judge, hint)


def value_exercise(name: str, expected: Callable[[], Any], *, tolerance: float = 0.0, hint: str = "") -> Exercise:
    """An exercise whose answer is a value to predict; a wrong answer does not give the right one away.

    Args:
        name: ``topic.what``.
        expected: computes the right value when it is asked for.
        tolerance: see ``first_difference``.
        hint: one sentence that is shown with a wrong answer.
    """

    def judge(answer: Any) -> str:
        value = expected()
        if not first_difference(answer, value, tolerance):
            return ""
        side = ""
        if is_number(answer) and is_number(value):  # the order of texts and of truth values tells nothing
            side = ", it is too small" if answer < value else ", it is too large"
        return f"{describe(answer)} is not it{side}"

    return Exercise(name, judge, hint)
