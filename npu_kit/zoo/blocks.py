"""Small models of the shapes that networks are made of. Weights are seeded random constants.

NCHW images and OIHW filters, as PyTorch and ONNX have them, unless a docstring says otherwise.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op

from npu_kit.zoo.main_function import Emit, build_main, tensor, weight


def matmul_relu(m: int = 2, k: int = 4, n: int = 8) -> Any:
    """``relu(x @ w)`` of x (M, K) and w (K, N), both arguments: the model of upstream's example."""
    x, w = tensor("x", (m, k)), tensor("w", (k, n))

    def body(emit: Emit) -> Any:
        product = emit(op.matmul(x, w), "product")
        return op.nn.relu(product)

    return build_main([x, w], body)


def conv_relu(channels: int = 3, size: int = 32, filters: int = 16) -> Any:
    """``relu(conv2d(x, w))``, 3x3 and unpadded, both arguments: the other model of upstream's tests."""
    x, w = tensor("x", (1, channels, size, size)), tensor("w", (filters, channels, 3, 3))

    def body(emit: Emit) -> Any:
        conv = emit(op.nn.conv2d(x, w), "conv")
        return op.nn.relu(conv)

    return build_main([x, w], body)


def conv_relu_pool(channels: int = 3, size: int = 224, filters: int = 64) -> Any:
    """Conv 3x3 padded, relu, max pool 2x2: what stays on the chip between the three depends on the sizes."""
    x = tensor("x", (1, channels, size, size))
    w = weight(np.random.RandomState(1), filters, channels, 3, 3, fan_in=9 * channels)

    def body(emit: Emit) -> Any:
        conv = emit(op.nn.conv2d(x, w, padding=1), "conv")
        relu = emit(op.nn.relu(conv), "relu")
        return op.nn.max_pool2d(relu, (2, 2), (2, 2))

    return build_main([x], body)


def residual_block(channels: int = 24, size: int = 14) -> Any:
    """Two convolutions with batch norm and a shortcut around both, as in ResNet (He et al., 2016)."""
    random = np.random.RandomState(2)
    x = tensor("x", (1, channels, size, size))
    first, second = (weight(random, channels, channels, 3, 3, fan_in=9 * channels) for _ in range(2))
    norm1, norm2 = _norm_constants(random, channels), _norm_constants(random, channels)

    def body(emit: Emit) -> Any:
        conv1 = emit(op.nn.conv2d(x, first, padding=1), "conv1")
        bn1 = emit(_batch_norm(emit, conv1, norm1, "bn1"), "bn1_y")
        relu1 = emit(op.nn.relu(bn1), "relu1")
        conv2 = emit(op.nn.conv2d(relu1, second, padding=1), "conv2")
        bn2 = emit(_batch_norm(emit, conv2, norm2, "bn2"), "bn2_y")
        shortcut = emit(op.add(bn2, x), "shortcut")
        return op.nn.relu(shortcut)

    return build_main([x], body)


