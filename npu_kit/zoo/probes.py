"""Models of a few calls that show one thing each; the lessons and the checks of their exercises look at them."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op

from npu_kit.zoo.main_function import Emit, build_main, tensor


def conv_add_relu(other: tuple[int, ...] = (1, 24, 1, 1), size: int = 16) -> Any:
    """``relu(conv2d(x, w) + b)`` of 24 channels: a bias or a residual, depending on the shape ``other`` of b."""
    x, w, b = tensor("x", (1, 8, size, size)), tensor("w", (24, 8, 3, 3)), tensor("b", other)

    def body(emit: Emit) -> Any:
        conv = emit(op.nn.conv2d(x, w, padding=1), "conv")
        total = emit(op.add(conv, b), "total")
        return op.nn.relu(total)

    return build_main([x, w, b], body)


def conv_of(kernel: int | tuple[int, int] = 1, groups: int = 1) -> Any:
    """One conv2d of 12 channels to 12, with so many groups and a kernel of that size: a side, or rows and columns."""
    sides = (kernel, kernel) if isinstance(kernel, int) else kernel
    x, w = tensor("x", (1, 12, 9, 9)), tensor("w", (12, 12 // groups, *sides))
    return build_main([x, w], lambda emit: op.nn.conv2d(x, w, groups=groups))


def quantize_by(scale: float = 0.0) -> Any:
    """One quantize to int8 by a constant scale; 0 is what a calibration that saw only zeros can leave behind."""
    x = tensor("x", (6, 20))
    factor, zero = relax.const(np.float32(scale)), relax.const(np.int8(0))
    return build_main([x], lambda emit: op.quantize(x, factor, zero, out_dtype="int8"))


def host_loop() -> Any:
    """``conv + sin(conv)``: the host's sin stands between the conv and the add, so the two cannot be one composite."""
    x, w = tensor("x", (1, 8, 12, 12)), tensor("w", (8, 8, 3, 3))

    def body(emit: Emit) -> Any:
        conv = emit(op.nn.conv2d(x, w, padding=1), "conv")
        detour = emit(op.sin(conv), "detour")
        return op.add(conv, detour)

    return build_main([x, w], body)


def matmul_of(m: int, k: int, n: int, dtype: str = "float32") -> Any:
    """One product of a (M, K) and b (K, N), both arguments."""
    a, b = tensor("a", (m, k), dtype), tensor("b", (k, n), dtype)
    return build_main([a, b], lambda emit: op.matmul(a, b))


def conv_nhwc(size: int = 14, channels: int = 8, filters: int = 40) -> Any:
    """One unpadded 3x3 convolution of an image (1, H, W, C) with weights (3, 3, C, N), both arguments."""
    x, w = tensor("x", (1, size, size, channels)), tensor("w", (3, 3, channels, filters))
    return build_main([x, w], lambda emit: op.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO"))


def turned_round(function: Any) -> Any:
    """A Relax function with its parameters in the reverse order: TVM gives a composite the same order, and need not."""
    return relax.Function(list(function.params)[::-1], function.body, function.ret_ty, function.is_pure, function.attrs)
