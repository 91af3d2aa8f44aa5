"""What the kit computes where implementations differ: rounding, saturation, overflow, NaN, accumulators, edges.

Where the kit differs from TVM's LLVM code on purpose, both values are asserted.
"""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

pytest.importorskip("tvm")

from approximate import UNIT
from small_models import compiled, module_of, on_llvm, on_npu, on_onnxruntime
from tvm import relax
from tvm.relax import op

import npu_kit
from npu_kit.byoc.explain import NarrowSumWarning
from npu_kit.errors import InputError, UnsupportedError
from npu_kit.runtime.arithmetic import QuantizeWarning

NAN, INF = np.nan, np.inf
LOWEST = np.finfo(np.float32).min
f4 = np.float32


def quantize(scale, zero_point, dtype="int8", **attrs):
    zero = relax.const(np.asarray(zero_point, dtype))
    return lambda x: op.quantize(x, relax.const(np.asarray(scale, f4)), zero, out_dtype=dtype, **attrs)


def dequantize(scale, zero_point, dtype="float32", **attrs):
    zero = relax.const(np.asarray(zero_point, "int32"))
    return lambda x: op.dequantize(x, relax.const(np.asarray(scale, f4)), zero, out_dtype=dtype, **attrs)


def batch_norm(x, *parameters, training=False, **attrs):
    return relax.TupleGetItem(op.nn.batch_norm(x, *parameters, axis=1, training=training, **attrs), 0)


def why_on_host(expression, *arrays):
    """The refusals of the one call of a model, which is on the host."""
    (call,) = compiled(expression, *arrays, is_on_host=True).partition.report
    return call.reason


# --- quantize and dequantize ------------------------------------------------------------------------------------------


def test_quantize_rounds_half_to_even_before_the_zero_point():
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5], f4)
    assert on_npu(quantize(1.0, 1), x).tolist() == [-1, -1, 1, 1, 3, 3, 5]
    assert on_llvm(quantize(1.0, 1), x).tolist() == [-1, -1, 1, 1, 3, 3, 5]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_quantize_agrees_with_llvm_and_onnxruntime_bit_for_bit(dtype, rng):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    scale, zero = f4(0.037), np.asarray(low + 3, dtype)
    # Two thirds are exactly between two steps, where the true division decides.
    steps = rng.uniform(low - 500, high + 500, 30_000) - float(zero)
    x = np.concatenate([np.floor(steps[:20_000]) + 0.5, steps[20_000:]]).astype(f4) * scale
    found = on_npu(quantize(scale, zero, dtype), x)
    np.testing.assert_array_equal(found, on_llvm(quantize(scale, zero, dtype), x))
    np.testing.assert_array_equal(found, on_onnxruntime("QuantizeLinear", x, np.asarray(scale), zero))
    assert {low, high} <= set(found.tolist())


def test_quantize_divides_float16_by_a_float16_scale_in_float32_unlike_llvm(rng):
    x, scale, zero = (rng.standard_normal(400) * 40).astype("float16"), np.float16(0.1), np.int16(0)

    def in_float16(value):
        return op.quantize(value, relax.const(scale), relax.const(zero), out_dtype="int16")

    found = on_npu(in_float16, x)
    assert found.tolist() == np.rint(x.astype(f4) / f4(scale)).tolist()
    assert 0 < (found != on_llvm(in_float16, x)).sum() < 100
    x[:] = 60_000  # beyond int16 after the division
    assert (on_npu(in_float16, x) == 32767).all()
    assert (on_llvm(in_float16, x) < 0).all()  # 32767 is 32768 in float16
    with pytest.raises(UnsupportedError, match="which has no 32,767: the results wrap"):
        npu_kit.compile(module_of(in_float16, x), "ethos_u65_like")  # which has no float16


