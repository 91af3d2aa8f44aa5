"""Memory that fast mode uses again and again: scratch arrays of blocks, and the tensors between steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Shapes = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]  # of the arrays of a block, by name

# What the arrays of a block take. Smaller blocks cost Python's time for each; larger ones leave the last cache level.
BLOCK_BYTES = 4 << 20
ALIGNMENT = 64  # bytes of a cache line


class Scratch:
    """Memory for the arrays of one block at a time.

    Args:
        nbytes: what the arrays of the largest block take, by ``shapes_bytes``.
    """

    def __init__(self, nbytes: int) -> None:
        self._bytes = np.empty(nbytes, np.uint8)

    def arrays(self, shapes: Shapes) -> dict[str, Array]:
        """The arrays of a block, side by side, of any content; those of every other block use the same memory."""
        found, start = {}, 0
        for name, (shape, dtype) in shapes.items():
            found[name] = _array(self._bytes[start:], shape, dtype)
            start += _aligned(found[name].nbytes)
        return found


def shapes_bytes(shapes: Shapes) -> int:
    """Bytes that the arrays of a block take in a scratch memory."""
    return sum(_aligned(math.prod(shape) * dtype.itemsize) for shape, dtype in shapes.values())


class TensorPool:
    """Memory for whole tensors, which is used again after ``release``."""

    def __init__(self) -> None:
        self._free: list[Array] = []
        self._used: dict[int, Array] = {}

    def take(self, shape: Sequence[int], dtype: str, order: Sequence[int]) -> Array:
        """An array of any content, whose axes lie in memory in ``order``, the outermost first."""
        kind = np.dtype(dtype)
        nbytes = math.prod(shape) * kind.itemsize
        fitting = [memory for memory in self._free if memory.nbytes >= nbytes]
        memory = min(fitting, key=lambda one: one.nbytes) if fitting else np.empty(nbytes, np.uint8)
        self._free = [one for one in self._free if one is not memory]
        array: Array = _array(memory, [shape[axis] for axis in order], kind).transpose(np.argsort(order))
        self._used[id(array)] = memory
        return array

    def release(self, array: Array) -> None:
        """Whoever holds ``array``, from ``take``, does not read it any more."""
        self._free.append(self._used.pop(id(array)))


def cut(count: int, most: int, parts_of: int = 1) -> Iterator[tuple[int, int]]:
    """``count`` things in few, and equal, parts of at most ``most``: start and stop of each.

    The number of parts is a multiple of ``parts_of`` where there are that many things.
    """
    parts = -(-count // most)
    parts = min(count, -(-parts // parts_of) * parts_of)
    for i in range(parts):
        yield count * i // parts, count * (i + 1) // parts


def _array(memory: Array, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    return memory[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
