"""The reference against TVM's LLVM build, ONNX Runtime, and definitions written out in Python."""

from __future__ import annotations

import functools
import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_kit.errors import InputError
from npu_kit.graph.ir import Entry, Graph, Node, TensorType
from npu_kit.graph.ops import OPS, normalise_attrs
from npu_kit.graph.shapes import in_layout
from npu_kit.runtime.arithmetic import QuantizeWarning
from npu_kit.runtime.reference import run_graph, run_node

Array = np.ndarray[Any, Any]
EPS = {"float32": 2.0**-24, "float16": 2.0**-11}


def to_node(name: str, arrays: list[Array], out_dtype: str | None = None, **attrs: Any) -> Node:
    types = [TensorType(x.shape, x.dtype.name) for x in arrays]
    full = normalise_attrs(name, attrs, types)
    output = OPS[name].infer(types, full, out_dtype)
    return Node("kernel", name, (output,), tuple(Entry(i) for i in range(len(arrays))), full)


def run(name: str, arrays: list[Array], out_dtype: str | None = None, **attrs: Any) -> Array:
    """One operation by the reference; no warning but QuantizeWarning may reach the screen."""
    node = to_node(name, arrays, out_dtype, **attrs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", QuantizeWarning)
        found = run_node(node, arrays)
    assert type(found) is np.ndarray
    assert found.shape == node.outputs[0].shape and found.dtype.name == node.outputs[0].dtype
    return found


def run_tvm(name: str, arrays: list[Array], out_dtype: str | None = None, **attrs: Any) -> Array:
    """The same operation, compiled by TVM for the CPU."""
    tvm = pytest.importorskip("tvm")
    from tvm import relax

    node = to_node(name, arrays, out_dtype, **attrs)
    keywords: dict[str, Any] = dict(node.attrs)
    if OPS[name].family == "contraction" or name in ("quantize", "dequantize"):
        keywords["out_dtype"] = node.outputs[0].dtype
    if name == "batch_norm":
        keywords["training"] = False
    variables = [relax.Var(f"v{i}", relax.TensorType(x.shape, x.dtype.name)) for i, x in enumerate(arrays)]
    function = functools.reduce(getattr, OPS[name].relax_name.split(".")[1:], relax.op)
    builder = relax.BlockBuilder()
    with builder.function("main", variables):
        bounds = [keywords.pop(key) for key in ("min", "max")] if name == "clip" else []
        result = builder.emit(function(*variables, *bounds, **keywords))
        builder.emit_func_output(relax.TupleGetItem(result, 0) if name == "batch_norm" else result)
    machine = relax.VirtualMachine(relax.build(builder.get(), target="llvm").mod, tvm.cpu())
    found: Array = machine["main"](*[tvm.runtime.tensor(x.copy()) for x in arrays]).numpy()
    return found


def assert_within(found: Array, expected: Array, bound: Array, slack: float = 0.0) -> None:
    """Every element within its own bound; NaN where and only where NaN is expected."""
    a, b = found.astype(np.float64), expected.astype(np.float64)
    assert a.shape == b.shape
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    same = (a == b) | np.isnan(a)
    with np.errstate(invalid="ignore"):
        excess = np.where(same, 0, np.abs(a - b) - bound - slack)
    assert (excess <= 0).all(), f"worst excess {excess.max()} over a bound of {np.max(bound)}"


def magnitude(name: str, arrays: list[Array], **attrs: Any) -> Array:
    """sum(|a| * |b|) of a contraction, as the same operation on absolute values, in float64."""
    a, b = (np.abs(x.astype(np.float64)) for x in arrays)
    if name == "matmul":
        found: Array = np.matmul(a, b)
        return found
    return np.asarray(plain_conv(a, b, to_node(name, arrays, **attrs)))


def plain_conv(x: Array, w: Array, node: Node) -> Array:
    """A convolution as seven loops in float64, from its definition."""
    attrs: Any = node.attrs
    data_layout, kernel_layout = attrs["data_layout"], attrs["kernel_layout"]
    letters = data_layout.replace("N", "").replace("C", "")
    axes = len(letters)
    x = np.einsum(f"{data_layout}->NC{letters}", x)
    w = np.einsum(f"{kernel_layout}->OI{letters}", w)
    out_shape = in_layout(node.outputs[0].shape, data_layout, "NC" + letters)
    out = np.zeros(out_shape)
    per_group = out_shape[1] // attrs["groups"]
    for n, o, *position in np.ndindex(*out_shape):
        for i, *tap in np.ndindex(*w.shape[1:]):
            place = [
                position[a] * attrs["strides"][a] + tap[a] * attrs["dilation"][a] - attrs["padding"][a]
                for a in range(axes)
            ]
            if all(0 <= p < size for p, size in zip(place, x.shape[2:], strict=True)):
                out[(n, o, *position)] += x[(n, o // per_group * w.shape[1] + i, *place)] * w[(o, i, *tap)]
    return np.einsum(f"NC{letters}->{data_layout}", out)


def floats(seed: int, *shape: int, dtype: str = "float32", scale: float = 1.0) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def integers(seed: int, dtype: str, *shape: int) -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


# --- contractions ----------------------------------------------------------------------------------------------------

conv_attrs = st.fixed_dictionaries(
    {
        "strides": st.tuples(st.integers(1, 3), st.integers(1, 3)),
        "padding": st.tuples(*[st.integers(0, 3)] * 4),
        "dilation": st.tuples(st.integers(1, 2), st.integers(1, 2)),
        "groups": st.sampled_from([1, 2, 4]),
        "data_layout": st.sampled_from(["NCHW", "NHWC"]),
        "kernel_layout": st.sampled_from(["OIHW", "HWIO", "OHWI", "HWOI"]),
    }
)


@settings(deadline=None, max_examples=15)
@given(conv_attrs, st.integers(1, 3), st.integers(1, 3), st.integers(0, 1000))
def test_conv2d_is_its_definition_and_tvms(attrs: dict[str, Any], height: int, width: int, seed: int) -> None:
    x = floats(seed, *in_layout((2, 4, 6, 7), "NCHW", attrs["data_layout"]))
    w = floats(seed + 1, *in_layout((8, 4 // attrs["groups"], height, width), "OIHW", attrs["kernel_layout"]))
    found = run("conv2d", [x, w], **attrs)
    terms = w.size // 8
    bound = 4 * terms * EPS["float32"] * magnitude("conv2d", [x, w], **attrs)
    assert_within(found, plain_conv(x.astype(float), w.astype(float), to_node("conv2d", [x, w], **attrs)), bound)
    assert_within(found, run_tvm("conv2d", [x, w], **attrs), bound)


@pytest.mark.parametrize(("layout", "kernel_layout"), [("NCW", "OIW"), ("NWC", "WIO"), ("NWC", "OWI"), ("NCW", "WIO")])
@pytest.mark.parametrize("groups", [1, 2])
def test_conv1d_is_its_definition_and_tvms(layout: str, kernel_layout: str, groups: int) -> None:
    x = floats(1, *in_layout((2, 4, 11), "NCW", layout))
    w = floats(2, *in_layout((6, 4 // groups, 3), "OIW", kernel_layout))
    attrs = dict(groups=groups, strides=2, padding=(1, 2), dilation=2, data_layout=layout, kernel_layout=kernel_layout)
    found = run("conv1d", [x, w], **attrs)
    bound = 4 * (w.size // 6) * EPS["float32"] * magnitude("conv1d", [x, w], **attrs)
    assert_within(found, plain_conv(x.astype(float), w.astype(float), to_node("conv1d", [x, w], **attrs)), bound)
    assert_within(found, run_tvm("conv1d", [x, w], **attrs), bound)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((5, 70), (70, 3)),
        ((70,), (2, 1, 70, 3)),
        ((4, 1, 2, 7), (3, 7, 3)),
        ((7,), (7,)),
        ((2, 3, 7), (7,)),
        ((5, 0), (0, 3)),
        ((0, 4), (4, 3)),
        ((1, 4000), (4000, 2)),
    ],
)
def test_matmul_as_tvm(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    arrays = [floats(1, *a), floats(2, *b)]
    found = run("matmul", arrays)
    bound = 4 * a[-1] * EPS["float32"] * magnitude("matmul", arrays)
    assert_within(found, np.matmul(arrays[0].astype(float), arrays[1].astype(float)), bound)
    if 0 not in a:  # TVM's own virtual machine refuses some empty arrays
        assert_within(found, run_tvm("matmul", arrays), bound)


@pytest.mark.parametrize(
    ("left", "right", "out_dtype"),
    [
        ("int8", "int8", "int32"),
        ("int8", "int8", None),
        ("uint8", "int8", "int32"),
        ("int16", "int16", "int32"),
        ("uint16", "uint16", "int32"),
        ("int32", "int32", None),
        ("int32", "int32", "int8"),
    ],
)
def test_integer_contractions_wrap_as_tvms(left: str, right: str, out_dtype: str | None) -> None:
    arrays = [integers(1, left, 5, 40), integers(2, right, 40, 6)]
    assert np.array_equal(run("matmul", arrays, out_dtype), run_tvm("matmul", arrays, out_dtype))
    arrays = [integers(3, left, 1, 3, 6, 6), integers(4, right, 4, 3, 3, 3)]
    found = run("conv2d", arrays, out_dtype, padding=1, strides=2)
    assert np.array_equal(found, run_tvm("conv2d", arrays, out_dtype, padding=1, strides=2))


def test_float16_accumulates_in_float32() -> None:
    ones = np.ones((1, 4608), np.float16)
    assert run("matmul", [ones, ones.T])[0, 0] == 4608  # float16 sums stop at 2048
    a, b = floats(1, 8, 600, dtype="float16"), floats(2, 600, 8, dtype="float16")
    exact = np.matmul(a.astype(np.float64), b.astype(np.float64))
    bound = 4 * 600 * EPS["float32"] * magnitude("matmul", [a, b]) + EPS["float16"] * np.abs(exact)
    assert_within(run("matmul", [a, b]), exact, bound)
    assert_within(run("matmul", [a, b], "float32"), exact, bound)


def test_conv_without_input_channels_is_zero() -> None:
    assert (run("conv2d", [np.ones((1, 0, 5, 5), np.float32), np.ones((2, 0, 3, 3), np.float32)]) == 0).all()


def test_padding_times_an_infinite_weight_is_nan() -> None:
    w = np.full((1, 1, 3, 3), np.inf, np.float32)
    found = run("conv2d", [np.ones((1, 1, 3, 3), np.float32), w], padding=1)
    expected = np.full((1, 1, 3, 3), np.nan)
    expected[0, 0, 1, 1] = np.inf
    np.testing.assert_array_equal(found, expected)


# --- pools -----------------------------------------------------------------------------------------------------------

pool_attrs = st.fixed_dictionaries(
    {
        "pool_size": st.tuples(st.integers(1, 3), st.integers(1, 3)),
        "strides": st.tuples(st.integers(1, 3), st.integers(1, 3)),
        "padding": st.tuples(*[st.integers(0, 2)] * 4),
        "dilation": st.tuples(st.integers(1, 2), st.integers(1, 2)),
        "ceil_mode": st.booleans(),
        "count_include_pad": st.booleans(),
        "layout": st.sampled_from(["NCHW", "NHWC"]),
    }
)


def plain_pool(x: Array, node: Node) -> Array:
    """A pool from its definition, one window at a time, in float64."""
    attrs: Any = node.attrs
    x = np.einsum(f"{attrs['layout']}->NCHW", x.astype(np.float64))
    out = np.zeros(in_layout(node.outputs[0].shape, attrs["layout"], "NCHW"))
    padding = attrs["padding"]
    for n, c, *position in np.ndindex(*out.shape):
        seen, counted = [], 0
        for tap in np.ndindex(*attrs["pool_size"]):
            place = [position[a] * attrs["strides"][a] + tap[a] * attrs["dilation"][a] - padding[a] for a in (0, 1)]
            if all(0 <= p < size for p, size in zip(place, x.shape[2:], strict=True)):
                seen.append(x[(n, c, *place)])
                counted += 1
            elif all(-padding[a] <= place[a] < x.shape[2 + a] + padding[2 + a] for a in (0, 1)):
                counted += attrs["count_include_pad"]
        if node.name == "max_pool2d":
            lowest = np.iinfo if np.issubdtype(node.outputs[0].dtype, np.integer) else np.finfo
            out[(n, c, *position)] = max(seen, default=lowest(node.outputs[0].dtype).min)
        else:
            out[(n, c, *position)] = sum(seen) / max(counted, 1)
    return np.einsum(f"NCHW->{attrs['layout']}", out)


@settings(deadline=None, max_examples=15)
@given(pool_attrs, st.sampled_from(["float32", "int8", "uint16"]), st.integers(0, 1000))
def test_max_pool_is_its_definition_and_tvms(attrs: dict[str, Any], dtype: str, seed: int) -> None:
    shape = in_layout((2, 3, 6, 5), "NCHW", attrs["layout"])
    x = floats(seed, *shape) if dtype == "float32" else integers(seed, dtype, *shape)
    found = run("max_pool2d", [x], **attrs)
    assert np.array_equal(found, plain_pool(x, to_node("max_pool2d", [x], **attrs)))
    assert np.array_equal(found, run_tvm("max_pool2d", [x], **attrs))


@settings(deadline=None, max_examples=15)
@given(pool_attrs, st.integers(0, 1000))
def test_avg_pool_is_its_definition_and_tvms(attrs: dict[str, Any], seed: int) -> None:
    attrs["padding"] = tuple(min(p, k - 1) for p, k in zip(attrs["padding"], attrs["pool_size"] * 2, strict=True))
    x = floats(seed, *in_layout((2, 3, 6, 5), "NCHW", attrs["layout"]))
    found = run("avg_pool2d", [x], **attrs)
    bound = np.asarray(16 * EPS["float32"] * np.abs(x).max())
    assert_within(found, plain_pool(x, to_node("avg_pool2d", [x], **attrs)), bound)
    assert_within(found, run_tvm("avg_pool2d", [x], **attrs), bound)


def test_pools_as_onnx_runtime() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    version = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
    x = floats(3, 1, 2, 7, 8)
    for ceil_mode, include in itertools.product((False, True), repeat=2):
        if ceil_mode and include and version < (1, 24):
            continue  # up to 1.23, the last that Python 3.10 has, it also counts taps beyond the padding
        attrs = dict(pool_size=(3, 2), strides=(2, 3), padding=(1, 0, 2, 1), ceil_mode=ceil_mode)
        onnx_attrs = dict(kernel_shape=[3, 2], strides=[2, 3], pads=[1, 0, 2, 1], ceil_mode=int(ceil_mode))
        assert np.array_equal(run("max_pool2d", [x], **attrs), run_onnx("MaxPool", [x], **onnx_attrs))
        found = run("avg_pool2d", [x], count_include_pad=include, **attrs)
        expected = run_onnx("AveragePool", [x], count_include_pad=int(include), **onnx_attrs)
        assert_within(found, expected, np.asarray(16 * EPS["float32"] * np.abs(x).max()))


def test_a_window_of_padding_gives_the_lowest_finite_value() -> None:
    x = np.full((1, 1, 2, 2), -np.inf, np.float32)
    assert (run("max_pool2d", [x], pool_size=2) == np.finfo(np.float32).min).all()
    assert (run("max_pool2d", [x.astype(np.float16)], pool_size=2) == np.finfo(np.float16).min).all()
    x = np.ones((1, 1, 1, 1), np.float32)
    assert run("max_pool2d", [x], padding=(1, 0, 0, 0)).ravel().tolist() == [np.finfo(np.float32).min, 1]


def test_nan_propagates_through_max_pool() -> None:
    x = np.array([[[[1, np.nan, 3, 4]]]], np.float32)
    assert np.isnan(run("max_pool2d", [x], pool_size=(1, 2))).ravel().tolist() == [True, True, False]


# --- element-wise and softmax ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "maximum", "minimum"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "int16", "uint16", "int32"])
def test_binary_operations_are_tvms(name: str, dtype: str) -> None:
    if dtype.startswith("float"):
        arrays = [floats(1, 3, 1, 40, dtype=dtype), floats(2, 7, 1, dtype=dtype)]
    else:
        arrays = [integers(1, dtype, 3, 1, 40), integers(2, dtype, 7, 1)]
        arrays[1][(arrays[1] == 0) | (arrays[1] == -1)] = 3
    assert np.array_equal(run(name, arrays), run_tvm(name, arrays))


@pytest.mark.parametrize(
    ("name", "attrs"),
    [
        ("relu", {}),
        ("clip", {"min": 0, "max": 6}),
        ("clip", {"min": 3, "max": 1}),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "int16", "uint16", "int32"])
def test_relu_and_clip_are_tvms(name: str, attrs: dict[str, Any], dtype: str) -> None:
    x = floats(1, 300, dtype=dtype, scale=4) if dtype.startswith("float") else integers(1, dtype, 300)
    assert np.array_equal(run(name, [x], **attrs), run_tvm(name, [x], **attrs))


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "gelu", "gelu_tanh"])
def test_activations_are_tvms(name: str) -> None:
    x = np.concatenate([floats(1, 2000, scale=4), np.linspace(-9, 9, 999, dtype=np.float32)])
    found, expected = run(name, [x]), run_tvm(name, [x])
    # A few units in the last place of the largest intermediate value, 1 or x.
    assert_within(found, expected, 8 * EPS["float32"] * np.maximum(1, np.abs(x)))
    half = run(name, [x.astype(np.float16)])
    exact = run(name, [x.astype(np.float16).astype(np.float32)])
    assert np.array_equal(half, exact.astype(np.float16)), "float16 is float32, rounded once"


def test_gelus_differ() -> None:
    x = np.linspace(-4, 4, 10001, dtype=np.float32)
    assert 4e-4 < np.abs(run("gelu", [x]) - run("gelu_tanh", [x])).max() < 5e-4


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_is_tvms(axis: int) -> None:
    x = floats(1, 5, 70, 3, scale=5)
    found = run("softmax", [x], axis=axis)
    assert_within(found, run_tvm("softmax", [x], axis=axis), np.asarray(1e-6))
    assert_within(found.astype(np.float64).sum(axis), np.ones_like(found).sum(axis) / x.shape[axis], np.asarray(1e-5))


def test_softmax_edges() -> None:
    assert np.isnan(run("softmax", [np.full((2, 3), -np.inf, np.float32)])).all()
    assert run("softmax", [np.array([1000, 1000], np.float32)]).tolist() == [0.5, 0.5]
    assert run("softmax", [np.zeros((2, 0), np.float32)]).shape == (2, 0)
    row = run("softmax", [np.zeros((1, 4096), np.float16)])
    assert row.astype(np.float64).sum() == 1  # TVM's float16 sum gives 2


@pytest.mark.parametrize(("shape", "axis"), [((2, 3, 4, 5), 1), ((2, 4, 5, 3), -1), ((3,), 0)])
@pytest.mark.parametrize(("center", "scale"), [(True, True), (False, False)])
def test_batch_norm_is_tvms(shape: tuple[int, ...], axis: int, center: bool, scale: bool) -> None:
    arrays = [floats(1, *shape), *[floats(i, 3) for i in (2, 3, 4)], np.abs(floats(5, 3))]
    attrs = dict(axis=axis, center=center, scale=scale, epsilon=1e-3)
    assert np.array_equal(run("batch_norm", arrays, **attrs), run_tvm("batch_norm", arrays, **attrs))


def test_float16_batch_norm_has_the_declared_dtype() -> None:
    arrays = [floats(1, 2, 3, 4, dtype="float16"), *[floats(i, 3, dtype="float16") for i in (2, 3, 4)]]
    arrays.append(np.abs(floats(5, 3, dtype="float16")))
    wide = run("batch_norm", [x.astype(np.float32) for x in arrays], axis=1)
    assert np.array_equal(run("batch_norm", arrays, axis=1), wide.astype(np.float16))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("source", ["float32", "float16"])
def test_quantize_is_tvms(dtype: str, source: str) -> None:
    halves = (np.arange(-300, 300) / 2).astype(source)  # every tie
    scalar = [halves, np.array(1, np.float32), np.array(3, np.int8)]
    assert np.array_equal(run("quantize", scalar, dtype), run_tvm("quantize", scalar, dtype))
    arrays = [floats(1, 4, 400, dtype=source, scale=40), np.abs(floats(2, 4)) + 0.1, integers(3, "int8", 4)]
    assert np.array_equal(run("quantize", arrays, dtype, axis=0), run_tvm("quantize", arrays, dtype, axis=0))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32"])
@pytest.mark.parametrize("target", ["float32", "float16"])
def test_dequantize_is_tvms(dtype: str, target: str) -> None:
    arrays = [integers(1, dtype, 4, 300), np.abs(floats(2, 4)) + 0.1, integers(3, "int8", 4)]
    assert np.array_equal(run("dequantize", arrays, target, axis=0), run_tvm("dequantize", arrays, target, axis=0))


def test_quantize_is_onnx_runtimes() -> None:
    pytest.importorskip("onnxruntime")
    x = np.concatenate([floats(1, 100_000, scale=60), (np.arange(-300, 300) / 2).astype(np.float32)])
    scale, zero = np.array(0.5, np.float32), np.array(-3, np.int8)
    assert np.array_equal(run("quantize", [x, scale, zero], "int8"), run_onnx("QuantizeLinear", [x, scale, zero]))


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 1e-40], np.float32)


@pytest.mark.parametrize(
    ("name", "expected_at_nan"), [("sigmoid", np.nan), ("tanh", np.nan), ("gelu", np.nan), ("gelu_tanh", np.nan)]
)
def test_special_values_are_tvms(name: str, expected_at_nan: float) -> None:
    found = run(name, [SPECIAL])
    np.testing.assert_array_equal(found[0], np.float32(expected_at_nan))
    assert_within(found, run_tvm(name, [SPECIAL]), 8 * EPS["float32"] * np.maximum(1, np.abs(SPECIAL)))


def test_listed_differences_from_tvm_at_nan() -> None:
    """numerics: TVM's relu and clip lose a NaN; the kit, as NumPy and ONNX Runtime, keeps it."""
    for name, attrs in (("relu", {}), ("clip", {"min": 0, "max": 6})):
        found, expected = run(name, [SPECIAL], **attrs), run_tvm(name, [SPECIAL], **attrs)
        assert np.isnan(found[0]) and not np.isnan(expected[0])
        assert np.array_equal(found[1:], expected[1:])


def test_quantize_of_nan_and_infinity() -> None:
    arrays = [SPECIAL[:3], np.array(1, np.float32), np.array(0, np.int8)]
    with pytest.warns(QuantizeWarning, match="1 of 3 values are NaN and become 127"):
        found = run_node(to_node("quantize", arrays, "int8"), arrays)
    assert found.tolist() == [127, 127, -128]
    assert np.array_equal(found, run_tvm("quantize", arrays, "int8"))


def run_onnx(name: str, arrays: list[Array], **attrs: Any) -> Array:
    import onnxruntime
    from onnx import TensorProto, helper

    element = {"float32": TensorProto.FLOAT, "int8": TensorProto.INT8}
    names = [f"v{i}" for i in range(len(arrays))]
    inputs = [
        helper.make_tensor_value_info(label, element[x.dtype.name], x.shape)
        for label, x in zip(names, arrays, strict=True)
    ]
    output = helper.make_tensor_value_info("out", element["int8" if name == "QuantizeLinear" else "float32"], None)
    graph = helper.make_graph([helper.make_node(name, names, ["out"], **attrs)], "g", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: Array = session.run(None, dict(zip(names, arrays, strict=True)))[0]
    return found


# --- whole graphs ----------------------------------------------------------------------------------------------------


def small_graph() -> Graph:
    matrix = TensorType((2, 2), "float32")
    return Graph(
        symbol="region",
        nodes=(
            Node("input", "x", (matrix,)),
            Node("const", "w", (matrix,)),
            Node("kernel", "matmul", (matrix,), (Entry(0), Entry(1))),
            Node("kernel", "relu", (matrix,), (Entry(2),)),
        ),
        arg_nodes=(0, 1),
        heads=(Entry(3), Entry(0), Entry(2)),
    )


def test_run_graph_returns_every_head() -> None:
    x, w = np.array([[1, 2], [3, 4]], np.float32), np.array([[1, 0], [0, -1]], np.float32)
    relu, same, product = run_graph(small_graph(), [x, w])
    assert product.tolist() == [[1, -2], [3, -4]]
    assert relu.tolist() == [[1, 0], [3, 0]]
    assert same is x


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([np.zeros((2, 2), np.float32)], "region: it takes 2 arrays and got 1"),
        ([np.zeros((2, 3), np.float32), np.zeros((2, 2), np.float32)], "input 'x'.*2x2 float32 and got 2x3 float32"),
        ([np.zeros((2, 2), np.float32), np.zeros((2, 2))], "const 'w'.*2x2 float32 and got 2x2 float64"),
    ],
)
def test_run_graph_refuses_wrong_arguments(arguments: list[Array], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run_graph(small_graph(), arguments)


def test_every_value_has_its_declared_dtype() -> None:
    """Two float16 nodes round twice, as two nodes on the device do."""
    vector = TensorType((1,), "float16")
    graph = Graph(
        "region",
        (
            Node("input", "a", (vector,)),
            Node("input", "b", (vector,)),
            Node("kernel", "add", (vector,), (Entry(0), Entry(1))),
            Node("kernel", "subtract", (vector,), (Entry(2), Entry(0))),
        ),
        (0, 1),
        (Entry(3),),
    )
    (found,) = run_graph(graph, [np.array([2048], np.float16), np.array([1], np.float16)])
    assert found.dtype == np.float16 and found[0] == 0  # in float32 it would be 1


def test_integer_division_by_zero_names_the_operation() -> None:
    arrays = [integers(1, "int8", 4), np.array([1, 0, 2, 0], np.int8)]
    with pytest.raises(ZeroDivisionError, match="divide: 2 of 4 int8 divisors are 0"):
        run("divide", arrays)
