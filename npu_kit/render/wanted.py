"""What a renderer shows: anything else is told in a sentence, not by the first attribute that is missing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from npu_kit.errors import RenderError, kind_of

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

OF_COMPILED = {"Plan": "compiled.plans[0]", "Graph": "compiled.graphs[0]", "Diagram": "describe_partition(partition)"}


def shows(kind: type[Any]) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Decorate a renderer whose first argument is a ``kind``.

    Raises:
        RenderError: it was given something else; names the function, and where a ``kind`` is to be had.
    """

    def decorate(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        @functools.wraps(function)
        def checked(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            if args and not isinstance(args[0], kind):
                found = f"it shows one {kind.__name__}, and was given {kind_of(args[0])}"
                raise RenderError(f"render.{function.__name__}", found, f"{OF_COMPILED[kind.__name__]}, for example.")
            return function(*args, **kwargs)

        return checked

    return decorate
