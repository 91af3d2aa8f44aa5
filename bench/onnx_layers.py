"""The networks of the zoo as ONNX models, with the weights of the zoo."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from npu_kit.zoo.networks import CLASSES, EPSILON, LayerWeights


class OnnxLayers:
    """Layers as ONNX nodes; a value is its name.

    Args:
        fold: write a convolution and its batch norm as one weight and one bias, as exporters do.
    """

    def __init__(self, *, fold: bool = True) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._weights, self._fold = LayerWeights(), fold
        self._bounds = [self._constant("zero", np.float32(0)), self._constant("six", np.float32(6))]

    def conv(
        self, x: str, channels: int, filters: int, kernel: int, stride: int = 1, groups: int = 1, relu: str = ""
    ) -> str:
        p = self._weights.conv(channels, filters, kernel, groups)
        size = {
            "kernel_shape": [kernel] * 2,
            "strides": [stride] * 2,
            "pads": [kernel // 2] * 4,
            "group": groups,
        }
        if self._fold:
            return self._activated(self._node("Conv", x, *self._constants("conv", *p.folded()), **size), relu)
        conv = self._node("Conv", x, *self._constants("conv", p.w), **size)
        statistics = self._constants("norm", p.gamma, p.beta, p.mean, p.var)
        return self._activated(self._node("BatchNormalization", conv, *statistics, epsilon=EPSILON), relu)

    def add(self, a: str, b: str, relu: str = "") -> str:
        return self._activated(self._node("Add", a, b), relu)

    def max_pool(self, x: str) -> str:
        return self._node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)

    def classify(self, x: str, channels: int, size: int) -> str:
        flat = self._node("Flatten", self._node("GlobalAveragePool", x))
        return self._node("Gemm", flat, *self._constants("dense", *self._weights.dense(channels, CLASSES)))

    def _activated(self, x: str, relu: str) -> str:
        if not relu:
            return x
        return self._node("Relu", x) if relu == "relu" else self._node("Clip", x, *self._bounds)

    def _node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def _constants(self, name: str, *arrays: np.ndarray) -> list[str]:
        return [self._constant(f"{name}{len(self.nodes)}_{i}", array) for i, array in enumerate(arrays)]

    def _constant(self, name: str, array: Any) -> str:
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name


def onnx_model(topology: Any, size: int = 224, *, fold: bool = True) -> Any:
    """``topology`` (a function of ``npu_kit.zoo.networks``) of one image "image" as a checked ONNX model."""
    layers = OnnxLayers(fold=fold)
    result = topology(layers, "image", size)
    graph = helper.make_graph(
        layers.nodes,
        topology.__name__,
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, size, size])],
        [helper.make_tensor_value_info(result, TensorProto.FLOAT, [1, CLASSES])],
        layers.initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model
