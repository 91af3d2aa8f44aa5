"""Every pattern of the table matches the model it is for, and the most specific one wins."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from tvm import relax

import npu_kit
from npu_kit.byoc import BACKEND
from npu_kit.byoc.model.calls import OP_OF_RELAX
from npu_kit.byoc.partition import partition
from npu_kit.byoc.patterns.table import pattern_infos, pattern_table
from npu_kit.graph.ops import OPS
from npu_kit.graph.shapes import INTEGERS

op, nn = relax.op, relax.op.nn
PREFIX = f"{BACKEND}."
IMAGE, FILTERS = (1, 4, 6, 6), (4, 4, 3, 3)

# What TVM's example backend names, and the three that its own operators keep from being registered.
UPSTREAM = {
    "dense",
    "matmul",
    "conv1d",
    "conv2d",
    "depthwise_conv2d",
    "max_pool2d",
    "avg_pool2d",
    "batch_norm",
    "softmax",
    "add",
    "multiply",
    "subtract",
    "divide",
    "relu",
    "gelu",
    "quantize",
    "dequantize",
    "relu6",
    "sigmoid",
    "tanh",
    "conv2d_relu_fused",
    "matmul_relu_fused",
}

ANCHORS = {
    "depthwise_conv2d": lambda x, w: nn.conv2d(x, w, padding=1, groups=4),
    "conv2d": lambda x, w: nn.conv2d(x, w, padding=1),
    "conv1d": lambda x, w: nn.conv1d(x, w, padding=1),
    "matmul": op.matmul,
    "add": op.add,
    "multiply": op.multiply,
    "max_pool2d": lambda x, w: nn.max_pool2d(x, (2, 2)),
    "avg_pool2d": lambda x, w: nn.avg_pool2d(x, (2, 2)),
}
ANCHOR_SHAPES = {  # data, weight, bias
    "depthwise_conv2d": (IMAGE, (4, 1, 3, 3), (1, 4, 1, 1)),
    "conv2d": (IMAGE, FILTERS, (4, 1, 1)),
    "conv1d": ((1, 4, 6), (4, 4, 3), (1, 4, 1)),
    "matmul": ((3, 4), (4, 5), (5,)),
    "add": (IMAGE, IMAGE, ()),
    "multiply": (IMAGE, IMAGE, ()),
    "max_pool2d": (IMAGE, (), ()),
    "avg_pool2d": (IMAGE, (), ()),
}

SINGLES = {
    "dense": (lambda x, w: op.matmul(x, w), [(2, 3, 4), (4, 5)]),
    "matmul": (lambda x, w: op.matmul(x, w), [(2, 3, 4), (2, 4, 5)]),
    "depthwise_conv2d": (lambda x, w: nn.conv2d(x, w, groups=4), [IMAGE, (8, 1, 3, 3)]),
    "conv2d": (lambda x, w: nn.conv2d(x, w, groups=2), [IMAGE, (4, 2, 3, 3)]),
    "conv1d": (lambda x, w: nn.conv1d(x, w), [(1, 4, 6), (4, 4, 3)]),
    "conv2d_transpose": (
        lambda x, w: nn.conv2d_transpose(x, w, (2, 3), (1, 0, 0, 1), output_padding=(1, 2), groups=2),
        [IMAGE, (4, 3, 3, 2)],
    ),
    "permute_dims": (lambda x: op.permute_dims(x, (0, 2, 3, 1)), [IMAGE]),
    "broadcast_to": (lambda x: op.broadcast_to(x, (3, 4, 5)), [(4, 1)]),
    "strided_slice": (lambda x: op.strided_slice(x, [1, -1], [-3, 1], [9, 6], [2, 3]), [IMAGE]),
    "pad": (lambda x: nn.pad(x, [0, 0, 1, 0, 0, 2, 3, 1], "constant", 2.0), [IMAGE]),
    "concat": (lambda *xs: op.concat(xs, 1), [IMAGE, (1, 2, 6, 6), IMAGE]),
    "max_pool2d": (lambda x: nn.max_pool2d(x, (2, 2)), [IMAGE]),
    "avg_pool2d": (lambda x: nn.avg_pool2d(x, (2, 2)), [IMAGE]),
    "adaptive_avg_pool2d": (lambda x: nn.adaptive_avg_pool2d(x, (3, 2)), [IMAGE]),
    "batch_norm": (lambda x, g, b, m, v: nn.batch_norm(x, g, b, m, v, axis=1, training=False), [IMAGE, *[(4,)] * 4]),
    "softmax": (lambda x: nn.softmax(x), [(2, 5)]),
    "add": (op.add, [(2, 5), (5,)]),
    "multiply": (op.multiply, [(2, 5), (2, 1)]),
    "subtract": (op.subtract, [(2, 5), ()]),
    "divide": (op.divide, [(2, 5), (2, 5)]),
    "maximum": (op.maximum, [(2, 5), (2, 5)]),
    "minimum": (op.minimum, [(2, 5), (2, 5)]),
    "relu": (nn.relu, [(2, 5)]),
    "relu6": (lambda x: op.clip(x, 0, 6), [(2, 5)]),
    "clip": (lambda x: op.clip(x, 1.0, 6), [(2, 5)]),
    "sigmoid": (op.sigmoid, [(2, 5)]),
    "tanh": (op.tanh, [(2, 5)]),
    "gelu": (nn.gelu, [(2, 5)]),
    "gelu_tanh": (nn.gelu_tanh, [(2, 5)]),
    "power": (op.power, [(2, 5), (5,)]),
    "silu": (nn.silu, [(2, 5)]),
    "leaky_relu": (lambda x: nn.leakyrelu(x, 0.2), [(2, 5)]),
    "prelu": (lambda x, a: nn.prelu(x, a, axis=1), [IMAGE, (4,)]),
    **{name: (getattr(op, name), [(2, 5)]) for name in ("exp", "log", "sqrt", "rsqrt", "erf", "negative", "abs")},
    **{name: (getattr(op, name), [(2, 5)]) for name in ("square", "floor", "ceil", "round")},
    "sum": (lambda x: op.sum(x, [1, -1]), [IMAGE]),
    "mean": (lambda x: op.mean(x, [2, 3], keepdims=True), [IMAGE]),
    "max": (lambda x: op.max(x, -1), [IMAGE]),
    "min": (op.min, [IMAGE]),
    "log_softmax": (lambda x: nn.log_softmax(x, 0), [(7, 5)]),
    "layer_norm": (lambda x, g, b: nn.layer_norm(x, g, b, axes=-1), [(2, 3, 5), (5,), (5,)]),
    "rms_norm": (lambda x, w: nn.rms_norm(x, w, axes=[1]), [(2, 5), (5,)]),
    "quantize": (lambda x: op.quantize(x, relax.const(0.1), relax.const(0, "int8"), out_dtype="int8"), [(2, 5)]),
    "dequantize": (
        lambda x: op.dequantize(x, relax.const(0.1), relax.const(0, "int8"), out_dtype="float32"),
        [((2, 5), "int8")],
    ),
}


def fused_model(make_model, name, *, swapped=False):
    """The model that pattern ``name`` is for, put together from the words of the name."""
    words = name.removesuffix("_fused")
    is_quantized = words.startswith("quantized_")
    words = words.removeprefix("quantized_")
    anchor = next(word for word in ANCHORS if words.startswith(word))
    tail = words.removeprefix(anchor).split("_")[1:]
    data, weight, bias = ANCHOR_SHAPES[anchor]
    scale, zero = relax.const(0.5), relax.const(0, "int8")

    def body(builder, x, w, b, *more):
        def read(value):
            return builder.emit(op.dequantize(value, scale, zero, out_dtype="float32")) if is_quantized else value

        def add(left, right):
            return op.add(right, left) if swapped else op.add(left, right)

        value = builder.emit(ANCHORS[anchor](read(x), read(w)))
        for word in tail:
            if word == "bias":
                value = add(value, b)
            elif word == "bn":
                value = builder.emit(nn.batch_norm(value, *more[:4], axis=1, training=False))
                value = relax.TupleGetItem(value, 0)
            elif word == "residual":
                value = add(value, more[4])
            else:
                value = nn.relu(value) if word == "relu" else op.sigmoid(value)
            value = builder.emit(value)
        return builder.emit(op.quantize(value, scale, zero, out_dtype="int8")) if is_quantized else value

    dtype = "int8" if is_quantized else "float32"
    out = (*data[:-1], weight[-1]) if anchor == "matmul" else data
    inputs = {"x": (data, dtype), "w": (weight, dtype), "b": (bias, "float32")}
    inputs |= {key: ((4,), "float32") for key in ("gamma", "beta", "mean", "var")}
    return make_model(body, **inputs, r=(out, "float32"))


def test_table_has_upstreams_names_and_no_name_twice():
    names = [info.name for info in pattern_infos()]
    assert len(set(names)) == len(names)
    assert {PREFIX + name for name in UPSTREAM} <= set(names)


@pytest.mark.parametrize("info", [i for i in pattern_infos() if i.name.endswith("_fused")], ids=lambda info: info.name)
def test_fused_pattern_takes_the_whole_model_it_is_named_after(make_model, info):
    result = partition(fused_model(make_model, info.name.removeprefix(PREFIX)))
    (region,) = result.regions
    assert region.composites == (f"{info.name}#0",)
    assert {call.pattern for call in result.report} == {info.name}
    named = {name for ops in info.ops for name in ops.split(" | ")}
    assert {call.op for call in result.report} <= named
    assert len([call for call in result.report if call.op != "relax.dequantize"]) == len(
        [ops for ops in info.ops if ops != "relax.dequantize"]
    )


@pytest.mark.parametrize(
    "info",
    [i for i in pattern_infos() if {"bias", "residual"} & set(i.name.split("_"))],
    ids=lambda info: info.name,
)
def test_pattern_with_an_add_matches_both_operand_orders(make_model, info):
    model = fused_model(make_model, info.name.removeprefix(PREFIX), swapped=True)
    assert {call.pattern for call in partition(model).report} == {info.name}


@pytest.mark.parametrize("name", sorted(SINGLES))
def test_single_operation_is_matched_by_its_own_pattern(make_model, name):
    operation, shapes = SINGLES[name]
    inputs = {f"x{i}": s if s and isinstance(s[0], tuple) else (s, "float32") for i, s in enumerate(shapes)}
    result = partition(make_model(lambda builder, *given: operation(*given), **inputs))
    (call,) = result.report
    assert call.pattern == PREFIX + name


@pytest.mark.parametrize("name", sorted(SINGLES))
def test_single_operation_computes_what_tvm_does(make_model, run_on_host, rng, name):
    operation, shapes = SINGLES[name]
    inputs = {f"x{i}": s if s and isinstance(s[0], tuple) else (s, "float32") for i, s in enumerate(shapes)}
    model = make_model(lambda builder, *given: operation(*given), **inputs)
    arrays = [rng.uniform(0.5, 2, shape).astype(dtype) for shape, dtype in inputs.values()]
    found, expected = npu_kit.compile(model).run(*arrays), run_on_host(model, *arrays)
    results = ([value] if isinstance(value, np.ndarray) else value for value in (found, expected))
    for one, other in zip(*results, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore::npu_kit.byoc.explain.NarrowSumWarning")
@pytest.mark.parametrize("name", sorted(SINGLES))
def test_a_single_operation_takes_the_dtypes_of_its_card(make_model, name):
    """Each of them, and no other that Relax lets one write."""
    operation, shapes = SINGLES[name]
    shapes = [shape[0] if shape and isinstance(shape[0], tuple) else shape for shape in shapes]
    for dtype in ("float16", "float32", *INTEGERS, "float64", "int64"):
        inputs = {f"x{i}": (shape, dtype) for i, shape in enumerate(shapes)}
        try:
            model = make_model(lambda builder, *given: operation(*given), **inputs)
        except Exception as error:  # whatever class Relax has for it
            assert dtype not in next(iter(OPS[name].inputs.values())), error
            continue
        (call,) = partition(model).report
        taken = next(iter(OP_OF_RELAX[call.op].inputs.values()))
        assert (call.where == "npu") == (dtype in taken), call.reason
        assert dtype in taken or "dtype" in call.reason


def test_every_pattern_has_a_model_here():
    fused = {info.name for info in pattern_infos() if info.name.endswith("_fused")}
    reshapes = {
        PREFIX + name for name, definition in OPS.items() if definition.family == "reshape"
    }  # tested by themselves
    assert {info.name for info in pattern_infos()} - fused - reshapes == {PREFIX + name for name in SINGLES}


def test_the_most_specific_patterns_come_first():
    """No pattern stands behind one that matches a part of what it matches, with the same root."""
    infos = pattern_infos()
    for position, info in enumerate(infos):
        for later in infos[position + 1 :]:
            is_longer = len(later.ops) > len(info.ops) and later.ops[-len(info.ops) :] == info.ops
            assert not is_longer, f"{info.name} hides {later.name}"


def clip(x):
    return op.clip(x, 0, 6)


@pytest.mark.parametrize("activation", [nn.relu, op.sigmoid, op.tanh, nn.gelu, nn.gelu_tanh, clip])
def test_any_activation_joins_a_convolution(make_model, emit_chain, activation):
    def body(builder, x, w):
        return emit_chain(builder, x, lambda x: nn.conv2d(x, w), activation)

    result = partition(make_model(body, x=(IMAGE, "float32"), w=(FILTERS, "float32")))
    name = "conv2d_relu_fused" if activation is nn.relu else "conv2d_activation_fused"
    assert [call.pattern for call in result.report] == [PREFIX + name] * 2


def test_batch_norm_at_the_end_leaves_with_all_three_results(make_model):
    def body(builder, x, w, g, b, m, v):
        return nn.batch_norm(builder.emit(nn.conv2d(x, w)), g, b, m, v, axis=1, training=False)

    inputs = {key: ((4,), "float32") for key in "gbmv"}
    result = partition(make_model(body, x=(IMAGE, "float32"), w=(FILTERS, "float32"), **inputs))
    assert [call.pattern for call in result.report] == [f"{PREFIX}conv2d_bn_fused"] * 2
    assert len(result.regions[0].function.ret_ty.fields) == 3


def test_in_a_list_the_first_match_wins(make_model, emit_chain):
    def body(builder, x, w):
        return emit_chain(builder, x, lambda x: nn.conv2d(x, w), nn.relu)

    model = make_model(body, x=(IMAGE, "float32"), w=(FILTERS, "float32"))
    assert {call.pattern for call in partition(model).report} == {f"{PREFIX}conv2d_relu_fused"}
    backwards = partition(model, patterns=list(reversed(pattern_table())))
    assert {call.pattern for call in backwards.report} == {f"{PREFIX}conv2d", f"{PREFIX}relu"}


REGISTERED = """
import tvm.relax.backend.contrib.example_npu
from tvm.relax.backend.pattern_registry import get_patterns_with_prefix
from npu_kit.byoc.patterns.table import pattern_table, register
before = [str(p.name) for p in get_patterns_with_prefix("example_npu")]
names = register()
after = [str(p.name) for p in get_patterns_with_prefix("example_npu")]
assert names == [str(p.name) for p in pattern_table()]
assert after == names + before and len(before) == 19
"""


def test_registered_patterns_stand_before_upstreams():
    # In a process of its own: what is registered stays, and other tests read the registry.
    subprocess.run([sys.executable, "-c", REGISTERED], check=True)


def test_summaries_are_one_line():
    for info in pattern_infos():
        assert info.summary and "\n" not in info.summary


def test_partitioned_patterns_compute_what_the_model_computes(make_model, run_on_host, rng):
    model = fused_model(make_model, "conv2d_bias_bn_residual_activation_fused")
    shapes = [[int(size) for size in parameter.ty.shape.values] for parameter in model["main"].params]
    arrays = [rng.uniform(0.5, 1.5, shape).astype("float32") for shape in shapes]
    expected = run_on_host(model, *arrays)
    for merge in ("safe", "never"):
        np.testing.assert_array_equal(run_on_host(partition(model, merge=merge).module, *arrays), expected)
