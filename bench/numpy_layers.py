"""The networks of the zoo in plain NumPy: im2col and one ``np.matmul`` a layer, channels last, without tiles.

What somebody would write who wants speed from NumPy alone: batch norms are folded into weights that stand ready, a 1x1
convolution is a matmul without a copy, sums and ReLUs work in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from npu_kit.zoo.networks import CLASSES, LayerWeights

Array = NDArray[np.float32]


class NumpyLayers:
    """Layers as functions; a value is the number of a tensor, 0 for the image."""

    def __init__(self) -> None:
        self._weights = LayerWeights()
        self._calls: list[tuple[Callable[..., Array], tuple[int, ...]]] = []
        self._last_use: dict[int, int] = {}

    def conv(
        self, x: int, channels: int, filters: int, kernel: int, stride: int = 1, groups: int = 1, relu: str = ""
    ) -> int:
        w, bias = self._weights.conv(channels, filters, kernel, groups).folded()
        if groups > 1:
            taps = np.ascontiguousarray(w[:, 0].transpose(1, 2, 0))
            return self._add(lambda x: activate(depthwise(x, taps, stride) + bias, relu), x)
        matrix = np.ascontiguousarray(w.transpose(2, 3, 1, 0).reshape(-1, filters))

        def run(x: Array) -> Array:
            out = convolve(x, matrix, kernel, stride)
            out += bias
            return activate(out, relu)

        return self._add(run, x)

    def add(self, a: int, b: int, relu: str = "") -> int:
        return self._add(lambda a, b: activate(a + b, relu), a, b)

    def max_pool(self, x: int) -> int:
        return self._add(max_pool, x)

    def classify(self, x: int, channels: int, size: int) -> int:
        w, bias = self._weights.dense(channels, CLASSES)
        return self._add(lambda x: x.mean((1, 2)) @ w + bias, x)

    def run(self, image: Array) -> Array:
        """The result for one image (1, 3, H, W)."""
        values: dict[int, Any] = {0: np.ascontiguousarray(image.transpose(0, 2, 3, 1))}
        for number, (function, inputs) in enumerate(self._calls, start=1):
            values[number] = function(*(values[i] for i in inputs))
            for i in inputs:
                if self._last_use[i] == number:
                    del values[i]
        return values[len(self._calls)]

    def _add(self, function: Callable[..., Array], *inputs: int) -> int:
        self._calls.append((function, inputs))
        self._last_use.update(dict.fromkeys(inputs, len(self._calls)))
        return len(self._calls)


def numpy_network(topology: Any, size: int = 224) -> NumpyLayers:
    """``topology`` (a function of ``npu_kit.zoo.networks``), ready to ``run``."""
    layers = NumpyLayers()
    topology(layers, 0, size)
    return layers


def padded(x: Array, kernel: int, value: float = 0.0) -> Array:
    """``x`` (N, H, W, C) with half a kernel around it."""
    half = kernel // 2
    result = np.full((x.shape[0], x.shape[1] + 2 * half, x.shape[2] + 2 * half, x.shape[3]), value, x.dtype)
    result[:, half : half + x.shape[1], half : half + x.shape[2]] = x
    return result


def convolve(x: Array, matrix: Array, kernel: int, stride: int) -> Array:
    """x (N, H, W, C) by a matrix (kernel * kernel * C, filters)."""
    if kernel == 1:
        return x[:, ::stride, ::stride] @ matrix
    windows = sliding_window_view(padded(x, kernel), (kernel, kernel), (1, 2))[:, ::stride, ::stride]
    patches = windows.transpose(0, 1, 2, 4, 5, 3).reshape(*windows.shape[:3], -1)
    return (patches.reshape(-1, patches.shape[-1]) @ matrix).reshape(*windows.shape[:3], -1)


def depthwise(x: Array, taps: Array, stride: int) -> Array:
    """x (N, H, W, C) by taps (kernel, kernel, C)."""
    kernel = taps.shape[0]
    image = padded(x, kernel)
    height, width = ((size - 1) // stride + 1 for size in x.shape[1:3])
    out = np.zeros((x.shape[0], height, width, x.shape[3]), x.dtype)
    for i, j in np.ndindex(kernel, kernel):
        rows, columns = slice(i, i + stride * height, stride), slice(j, j + stride * width, stride)
        out += image[:, rows, columns] * taps[i, j]
    return out


def max_pool(x: Array) -> Array:
    """3x3 windows with stride 2, padded by 1."""
    image = padded(x, 3, -np.inf)
    height, width = ((size - 1) // 2 + 1 for size in x.shape[1:3])
    taps = (image[:, i : i + 2 * height - 1 : 2, j : j + 2 * width - 1 : 2] for i, j in np.ndindex(3, 3))
    out = next(taps).copy()
    for tap in taps:
        np.maximum(out, tap, out=out)
    return out


def activate(x: Array, relu: str) -> Array:
    """``x`` after "relu", "relu6" or nothing; overwrites it."""
    if relu == "relu":
        return np.maximum(x, 0, out=x)
    return np.clip(x, 0, 6, out=x) if relu else x
