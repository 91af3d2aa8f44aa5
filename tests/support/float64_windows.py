"""Convolution and pooling in float64, window by window: slow, and close to how one says what they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from sample_model import Array

Attrs = Mapping[str, Any]


def convolve(x: Array, w: Array, attrs: Attrs) -> Array:
    """(N, C, ..) and (O, I, ..): every output element is one sum over the window of its group."""
    windows = _windows(x, w.shape[2:], attrs)  # (N, C, out.., taps..)
    axes = w.ndim - 2
    groups = attrs["groups"]
    parts = []
    for data, weights in zip(np.split(windows, groups, 1), np.split(w, groups, 0), strict=True):
        contracted = [1, *range(2 + axes, 2 + 2 * axes)]
        part = np.tensordot(data, weights, (contracted, [1, *range(2, 2 + axes)]))  # (N, out.., O)
        parts.append(np.moveaxis(part, -1, 1))
    return np.concatenate(parts, 1)


def _windows(x: Array, taps: Sequence[int], attrs: Attrs) -> Array:
    """Every window of (N, C, ..) as (N, C, out.., taps..), padded with zeros."""
    padding, strides, dilation = attrs["padding"], attrs["strides"], attrs["dilation"]
    axes = len(taps)
    x = np.pad(x, [(0, 0), (0, 0), *zip(padding[:axes], padding[axes:], strict=True)])
    span = [d * (t - 1) + 1 for d, t in zip(dilation, taps, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(x, span, tuple(range(2, 2 + axes)))
    steps: Any = (slice(None), slice(None), *(slice(None, None, step) for step in (*strides, *dilation)))
    return np.asarray(windows[steps])


def _places(out_sizes: Sequence[int], attrs: Attrs) -> Iterator[tuple[tuple[int, ...], list[list[int]]]]:
    """Each output place, and the rows and columns that its window looks at: below 0 and too large ones are padding."""
    names = ("strides", "padding", "dilation", "pool_size")
    axes = list(zip(*(attrs[name][:2] for name in names), strict=True))
    for place in product(*map(range, out_sizes)):
        yield place, [[o * s - p + t * d for t in range(n)] for o, (s, p, d, n) in zip(place, axes, strict=True)]


def _seen(x: Array, lines: Sequence[Sequence[int]]) -> Array:
    rows, columns = ([i for i in line if 0 <= i < size] for line, size in zip(lines, x.shape[2:], strict=True))
    return x[:, :, rows][:, :, :, columns]


def max_pool(x: Array, errors: Array, out_sizes: Sequence[int], attrs: Attrs) -> tuple[Array, Array]:
    """The largest element of each window of (N, C, H, W), and the largest error."""
    value = np.empty((*x.shape[:2], *out_sizes))
    error = np.zeros(value.shape)
    for (row, column), lines in _places(out_sizes, attrs):
        seen = _seen(x, lines)
        if seen.size:
            value[:, :, row, column] = seen.max((2, 3))
            error[:, :, row, column] = _seen(errors, lines).max((2, 3))
        else:  # nothing but padding: a dtype's lowest number, which the strategies avoid asking for
            value[:, :, row, column], error[:, :, row, column] = 0, np.inf
    return value, error


def avg_pool(x: Array, errors: Array, sizes: Sequence[int], attrs: Attrs, unit: float) -> tuple[Array, Array, Array]:
    """The mean of each window of (N, C, H, W), its error where sums are rounded to ``unit``, and its sum of absolutes.

    ``sizes`` are those of the output.
    """
    value = np.empty((*x.shape[:2], *sizes))
    error, absolute = np.zeros(value.shape), np.zeros(value.shape)
    padding = attrs["padding"]
    for (row, column), lines in _places(sizes, attrs):
        if attrs["count_include_pad"]:
            ends = [size + after for size, after in zip(x.shape[2:], padding[2:], strict=True)]
            counts = [sum(-b <= i < e for i in line) for line, b, e in zip(lines, padding[:2], ends, strict=True)]
        else:
            counts = [sum(0 <= i < size for i in line) for line, size in zip(lines, x.shape[2:], strict=True)]
        count = max(1, counts[0] * counts[1])
        seen, around = _seen(x, lines), _seen(errors, lines)
        value[:, :, row, column] = seen.sum((2, 3)) / count
        absolute[:, :, row, column] = (np.abs(seen) + around).sum((2, 3))
        spread = (len(lines[0]) * len(lines[1]) + 2) * unit * absolute[:, :, row, column]
        error[:, :, row, column] = (around.sum((2, 3)) + spread) / count
    return value, error, absolute


def convolve_transposed(x: Array, w: Array, out_sizes: Sequence[int], attrs: Attrs) -> Array:
    """(N, C, H, W) and (C, O of a group, H, W): every element of ``x`` spreads over a window of the result."""
    groups, (top, left, _, _) = attrs["groups"], attrs["padding"]
    (sy, sx), (dy, dx) = attrs["strides"], attrs["dilation"]
    height, width = dy * (w.shape[2] - 1) + 1, dx * (w.shape[3] - 1) + 1  # that a window spans
    rows = max((x.shape[2] - 1) * sy + height, top + out_sizes[0])  # output_padding may be behind every window
    columns = max((x.shape[3] - 1) * sx + width, left + out_sizes[1])
    parts = []
    for data, weights in zip(np.split(x, groups, 1), np.split(w, groups, 0), strict=True):
        part = np.zeros((x.shape[0], w.shape[1], rows, columns))
        for i, j in np.ndindex(*x.shape[2:]):
            window = part[:, :, i * sy : i * sy + height : dy, j * sx : j * sx + width : dx]
            window += np.tensordot(data[:, :, i, j], weights, (1, 0))
        parts.append(part[:, :, top : top + out_sizes[0], left : left + out_sizes[1]])
    return np.concatenate(parts, 1)
