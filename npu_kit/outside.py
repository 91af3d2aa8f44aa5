"""The one door for text and files from outside: read within limits, parsed strictly, written where it was asked for.

What is read here may have been written by anyone. Each caller turns ``OutsideError`` into the error of its stage, which
names the file or the graph.
"""

from __future__ import annotations

import codecs
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

MAX_DEPTH = 64  # of arrays and objects inside one another; no format of the kit needs more than 8
MAX_VALUES = 4_000_000  # counted by brackets and commas; a graph of 10,000 nodes has some 400,000
MAX_DIGITS = 40  # more than any float or 64-bit integer needs when written in full

_T = TypeVar("_T")


class OutsideError(ValueError):
    """Something from outside is not as it has to be: where, why, and what to try."""

    def __init__(self, where: str, why: str, hint: str = "") -> None:
        super().__init__(f"{where}: {why}" if where else why)
        self.where, self.why, self.hint = where, why, hint


def is_path(text: str) -> bool:
    """Whether a text that may be a name of the kit's, of a machine or a model, is the path of a file instead."""
    return text.endswith(".json") or "/" in text or os.sep in text


def read_text(path: str | os.PathLike[str], limit_bytes: int, encoding: str = "utf-8") -> str:
    """The text of an ordinary file; a mark of UTF-8 before it, which some editors write, is no part of it.

    Raises:
        OutsideError: it is no ordinary file (a pipe would never end), too large, not readable or not such text.
    """
    try:
        file_path = Path(path)
        verify_ordinary(file_path)
        with file_path.open("rb") as file:
            content = file.read(limit_bytes + 1)
        if len(content) > limit_bytes:
            raise OutsideError("", f"it is larger than {limit_bytes:,} bytes, the limit")
        if content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            hint = "saving it as UTF-8; the > of Windows PowerShell writes UTF-16."
            raise OutsideError("", f"it is UTF-16, not {encoding.upper()} text", hint)
        return content.removeprefix(codecs.BOM_UTF8).decode(encoding)
    except OSError as error:
        raise OutsideError("", error.strerror or str(error)) from None
    except UnicodeDecodeError as error:
        raise OutsideError("", f"it is not {encoding.upper()} text ({error.reason})") from None
    except OutsideError:
        raise
    except ValueError as error:  # a path that no system has, with a NUL in it
        raise OutsideError("", str(error)) from None


def verify_ordinary(path: Path) -> None:
    """Raise OutsideError if what stands at ``path`` is a folder, a device or a pipe, which may never end."""
    if path.exists() and not path.is_file():
        raise OutsideError("", "it is a folder" if path.is_dir() else "it is not an ordinary file")


def verify_target(path: Path) -> None:
    """Raise OutsideError if writing ``path`` would write elsewhere: through a link, to a device or into a pipe."""
    if path.is_symlink():
        raise OutsideError("", f"it is a link to {os.readlink(path)}, and the kit writes only where it was told to")
    verify_ordinary(path)


def write_text(path: Path, text: str, *, overwrite: bool) -> None:
    """Write an ordinary file as UTF-8, with the same bytes on every system.

    Raises:
        OutsideError: the file exists and ``overwrite`` is False, it is no ordinary file, or it cannot be written.
    """
    try:
        verify_target(path)
        with path.open("w" if overwrite else "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        raise OutsideError("", "it exists", "another name, or overwrite=True.") from None
    except OSError as error:
        raise OutsideError("", error.strerror or str(error)) from None
    except ValueError as error:  # a link, or a name that no system has
        raise OutsideError("", str(error), "another name.") from None


def parse_json(text: str) -> Any:
    """The content of JSON text: objects, arrays, text, integers, finite floats, true, false and null.

    Raises:
        OutsideError: no text; not JSON, as NaN and infinities; more than ``MAX_VALUES`` values, nested deeper than
            ``MAX_DEPTH``; a number of more than ``MAX_DIGITS`` characters; a key that an object has twice; half of a
            surrogate pair in a text.
    """
    if not isinstance(text, str):
        raise OutsideError("", f"it must be text and is {type(text).__name__}")
    # Each of "[]," becomes a list of 56 bytes and its place in another: text is counted before it is multiplied.
    count = sum(map(text.count, ",[{"))
    if count > MAX_VALUES:
        raise OutsideError("", f"it has about {count:,} values and the limit is {MAX_VALUES:,}")
    try:
        content = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=lambda digits: _number(digits, int),
            parse_float=lambda digits: _number(digits, float),
            parse_constant=_refuse_constant,
        )
    except json.JSONDecodeError as error:
        raise OutsideError("", f"{error.msg} at line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise OutsideError("", f"it is nested too deep, and the limit is {MAX_DEPTH}") from None
    _walk(content)
    return content


class _Object(dict[str, Any]):
    """A JSON object in which a key stood twice; plain ``json`` lets the last one win silently."""

    repeated = ""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    found, seen = _Object(plain), set[str]()
    for key, _ in pairs:
        if key in seen:
            found.repeated = key
        seen.add(key)
    return found


def _walk(content: Any) -> None:
    """Refuse what only shows in the whole: depth, repeated keys with their place, and what no encoding can write."""
    pending: list[tuple[Any, str, int]] = [(content, "", 0)]
    while pending:
        value, where, depth = pending.pop()
        if isinstance(value, str):
            _check_text(value, where)
            continue
        if not isinstance(value, dict | list):
            continue
        if depth >= MAX_DEPTH:
            raise OutsideError(where[:80], f"it is nested too deep, and the limit is {MAX_DEPTH}")
        if isinstance(value, dict):
            for key in value:
                _check_text(key, where)
        if isinstance(value, _Object):
            why = f"the key {value.repeated!r:.80} stands there twice"
            raise OutsideError(_place(where, value.repeated), why, "remove one.")
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        pending += [(item, _place(where, key), depth + 1) for key, item in inner if _needs_a_look(item)]


def _needs_a_look(value: Any) -> bool:
    return isinstance(value, dict | list) or (isinstance(value, str) and not value.isascii())


def _place(where: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{where}[{key}]"
    return f"{where}.{key:.80}" if where else f"{key:.80}"


def _check_text(text: str, where: str) -> None:
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise OutsideError(where, "it holds half of a surrogate pair, which no encoding can write")


def _number(digits: str, kind: Callable[[str], _T]) -> _T:
    if len(digits) > MAX_DIGITS:
        raise OutsideError("a number", f"it has {len(digits)} characters and the limit is {MAX_DIGITS}")
    value = kind(digits)
    if isinstance(value, float) and not math.isfinite(value):
        raise OutsideError("a number", f"{digits} is larger than any float", "a finite number")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise OutsideError("a number", f"{name} is not JSON", "a finite number")
