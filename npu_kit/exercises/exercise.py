"""What an exercise is, what its outcome is, and two common kinds: a function to write and a value to predict."""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from npu_kit.blame import line_of
from npu_kit.errors import NpuKitError, text_of
from npu_kit.exercises.compare import describe, first_difference, is_number

NOT_YET, WRONG, RIGHT = "not done yet", "wrong", "right"


class NotDone(Exception):
    """Raised by a judge that meets a stub: the learner has not answered yet."""


class NoValue(Exception):
    """Raised by a judge when the learner's code gave nothing to compare: the hint, on values, does not apply."""


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
            raise NpuKitError(f"exercise {outcome!r}", "NPU_KIT_EXERCISES is strict")
        return outcome

    def _judge(self, answer: Any) -> Outcome:
        if is_stub(answer):
            return self._outcome(NOT_YET)
        try:
            difference = self.judge(answer)
        except (NotDone, NotImplementedError):
            return self._outcome(NOT_YET)
        except NoValue as error:
            return self._outcome(WRONG, str(error))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # sys.exit() too
            # Learners' code fails in every possible way, and a failing check must not stop "Run All".
            return self._outcome(WRONG, told(error))
        return self._outcome(WRONG, difference, self.hint) if difference else self._outcome(RIGHT)

    def _outcome(self, state: str, difference: str = "", hint: str = "") -> Outcome:
        if state == NOT_YET:
            return Outcome(self.name, state, f"{self.name}. Put your answer where the ... is, then run this again")
        text = self.name + (f": {difference}" if difference else "") + (f". Hint: {hint}" if hint else "")
        return Outcome(self.name, state, text)


def told(error: BaseException) -> str:
    """An error in a few words, with the line of the learner's code that it came from."""
    where = line_of(error)
    return f"{type(error).__name__}: {text_of(error)}{where and f' ({where})'}"


def is_stub(answer: Any) -> bool:
    """Is this what a stub holds or returns?"""
    return answer is None or answer is ...


def refuse_stub(function: Callable[..., Any], found: Any, call: str) -> NoReturn:
    """Raise what it means that ``function`` gave the stub ``found`` in ``call``.

    Raises:
        NotDone: the stub is still in the function, or nobody can tell because its source is not at hand.
        NoValue: a return was forgotten.
    """
    if found is ... or _has_stub(function):
        raise NotDone
    raise NoValue(f"{call}: it returned None: is a return missing?")


def _has_stub(function: Callable[..., Any]) -> bool:
    """Is there a statement that is ``...``, binds it or returns it? ``tile[...] = 0`` is no stub."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return True  # built in, typed at a prompt, or a lambda inside a line
    if getattr(tree.body[0], "name", "") != function.__name__:
        return True
    values = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr | ast.Assign | ast.Return))
    return any(isinstance(value, ast.Constant) and value.value is ... for value in values)


def function_exercise(
    name: str,
    reference: Callable[..., Any],
    cases: Callable[[], Iterable[tuple[Any, ...]]],
    *,
    tolerance: float = 0.0,
    hint: str = "",
    labels: Sequence[str] = (),
    into: int | None = None,
) -> Exercise:
    """An exercise whose answer is a function that has to agree with ``reference``.

    Args:
        name: ``topic.what``.
        reference: the kit's own function.
        cases: returns the argument tuples to try, the simplest first, the same at each call. It is called once for the
            learner's function and once for ``reference``, so that neither sees what the other did to an array.
        tolerance: see ``first_difference``.
        hint: one sentence that is shown with a wrong answer.
        labels: what to call the arguments of each case, for those whose text says nothing.
        into: the number of the argument, an array, that the function has to write into and to return.
    """

    def judge(function: Any) -> str:
        if not callable(function):
            return f"found {describe(function)}, expected a function"
        name = getattr(function, "__name__", "your function")
        for number, (arguments, fresh) in enumerate(zip(cases(), cases(), strict=True)):
            call = f"{name}({labels[number] if labels else ', '.join(map(describe, arguments))})"
            expected = reference(*fresh)
            try:
                found = function(*arguments)
            except NotImplementedError:
                raise NotDone from None
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                raise NoValue(f"{call} raised {told(error)}") from error
            if is_stub(found) and not is_stub(expected):
                refuse_stub(function, found, call)
            if difference := first_difference(found, expected, tolerance):
                return f"{call}: {difference}"
            if into is not None and not np.shares_memory(found, arguments[into]):
                return f"{call}: the values are right, but in a new array; write them into the one that is given"
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
        if isinstance(answer, str) and isinstance(value, str) and value.endswith(f".{answer}"):
            side = " yet: it is the end of the full name"
        if is_number(answer) and is_number(value):  # the order of texts and of truth values tells nothing
            side = ", it is too small" if answer < value else ", it is too large"
        return f"{describe(answer)} is not it{side}"

    return Exercise(name, judge, hint)
