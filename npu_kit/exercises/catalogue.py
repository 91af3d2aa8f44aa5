"""Find an exercise by its name: exercise ``topic.what`` stands in the module ``npu_kit.exercises.on_topic``."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from typing import Any

from npu_kit.errors import NpuKitError
from npu_kit.exercises.exercise import Exercise, Outcome

PREFIX = "on_"


def topics() -> tuple[str, ...]:
    """The topics there are exercises on, in alphabetical order."""
    package = importlib.import_module("npu_kit.exercises")
    names = (module.name for module in pkgutil.iter_modules(package.__path__))
    return tuple(sorted(name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)))


def exercises_on(topic: str) -> dict[str, Exercise]:
    """The exercises on one topic, by full name.

    Raises:
        NpuKitError: there is no such topic.
    """
    if topic not in topics():
        raise NpuKitError(f"no exercises on {topic!r}", f"the topics are {', '.join(topics()) or 'none'}")
    module = importlib.import_module(f"npu_kit.exercises.{PREFIX}{topic}")
    return {exercise.name: exercise for exercise in module.EXERCISES}


def check(name: str, answer: Any) -> Outcome:
    """Check a learner's answer to the exercise called ``name`` and say: not done yet, wrong (and where), or right.

    Raises:
        NpuKitError: there is no such exercise. An answer, whatever it is, does not raise.
    """
    exercises = exercises_on(name.partition(".")[0])
    if name not in exercises:
        near = difflib.get_close_matches(name, exercises, n=1)
        raise NpuKitError(f"no exercise {name!r}", f"there are {', '.join(exercises)}", near[0] if near else "")
    return exercises[name].check(answer)
