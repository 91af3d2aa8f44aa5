"""The kernels of the reduction families: each works on one tile, or on a stack of tiles with the same bits.

Elementwise arithmetic is in ``arithmetic``. Letters: M rows and N columns of an output tile, K depth of a chunk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.runtime.arithmetic import multiply_tile

Array = NDArray[Any]


def multiply_accumulate(accumulator: Array, a: Array, b: Array) -> None:
    """Add the product of (.., m, K) and (.., K, N) to the accumulator (.., M, N): product first, then one addition.

    Where m < M the array's idle rows are fed with zeros: the product always has the full size, and so the same bits.
    """
    idle = accumulator.shape[-2] - a.shape[-2]
    if idle:
        a = np.pad(a, [(0, 0)] * (a.ndim - 2) + [(0, idle), (0, 0)])
    product = multiply_tile(a, b, accumulator.dtype)
    with np.errstate(all="ignore"):
        accumulator += product


Pair = tuple[int, int]  # along rows, along columns


def sliding_windows(box: Array, out: Pair, kernel: Pair, stride: Pair, dilation: Pair) -> Array:
    """The windows of a box (.., IH, IW, C) as a view (.., Y, X, KH, KW, C), without a copy.

    Args:
        box: input positions, contiguous or not.
        out: Y and X.
        kernel: KH and KW.
        stride, dilation: in positions of the box.
    """
    *leading, row, column, channel = box.strides
    shape = (*box.shape[:-3], *out, *kernel, box.shape[-1])
    steps = (stride[0] * row, stride[1] * column, dilation[0] * row, dilation[1] * column)
    return np.lib.stride_tricks.as_strided(box, shape, (*leading, *steps, channel), writeable=False)


def reduce_taps(accumulator: Array, windows: Array, weights: Array | None, is_maximum: bool) -> None:
    """Fold the taps of windows (.., Y, X, KH, KW, C) into the accumulator (.., Y, X, C), kernel rows first.

    Depthwise weights are (KH, KW, C). Each tap is one elementwise operation, so the order of the sum is that of the
    taps whatever the tile.
    """
    with np.errstate(all="ignore"):
        for kh, kw in np.ndindex(*windows.shape[-3:-1]):
            tap = windows[..., kh, kw, :].astype(accumulator.dtype)
            if weights is not None:
                tap = tap * weights[kh, kw].astype(accumulator.dtype)
            if is_maximum:
                np.maximum(accumulator, tap, out=accumulator)
            else:
                accumulator += tap


def fold_reduction(accumulator: Array, x: Array, operation: str) -> None:
    """Fold the last axis of x (.., K), one run of memory, into the accumulator (..)."""
    with np.errstate(all="ignore"):
        if operation in ("sum", "mean"):
            accumulator += x.astype(accumulator.dtype).sum(axis=-1, dtype=accumulator.dtype)
        elif operation == "max":
            np.maximum(accumulator, x.max(axis=-1), out=accumulator)
        else:
            np.minimum(accumulator, x.min(axis=-1), out=accumulator)


def finish_reduction(accumulator: Array, operation: str, count: int) -> None:
    """What follows the last chunk: a mean is divided by its ``count``; an extremum of zeros is 0.0, never -0.0."""
    with np.errstate(all="ignore"):
        if operation == "mean":
            accumulator /= accumulator.dtype.type(count)
        elif operation != "sum":
            accumulator += accumulator.dtype.type(0)