def test_quantize_of_nan_is_the_highest_value_with_a_warning_and_infinities_saturate():
    x = np.array([NAN, INF, -INF, 300, -300], f4)
    with pytest.warns(QuantizeWarning, match="1 of 5 values are NaN and become 127"):
        assert on_npu(quantize(1.0, 0), x).tolist() == [127, 127, -128, 127, -128]
    assert on_llvm(quantize(1.0, 0), x).tolist() == [127, 127, -128, 127, -128]


@pytest.mark.parametrize("scale", [0.0, -1.0, NAN, INF])
@pytest.mark.parametrize("make", [quantize, dequantize])
def test_a_constant_scale_that_is_no_scale_is_refused_with_the_reason(make, scale):
    x = np.ones(3, "float32" if make is quantize else "int8")
    (call,) = npu_kit.partition(module_of(make(scale, 0), x)).report
    assert not call.is_on_npu and f"needs a scale that is positive and finite, found {scale:g}" in call.reason


def test_the_axis_of_quantize_is_the_last_one_by_default_and_may_be_negative(rng):
    x, scale = rng.standard_normal((2, 3, 4)).astype(f4), np.array([0.1, 0.2, 0.3, 0.4], f4)
    zero = np.array([1, 2, 3, 4])
    expected = np.clip(np.rint(x / scale) + zero, -128, 127)
    for attrs in ({}, {"axis": -1}, {"axis": 2}):
        np.testing.assert_array_equal(on_npu(quantize(scale, zero, **attrs), x), expected)
    scale, zero = scale[:3], zero[:3]
    expected = np.clip(np.rint(x / scale[:, None]) + zero[:, None], -128, 127)
    for axis in (1, -2):
        np.testing.assert_array_equal(on_npu(quantize(scale, zero, axis=axis), x), expected)
        np.testing.assert_array_equal(on_llvm(quantize(scale, zero, axis=axis), x), expected)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_dequantize_subtracts_in_int32_and_multiplies_in_float32(dtype):
    limits = np.iinfo(dtype)
    x = np.array([limits.min, limits.max, 0, 1], dtype)
    expected = (x.astype("int32") - np.int32(-7)).astype(f4) * f4(0.1)
    assert on_npu(dequantize(0.1, -7), x).tolist() == expected.tolist() == on_llvm(dequantize(0.1, -7), x).tolist()


# --- accumulators -----------------------------------------------------------------------------------------------------


def test_int8_products_without_an_out_dtype_wrap_with_a_warning():
    a, b = np.full((1, 40), 100, "int8"), np.full((40, 1), 100, "int8")
    with pytest.warns(NarrowSumWarning, match="keeps sums of products in int8, where they wrap: out_dtype='int32'"):
        assert on_npu(op.matmul, a, b).tolist() == [[-128]]
    assert on_llvm(op.matmul, a, b).tolist() == [[-128]] == (a @ b).tolist()
    x, w = np.full((1, 40, 1, 1), 100, "int8"), np.full((1, 40, 1, 1), 100, "int8")
    with pytest.warns(NarrowSumWarning):
        assert on_npu(op.nn.conv2d, x, w).item() == -128
    assert on_llvm(op.nn.conv2d, x, w).item() == -128
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert on_npu(lambda x, y: op.matmul(x, y, out_dtype="int32"), a, b).item() == 400_000


def test_uint8_by_int8_needs_an_out_dtype_and_is_exact_in_int32():
    a, b = np.full((1, 40), 200, "uint8"), np.full((40, 1), -100, "int8")
    with pytest.raises(TypeError, match="same datatype"):
        module_of(op.matmul, a, b)

    def product(x, y):
        return op.matmul(x, y, out_dtype="int32")

    assert on_npu(product, a, b).item() == -800_000 == on_llvm(product, a, b).item()


def ones(*shape):
    return np.ones(shape, "float16")


