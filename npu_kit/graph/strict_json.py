"""JSON from outside, read strictly: limits before anything is allocated, then kinds of values and keys of objects."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, TypeVar

from npu_kit.errors import NpuKitError

MAX_TEXT = 64 * 1024 * 1024  # characters, of one byte each: the text is ASCII
MAX_DIGITS = 40  # more than any float or 64-bit integer needs when written in full

_T = TypeVar("_T")


class JsonReader:
    """Reads one kind of text.

    Args:
        subject: what the text is, for messages: "graph JSON".
        error: what is raised about it.
    """

    def __init__(self, subject: str, error: type[NpuKitError]) -> None:
        self.subject, self.error = subject, error

    def refuse(self, where: str, why: str, hint: str = "") -> NoReturn:
        """Raise the error about one place."""
        raise self.error(f"{self.subject}, {where:.200}", why, hint)

    def check_length(self, text: str) -> None:
        """Refuse text that is larger than the limit."""
        if len(text) > MAX_TEXT:
            raise self.error(self.subject, f"it has {len(text):,} characters and the limit is {MAX_TEXT:,}")

    def parse(self, text: Any) -> Any:
        """The value that the text says: no duplicate keys, no endless or non-finite numbers."""
        if not isinstance(text, str):
            raise self.error(self.subject, f"it must be text and is {type(text).__name__}")
        self.check_length(text)
        try:
            return json.loads(
                text,
                object_pairs_hook=self._pairs,
                parse_int=lambda digits: self._number(digits, int),
                parse_float=lambda digits: self._number(digits, float),
                parse_constant=lambda name: self.refuse("a number", f"{name} is not JSON", "a finite number"),
            )
        except json.JSONDecodeError as error:
            raise self.error(self.subject, f"{error.msg} at line {error.lineno}, column {error.colno}") from None
        except RecursionError:
            why = "it nests deeper than Python's parser goes, and the schema needs 6"
            raise self.error(self.subject, why) from None

    def object(self, value: Any, where: str, keys: Iterable[str], others: bool = False) -> Mapping[str, Any]:
        """An object with exactly these keys, or at least these."""
        keys = tuple(keys)
        if type(value) is not dict:
            self.refuse(where, f"needs an object and got {type(value).__name__}")
        for key in keys:
            if key not in value:
                self.refuse(where, f"the key {key!r} is missing")
        if not others and len(value) > len(keys):
            self.refuse(where, f"the key {next(key for key in value if key not in keys)!r:.80} does not belong there")
        found: Mapping[str, Any] = value
        return found

    def array(self, value: Any, where: str) -> list[Any]:
        """An array."""
        if type(value) is not list:
            self.refuse(where, f"needs an array and got {type(value).__name__}")
        found: list[Any] = value
        return found

    def items(self, value: Any, where: str, read: Callable[[Any, str], _T]) -> tuple[_T, ...]:
        """An array whose items ``read`` reads."""
        return tuple(read(item, f"{where}[{index}]") for index, item in enumerate(self.array(value, where)))

    def integer(self, value: Any, where: str) -> int:
        """An integer, which true and 1.0 are not."""
        if type(value) is not int:
            self.refuse(where, f"needs an integer and got {shown(value)}")
        return int(value)

    def text(self, value: Any, where: str) -> str:
        """Text."""
        if type(value) is not str:
            self.refuse(where, f"needs text and got {shown(value)}")
        return str(value)

    def _pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                self.refuse("an object", f"the key {key!r:.80} stands there twice")
            found[key] = value
        return found

    def _number(self, digits: str, kind: Callable[[str], _T]) -> _T:
        if len(digits) > MAX_DIGITS:
            self.refuse("a number", f"it has {len(digits)} characters and the limit is {MAX_DIGITS}")
        value = kind(digits)
        if isinstance(value, float) and not math.isfinite(value):
            self.refuse("a number", f"{digits} is larger than any float", "a finite number")
        return value


def shown(value: Any) -> str:
    """A value for a message, briefly."""
    return type(value).__name__ if isinstance(value, (list, dict)) else f"{value!r:.80}"
