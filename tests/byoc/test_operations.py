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
from npu_kit.graph.ops import is_reshape
from npu_kit.runtime.record import record

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


# --- blocks that networks are made of ---------------------------------------------------------------------------------


def attention(builder, x, query, key, value, mask):
    """Several heads, as frontends write it: reshape, permute, scale, mask."""

    def heads(weight):
        projected = builder.emit(op.reshape(builder.emit(op.matmul(x, weight)), (2, 10, 4, 4)))
        return builder.emit(op.permute_dims(projected, (0, 2, 1, 3)))

    q, k, v = heads(query), heads(key), heads(value)
    scores = builder.emit(op.matmul(q, builder.emit(op.permute_dims(k, (0, 1, 3, 2)))))
    masked = builder.emit(op.add(builder.emit(op.multiply(scores, relax.const(0.5))), mask))
    mixed = builder.emit(op.matmul(builder.emit(nn.softmax(masked)), v))
    together = builder.emit(op.reshape(builder.emit(op.permute_dims(mixed, (0, 2, 1, 3))), (2, 10, 16)))
    return op.add(together, x)


def channel_shuffle(builder, x):
    """Of ShuffleNet: split, one half through a relu, side by side again, channels dealt out."""
    halves = builder.emit(op.split(builder.emit(nn.relu(x)), 2, axis=1))
    left = builder.emit(relax.TupleGetItem(halves, 0))
    right = builder.emit(nn.leakyrelu(builder.emit(relax.TupleGetItem(halves, 1))))
    grouped = builder.emit(op.reshape(builder.emit(op.concat((left, right), 1)), (1, 2, 4, 5, 5)))
    dealt = builder.emit(op.reshape(builder.emit(op.permute_dims(grouped, (0, 2, 1, 3, 4))), (1, 8, 5, 5)))
    return nn.max_pool2d(dealt, (2, 2))


def classifier(builder, x, w):
    """Squeeze and flatten between a pool and a matmul."""
    pooled = builder.emit(op.mean(builder.emit(nn.relu(x)), (2, 3), keepdims=True))
    return nn.log_softmax(builder.emit(op.matmul(builder.emit(op.squeeze(pooled, (2, 3))), w)))


def upsampling(builder, x, w):
    """Of a U-Net: transposed convolution, padded, joined with what was there before."""
    up = builder.emit(nn.relu(builder.emit(nn.conv2d_transpose(x, w, (2, 2)))))
    padded = builder.emit(nn.pad(builder.emit(nn.relu(x)), [0, 0, 0, 0, 2, 3, 3, 2]))
    return op.concat((up, padded), 1)


F32 = "float32"
BLOCKS = {
    attention: {"x": (2, 10, 16), "q": (16, 16), "k": (16, 16), "v": (16, 16), "mask": (10, 10)},
    channel_shuffle: {"x": (1, 8, 5, 5)},
    classifier: {"x": (2, 8, 5, 5), "w": (8, 3)},
    upsampling: {"x": (1, 4, 5, 5), "w": (4, 3, 2, 2)},
}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.__name__)
@pytest.mark.parametrize("mode", ["fast", "step"])
def test_a_block_is_one_region_with_tvms_values(make_model, run_on_host, rng, block, mode):
    inputs = {name: (shape, F32) for name, shape in BLOCKS[block].items()}
    model = make_model(block, **inputs)
    arrays = [rng.standard_normal(shape).astype(F32) for shape in BLOCKS[block].values()]
    compiled = npu_kit.compile(model, mode=mode)
    assert len(compiled.partition.regions) == 1 and not compiled.partition.report.on_host
    np.testing.assert_allclose(compiled.run(*arrays), run_on_host(model, *arrays), rtol=3e-5, atol=3e-6)


# --- reshapes ---------------------------------------------------------------------------------------------------------


def counters(model, *arrays):
    compiled = npu_kit.compile(model, mode="step")
    with record() as trace:
        compiled.run(*arrays)
    return compiled, trace.counters


