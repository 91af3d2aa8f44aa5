"""Models that do not go to the NPU as a whole: no pattern, a refused dtype, a value that is needed twice."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm.relax import op

from npu_kit.zoo.main_function import Emit, build_main, tensor, weight


def sin_between(size: int = 40) -> Any:
    """``sin(x @ a) @ b``: no pattern has sin, so the host computes it between two regions."""
    random = np.random.RandomState(9)
    x = tensor("x", (size, size))
    a, b = (weight(random, size, size, fan_in=size) for _ in range(2))

    def body(emit: Emit) -> Any:
        before = emit(op.matmul(x, a), "before")
        between = emit(op.sin(before), "between")
        return op.matmul(between, b)

    return build_main([x], body)


def float64_matmul(m: int = 12, k: int = 20, n: int = 8) -> Any:
    """``relu(x @ w)`` in float64: the pattern matches and the dtype is refused."""
    x, w = tensor("x", (m, k), "float64"), tensor("w", (k, n), "float64")

    def body(emit: Emit) -> Any:
        product = emit(op.matmul(x, w), "product")
        return op.nn.relu(product)

    return build_main([x, w], body)


def shared_conv(channels: int = 8, size: int = 12) -> Any:
    """``relu(conv) * sigmoid(conv)``: fused with its relu, the convolution would be missing for the sigmoid."""
    x = tensor("x", (1, channels, size, size))
    w = weight(np.random.RandomState(10), channels, channels, 3, 3, fan_in=9 * channels)

    def body(emit: Emit) -> Any:
        conv = emit(op.nn.conv2d(x, w, padding=1), "conv")
        relu = emit(op.nn.relu(conv), "relu")
        gate = emit(op.sigmoid(conv), "gate")
        return op.multiply(relu, gate)

    return build_main([x], body)
