"""Declares what one operator attribute may hold, and brings values given in short form into their full form.

Relax lets a caller write ``padding=1`` or ``axis=-1``. A graph never does: every attribute is there, in one canonical
form, so that planner, runtime and views need no defaults of their own.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, cast

from npu_kit.graph.ir import AttrValue

# Integers in a graph stay inside 31 bits: Relax stores most attributes as C ints.
MAX_INT = 2**31 - 1


@dataclass(frozen=True)
class AttrDef:
    """One attribute of an operation.

    ``kind`` says how a short form is completed:

    - ``"int"``, ``"float"``, ``"bool"``, ``"str"``: one value;
    - ``"axis"``: an int, a negative one counts from the end of the first input;
    - ``"axes"``: any number of axes, in increasing order; none of them stands for all;
    - ``"order"``: every axis once; none of them stands for the reverse order;
    - ``"sizes"``: any number of ints;
    - ``"ints"``: ``length`` ints, one int stands for all of them;
    - ``"padding"``: ``length`` ints, all before-sides then all after-sides, ``(top, left, bottom, right)``; one int
      stands for all of them, ``length / 2`` ints for both sides alike.
    """

    kind: str
    default: AttrValue | None = None  # None: the caller must give it
    length: int = 0
    minimum: int | None = None
    choices: tuple[str, ...] = ()

    def check(self, value: Any) -> str:
        """What is wrong with ``value`` as a full-form attribute, "" if nothing is."""
        if self.kind in ("axes", "order", "sizes"):
            if type(value) is not tuple:
                return f"needs a tuple of integers and got {value!r}"
            if self.kind != "sizes" and len(set(value)) < len(value):
                return f"names an axis twice: {value!r}"
            return next((problem for item in value if (problem := self._check_int(item))), "")
        if self.kind in ("ints", "padding"):
            if type(value) is not tuple or len(value) != self.length:
                return f"needs a tuple of {self.length} integers and got {value!r}"
            return next((problem for item in value if (problem := self._check_int(item))), "")
        if self.kind in ("int", "axis"):
            return self._check_int(value)
        if self.kind == "float":
            if type(value) is not float:
                return f"needs a float and got {value!r}"
            return "" if math.isfinite(value) else f"needs a finite number and got {value!r}"
        if self.kind == "bool":
            return "" if type(value) is bool else f"needs True or False and got {value!r}"
        if type(value) is not str or value not in self.choices:
            return f"needs one of {', '.join(self.choices)} and got {value!r}"
        return ""

    def _check_int(self, value: Any) -> str:
        minimum = 0 if self.minimum is None else self.minimum
        if type(value) is not int:
            return f"needs an integer and got {value!r}"
        if not minimum <= value <= MAX_INT:
            return f"needs at least {minimum} and at most {MAX_INT} and got {value}"
        return ""

    def complete(self, value: Any, rank: int) -> AttrValue:
        """``value`` in full form; left as it is where no full form exists, for ``check`` to refuse.

        Args:
            value: what Relax or a caller gave: ints may be of any integer type, lists of any sequence type.
            rank: number of dimensions of the operation's first input, for negative axes.
        """
        if self.kind in ("ints", "padding"):
            return self._complete_ints(value)
        if self.kind in ("axes", "order", "sizes"):
            return self._complete_many(value, rank)
        if self.kind == "axis" and not isinstance(value, str) and isinstance(value, Sequence) and len(value) == 1:
            return self.complete(value[0], rank)  # Relax names one axis among many
        if self.kind == "axis" and _is_int(value):
            number = int(value)
            # A scalar has no axis to name; Relax accepts any there, and the kit writes 0.
            return 0 if rank == 0 and number in (-1, 0) else number + rank if number < 0 else number
        if self.kind == "int" and _is_int(value):
            return int(value)
        if self.kind == "float" and _is_number(value):
            with contextlib.suppress(OverflowError):  # an int beyond every float stays what it is
                return float(value)
        if self.kind == "bool" and value in (0, 1):
            return bool(value)
        if self.kind == "str" and isinstance(value, str):
            return str(value)
        return cast(AttrValue, value)

    def _complete_many(self, value: Any, rank: int) -> AttrValue:
        items = (value,) if _is_int(value) else value
        if isinstance(items, str) or not isinstance(items, Iterable) or not all(map(_is_int, items := tuple(items))):
            return cast(AttrValue, value)
        if self.kind == "sizes":
            return tuple(map(int, items))
        axes = tuple(int(item) + rank * (item < 0) for item in items)
        if self.kind == "order":
            return axes or tuple(reversed(range(rank)))
        return tuple(sorted(axes)) or tuple(range(rank))

    def _complete_ints(self, value: Any) -> AttrValue:
        if _is_int(value):
            return (int(value),) * self.length
        if isinstance(value, str) or not isinstance(value, Iterable):
            return cast(AttrValue, value)
        items = tuple(int(item) if _is_int(item) else item for item in value)
        if len(items) == 1:
            return items * self.length
        if self.kind == "padding" and len(items) * 2 == self.length:
            return items * 2
        return items


def _is_int(value: Any) -> bool:
    return type(value) is not bool and isinstance(value, Integral)


def _is_number(value: Any) -> bool:
    return type(value) is not bool and isinstance(value, Real)
