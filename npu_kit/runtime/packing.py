"""Packing: images with their padding, and what the boxes of tiles really hold, counted on a padded row of ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.plan.geometry.sliding import Sliding
from npu_kit.plan.ir import Axis
from npu_kit.plan.program import tile_indices
from npu_kit.runtime.kernels import sliding_windows

Array = NDArray[Any]


def padded_length(sliding: Sliding, outputs: int) -> int:
    """Positions that the windows of ``outputs`` output positions touch, and at least the padding and the data."""
    touched = (outputs - 1) * sliding.stride + (sliding.kernel - 1) * sliding.dilation + 1
    return max(touched, sliding.before + sliding.size)


def pad_images(x: Array, rows: Sliding, columns: Sliding, outputs: tuple[int, int], fill: float) -> Array:
    """Images (B, H, W, C), contiguous, with everything around them that the windows touch."""
    shape = (x.shape[0], padded_length(rows, outputs[0]), padded_length(columns, outputs[1]), x.shape[3])
    padded = np.full(shape, fill, x.dtype) if fill else np.zeros(shape, x.dtype)
    padded[:, rows.before : rows.before + rows.size, columns.before : columns.before + columns.size] = x
    return padded


def box_sums(sliding: Sliding, out: Axis, kernel: Axis) -> tuple[int, int]:
    """Real positions in all boxes along one axis, and the number of boxes with any, counted on a padded row of ones."""
    ones = np.zeros(padded_length(sliding, out.count * out.tile), np.int64)
    ones[sliding.before : sliding.before + sliding.size] = 1
    total = boxes = 0
    for (i,), (k,) in ((i, k) for i in tile_indices((out,)) for k in tile_indices((kernel,))):
        (o0, o1), (k0, k1) = out.span(i), kernel.span(k)
        start = o0 * sliding.stride + k0 * sliding.dilation
        if kernel.tile == 1:
            box = ones[start : start + (o1 - o0 - 1) * sliding.stride + 1 : sliding.stride]
        else:
            box = ones[start : start + (o1 - o0 - 1) * sliding.stride + (k1 - k0 - 1) * sliding.dilation + 1]
        total += int(box.sum())
        boxes += bool(box.any())
    return total, boxes


def image_windows(padded: Array, rows: Sliding, columns: Sliding, outputs: tuple[int, int]) -> Array:
    """All windows of padded images (B, H, W, C) as a view (B, Y, X, KH, KW, C)."""
    kernel, stride = (rows.kernel, columns.kernel), (rows.stride, columns.stride)
    return sliding_windows(padded, outputs, kernel, stride, (rows.dilation, columns.dilation))
