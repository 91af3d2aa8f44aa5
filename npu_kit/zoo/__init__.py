"""Sample models, by name: ``build("digits")``. Needs TVM; the digits images alone do not, see ``npu_kit.data``."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from npu_kit.errors import NpuKitError
from npu_kit.zoo import blocks, on_host, quantized
from npu_kit.zoo.digits import digits_model, load_digits_data, load_digits_parameters
from npu_kit.zoo.main_function import random_arguments
from npu_kit.zoo.quantized_digits import digits_int8_model

__all__ = [
    "MODELS",
    "Sample",
    "build",
    "digits_int8_model",
    "digits_model",
    "load_digits_data",
    "load_digits_parameters",
    "random_arguments",
]


class Sample(NamedTuple):
    """One sample model."""

    summary: str
    builder: Callable[..., Any]  # returns an IRModule; every argument has a default


MODELS: Mapping[str, Sample] = MappingProxyType(
    {
        "matmul_relu": Sample("matmul and relu, 2x4 times 4x8: upstream's example", blocks.matmul_relu),
        "conv_relu": Sample("conv 3x3 and relu, 3x32x32 to 16 filters: upstream's test", blocks.conv_relu),
        "conv_relu_pool": Sample("conv, relu, pool at 3x224x224: what stays on the chip", blocks.conv_relu_pool),
        "residual_block": Sample("two conv + batch norm with a shortcut: ResNet's block", blocks.residual_block),
        "depthwise_block": Sample("depthwise and 1x1 conv with relu6: MobileNet's block", blocks.depthwise_block),
        "conv1d_tanh": Sample("conv1d with bias and tanh, over a sequence", blocks.conv1d_tanh),
        "mlp": Sample("three dense layers with gelu and softmax", blocks.mlp),
        "attention": Sample("one attention head: two products, a transpose and a softmax", blocks.attention),
        "resnet18_stem": Sample("the first layers of ResNet-18, at 3x224x224", blocks.resnet18_stem),
        "quantized_matmul": Sample("quantize, int8 matmul into int32, dequantize", quantized.quantized_matmul),
        "quantized_conv": Sample("dequantize, conv, relu, quantize, as ONNX writes it", quantized.quantized_conv),
        "sin_between": Sample("sin between two matmuls: the host in the middle", on_host.sin_between),
        "float64_matmul": Sample("matmul and relu in float64: refused for its dtype", on_host.float64_matmul),
        "shared_conv": Sample("a conv that feeds two operations: not fused with either", on_host.shared_conv),
        "digits": Sample("handwritten digits: a trained classifier, 99.2 % on held-out images", digits_model),
        "digits_int8": Sample("the same in 8-bit integers, quantized after training", digits_int8_model),
    }
)


def build(name: str, **options: Any) -> Any:
    """Build the sample model called ``name``.

    Args:
        name: a key of ``MODELS``.
        options: arguments of its builder, such as ``batch=16`` for ``digits``.

    Returns:
        a ``tvm.ir.IRModule`` whose entry is ``main``.

    Raises:
        NpuKitError: there is no such model.
    """
    if name not in MODELS:
        near = difflib.get_close_matches(name, MODELS, n=1)
        hint = f"{near[0]!r}." if near else ""
        raise NpuKitError(f"no sample model {name!r}", f"there are {', '.join(MODELS)}", hint)
    return MODELS[name].builder(**options)
