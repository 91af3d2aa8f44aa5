"""The errors of the kit: one base class, and one class per stage.

Every message says what went wrong, why (with the numbers), and what to try. The three parts are also attributes, so
that a view can lay them out.
"""

from __future__ import annotations

import contextlib
import re

MAX_PART = 2_000  # characters of one of the three parts: names and paths in them may come from anyone
# Control characters, halves of surrogate pairs, and what reorders its neighbours: a terminal would act on them.
_UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class NpuKitError(Exception):
    """Base of every error the kit raises on purpose.

    Args:
        what: what could not be done, in the user's words (operation, pattern, tile or file, shapes).
        why: the rule or limit that was met, with both numbers.
        hint: the next thing to try.
    """

    def __init__(self, what: str, why: str = "", hint: str = "") -> None:
        what, why, hint = map(_safe, (what, why, hint))
        self.what, self.why, self.hint = what, why, hint
        message = what
        if why:
            message += f": {why}"
        if hint:
            message += f" Try: {hint}" if message.endswith(".") else f". Try: {hint}"
        super().__init__(message)


def _safe(text: str) -> str:
    """``text`` with unsafe characters as Python writes them, and cut in the middle where it is very long."""
    escaped = _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    half = MAX_PART // 2 - 2
    return escaped if len(escaped) <= MAX_PART else f"{escaped[:half]} .. {escaped[-half:]}"


def kind_of(value: object) -> str:
    """What a value is, for a message: its class, and of a list, tuple or dictionary its length."""
    name = type(value).__name__
    return f"a {name} of {len(value)}" if isinstance(value, tuple | list | dict) else name


def text_of(error: BaseException) -> str:
    """The message of any error; where its class cannot give it, that is said."""
    try:
        return str.__str__(str(error))  # plain, where it is of a class derived from str
    except BaseException as failure:  # a class of a learner's own can raise anything, and TVM would not survive it
        return f"(its __str__ raises {type(failure).__name__})"


def notes_of(error: BaseException) -> list[str]:
    """The notes on any error, as ``leave_note`` and Python's ``add_note`` leave them."""
    try:
        return [str.__str__(note) for note in getattr(error, "__notes__", ())]
    except BaseException:  # as in ``text_of``
        return []


def leave_note(error: BaseException, note: str) -> None:
    """Leave a note on an error, which Python 3.11 and later print; none where its class does not take one."""
    with contextlib.suppress(BaseException):  # as in ``text_of``
        error.__dict__["__notes__"] = [*getattr(error, "__notes__", ()), note]


class SpecError(NpuKitError, ValueError):
    """A hardware description is wrong: names the key."""


class PartitionError(NpuKitError):
    """A module cannot be partitioned as asked."""


class GraphError(NpuKitError, ValueError):
    """A JSON graph breaks a rule: names the node and the rule."""


class UnsupportedError(NpuKitError):
    """An operation, attribute or dtype that the NPU cannot compute, or a model that TVM does not survive."""


class PlanError(NpuKitError):
    """A region cannot be planned on this machine: names the tier, the bytes needed and the bytes there are."""


class InputError(NpuKitError, ValueError):
    """An array given to a run does not fit the model: names the input."""


class ExecutionError(NpuKitError):
    """A kernel failed while it ran: names the node."""


class RenderError(NpuKitError, ValueError):
    """A picture cannot be drawn as asked: names the argument."""


class ToolError(NpuKitError):
    """Something outside the kit is missing or does not fit (TVM, its ffi package, Graphviz, a C compiler)."""