def depthwise_block(channels: int = 20, filters: int = 36, size: int = 15) -> Any:
    """A depthwise 3x3 with stride 2, a 1x1, each with relu6, and a global average: MobileNet (Howard et al., 2017)."""
    random = np.random.RandomState(3)
    x = tensor("x", (1, channels, size, size))
    depthwise = weight(random, channels, 1, 3, 3, fan_in=9)
    pointwise = weight(random, filters, channels, 1, 1, fan_in=channels)
    left = -(-size // 2)

    def body(emit: Emit) -> Any:
        conv1 = emit(op.nn.conv2d(x, depthwise, strides=2, padding=1, groups=channels), "depthwise")
        relu1 = emit(op.clip(conv1, 0, 6), "relu1")
        conv2 = emit(op.nn.conv2d(relu1, pointwise), "pointwise")
        relu2 = emit(op.clip(conv2, 0, 6), "relu2")
        return op.nn.avg_pool2d(relu2, (left, left))

    return build_main([x], body)


def conv1d_tanh(channels: int = 10, length: int = 100, filters: int = 18) -> Any:
    """A conv1d of width 5 and stride 2 with bias and tanh, as over audio features (N, C, W)."""
    random = np.random.RandomState(4)
    x = tensor("x", (1, channels, length))
    w = weight(random, filters, channels, 5, fan_in=5 * channels)
    bias = weight(random, 1, filters, 1, fan_in=1)

    def body(emit: Emit) -> Any:
        conv = emit(op.nn.conv1d(x, w, strides=2, padding=2), "conv")
        biased = emit(op.add(conv, bias), "biased")
        return op.tanh(biased)

    return build_main([x], body)


def mlp(batch: int = 5, widths: tuple[int, ...] = (64, 100, 50, 10)) -> Any:
    """Dense layers with bias and gelu between them, softmax at the end."""
    random = np.random.RandomState(5)
    x = tensor("x", (batch, widths[0]))
    layers = [(weight(random, k, n, fan_in=k), weight(random, n, fan_in=n)) for k, n in pairwise(widths)]

    def body(emit: Emit) -> Any:
        hidden = x
        for number, (w, bias) in enumerate(layers, start=1):
            product = emit(op.matmul(hidden, w), f"dense{number}")
            hidden = emit(op.add(product, bias), f"biased{number}")
            if number < len(layers):
                hidden = emit(op.nn.gelu(hidden), f"gelu{number}")
        return op.nn.softmax(hidden)

    return build_main([x], body)


def attention(tokens: int = 24, width: int = 40) -> Any:
    """One attention head, ``softmax(q @ k.T / sqrt(D)) @ v`` of q, k, v (T, D) (Vaswani et al., 2017)."""
    q, k, v = (tensor(name, (tokens, width)) for name in "qkv")

    def body(emit: Emit) -> Any:
        transposed = emit(op.permute_dims(k, (1, 0)), "k_transposed")
        scores = emit(op.matmul(q, transposed), "scores")
        scaled = emit(op.multiply(scores, relax.const(np.float32(1 / np.sqrt(width)))), "scaled")
        weights = emit(op.nn.softmax(scaled), "weights")
        return op.matmul(weights, v)

    return build_main([q, k, v], body)


def resnet18_stem(size: int = 224) -> Any:
    """The first layers of ResNet-18: conv 7x7 with stride 2 from 3 to 64 channels, batch norm, relu, max pool 3x3."""
    random = np.random.RandomState(6)
    x = tensor("x", (1, 3, size, size))
    w = weight(random, 64, 3, 7, 7, fan_in=147)
    norm = _norm_constants(random, 64)

    def body(emit: Emit) -> Any:
        conv = emit(op.nn.conv2d(x, w, strides=2, padding=3), "conv")
        bn = emit(_batch_norm(emit, conv, norm, "bn"), "bn_y")
        relu = emit(op.nn.relu(bn), "relu")
        return op.nn.max_pool2d(relu, (3, 3), (2, 2), (1, 1))

    return build_main([x], body)


def _norm_constants(random: np.random.RandomState, channels: int) -> tuple[Any, ...]:
    """gamma, beta, mean and variance near those of a trained network."""
    gamma, beta = 1 + 0.1 * random.standard_normal(channels), 0.1 * random.standard_normal(channels)
    mean, var = 0.1 * random.standard_normal(channels), random.uniform(0.5, 2.0, channels)
    return tuple(relax.const(values.astype(np.float32)) for values in (gamma, beta, mean, var))


def _batch_norm(emit: Emit, data: Any, constants: tuple[Any, ...], name: str) -> Any:
    """Batch norm at inference over axis 1; Relax returns a tuple and assumes training unless told otherwise."""
    normed = emit(op.nn.batch_norm(data, *constants, axis=1, training=False), name)
    return relax.TupleGetItem(normed, 0)
