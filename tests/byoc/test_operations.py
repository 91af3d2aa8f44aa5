"""Operations of the table as models have them: from ONNX, as parts of blocks, reshaped on the way.

The oracles are TVM's own LLVM build and ONNX Runtime.
"""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

import npu_kit

op, nn = relax.op, relax.op.nn
IMAGE = (1, 4, 6, 6)


def onnx_model(kind, shapes, constants=(), outputs=1, **attrs):
    """One ONNX node on float32 inputs of ``shapes``, then ``constants``."""
    names = [f"i{k}" for k in range(len(shapes))] + [f"c{k}" for k in range(len(constants))]
    node = helper.make_node(kind, names, [f"o{k}" for k in range(outputs)], **attrs)
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip(names, shapes, strict=False)]
    results = [helper.make_tensor_value_info(f"o{k}", TensorProto.FLOAT, None) for k in range(outputs)]
    stored = [numpy_helper.from_array(np.asarray(value), f"c{k}") for k, value in enumerate(constants)]
    model = helper.make_model(
        helper.make_graph([node], "one", inputs, results, stored), opset_imports=[helper.make_opsetid("", 18)]
    )
    model.ir_version = 9
    return model


def f32(*shape, start=0.5):
    return np.linspace(start, start + 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


ONNX = {
    "LeakyRelu": ([IMAGE], (), {"alpha": 0.2}),
    "PRelu": ([IMAGE], (f32(4, 1, 1),), {}),
    "HardSwish": ([IMAGE], (), {}),
    "HardSigmoid": ([IMAGE], (), {}),
    "Elu": ([IMAGE], (), {}),
    "Selu": ([IMAGE], (), {}),
    "Softplus": ([IMAGE], (), {}),
    "Softsign": ([IMAGE], (), {}),
    "Mish": ([IMAGE], (), {}),
    "Reciprocal": ([IMAGE], (), {}),
    "Erf": ([IMAGE], (), {}),
    "Pow": ([IMAGE], (np.float32(3),), {}),
    "GlobalAveragePool": ([(2, 5, 7, 9)], (), {}),
    "GlobalMaxPool": ([IMAGE], (), {}),
    "ReduceMean": ([IMAGE], (np.array([1, 3]),), {"keepdims": 0}),
    "ReduceSum": ([IMAGE], (np.array([-1]),), {}),
    "ReduceL2": ([IMAGE], (np.array([1]),), {}),
    "InstanceNormalization": ([IMAGE], (f32(4), f32(4)), {}),
    "LayerNormalization": ([(2, 8, 16)], (f32(16), f32(16)), {"axis": -1}),
    "LogSoftmax": ([(3, 40)], (), {"axis": 1}),
    "Transpose": ([IMAGE], (), {"perm": [0, 2, 3, 1]}),
    "Concat": ([IMAGE, (1, 2, 6, 6)], (), {"axis": 1}),
    "Pad": ([IMAGE], (np.array([0, 1, 0, 2, 0, 0, 3, 1]), np.float32(1.5)), {}),
    "Slice": ([IMAGE], (np.array([0, -5]), np.array([3, 9]), np.array([1, 2]), np.array([2, 1])), {}),
    "Split": ([IMAGE], (np.array([1, 3]),), {"axis": 1}),
    "Expand": ([(4, 1)], (np.array([2, 4, 3]),), {}),
    "ConvTranspose": ([IMAGE], (f32(4, 3, 3, 2),), {"strides": [2, 1], "pads": [1, 0, 0, 1], "output_padding": [1, 0]}),
    "MaxPool": ([(2, 3, 9)], (), {"kernel_shape": [3], "strides": [2], "pads": [1, 0]}),
    "AveragePool": ([(2, 3, 9)], (), {"kernel_shape": [2], "pads": [0, 1], "count_include_pad": 1}),
    "LRN": ([(1, 7, 5, 5)], (), {"size": 3, "alpha": 0.1}),
}
# What there is nothing on the NPU before it, or behind it, for.
ON_HOST = {"MaxPool": {"relax.reshape"}, "AveragePool": {"relax.reshape"}}


@pytest.mark.parametrize("kind", ONNX)
def test_what_onnx_calls_so_goes_to_the_npu_and_has_onnx_runtimes_values(kind, rng):
    shapes, constants, attrs = ONNX[kind]
    model = onnx_model(kind, shapes, constants, outputs=2 if kind == "Split" else 1, **attrs)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, {f"i{k}": array for k, array in enumerate(arrays)})
    compiled = npu_kit.compile(from_onnx(model))
    found = compiled.run(*arrays)
    assert {call.op for call in compiled.partition.report.on_host} == ON_HOST.get(kind, set())
    for one, other in zip([found] if isinstance(found, np.ndarray) else found, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=3e-5, atol=3e-6)
