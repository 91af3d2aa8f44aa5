"""The check of indices that ``model.indices`` puts into the host's part of a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm


def checked_indices(what: str, counts_from_the_end: int, axis: int, is_deep: int, shape: Any, indices: Any) -> Any:
    """A copy of ``indices`` if all are in range.

    Args:
        what: the operation, for the message.
        counts_from_the_end: whether negative indices are allowed.
        axis: of the data, which the indices run along.
        is_deep: whether the last axis of ``indices`` holds one index for each axis of the data from ``axis`` on.
        shape: of the data.
        indices: a tensor of integers.

    Raises:
        IndexError: one is out of range; names the operation, the index, its place and the size.
    """
    found = np.from_dlpack(indices)
    extents = [int(size) for size in shape]
    sizes = np.array(extents[axis : axis + (found.shape[-1] if is_deep else 1)], np.int64)
    low = -sizes if counts_from_the_end else np.zeros_like(sizes)
    wrong = np.argwhere((found < low) | (found >= sizes))
    if len(wrong):
        place = tuple(map(int, wrong[0]))
        size = int(sizes[place[-1]] if is_deep else sizes[0])
        raise IndexError(
            f"{what}: index {int(found[place])} at {list(place)} is out of range, the data has {size} elements there"
        )
    return tvm.runtime.tensor(found)
