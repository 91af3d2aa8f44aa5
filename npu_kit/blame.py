"""Names the line of a learner's own code that an error came from, and where a function of theirs begins."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

_NOT_THEIRS = (
    str(Path(__file__).resolve().parent),
    *(sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")),
)


# TVM adds the frames of its own C++ and Cython to a traceback, under names of files that are not on this machine.
_NATIVE = (".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".pxi", ".pyx", "<unknown>")


def line_of(error: BaseException) -> str:
    """The innermost line outside of the kit and of installed packages that ``error`` passed through; "" if none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_theirs(frame.filename)]
    if not frames:
        return ""
    frame = frames[-1]
    code = f": {frame.line}" if frame.line else ""
    return f"{frame.name}, line {frame.lineno} of {_file(frame.filename)}{code}"


def function_line(function: Callable[..., Any]) -> str:
    """A function's name and where it is written: ``relu, line 3 of a cell``."""
    name = getattr(function, "__name__", type(function).__name__)
    code = getattr(function, "__code__", None)
    return f"{name}, line {code.co_firstlineno} of {_file(code.co_filename)}" if code is not None else str(name)


def _is_theirs(filename: str) -> bool:
    return not filename.startswith(("<frozen", *_NOT_THEIRS)) and not filename.endswith(_NATIVE)


def _file(filename: str) -> str:
    is_cell = filename.startswith("<") or "ipykernel" in filename
    return "a cell" if is_cell else Path(filename).name
