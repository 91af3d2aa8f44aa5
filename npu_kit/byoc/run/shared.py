"""Constants in one piece of memory that both the kit and TVM read, held as long as TVM's side is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray

from npu_kit.byoc.run.store import HeldConstants
from npu_kit.plan.placement import ALIGNMENT_BYTES

Array = NDArray[Any]


class HandedArray(np.ndarray):
    """An array that a tensor of TVM stands on and keeps alive, and with it the constants of regions."""

    constants: dict[str, HeldConstants]


def share(arrays: Mapping[str, Array]) -> tuple[dict[str, Any], dict[str, Array], HandedArray | None]:
    """TVM's tensors and the kit's read-only arrays of these values, by name, in the same memory; and their owner.

    The owner is an object that TVM's tensors keep alive and the kit's arrays do not: it dies with the last module that
    has the tensors. None where every array is empty.
    """
    tensors: dict[str, Any] = {}
    kept: dict[str, Array] = {}
    owner: HandedArray | None = None
    for name, value in arrays.items():
        if not value.size:  # has no memory to share
            tensors[name], kept[name] = tvm.runtime.tensor(value), value
            continue
        kept[name] = _aligned_copy(value)
        handed = kept[name].view(HandedArray)
        tensors[name] = tvm.runtime.from_dlpack(handed)
        kept[name].flags.writeable = False
        if owner is None:
            owner = handed
            owner.constants = {}
    return tensors, kept, owner


def _aligned_copy(value: Array) -> Array:
    """A copy at an address that TVM's from_dlpack takes."""
    memory = np.empty(value.nbytes + ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT_BYTES
    copy: Array = memory[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    copy[...] = value
    return copy