@pytest.mark.parametrize(
    ("expression", "arrays", "exact"),
    [
        (op.matmul, (ones(1, 4608), ones(4608, 1)), 4608),
        (op.nn.conv2d, (ones(1, 512, 3, 3), ones(1, 512, 3, 3)), 4608),
        (lambda x: op.nn.avg_pool2d(x, pool_size=(64, 64)), (ones(1, 1, 64, 64),), 1),
    ],
    ids=["matmul", "conv2d", "avg_pool2d"],
)
def test_float16_sums_are_accumulated_in_float32_unlike_llvm(expression, arrays, exact):
    assert on_npu(expression, *arrays).item() == exact
    assert on_llvm(expression, *arrays).item() < exact  # a float16 sum of ones stops at 2,048


def test_a_float16_softmax_sums_to_one_unlike_llvm():
    x = np.zeros((1, 4096), "float16")
    assert on_npu(op.nn.softmax, x).astype(f4).sum() == 1
    assert on_llvm(op.nn.softmax, x).astype(f4).sum() == 2


@pytest.mark.parametrize("depth", [100, 10_000, 100_000])
def test_the_error_of_a_float32_sum_is_bounded_by_its_length_and_its_terms(depth, rng):
    a, b = rng.standard_normal((3, depth)).astype(f4), rng.standard_normal((depth, 2)).astype(f4)
    exact, size = a.astype("float64") @ b.astype("float64"), np.abs(a).astype("float64") @ np.abs(b).astype("float64")
    bound = (depth + 2) * UNIT["float32"] * size
    assert (np.abs(on_npu(op.matmul, a, b) - exact) <= bound).all()
    assert (np.abs(on_llvm(op.matmul, a, b) - exact) <= bound).all()


# --- pools ------------------------------------------------------------------------------------------------------------

POOLS = [
    {"pool_size": (2, 3), "strides": (2, 1), "padding": (0, 1, 1, 2)},
    {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1, 1, 1), "ceil_mode": True},
    {"pool_size": (3, 2), "strides": (3, 3), "padding": (2, 0, 0, 1), "ceil_mode": True, "dilation": (2, 1)},
    {"pool_size": (1, 1), "strides": (2, 2), "ceil_mode": True},
]


def onnx_pool(op_type, x, attrs, **more):
    keywords = {
        "kernel_shape": attrs["pool_size"],
        "strides": attrs["strides"],
        "pads": attrs.get("padding", (0, 0, 0, 0)),
        "dilations": attrs.get("dilation", (1, 1)),
        "ceil_mode": int(attrs.get("ceil_mode", False)),
    }
    return on_onnxruntime(op_type, x, **keywords, **more)


@pytest.mark.parametrize("counts_padding", [False, True])
@pytest.mark.parametrize("attrs", POOLS, ids=str)
def test_avg_pool_of_floats_is_that_of_onnxruntime_and_llvm(attrs, counts_padding, rng):
    x = rng.standard_normal((1, 2, 9, 10)).astype(f4)

    def pool(value):
        return op.nn.avg_pool2d(value, count_include_pad=counts_padding, **attrs)

    found = on_npu(pool, x)
    np.testing.assert_allclose(found, on_llvm(pool, x), atol=1e-6)
    theirs = onnx_pool("AveragePool", x, attrs, count_include_pad=int(counts_padding))
    np.testing.assert_allclose(found, theirs, atol=1e-6)


@pytest.mark.parametrize("attrs", POOLS, ids=str)
def test_max_pool_is_that_of_onnxruntime_and_llvm(attrs, rng):
    x = rng.standard_normal((1, 2, 9, 10)).astype(f4)
    found = on_npu(lambda value: op.nn.max_pool2d(value, **attrs), x)
    np.testing.assert_array_equal(found, on_llvm(lambda value: op.nn.max_pool2d(value, **attrs), x))
    np.testing.assert_array_equal(found, onnx_pool("MaxPool", x, attrs))