def test_a_reshape_moves_nothing(make_model, emit_chain, rng):
    x = rng.standard_normal((6, 20)).astype(F32)
    chain = (nn.relu, lambda v: op.reshape(v, (5, 24)), op.exp)
    compiled, with_reshape = counters(make_model(lambda b, x: emit_chain(b, x, *chain), x=((6, 20), F32)), x)
    _, without = counters(make_model(lambda b, x: emit_chain(b, x, nn.relu, op.exp), x=((6, 20), F32)), x)
    assert with_reshape.nbytes == without.nbytes
    (graph,) = compiled.graphs
    assert sum(map(is_reshape, graph.nodes)) == 1 and len(compiled.plans[0].steps) == 2


@pytest.mark.parametrize(
    ("steps", "on_host", "found"),
    [
        ((lambda v: op.reshape(v, (40,)), nn.relu), ["relax.reshape"], "comes from elsewhere"),
        ((nn.relu, op.flatten), ["relax.reshape"], "a result of the model"),
        ((op.sin, op.flatten, nn.relu), ["relax.sin", "relax.reshape"], "comes from elsewhere"),
        ((nn.relu, op.flatten, lambda v: op.expand_dims(v, 0), nn.relu), [], ""),
    ],
)
def test_a_reshape_goes_along_where_it_costs_nothing(make_model, emit_chain, steps, on_host, found):
    report = npu_kit.partition(make_model(lambda b, x: emit_chain(b, x, *steps), x=((2, 20), F32))).report
    assert [call.op for call in report.on_host] == on_host
    assert found in (report.on_host[-1].reason if on_host else "")


def test_a_region_that_returns_a_reshape_and_what_is_reshaped(make_model, run_on_host, rng):
    def body(builder, x):
        made = builder.emit(nn.relu(x))
        flat = builder.emit(op.flatten(made))
        return builder.emit(relax.Tuple([flat, made, builder.emit(op.exp(flat))]))

    model = make_model(body, x=((3, 70), F32))
    x = rng.standard_normal((3, 70)).astype(F32)
    for mode in ("fast", "step"):
        found = npu_kit.compile(model, mode=mode).run(x)
        for one, other in zip(found, run_on_host(model, x), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)


# --- what is refused --------------------------------------------------------------------------------------------------

REFUSED = {
    "layer_norm over two axes": (lambda x, g: nn.layer_norm(x, g, g, axes=[-2, -1]), [(2, 3, 4), (3, 4)], "axis"),
    "windows of two sizes": (lambda x: nn.adaptive_avg_pool2d(x, (4, 4)), [IMAGE], "do not divide"),
    "a reflected border": (lambda x: nn.pad(x, [1] * 4, "reflect"), [(5, 5)], "pad_mode"),
    "a slice backwards": (lambda x: op.strided_slice(x, [0], [4], [0], [-1]), [(5, 5)], "strides"),
    "an integer mean": (lambda x: op.mean(x, -1), [((2, 5), "int8")], "float16, float32"),
    "an integer power": (op.power, [((5,), "int32"), ((5,), "int32")], "float16, float32"),
    "the sign of an unsigned number": (op.negative, [((5,), "uint8")], "found uint8"),
    "a deconvolution in NHWC": (
        lambda x, w: nn.conv2d_transpose(x, w, data_layout="NHWC", kernel_layout="HWOI"),
        [(1, 5, 5, 4), (2, 2, 3, 4)],
        "data_layout",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_card_refuses_stays_on_the_host_with_the_reason(make_model, name):
    operation, shapes, reason = REFUSED[name]
    inputs = {f"x{i}": s if isinstance(s[-1], str) else (s, F32) for i, s in enumerate(shapes)}
    (call,) = npu_kit.partition(make_model(lambda builder, *given: operation(*given), **inputs)).report
    assert call.where == "host" and reason in call.reason, call.reason
