"""A Relax model while it is drawn, and the operands that operations start from."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sample_model import Leaf, Model, Shape, Step, Value

FLOATS = ("float32", "float16")
SMALL_INTEGERS = ("int8", "uint8", "int16", "uint16")
INTEGERS = (*SMALL_INTEGERS, "int32")
MAX_ELEMENTS = 40_000


class Draft:
    """A model while it is drawn from a seeded source. Values are numbered as in ``Model``."""

    def __init__(self, source: random.Random, only_dtype: str = "") -> None:
        self.source = source
        self.only_dtype = only_dtype  # of data, where it is drawn
        self.leaves: list[Leaf] = []
        self.steps: list[Step] = []

    def integer(self, low: int, high: int) -> int:
        return self.source.randint(low, high)

    def size(self, high: int) -> int:
        """A size of 1 to ``high``, in half of all cases a small one."""
        return self.integer(1, high if self.chance(50) else min(high, 5))

    def chance(self, percent: int) -> bool:
        return self.source.randrange(100) < percent

    def choose(self, items: Sequence[Any]) -> Any:
        return self.source.choice(items)

    def order(self, count: int) -> tuple[int, ...]:
        """A permutation of 0 to ``count`` - 1."""
        return tuple(self.source.sample(range(count), count))

    def axis(self, rank: int) -> int:
        """One of ``rank`` axes, sometimes counted from the end."""
        axis = self.integer(0, rank - 1)
        return axis - rank if self.chance(30) else axis

    def dtype(self, dtypes: Sequence[str] = ("float32", "float32", "float32", "float16", *INTEGERS)) -> str:
        return self.only_dtype or self.choose(dtypes)

    def leaf(self, shape: Sequence[int], dtype: str, kind: str = "any", const_percent: int = 40) -> int:
        """A parameter or constant; sometimes one that exists already, so that weights are shared."""
        is_const = self.chance(const_percent)
        wanted = Leaf(tuple(shape), dtype, kind, is_const, number=len(self.leaves))
        alike = [i for i, leaf in enumerate(self.leaves) if replace(leaf, number=wanted.number) == wanted]
        if alike and self.chance(30):
            return ~int(self.choose(alike))
        self.leaves.append(wanted)
        return ~(len(self.leaves) - 1)

    def step(self, op: str, args: Sequence[int], shape: Sequence[int], dtype: str, **attrs: Any) -> int:
        self.steps.append(Step(op, tuple(args), tuple(shape), dtype, attrs))
        return len(self.steps) - 1

    def type_of(self, value: int) -> tuple[Shape, str]:
        holder = self.leaves[~value] if value < 0 else self.steps[value]
        return holder.shape, holder.dtype

    def model(self, results: Sequence[int]) -> Model:
        return Model(tuple(self.leaves), tuple(self.steps), tuple(results), self.integer(0, 2**32 - 1))


DATA = 10  # percent of data are constants, whose operations may be folded

# Draws an operation on a value, or on operands of its own where that is None. Gives the value that it adds to the
# draft, or None where the operation does not fit the value; leaves and steps that it drew may then be left over.
Apply = Callable[[Draft, "Value | None"], "Value | None"]


def any_shape(d: Draft) -> Shape:
    """Ranks 0 to 6; now and then a size of 0."""
    largest = (400, 400, 60, 20, 9, 6, 4)[rank := d.integer(0, 6)]
    sizes = [0 if d.chance(2) else d.size(largest) for _ in range(rank)]
    while math.prod(sizes) > MAX_ELEMENTS:
        sizes[sizes.index(max(sizes))] //= 2
    return tuple(sizes)


def fresh(d: Draft, dtype: str) -> int:
    return d.leaf(any_shape(d), dtype, const_percent=DATA)


def image(d: Draft, dtype: str) -> int:
    """Rank 4, in no particular layout: the operation that reads it says which axis is which."""
    sides = [d.size(16), d.size(16)]
    channels = d.size(24) if d.chance(85) else d.choose((33, 48, 70))
    batch = 0 if d.chance(2) else d.integer(1, 3)
    return d.leaf((batch, *((channels, *sides) if d.chance(50) else (*sides, channels))), dtype, const_percent=DATA)


def sequence(d: Draft, dtype: str) -> int:
    batch = 0 if d.chance(2) else d.integer(1, 3)
    return d.leaf((batch, d.size(40), d.size(40)), dtype, const_percent=DATA)


def broadcast(a: Shape, b: Shape) -> Shape | None:
    """The common shape; None if there is none, or it is too large."""
    try:
        out = np.broadcast_shapes(a, b)
    except ValueError:
        return None
    return out if math.prod(out) <= MAX_ELEMENTS else None
