"""Memory for checks of the runtime lesson: full of NaN, it remembers its views; and arrays that stay in DRAM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from npu_kit.errors import ExecutionError
from npu_kit.hw.spec import MemoryTier, NpuSpec
from npu_kit.runtime.memory import Array, OnChipMemory, TierMemory

_PRODUCTS = frozenset({"matmul", "multiply", "dot", "vdot", "inner", "outer", "tensordot", "einsum"})


class WatchedTier(TierMemory):
    """The bytes of one tier, NaN at first, and every view that was asked for."""

    def __init__(self, tier: MemoryTier) -> None:
        super().__init__(tier)
        self.poison(0, tier.capacity_bytes)
        self.views: list[Array] = []

    def view(self, offset_bytes: int, shape: Sequence[int], dtype: str) -> Array:
        view = super().view(offset_bytes, shape, dtype)
        self.views.append(view)
        return view


class WatchedMemory(OnChipMemory):
    """On-chip memory of watched tiers."""

    def __init__(self, spec: NpuSpec) -> None:
        super().__init__(spec)
        self._watched = {tier.name: WatchedTier(tier) for tier in spec.tiers if tier.name != "L3"}

    def __getitem__(self, name: str) -> WatchedTier:
        return self._watched[name]


class _InDram(np.ndarray[Any, Any]):
    """An array that can be cut and copied and has no multipliers: NumPy's products of it are refused."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        _refuse(ufunc.__name__)
        plain = [np.asarray(one) if isinstance(one, _InDram) else one for one in inputs]
        return getattr(ufunc, method)(*plain, **kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        _refuse(func.__name__)
        return super().__array_function__(func, types, args, kwargs)

    def dot(self, *_arguments: Any, **_options: Any) -> Any:
        _refuse("dot")


def in_dram(array: Array) -> Array:
    """A copy of ``array`` that cannot be multiplied where it is."""
    copy: Array = array.copy().view(_InDram)
    return copy


def _refuse(operation: str) -> None:
    if operation in _PRODUCTS:
        raise ExecutionError(
            f"{operation} of an array in DRAM", "the engine reads L1 only", "load its piece into L1, multiply the views"
        )
