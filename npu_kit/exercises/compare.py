"""Compare a learner's value with the expected one and say the first difference in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set, Sized
from typing import Any

import numpy as np

from npu_kit.render.format import shorten

_NAMES = ("symbol", "name", "label", "__name__")  # attributes by which objects of the kit are called
_NAME_CHARACTERS = 40


def first_difference(found: Any, expected: Any, tolerance: float = 0.0) -> str:
    """Return where ``found`` first differs from ``expected``, or "" where they agree.

    Numbers and elements of floating arrays agree within ``tolerance * max(1, |expected|)``; NaN agrees with NaN. Tuples
    and lists count as the same; everything else has to be equal.

    >>> first_difference([1, 2, 5], (1, 2, 3))
    'element 2: found 5, expected 3'
    >>> first_difference(np.zeros((2, 3)), np.zeros((3, 2)))
    'found shape (2, 3), expected (3, 2)'
    """
    if isinstance(expected, np.ndarray):
        return _array_difference(found, expected, tolerance)
    if isinstance(expected, Mapping):
        return _mapping_difference(found, expected, tolerance)
    if isinstance(expected, Set):
        return _set_difference(found, expected)
    if isinstance(expected, Sequence) and not isinstance(expected, (str, bytes)):
        return _sequence_difference(found, expected, tolerance)
    found, expected = _plain(found), _plain(expected)
    if is_number(expected) and is_number(found):
        agree = bool(_within(np.asarray(found), np.asarray(expected), tolerance).all())
    else:
        agree = type(found) is type(expected) and bool(found == expected)
    return "" if agree else f"found {describe(found)}, expected {describe(expected)}"


def describe(value: Any, limit: int = 80) -> str:
    """A short text of any value.

    A large array is told by its shape and dtype; a list, a dictionary or text longer than ``limit`` is cut; of an
    object with a longer text (a Graph, a Report) the type is told, and its name or its size where it has one.

    >>> describe(np.zeros((64, 64), "float32"))
    'array 64x64 float32'
    >>> from npu_kit.graph.ir import Graph
    >>> describe(Graph("region0", (), tuple(range(100)), ()))
    "Graph 'region0'"
    """
    if isinstance(value, np.ndarray) and value.size > 8:
        return f"array {'x'.join(map(str, value.shape))} {value.dtype}"
    if isinstance(value, np.ndarray | np.generic):
        return str(value.tolist())
    if isinstance(value, tuple | list) and any(isinstance(item, np.ndarray) for item in value):
        return f"({', '.join(map(describe, value))})"
    text = " ".join(repr(value).split())
    if len(text) <= limit:
        return text
    if type(value) in (tuple, list):
        left, right = "()" if isinstance(value, tuple) else "[]"
        text = f"{left}{', '.join(map(describe, value))}{right}"
    elif not isinstance(value, (str, bytes, int, float)) and type(value) not in (dict, set, frozenset):
        return _describe_object(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _describe_object(value: Any) -> str:
    """The type, and what tells one object of it from another without printing it whole."""
    kind = type(value).__name__
    for attribute in _NAMES:
        name = getattr(value, attribute, None)
        if isinstance(name, str) and name:
            return f"{kind} {shorten(name, _NAME_CHARACTERS)!r}"
    return f"{kind} of length {len(value)}" if isinstance(value, Sized) else kind


def _plain(value: Any) -> Any:
    """A NumPy scalar as the Python number it stands for."""
    return value.item() if isinstance(value, np.generic) else value


def is_number(value: Any) -> bool:
    """Whether ``value`` is a Python number; a truth value is none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _within(found: np.ndarray, expected: np.ndarray, tolerance: float) -> np.ndarray:
    """Element by element: do the two agree? Equal infinities do, and so do two NaN."""
    if not tolerance and found.dtype.kind in "biu" and expected.dtype.kind in "biu":
        return np.asarray(found == expected)  # exact, also beyond 2**53
    wide_found, wide_expected = found.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = np.abs(wide_found - wide_expected) <= tolerance * np.maximum(1.0, np.abs(wide_expected))
    both_nan = np.isnan(wide_found) & np.isnan(wide_expected)
    return np.asarray(near | (wide_found == wide_expected) | both_nan)


def _array_difference(found: Any, expected: np.ndarray, tolerance: float) -> str:
    if not isinstance(found, np.ndarray):
        return f"found {describe(found)}, which is {_a(type(found).__name__)}, expected an array"
    if found.shape != expected.shape:
        return f"found shape {found.shape}, expected {expected.shape}"
    if found.dtype != expected.dtype:
        return f"found dtype {found.dtype}, expected {expected.dtype}"
    wrong = np.argwhere(~_within(found, expected, tolerance))
    if not len(wrong):
        return ""
    first = tuple(int(i) for i in wrong[0])
    return (
        f"{len(wrong)} of {expected.size} elements differ, the first at {list(first)}: "
        f"found {found[first]}, expected {expected[first]}"
    )


def _mapping_difference(found: Any, expected: Mapping[Any, Any], tolerance: float) -> str:
    if not isinstance(found, Mapping):
        return f"found {describe(found)}, expected a dictionary"
    for key in expected:
        if key not in found:
            return f"the key {key!r} is missing"
    for key in found:
        if key not in expected:
            return f"the key {key!r} is too much"
    for key, value in expected.items():
        if difference := first_difference(found[key], value, tolerance):
            return f"key {key!r}: {difference}"
    return ""


def _set_difference(found: Any, expected: Set[Any]) -> str:
    if not isinstance(found, Set):
        return f"found {describe(found)}, expected a set"
    for label, items in (("missing", expected - found), ("too much", found - expected)):
        if items:
            return f"{min(items, key=repr)!r} is {label}"
    return ""


def _sequence_difference(found: Any, expected: Sequence[Any], tolerance: float) -> str:
    if isinstance(found, np.ndarray):
        return f"found an array, {describe(found)}, expected a list or tuple of {len(expected)}"
    if not isinstance(found, (tuple, list)):
        return f"found {describe(found)}, expected a list or tuple of {len(expected)}"
    for index, (one, other) in enumerate(zip(found, expected, strict=False)):
        if difference := first_difference(one, other, tolerance):
            return f"element {index}: {difference}"
    return "" if len(found) == len(expected) else f"found {len(found)} elements, expected {len(expected)}"


def _a(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
