"""Integer models, in the two forms in which they arrive. Weights are seeded random constants, one scale per filter.

Both have zero points of 0 (symmetric quantization), so that the product of the integers is the product of the values up
to the scales.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax
from tvm.relax import op

from npu_kit.zoo.main_function import Emit, build_main, tensor

INPUT_SCALE = 0.03  # 127 steps reach 3.8: standard normal inputs rarely saturate
OUTPUT_SCALE = 0.02


def quantized_matmul(m: int = 20, k: int = 70, n: int = 40) -> Any:
    """Integer arithmetic written out: quantize x (M, K), int8 matmul into int32, dequantize to float32 (M, N)."""
    x = tensor("x", (m, k))
    w, scales = _int8_weight(np.random.RandomState(7), (k, n), filter_axis=1)

    def body(emit: Emit) -> Any:
        x8 = emit(op.quantize(x, _scalar(INPUT_SCALE), _zero("int8"), out_dtype="int8"), "x8")
        sums = emit(op.matmul(x8, relax.const(w), out_dtype="int32"), "sums")
        zeros = relax.const(np.zeros(n, np.int32))
        return op.dequantize(sums, relax.const(scales * np.float32(INPUT_SCALE)), zeros, axis=1)

    return build_main([x], body)


def quantized_conv(channels: int = 12, size: int = 10, filters: int = 20) -> Any:
    """Quantize and dequantize around a float convolution, as ONNX writes it: dequantize both, conv 3x3, relu, quantize.

    x (1, C, H, W) and the result are int8. An NPU computes the four operations as one in integers.
    """
    x = tensor("x", (1, channels, size, size), "int8")
    w, scales = _int8_weight(np.random.RandomState(8), (filters, channels, 3, 3), filter_axis=0)

    def body(emit: Emit) -> Any:
        xf = emit(op.dequantize(x, _scalar(INPUT_SCALE), _zero("int8"), axis=1), "xf")
        zeros = relax.const(np.zeros(filters, np.int8))
        wf = emit(op.dequantize(relax.const(w), relax.const(scales), zeros, axis=0), "wf")
        conv = emit(op.nn.conv2d(xf, wf, padding=1), "conv")
        relu = emit(op.nn.relu(conv), "relu")
        return op.quantize(relu, _scalar(OUTPUT_SCALE), _zero("int8"), axis=1, out_dtype="int8")

    return build_main([x], body)


def _int8_weight(
    random: np.random.RandomState, shape: tuple[int, ...], filter_axis: int
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Random weights of one filter's size, and per filter the scale that maps its largest to 127."""
    others = tuple(axis for axis in range(len(shape)) if axis != filter_axis)
    values = random.standard_normal(shape) / np.sqrt(np.prod([shape[axis] for axis in others]))
    largest = np.abs(values).max(others, keepdims=True)
    return np.rint(values / largest * 127).astype(np.int8), (largest.ravel() / 127).astype(np.float32)


def _scalar(value: float) -> Any:
    return relax.const(np.float32(value))


def _zero(dtype: str) -> Any:
    return relax.const(np.zeros((), dtype))
