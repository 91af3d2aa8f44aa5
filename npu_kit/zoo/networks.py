"""ResNet-18 and MobileNet-V2: the topologies, and their Relax form with seeded random weights.

A topology is a function of ``Layers``, which says what a layer is: Relax calls here, nodes of an ONNX model or plain
NumPy in the benchmarks. All draw their weights from ``LayerWeights`` in the same order, so they compute the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from tvm import relax
from tvm.relax import op

from npu_kit.zoo.main_function import Emit, build_main, tensor

Value = TypeVar("Value")
Floats = NDArray[np.float32]

CLASSES = 1000
EPSILON = 1e-5

# Sandler et al., arXiv:1801.04381, table 2: expansion, output channels, blocks, stride of the first block.
_INVERTED_RESIDUALS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class Layers(Protocol[Value]):
    """The layers that both networks are made of, on images of shape (N, C, H, W)."""

    def conv(
        self, x: Value, channels: int, filters: int, kernel: int, stride: int = 1, groups: int = 1, relu: str = ""
    ) -> Value:
        """Convolution, padded by half the kernel, with batch norm; ``relu`` is "", "relu" or "relu6"."""
        ...

    def add(self, a: Value, b: Value, relu: str = "") -> Value:
        """The sum of two tensors of one shape."""
        ...

    def max_pool(self, x: Value) -> Value:
        """3x3 windows with stride 2, padded by 1."""
        ...

    def classify(self, x: Value, channels: int, size: int) -> Value:
        """The mean over each of the ``size x size`` channels, then a dense layer: (N, CLASSES)."""
        ...


def resnet18(layers: Layers[Value], x: Value, size: int = 224) -> Value:
    """The ResNet-18 of He et al., arXiv:1512.03385, on images (N, 3, size, size)."""
    x = layers.conv(x, 3, 64, 7, stride=2, relu="relu")
    x = layers.max_pool(x)
    channels = 64
    for filters in (64, 128, 256, 512):
        for block in range(2):
            stride = 2 if filters != 64 and block == 0 else 1
            y = layers.conv(x, channels, filters, 3, stride, relu="relu")
            y = layers.conv(y, filters, filters, 3)
            shortcut = layers.conv(x, channels, filters, 1, stride) if channels != filters else x
            x = layers.add(y, shortcut, relu="relu")
            channels = filters
    return layers.classify(x, channels, -(-size // 32))


def mobilenet_v2(layers: Layers[Value], x: Value, size: int = 224) -> Value:
    """The MobileNet-V2 of Sandler et al., arXiv:1801.04381, at width 1, on images (N, 3, size, size)."""
    x = layers.conv(x, 3, 32, 3, stride=2, relu="relu6")
    channels = 32
    for expansion, filters, blocks, first_stride in _INVERTED_RESIDUALS:
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            hidden = expansion * channels
            y = layers.conv(x, channels, hidden, 1, relu="relu6") if expansion > 1 else x
            y = layers.conv(y, hidden, hidden, 3, stride, groups=hidden, relu="relu6")
            y = layers.conv(y, hidden, filters, 1)
            x = layers.add(x, y) if stride == 1 and channels == filters else y
            channels = filters
    x = layers.conv(x, channels, 1280, 1, relu="relu6")
    return layers.classify(x, 1280, -(-size // 32))


@dataclass(frozen=True)
class ConvWeights:
    """A convolution (filters, channels / groups, kernel, kernel) and its batch norm, one value per filter each."""

    w: Floats
    gamma: Floats
    beta: Floats
    mean: Floats
    var: Floats

    def folded(self) -> tuple[Floats, Floats]:
        """The same as one weight and one bias, as exporters write it."""
        factor = self.gamma / np.sqrt(self.var + np.float32(EPSILON))
        return self.w * factor[:, None, None, None], self.beta - self.mean * factor


class LayerWeights:
    """Random weights, the same for every network that asks in the same order."""

    def __init__(self, seed: int = 11) -> None:
        self._random = np.random.RandomState(seed)

    def conv(self, channels: int, filters: int, kernel: int, groups: int = 1) -> ConvWeights:
        """Weights scaled so that a sum is as large as its inputs, and a batch norm near those of a trained network."""
        depth = channels // groups * kernel * kernel
        w = self._normal(filters, channels // groups, kernel, kernel) * np.float32(np.sqrt(2 / depth))
        gamma, beta, mean = 1 + 0.1 * self._normal(filters), 0.1 * self._normal(filters), 0.1 * self._normal(filters)
        var = self._random.uniform(0.5, 2.0, filters).astype(np.float32)
        return ConvWeights(w, gamma.astype(np.float32), beta, mean, var)

    def dense(self, channels: int, features: int) -> tuple[Floats, Floats]:
        """A weight (channels, features) and a bias."""
        return self._normal(channels, features) / np.float32(np.sqrt(channels)), 0.1 * self._normal(features)

    def _normal(self, *shape: int) -> Floats:
        return self._random.standard_normal(shape).astype(np.float32)


class RelaxLayers:
    """Layers as Relax calls, with weights as constants."""

    def __init__(self, emit: Emit) -> None:
        self._emit, self._weights, self._number = emit, LayerWeights(), 0

    def conv(
        self, x: Any, channels: int, filters: int, kernel: int, stride: int = 1, groups: int = 1, relu: str = ""
    ) -> Any:
        p = self._weights.conv(channels, filters, kernel, groups)
        self._number += 1
        conv = op.nn.conv2d(x, relax.const(p.w), strides=stride, padding=kernel // 2, groups=groups)
        statistics = (relax.const(values) for values in (p.gamma, p.beta, p.mean, p.var))
        normed = op.nn.batch_norm(self._named(conv, "conv"), *statistics, axis=1, epsilon=EPSILON, training=False)
        return self._activated(relax.TupleGetItem(self._named(normed, "bn"), 0), relu)

    def add(self, a: Any, b: Any, relu: str = "") -> Any:
        self._number += 1
        return self._activated(op.add(a, b), relu)

    def max_pool(self, x: Any) -> Any:
        return self._named(op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1)), "pool")

    def classify(self, x: Any, channels: int, size: int) -> Any:
        w, bias = self._weights.dense(channels, CLASSES)
        mean = self._named(op.nn.avg_pool2d(x, (size, size)), "mean")
        flat = self._named(op.reshape(mean, (1, channels)), "flat")
        return op.add(self._named(op.matmul(flat, relax.const(w)), "dense"), relax.const(bias))

    def _activated(self, value: Any, relu: str) -> Any:
        value = self._named(value, "sum")
        if not relu:
            return value
        return self._named(op.nn.relu(value) if relu == "relu" else op.clip(value, 0, 6), relu)

    def _named(self, value: Any, name: str) -> Any:
        return self._emit(value, f"{name}{self._number}")


def resnet18_model(size: int = 224) -> Any:
    """ResNet-18 of one image (1, 3, size, size), as an IRModule."""
    image = tensor("image", (1, 3, size, size))
    return build_main([image], lambda emit: resnet18(RelaxLayers(emit), image, size))


def mobilenet_v2_model(size: int = 224) -> Any:
    """MobileNet-V2 of one image (1, 3, size, size), as an IRModule."""
    image = tensor("image", (1, 3, size, size))
    return build_main([image], lambda emit: mobilenet_v2(RelaxLayers(emit), image, size))
