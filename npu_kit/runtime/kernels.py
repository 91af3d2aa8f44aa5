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


def softmax_maximum(maximum: Array, x: Array) -> None:
    """Raise the running maximum (.., M) to the largest of each row of x (.., M, K)."""
    with np.errstate(all="ignore"):
        np.maximum(maximum, x.astype(np.float32).max(axis=-1), out=maximum)


def softmax_sum(total: Array, x: Array, maximum: Array) -> None:
    """Add the exponentials of each row of x (.., M, K), less its maximum, to the running sum (.., M)."""
    total += softmax_powers(x, maximum).sum(axis=-1)


def softmax_powers(x: Array, maximum: Array) -> Array:
    """``exp(x - maximum)`` of x (.., M, K) in float32."""
    with np.errstate(all="ignore"):
        return np.exp(x.astype(np.float32) - maximum[..., None])
