"""Constants in one piece of memory that both the kit and TVM read, and a sign of when TVM's side is gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray

from npu_kit.plan.placement import ALIGNMENT_BYTES

Array = NDArray[Any]


def share(arrays: Mapping[str, Array]) -> tuple[dict[str, Any], dict[str, Array], Any]:
    """TVM's tensors and the kit's read-only arrays of these values, by name, in the same memory; and their owner.

    The owner is an object that TVM's tensors keep alive and the kit's arrays do not: it dies with the last module that
    has the tensors. None where every array is empty.
    """
    tensors, kept, owner = {}, {}, None
    for name, value in arrays.items():
        if not value.size:  # has no memory to share
            tensors[name], kept[name] = tvm.runtime.tensor(value), value
            continue
        kept[name] = _aligned_copy(value)
        handed = kept[name].view()
        tensors[name] = tvm.runtime.from_dlpack(handed)
        kept[name].flags.writeable = False
        owner = handed if owner is None else owner
    return tensors, kept, owner


def _aligned_copy(value: Array) -> Array:
    """A copy at an address that TVM's from_dlpack takes."""
    memory = np.empty(value.nbytes + ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT_BYTES
    copy: Array = memory[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    copy[...] = value
    return copy
