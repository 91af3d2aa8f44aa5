"""JSON from outside, read strictly: limits before anything is allocated, then kinds of values and keys of objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, TypeVar

from npu_kit.errors import NpuKitError
from npu_kit.outside import OutsideError, parse_json

MAX_TEXT = 64 * 1024 * 1024  # characters, of one byte each: the text is ASCII

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
        """The value that the text says, as ``outside.parse_json`` reads it."""
        if not isinstance(text, str):
            raise self.error(self.subject, f"it must be text and is {type(text).__name__}")
        self.check_length(text)
        try:
            return parse_json(text)
        except OutsideError as error:
            raise self.error(f"{self.subject}{error.where and ', '}{error.where:.200}", error.why, error.hint) from None

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


def shown(value: Any) -> str:
    """A value for a message, briefly."""
    return type(value).__name__ if isinstance(value, (list, dict)) else f"{value!r:.80}"
