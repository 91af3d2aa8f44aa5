"""Exercises of the lessons, and how a notebook checks an answer: ``check("tiles.count", tile_count)``.

A check never stops a notebook: an unanswered exercise reads "not done yet", so that every notebook runs from top to
bottom as the learner gets it.
"""

from npu_kit.exercises.catalogue import check, exercises_on, topics
from npu_kit.exercises.exercise import Exercise, NotDone, Outcome, function_exercise, value_exercise

__all__ = ["Exercise", "NotDone", "Outcome", "check", "exercises_on", "function_exercise", "topics", "value_exercise"]
