"""The digits classifier in 8-bit integers, for machines that have nothing else.

The trained weights are quantized after training: one scale per filter, zero points of 0, and for each tensor between
layers the scale of its largest value on a few hundred of the training images (B. Jacob et al., arXiv:1712.05877, with
symmetric scales as TensorFlow Lite has them for weights).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax
from tvm.relax import op

from npu_kit.data.digits import EPSILON, load_digits_data, load_digits_parameters
from npu_kit.zoo.digits import CHANNELS_LAST
from npu_kit.zoo.main_function import Emit, build_main, tensor

Floats = NDArray[np.float32]

LARGEST = 127  # of an int8, used on both sides of 0
CALIBRATION_IMAGES = 300


@dataclass(frozen=True)
class _Layer:
    """A convolution or a dense layer: its weight with the filters last, its bias, and the padding on each side."""

    weight: Floats
    bias: Floats
    padding: int = 0


def digits_int8_model(batch: int = 1) -> Any:
    """Images (N, 8, 8, 1) to probabilities (N, 10): as ``digits_model``, with integers between first and last call.

    Each layer is written as ONNX writes it: dequantize everything, compute, quantize.

    Returns:
        a ``tvm.ir.IRModule``. Where the machine has no float32, the first quantize, the last dequantize and the softmax
        are the host's.
    """
    layers = _folded_layers()
    scales = _calibrated(layers)
    image = tensor("image", (batch, 8, 8, 1))

    def body(emit: Emit) -> Any:
        x = emit(op.quantize(image, *_scale(scales[0]), out_dtype="int8"), "image_int8")
        for number, layer in enumerate(layers[:2], start=1):
            x = _quantized(emit, x, layer, scales[number - 1 : number + 1], f"conv{number}")
        pooled = emit(op.nn.max_pool2d(x, (2, 2), (2, 2), layout="NHWC"), "pool")
        flat = emit(op.reshape(pooled, (batch, 360)), "flat")
        logits = _quantized(emit, flat, layers[2], scales[2:], "dense")
        return op.nn.softmax(emit(op.dequantize(logits, *_scale(scales[3])), "logits"))

    return build_main([image], body)


def _quantized(emit: Emit, x: Any, layer: _Layer, scales: list[float], name: str) -> Any:
    """One layer from int8 to int8, with relu behind a convolution."""
    before, after = scales
    last = layer.weight.ndim - 1
    largest = np.abs(layer.weight).max(tuple(range(last)))
    w_scale = (largest / LARGEST).astype(np.float32)
    w = np.rint(layer.weight / w_scale).astype(np.int8)
    bias_scale = w_scale * np.float32(before)
    bias = np.rint(layer.bias / bias_scale).astype(np.int32)
    zeros = np.zeros_like(bias)
    xf = emit(op.dequantize(x, *_scale(before)), f"{name}_x")
    constants = (relax.const(w), relax.const(w_scale), relax.const(zeros.astype(np.int8)))
    wf = emit(op.dequantize(*constants, axis=last), f"{name}_w")
    bf = emit(op.dequantize(relax.const(bias), relax.const(bias_scale), relax.const(zeros), axis=0), f"{name}_bias")
    if layer.weight.ndim == 4:
        sums = emit(op.nn.conv2d(xf, wf, padding=layer.padding, **CHANNELS_LAST), f"{name}_sums")
        value = emit(op.nn.relu(emit(op.add(sums, bf), f"{name}_biased")), f"{name}_relu")
    else:
        value = emit(op.add(emit(op.matmul(xf, wf), f"{name}_sums"), bf), f"{name}_biased")
    return emit(op.quantize(value, *_scale(after), out_dtype="int8"), f"{name}_int8")


def _scale(scale: float) -> tuple[Any, Any]:
    return relax.const(np.float32(scale)), relax.const(np.int8(0))


def _folded_layers() -> tuple[_Layer, ...]:
    """The layers with each batch norm folded into the weight and the bias of the convolution before it."""
    p = load_digits_parameters()
    layers = []
    for name, padding in (("conv1", 1), ("conv2", 0)):
        factor = p[f"{name}_gamma"] / np.sqrt(p[f"{name}_var"] + np.float32(EPSILON))
        bias = p[f"{name}_beta"] - p[f"{name}_mean"] * factor
        layers.append(_Layer(p[f"{name}_weight"] * factor, bias, padding))
    return (*layers, _Layer(p["dense_weight"], p["dense_bias"]))


def _calibrated(layers: tuple[_Layer, ...]) -> list[float]:
    """The scales of the images, of what each convolution computes, and of the logits."""
    x = load_digits_data().train_images[:CALIBRATION_IMAGES]
    largest = [float(x.max())]
    for layer in layers[:2]:
        padding = ((0, 0), (layer.padding, layer.padding), (layer.padding, layer.padding), (0, 0))
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, padding), layer.weight.shape[:2], axis=(1, 2))
        x = np.maximum(np.einsum("nyxcij,ijco->nyxo", windows, layer.weight, optimize=True) + layer.bias, 0)
        largest.append(float(x.max()))
    pooled = x.reshape(len(x), 3, 2, 3, 2, -1).max((2, 4))
    logits = pooled.reshape(len(x), -1) @ layers[2].weight + layers[2].bias
    return [value / LARGEST for value in (*largest, float(np.abs(logits).max()))]