def test_a_window_that_starts_behind_the_data_is_dropped():
    x = np.arange(4, dtype=f4).reshape(1, 1, 2, 2)
    attrs = {"pool_size": (1, 1), "strides": (2, 2), "padding": (0, 0, 1, 1), "ceil_mode": True}
    assert on_npu(lambda value: op.nn.max_pool2d(value, **attrs), x).tolist() == [[[[0]]]]
    assert on_llvm(lambda value: op.nn.max_pool2d(value, **attrs), x).tolist() == [[[[0]]]]


def test_avg_pool_with_padding_as_wide_as_the_window_is_refused():
    reason = why_on_host(lambda x: op.nn.avg_pool2d(x, pool_size=(2, 2), padding=(2, 2)), np.ones((1, 1, 4, 4), f4))
    assert "a padding of 2 is not smaller than the window of 2" in reason


def test_avg_pool_of_integers_is_refused_on_both_sides():
    x = np.full((1, 1, 2, 2), 100, "int8")

    def pool(value):
        return op.nn.avg_pool2d(value, pool_size=(2, 2))

    (call,) = npu_kit.partition(module_of(pool, x)).report
    assert "needs avg_pool2d with x of float16, float32, found int8" in call.reason
    wrapped = on_llvm(pool, x)  # 4 * 100 wraps to -112, and the result is not even of the dtype that Relax declares
    assert (wrapped.item(), wrapped.dtype) == (-28, np.int64)
    with pytest.raises(UnsupportedError, match="returns int64 where int8 is declared"):
        npu_kit.compile(module_of(pool, x))


def test_a_pool_moves_by_one_and_leaves_padding_out_by_default():
    x = np.ones((1, 1, 3, 3), f4)
    found = on_npu(lambda value: op.nn.avg_pool2d(value, pool_size=(2, 2), padding=(1, 1)), x)
    assert found.shape == (1, 1, 4, 4) and (found == 1).all()


def test_max_pool_of_nothing_but_padding_or_minus_infinity_is_the_lowest_number():
    x = np.full((1, 1, 2, 2), -INF, f4)

    def pool(value):
        return op.nn.max_pool2d(value, pool_size=(2, 2), padding=(2, 2))

    assert (on_npu(pool, x) == LOWEST).all()
    assert (on_llvm(pool, x) == LOWEST).all()


def test_max_pool_propagates_nan_where_llvm_depends_on_the_order():
    x = np.array([[1, NAN], [2, 3]], f4).reshape(1, 1, 2, 2)

    def pool(value):
        return op.nn.max_pool2d(value, pool_size=(2, 2))

    assert np.isnan(on_npu(pool, x)).all()
    assert on_llvm(pool, x).item() == 3


def test_a_window_of_0_is_refused_and_a_stride_of_0_is_no_model_of_relax():
    x = np.ones((1, 1, 4, 4), f4)
    with pytest.raises(UnsupportedError, match="a window or stride of 0"):
        npu_kit.compile(module_of(lambda value: op.nn.max_pool2d(value, pool_size=(0, 0)), x))
    with pytest.raises(Exception, match="Divide by zero"):
        module_of(lambda value: op.nn.max_pool2d(value, pool_size=(2, 2), strides=(0, 0)), x)


@pytest.mark.parametrize(
    "expression",
    [
        lambda x: op.nn.max_pool2d(x, pool_size=(2, 2), padding=(-1, -1)),
        lambda x: op.nn.conv2d(x, relax.const(np.ones((1, 1, 2, 2), f4)), padding=(-1, -1)),
    ],
    ids=["max_pool2d", "conv2d"],
)
def test_negative_padding_is_refused(expression):
    reason = why_on_host(expression, np.ones((1, 1, 6, 6), f4))
    assert "padding whole numbers of at least 0, found (-1, -1, -1, -1)" in reason


