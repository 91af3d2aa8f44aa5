"""The test cases that the ``onnx`` package ships: one ONNX operator each, converted PyTorch layers, whole networks.

A case is a model, inputs and the outputs that the package expects. Nothing here knows the kit or TVM.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnx.backend.test import loader

SUITES = ("node", "simple", "pytorch-converted", "pytorch-operator")
NETWORKS = (
    *("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50"),
    *("shufflenet", "squeezenet", "vgg19", "zfnet512"),
)

# What only brings tensors into shape around the operators that a converted PyTorch layer is about.
_PLUMBING = frozenset({"Constant", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})

Array = np.ndarray[Any, Any]
DataSet = tuple[Sequence[Any], Sequence[Any]]  # inputs and expected outputs, in the order of the model


@dataclasses.dataclass(frozen=True)
class Case:
    """One case; its tolerances are the package's own."""

    name: str
    suite: str  # one of SUITES, or "network"
    op: str  # what it is about: the operator, or operators joined by " + "
    model: onnx.ModelProto
    data_sets: Sequence[DataSet]
    rtol: float
    atol: float

    @property
    def key(self) -> str:
        """Suite and name, which together are unique."""
        return f"{self.suite}/{self.name}"


@functools.cache
def cases(suite: str) -> dict[str, Case]:
    """The cases of one suite by key. Made once: the inputs of the node suite take seconds to compute."""
    found = _node_cases() if suite == "node" else _stored_cases(suite)
    return {case.key: case for case in found}


def _node_cases() -> Iterator[Case]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package divides by 0 and casts NaN on purpose
        found = {case.name: case for case in loader.load_node_model_tests()}
    for name, case in sorted(found.items()):
        # A case called test_elu_expanded_ver18 is test_elu, written with the operators that define Elu.
        original = found.get(re.sub(r"_expanded(_ver\d+)?$", "", name), case)
        op = _op_of(original.model)
        op = op if original is case else f"{op}, expanded"
        data = [([*map(_as_array, inputs)], [*map(_as_array, outputs)]) for inputs, outputs in case.data_sets]
        yield Case(name, "node", op, case.model, data, case.rtol, case.atol)


def _as_array(value: Any) -> Any:
    """The node suite has NumPy arrays, scalars, TensorProtos where NumPy lacks a dtype, and lists for sequences."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def _stored_cases(suite: str) -> Iterator[Case]:
    for case in sorted(loader.load_model_tests(kind=suite), key=lambda case: case.name):
        folder = Path(case.model_dir)
        model = onnx.load(folder / "model.onnx")
        data = [_read_data(path, model) for path in sorted(folder.glob("test_data_set*"))]
        yield Case(case.name, suite, _op_of(model), model, data, case.rtol, case.atol)


def _op_of(model: onnx.ModelProto) -> str:
    ops = list(dict.fromkeys(node.op_type for node in model.graph.node))
    return " + ".join([op for op in ops if op not in _PLUMBING] or ops)


def _read_data(folder: Path, model: onnx.ModelProto) -> DataSet:
    sides = []
    for prefix, declared in (("input", model.graph.input), ("output", model.graph.output)):
        count = len(list(folder.glob(f"{prefix}_*.pb")))
        sides.append([_read(folder / f"{prefix}_{i}.pb", declared[i].type) for i in range(count)])
    return sides[0], sides[1]


def _read(path: Path, declared: onnx.TypeProto) -> Any:
    content = path.read_bytes()
    if declared.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    return numpy_helper.to_array(onnx.TensorProto.FromString(content))


def network(name: str, seed: int | None = None) -> Case:
    """One of NETWORKS.

    Args:
        name: without "light_".
        seed: None for the package's own test: its input, its expected output, and weights that are constant, which says
            little about numbers. An integer for seeded weights and inputs, and ONNX Runtime's outputs.
    """
    folder = Path(loader.DATA_DIR) / "light"
    model = onnx.load(folder / f"light_{name}.onnx")
    given = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in given]
    if seed is None:
        output = _read(folder / f"light_{name}_output_0.pb", model.graph.output[0].type)
        rtol = 2e-3 if name == "densenet121" else 1e-3  # the package's
        return Case(name, "network", name, model, [([_ramp(value) for value in inputs], [output])], rtol, 1e-7)
    model, rng = with_random_weights(model, seed), np.random.default_rng(seed + 1)
    feeds = {value.name: rng.standard_normal(_ramp(value).shape).astype(np.float32) for value in inputs}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns of every initializer that is listed among the inputs
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    outputs = session.run(None, feeds)
    return Case(f"{name}, random weights", "network", name, model, [(list(feeds.values()), outputs)], 1e-3, 1e-4)


def _ramp(value: onnx.ValueInfoProto) -> Array:
    shape = [dim.dim_value if dim.HasField("dim_value") else 1 for dim in value.type.tensor_type.shape.dim]
    return (np.arange(math.prod(shape)).reshape(shape) / math.prod(shape)).astype(np.float32)


def with_random_weights(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """A copy of a network with seeded weights that keep its activations in range, whatever its depth.

    The weights of a contraction are normal with variance 2 / fan-in (He et al., arXiv:1502.01852); scales and variances
    lie around 1, biases and means around 0. What a closing softmax reads is returned as well: of 1,000 probabilities
    most are too small to say anything.
    """
    model = onnx.ModelProto.FromString(model.SerializeToString())
    graph, rng = model.graph, np.random.default_rng(seed)
    shapes = {t.name: [int(size) for size in numpy_helper.to_array(t)] for t in graph.initializer if t.data_type == 7}
    made = {node.output[0]: shapes[node.input[0]] for node in graph.node if node.op_type == "ConstantOfShape"}
    stored = {t.name: list(t.dims) for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT}
    origin = {name: name for name in (*made, *stored)}
    origin |= {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Unsqueeze"}
    values: dict[str, Array] = {}
    for node in graph.node:
        for position, name in enumerate(node.input):
            weight = origin.get(name, "")
            shape = made.get(weight, stored.get(weight))
            if shape is not None and weight not in values:
                values[weight] = np.asarray(_weight(rng, node.op_type, position, shape), np.float32)
    kept = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    others = [tensor for tensor in graph.initializer if tensor.name not in values]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(kept)
    graph.initializer.extend([*others, *(numpy_helper.from_array(v, name) for name, v in values.items())])
    if kept[-1].op_type == "Softmax":
        graph.output.append(onnx.helper.make_tensor_value_info(kept[-1].input[0], onnx.TensorProto.FLOAT, None))
    return model


def _weight(rng: np.random.Generator, op: str, position: int, shape: Sequence[int]) -> Any:
    is_scale = (op, position) in {("BatchNormalization", 1), ("BatchNormalization", 4), ("Mul", 1)}
    if is_scale:
        return rng.uniform(0.8, 1.2, shape)
    # Conv weights are (filters, channels, H, W); the Gemm weights of these networks are (outputs, inputs).
    is_weight = op in ("Conv", "Gemm") and position == 1
    deviation = math.sqrt(2 / math.prod(shape[1:])) if is_weight else 0.1
    return rng.standard_normal(shape, np.float32) * np.float32(deviation)
