"""The networks of the zoo as ONNX models, with the weights of the zoo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
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
        self._bounds: list[str] = []

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
        if relu == "relu":
            return self._node("Relu", x)
        self._bounds = self._bounds or [self._constant("zero", np.float32(0)), self._constant("six", np.float32(6))]
        return self._node("Clip", x, *self._bounds)

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


def session(model: Any, threads: int, **inputs: np.ndarray) -> Callable[[], Any]:
    """A model in ONNX Runtime on these inputs, by so many threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    options.log_severity_level = 3
    runtime = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: runtime.run(None, inputs)


def matmul_session(size: int, threads: int, a: np.ndarray, b: np.ndarray) -> Callable[[], Any]:
    """One MatMul in ONNX Runtime; b is an argument, too, so that it is not packed beforehand."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size, size]) for name in "abc"]
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["c"])], "matmul", infos[:2], infos[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return session(model, threads, a=a, b=b)