# --- activations, softmax, batch norm ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "of_nan_in_llvm"),
    [(op.nn.relu, 0), (lambda x: op.clip(x, 0, 6), 6), (lambda x: op.clip(x, -1, 5), 5)],
    ids=["relu", "relu6", "clip"],
)
def test_nan_goes_through_relu_and_clip_unlike_in_llvm(expression, of_nan_in_llvm):
    x = np.array([NAN, 1], f4)
    np.testing.assert_array_equal(on_npu(expression, x), [NAN, 1])
    np.testing.assert_array_equal(on_onnxruntime("Relu", x), [NAN, 1])
    assert on_llvm(expression, x).tolist() == [of_nan_in_llvm, 1]


def test_the_sign_of_zero_is_out_of_parity():
    x = np.array([-0.0, 0.0], f4)
    assert on_npu(op.nn.relu, x).tolist() == on_llvm(op.nn.relu, x).tolist() == [0, 0]  # -0.0 == 0.0


def test_gelu_is_the_erf_form_and_gelu_tanh_the_other():
    x = np.linspace(-4, 4, 2001).astype(f4)
    erf_form, tanh_form = on_npu(op.nn.gelu, x), on_npu(op.nn.gelu_tanh, x)
    assert 4e-4 < np.abs(erf_form - tanh_form).max() < 5e-4
    np.testing.assert_allclose(erf_form, on_onnxruntime("Gelu", x), atol=1e-6)
    np.testing.assert_allclose(tanh_form, on_onnxruntime("Gelu", x, approximate="tanh"), atol=1e-6)
    np.testing.assert_allclose(erf_form, on_llvm(op.nn.gelu, x), atol=1e-6)
    np.testing.assert_allclose(tanh_form, on_llvm(op.nn.gelu_tanh, x), atol=1e-6)


def test_softmax_subtracts_the_maximum_and_has_no_answer_for_a_row_of_minus_infinity():
    x = np.array([[1e4, 1e4], [-INF, 0], [-INF, -INF]], f4)
    expected = [[0.5, 0.5], [0, 1], [NAN, NAN]]
    np.testing.assert_array_equal(on_npu(op.nn.softmax, x), expected)
    np.testing.assert_array_equal(on_llvm(op.nn.softmax, x), expected)


def test_batch_norm_is_taken_for_inference_only(rng):
    x = rng.standard_normal((2, 3)).astype(f4)
    parameters = [np.ones(3, f4), np.zeros(3, f4), np.full(3, 2, f4), np.full(3, 4, f4)]
    np.testing.assert_allclose(on_npu(batch_norm, x, *parameters), (x - 2) / np.sqrt(4 + 1e-5), atol=1e-6)
    model = npu_kit.compile(module_of(lambda *args: batch_norm(*args, training=True), x, *parameters))
    (call,) = (call for call in model.partition.report if call.op == "relax.nn.batch_norm")
    assert "training is True, and the NPU normalises with running statistics only" in call.reason
    expected = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)
    np.testing.assert_allclose(model.run(x, *parameters), expected, atol=1e-5)


def test_a_float16_batch_norm_has_the_dtype_that_relax_declares_unlike_in_llvm():
    arrays = [np.ones((2, 3), "float16"), *(np.ones(3, "float16") for _ in range(4))]
    assert str(module_of(batch_norm, *arrays)["main"].ret_ty.dtype) == "float16"
    assert on_npu(batch_norm, *arrays).dtype == np.float16
    assert on_llvm(batch_norm, *arrays).dtype == np.float32
    with pytest.raises(UnsupportedError, match="TVM returns float32 where float16 is declared"):
        npu_kit.compile(module_of(batch_norm, *arrays), "ethos_u65_like")  # which has no float16


# --- arithmetic -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32"])
@pytest.mark.parametrize("name", ["add", "subtract", "multiply"])
def test_integers_wrap_as_in_numpy(name, dtype):
    limits = np.iinfo(dtype)
    a, b = (x.ravel() for x in np.meshgrid(*[np.array([limits.min, limits.max, 1, 3], dtype)] * 2))
    expected = getattr(np, name)(a, b)
    np.testing.assert_array_equal(on_npu(getattr(op, name), a, b), expected)
    np.testing.assert_array_equal(on_llvm(getattr(op, name), a, b), expected)


