"""The sample models: each is well formed, runs on TVM's own build, and is what its docstring says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from npu_kit.errors import InputError, NpuKitError

tvm = pytest.importorskip("tvm")
zoo = pytest.importorskip("npu_kit.zoo")
relax = tvm.relax

from npu_kit.byoc.partition import partition  # noqa: E402

SMALL: dict[str, dict[str, Any]] = {"conv_relu_pool": {"size": 30, "filters": 10}, "resnet18_stem": {"size": 40}}


def run_on_host(module: Any, arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    machine = relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu())
    return np.array(machine["main"](*(tvm.runtime.tensor(array) for array in arrays)).numpy())


def constants_of(module: Any) -> list[np.ndarray]:
    """Every constant of ``main``, in the order of its first use."""
    found: list[np.ndarray] = []

    def visit(expr: Any) -> None:
        if type(expr).__name__ == "GenericConst":
            found.append(expr.value.numpy())

    relax.analysis.post_order_visit(module["main"].body, visit)
    return found


def ops_of(module: Any) -> list[str]:
    return [
        binding.value.op.name
        for block in module["main"].body.blocks
        for binding in block.bindings
        if hasattr(binding.value, "op")
    ]


@pytest.mark.parametrize("name", zoo.MODELS)
def test_each_model_is_well_formed_and_runs(name: str) -> None:
    module = zoo.build(name, **SMALL.get(name, {}))
    assert relax.analysis.check_well_formed(module)
    result = run_on_host(module, zoo.random_arguments(module))
    declared = module["main"].ret_ty
    assert result.shape == tuple(int(extent) for extent in declared.shape)
    assert result.dtype == str(declared.dtype)
    assert np.isfinite(result).all()
    assert len(np.unique(result)) > 3


@pytest.mark.parametrize("name", zoo.MODELS)
def test_each_model_is_the_same_at_each_build(name: str) -> None:
    first, second = (zoo.build(name, **SMALL.get(name, {})) for _ in range(2))
    tvm.ir.assert_structural_equal(first, second)
    for one, other in zip(constants_of(first), constants_of(second), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", zoo.MODELS)
def test_every_variable_has_a_name_of_its_own(name: str) -> None:
    module = zoo.build(name, **SMALL.get(name, {}))
    names = [binding.var.name for block in module["main"].body.blocks for binding in block.bindings]
    assert len(set(names)) == len(names)
    assert names[-1] == "output"
    assert not [n for n in names if n.startswith(("lv", "gv"))]


# What the docstrings say of the models that do not go to the NPU as a whole; of the others nothing stays behind.
ON_HOST = {"sin_between": ["relax.sin"], "float64_matmul": ["relax.matmul", "relax.nn.relu"]}


@pytest.mark.parametrize("name", zoo.MODELS)
def test_what_stays_on_the_host_is_what_the_docstring_says(name: str) -> None:
    report = partition(zoo.build(name, **SMALL.get(name, {})), bind_constants=True).report
    assert [call.op for call in report.on_host] == ON_HOST.get(name, [])


def test_on_a_machine_of_integers_the_ends_of_the_quantized_digits_are_the_hosts() -> None:
    report = partition(zoo.build("digits_int8"), "ethos_u65_like", bind_constants=True).report
    assert [call.op for call in report.on_host] == ["relax.quantize", "relax.dequantize", "relax.nn.softmax"]


def test_the_default_shapes_are_those_of_the_summaries() -> None:
    def shapes(name: str) -> list[tuple[int, ...]]:
        main = zoo.build(name)["main"]
        return [tuple(int(e) for e in v.ty.shape) for v in main.params] + [tuple(int(e) for e in main.ret_ty.shape)]

    assert shapes("matmul_relu") == [(2, 4), (4, 8), (2, 8)]
    assert shapes("conv_relu") == [(1, 3, 32, 32), (16, 3, 3, 3), (1, 16, 30, 30)]
    assert shapes("conv_relu_pool") == [(1, 3, 224, 224), (1, 64, 112, 112)]
    assert shapes("resnet18_stem") == [(1, 3, 224, 224), (1, 64, 56, 56)]
    assert shapes("digits") == [(1, 8, 8, 1), (1, 10)]


def test_an_unknown_name_lists_the_models_and_the_near_one() -> None:
    with pytest.raises(NpuKitError, match=r"no sample model 'digit': there are matmul_relu, .*Try: 'digits'"):
        zoo.build("digit")


def test_summaries_are_one_short_line() -> None:
    for name, sample in zoo.MODELS.items():
        assert 10 < len(sample.summary) <= 80, name
        assert "\n" not in sample.summary


# Arithmetic, computed again


def test_matmul_relu() -> None:
    module = zoo.build("matmul_relu", m=3, k=5, n=7)
    x, w = zoo.random_arguments(module)
    np.testing.assert_allclose(run_on_host(module, (x, w)), np.maximum(x @ w, 0), rtol=1e-5, atol=1e-6)


def test_attention() -> None:
    module = zoo.build("attention", tokens=6, width=9)
    q, k, v = (a.astype(np.float64) for a in zoo.random_arguments(module))
    scores = np.exp(q @ k.T / 3)
    expected = scores / scores.sum(1, keepdims=True) @ v
    np.testing.assert_allclose(run_on_host(module, zoo.random_arguments(module)), expected, rtol=1e-4, atol=1e-5)


def test_mlp() -> None:
    erf = np.vectorize(math.erf)
    module = zoo.build("mlp", batch=3, widths=(8, 6, 4))
    (x,) = zoo.random_arguments(module)
    w1, b1, w2, b2 = (a.astype(np.float64) for a in constants_of(module))
    hidden = x @ w1 + b1
    hidden = hidden * (1 + erf(hidden / np.sqrt(2))) / 2
    powers = np.exp(hidden @ w2 + b2)
    expected = powers / powers.sum(1, keepdims=True)
    np.testing.assert_allclose(run_on_host(module, (x,)), expected, rtol=1e-4, atol=1e-6)


def test_quantized_matmul_is_near_the_float_product() -> None:
    module = zoo.build("quantized_matmul")
    (x,) = zoo.random_arguments(module)
    weights = next(a for a in constants_of(module) if a.dtype == np.int8 and a.ndim == 2)
    scales = next(a for a in constants_of(module) if a.dtype == np.float32 and a.ndim == 1) / np.float32(0.03)
    assert weights.min() == -127 or weights.max() == 127
    exact = x.astype(np.float64) @ (weights * scales.astype(np.float64))
    result = run_on_host(module, (x,))
    error = np.abs(result - exact)
    # Half a step of 0.03 on each of K inputs, times the weights, bounds the error where no input saturates.
    bound = 0.015 * np.abs(weights * scales).sum(0) * 1.001
    unsaturated = np.abs(x).max(1) < 127 * 0.03
    assert unsaturated.sum() >= 15
    assert (error[unsaturated] <= bound).all()
    assert error.max() > 0


def test_quantized_conv_saturates_and_clears_negatives() -> None:
    module = zoo.build("quantized_conv")
    result = run_on_host(module, zoo.random_arguments(module))
    assert (result.dtype, result.min(), result.max()) == (np.int8, 0, 127)


def test_the_weights_of_each_filter_use_the_whole_int8_range() -> None:
    weights = next(a for a in constants_of(zoo.build("quantized_conv")) if a.dtype == np.int8 and a.ndim == 4)
    assert (np.abs(weights.astype(int)).max((1, 2, 3)) == 127).all()


def test_digits_int8_reads_nearly_as_well_as_the_floats() -> None:
    data = zoo.load_digits_data()
    images = data.test_images
    floats, integers = (run_on_host(zoo.build(name, batch=360), (images,)) for name in ("digits", "digits_int8"))
    right = [(found.argmax(1) == data.test_labels).sum() for found in (floats, integers)]
    assert right[0] == 357 and right[1] >= 354
    assert (floats.argmax(1) == integers.argmax(1)).mean() > 0.98
    assert 0 < np.abs(floats - integers).max() < 0.5


def test_the_weights_of_digits_int8_are_the_trained_ones_to_half_a_step() -> None:
    weights = zoo.load_digits_parameters()["dense_weight"]
    found = constants_of(zoo.build("digits_int8"))
    integers = next(a for a in found if a.dtype == np.int8 and a.shape == weights.shape)
    scales = np.abs(weights).max(0) / 127
    assert (np.abs(integers * scales - weights) <= 0.5001 * scales).all()
    assert (np.abs(integers.astype(int)).max(0) == 127).all()


# Structure


def test_batch_norms_are_inference_and_use_their_first_result() -> None:
    for name in ("residual_block", "resnet18_stem", "digits"):
        module = zoo.build(name)
        norms = [
            binding.value
            for block in module["main"].body.blocks
            for binding in block.bindings
            if hasattr(binding.value, "op") and binding.value.op.name == "relax.nn.batch_norm"
        ]
        assert norms
        assert not [norm for norm in norms if norm.attrs.training]


def test_the_operators_of_the_host_models() -> None:
    assert ops_of(zoo.build("sin_between")) == ["relax.matmul", "relax.sin", "relax.matmul"]
    assert ops_of(zoo.build("shared_conv")) == [
        "relax.nn.conv2d",
        "relax.nn.relu",
        "relax.sigmoid",
        "relax.multiply",
    ]
    assert str(zoo.build("float64_matmul")["main"].ret_ty.dtype) == "float64"


# Where the calls go: what the summaries promise


@pytest.mark.parametrize(
    ("name", "on_host", "regions"),
    [
        ("matmul_relu", [], 1),
        ("residual_block", [], 1),
        ("attention", [], 1),
        ("sin_between", ["relax.sin"], 2),
        ("float64_matmul", ["relax.matmul", "relax.nn.relu"], 0),
        ("shared_conv", [], 1),
        ("digits", [], 1),
        ("digits_int8", [], 1),
    ],
)
def test_what_stays_on_the_host(name: str, on_host: list[str], regions: int) -> None:
    from npu_kit.byoc.partition import partition

    parted = partition(zoo.build(name))
    assert [call.op for call in parted.report.calls if call.where == "host"] == on_host
    assert len(parted.regions) == regions


# Random arguments


def test_random_arguments_fit_each_parameter_and_repeat() -> None:
    module = zoo.digits_model(batch=2, bind=False)
    first, second, other = (zoo.random_arguments(module, seed) for seed in (0, 0, 1))
    for array, again, different, variable in zip(first, second, other, module["main"].params, strict=True):
        assert array.shape == tuple(int(extent) for extent in variable.ty.shape)
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, again)
        assert not np.array_equal(array, different)
        assert array.min() > 0 or not variable.name.endswith("_var")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "bool", "float16", "float64"])
def test_random_arguments_of_each_dtype(dtype: str) -> None:
    from npu_kit.zoo.main_function import build_main, tensor

    x = tensor("x", (400,), dtype)
    (array,) = zoo.random_arguments(build_main([x], lambda emit: x))
    assert array.dtype == dtype
    if array.dtype.kind in "iu":
        assert array.max() > np.iinfo(dtype).max * 0.9
        assert array.min() < np.iinfo(dtype).min * 0.9 or array.dtype.kind == "u"
    else:
        assert len(np.unique(array)) > 1


@pytest.mark.parametrize("kind", ["symbolic", "bfloat16", "tuple"])
def test_random_arguments_name_a_parameter_that_has_none(kind: str) -> None:
    from npu_kit.zoo.main_function import build_main

    types = {
        "symbolic": relax.TensorType((tvm.tirx.Var("n", "int64"), 3), "float32"),
        "bfloat16": relax.TensorType((2,), "bfloat16"),
        "tuple": relax.TupleType([relax.TensorType((2,), "float32")]),
    }
    x = relax.Var("odd", types[kind])
    module = build_main([x], lambda emit: x)
    with pytest.raises(InputError, match="no random array for parameter 'odd' of main"):
        zoo.random_arguments(module)