def test_an_int32_product_wraps_in_a_chain_too():
    x = np.array([2**20 + 1, -(2**31), 65537], "int32")
    with np.errstate(over="ignore"):
        expected = x * x * x + x
    np.testing.assert_array_equal(on_npu(lambda a: op.add(op.multiply(op.multiply(a, a), a), a), x), expected)


def test_integer_division_truncates_as_in_llvm_and_not_as_in_numpy():
    a, b = np.array([7, -7, 7, -7], "int32"), np.array([2, 2, -2, -2], "int32")
    assert on_npu(op.divide, a, b).tolist() == [3, -3, -3, 3] == on_llvm(op.divide, a, b).tolist()
    assert (a // b).tolist() == [3, -4, -4, 3]


def test_an_integer_divided_by_0_raises_and_the_lowest_by_minus_1_wraps():
    model = compiled(op.divide, *[np.ones(3, "int32")] * 2)
    with pytest.raises(ZeroDivisionError, match="divide: 1 of 3 int32 divisors are 0"):
        model.run(np.ones(3, "int32"), np.array([1, 0, 2], "int32"))
    assert model.run(np.array([-(2**31), 4, 5], "int32"), np.array([-1, 2, 2], "int32")).tolist() == [-(2**31), 2, 2]


def test_a_float_divided_by_0_is_infinite_or_nan_and_nothing_is_printed(capfd):
    a, b = np.array([1, -1, 0], f4), np.zeros(3, f4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(on_npu(op.divide, a, b), [INF, -INF, NAN])
    np.testing.assert_array_equal(on_llvm(op.divide, a, b), [INF, -INF, NAN])
    assert capfd.readouterr() == ("", "")


def test_mixed_dtypes_are_never_promoted():
    with pytest.raises(TypeError, match="same datatype"):
        module_of(op.add, np.ones(3, f4), np.ones(3, "float16"))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((), ()),
        ((), (2, 3)),
        ((1,), (4, 1)),
        ((2, 1, 4), (3, 1)),
        ((0, 3), (1, 3)),
        ((2, 0, 1), (5,)),
        ((2,) * 7, (2, 1, 2, 1, 2, 1, 2)),
    ],
    ids=str,
)
def test_broadcasting_is_that_of_numpy(a, b, rng):
    x, y = rng.standard_normal(a).astype(f4), rng.standard_normal(b).astype(f4)
    for left, right in ((x, y), (y, x)):
        np.testing.assert_array_equal(on_npu(op.subtract, left, right), left - right)
        np.testing.assert_array_equal(on_llvm(op.subtract, left, right), left - right)


@pytest.mark.parametrize(
    ("a", "b"),
    [((3,), (3,)), ((3,), (2, 3, 4)), ((2, 5, 3), (3,)), ((2, 1, 5, 3), (4, 3, 2)), ((2, 0), (0, 3))],
    ids=str,
)
def test_matmul_is_that_of_numpy(a, b, rng):
    x, y = rng.standard_normal(a).astype(f4), rng.standard_normal(b).astype(f4)
    np.testing.assert_allclose(on_npu(op.matmul, x, y), np.matmul(x, y), atol=1e-6)
    np.testing.assert_allclose(on_llvm(op.matmul, x, y), np.matmul(x, y), atol=1e-6)


# --- convolution ------------------------------------------------------------------------------------------------------

LAYOUTS = list(itertools.product(["NCHW", "NHWC"], ["OIHW", "HWIO", "OHWI", "HWOI"]))


@pytest.mark.parametrize(("layout", "kernel_layout"), LAYOUTS, ids=str)
@pytest.mark.parametrize("groups", [1, 2, 4], ids=["dense", "grouped", "depthwise with multiplier"])
def test_every_layout_of_a_convolution_is_that_of_onnxruntime(layout, kernel_layout, groups, rng):
    x, w = rng.standard_normal((2, 4, 7, 8)).astype(f4), rng.standard_normal((8, 4 // groups, 3, 2)).astype(f4)
    attrs = {"strides": (2, 1), "dilation": (1, 2), "groups": groups, "padding": (1, 0, 2, 3)}

    def conv(data, weights):
        return op.nn.conv2d(data, weights, data_layout=layout, kernel_layout=kernel_layout, **attrs)

    found = on_npu(
        conv, x.transpose(["NCHW".index(c) for c in layout]), w.transpose(["OIHW".index(c) for c in kernel_layout])
    )
    expected = on_onnxruntime("Conv", x, w, strides=(2, 1), dilations=(1, 2), group=groups, pads=(1, 0, 2, 3))
    np.testing.assert_allclose(found.transpose([layout.index(c) for c in "NCHW"]), expected, atol=1e-5)


def test_a_convolution_of_no_channels_is_zero_where_llvm_leaves_memory_unwritten():
    x, w = np.ones((1, 0, 4, 4), f4), np.ones((2, 0, 3, 3), f4)
    np.testing.assert_array_equal(on_npu(op.nn.conv2d, x, w), np.zeros((1, 2, 2, 2), f4))


def test_padding_times_an_infinite_weight_is_nan():
    x, w = np.ones((1, 1, 2, 2), f4), np.full((1, 1, 3, 3), INF, f4)

    def conv(data, weights):
        return op.nn.conv2d(data, weights, padding=(1, 1))

    assert np.isnan(on_npu(conv, x, w)).all()
    assert np.isnan(on_llvm(conv, x, w)).all()


# --- arrays from outside, and what is TVM's to run --------------------------------------------------------------------


def test_a_dilated_transposed_convolution_skips_what_is_between_the_taps_unlike_llvm():
    x = np.array([[INF, 1, 1, 1]], f4).reshape(1, 1, 1, 4)
    kernel = np.ones((1, 1, 1, 2), f4)

    def dilated(x, w):
        return op.nn.conv2d_transpose(x, w, dilation=(1, 2))

    assert on_npu(dilated, x, kernel).ravel().tolist() == [INF, 1, INF, 2, 1, 1]
    right = [INF, NAN, INF, 2, 1, 1]  # LLVM multiplies by zeros there
    np.testing.assert_array_equal(on_llvm(dilated, x, kernel).ravel(), right)


def test_an_array_in_any_memory_is_taken_and_never_written(rng):
    x = rng.standard_normal((4, 6)).astype(f4)
    model = compiled(op.nn.relu, x)
    expected = np.maximum(x, 0)
    frozen = x.copy()
    frozen.flags.writeable = False
    misaligned = np.frombuffer(b"\0" + x.tobytes(), f4, offset=1).reshape(x.shape)
    for same in (frozen, misaligned, x.astype(">f4"), np.asfortranarray(x), np.repeat(x, 2, axis=0)[::2]):
        before = same.copy()
        np.testing.assert_array_equal(model.run(same), expected)
        np.testing.assert_array_equal(same, before)
    for other in (x.astype("float64"), x[None], x.tolist()):
        with pytest.raises(InputError, match="parameter x0"):
            model.run(other)


@pytest.mark.parametrize(
    ("expression", "shape"),
    [(lambda x: op.reshape(x, (0, 6)), (0, 6)), (lambda x: op.permute_dims(x, (1, 0, 2)), (3, 0, 2))],
    ids=["reshape", "permute_dims"],
)
def test_empty_tensors_are_moved_by_the_host(expression, shape):
    x = np.ones((0, 3, 2), f4)
    model = npu_kit.compile(module_of(lambda a: op.nn.relu(expression(a)), x))
    assert model.run(x).shape == shape
