"""The arithmetic of one tile: exact where it says so, the same bits in every company, no warnings on screen."""

from __future__ import annotations

import math
import re
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_kit.errors import UnsupportedError
from npu_kit.graph.ops import OPS
from npu_kit.runtime import arithmetic
from npu_kit.runtime.arithmetic import (
    QuantizeWarning,
    apply_elementwise,
    check_scale,
    compute_dtype,
    multiply_tile,
    product_dtype,
    to_declared,
)
from npu_kit.runtime.erf import erf

Array = np.ndarray[Any, Any]
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32")
ATTRS: dict[str, dict[str, Any]] = {
    "clip": {"min": -1.0, "max": 6.0},
    "batch_norm": {"axis": 1, "epsilon": 1e-5, "center": True, "scale": True},
    "quantize": {"axis": 1},
    "dequantize": {"axis": 1},
    "leaky_relu": {"alpha": 0.2},
    "prelu": {"axis": 1},
}


def operands(name: str, dtype: str, shape: tuple[int, ...], seed: int = 0) -> list[Array]:
    """Operands of full shape for an element-wise operation, with special values among them."""
    rng = np.random.default_rng(seed)

    def draw(kind: str) -> Array:
        if kind in INTEGERS:
            info = np.iinfo(kind)
            found = rng.integers(info.min, info.max, shape, dtype=kind, endpoint=True)
            return np.where(found == 0, np.array(1, kind), found) if name == "divide" else found
        found = (rng.standard_normal(shape) * 4).astype(kind)
        specials = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-41, float(np.finfo(kind).max)], kind)
        chosen = rng.random(shape) < 0.2
        return np.where(chosen, rng.choice(specials, shape), found)

    if name == "quantize":
        return [np.nan_to_num(draw(dtype)), np.abs(rng.standard_normal(shape)).astype("float32") + 0.1, draw("int8")]
    if name == "dequantize":
        return [draw(dtype), np.abs(rng.standard_normal(shape)).astype("float32") + 0.1, draw("int8")]
    return [draw(dtype) for _ in range(OPS[name].arity)]


ELEMENTWISE = [
    (name, dtype) for name, op in OPS.items() if op.family == "elementwise" for dtype in next(iter(op.inputs.values()))
]


def out_dtype_of(name: str, dtype: str) -> str:
    return {"quantize": "int8", "dequantize": "float16"}.get(name, dtype)


def attrs_of(name: str, dtype: str) -> dict[str, Any]:
    return {"min": 1.0, "max": 6.0} if name == "clip" and dtype.startswith("u") else ATTRS.get(name, {})


def quietly(name: str, dtype: str, inputs: list[Array]) -> Array:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error")
        return apply_elementwise(name, attrs_of(name, dtype), inputs, out_dtype_of(name, dtype))


def test_every_elementwise_operation_is_there() -> None:
    assert {name for name, op in OPS.items() if op.family == "elementwise"} == set(arithmetic._FUNCTIONS)


@pytest.mark.parametrize(("name", "dtype"), ELEMENTWISE)
def test_an_element_has_the_same_bits_in_every_company(name: str, dtype: str) -> None:
    """Whole stack, each tile, each row and each single element of the last tile; read-only, strided and misaligned."""
    inputs = operands(name, dtype, (3, 7, 37))
    whole = quietly(name, dtype, inputs)
    assert whole.dtype.name == out_dtype_of(name, dtype)
    assert whole.shape == (3, 7, 37)
    for tile in range(3):
        assert bits(quietly(name, dtype, [x[tile] for x in inputs])) == bits(whole[tile])
    for row in range(7):
        assert bits(quietly(name, dtype, [x[2, row] for x in inputs])) == bits(whole[2, row])
    for column in range(37):
        single = quietly(name, dtype, [x[2, 6, column] for x in inputs])
        assert type(single) is np.ndarray and bits(single) == bits(whole[2, 6, column])
        rest = quietly(name, dtype, [x[2, 6, column:] for x in inputs])
        assert bits(rest) == bits(whole[2, 6, column:])
    assert bits(quietly(name, dtype, [x[:, ::2, ::3] for x in inputs])) == bits(whole[:, ::2, ::3])
    assert bits(quietly(name, dtype, [misaligned(x) for x in inputs])) == bits(whole)


def bits(x: Array) -> bytes:
    """The bytes of ``x``, with one NaN for all NaNs: their sign is not promised."""
    return np.where(np.isnan(x), np.array(np.nan, x.dtype), x).tobytes() if x.dtype.kind == "f" else x.tobytes()


def misaligned(x: Array) -> Array:
    raw = np.zeros(x.nbytes + 1, np.uint8)[1:]
    raw[:] = np.frombuffer(x.tobytes(), np.uint8)
    view = raw.view(x.dtype).reshape(x.shape)
    view.flags.writeable = False
    return view


@pytest.mark.parametrize(("name", "dtype"), ELEMENTWISE)
def test_operands_are_left_alone_and_may_come_in_compute_dtype(name: str, dtype: str) -> None:
    inputs = operands(name, dtype, (5, 6), seed=1)
    before = [x.copy() for x in inputs]
    found = quietly(name, dtype, inputs)
    for x, kept in zip(inputs, before, strict=True):
        assert x.tobytes() == kept.tobytes() and not np.shares_memory(found, x)
    wide = [inputs[0].astype(compute_dtype(dtype)), *inputs[1:]]
    assert bits(quietly(name, dtype, wide)) == bits(found)


def test_nothing_reaches_the_screen() -> None:
    zero, one, huge = (np.full(3, value, np.float32) for value in (0, 1, 3e38))
    with warnings.catch_warnings(), np.errstate(all="warn"):
        warnings.simplefilter("error")
        assert np.isnan(apply_elementwise("divide", {}, [zero, zero], "float32")).all()
        assert np.isinf(apply_elementwise("divide", {}, [one, zero], "float32")).all()
        assert np.isinf(apply_elementwise("add", {}, [huge, huge], "float32")).all()
        assert np.isinf(apply_elementwise("relu", {}, [huge], "float16")).all()
        assert (apply_elementwise("sigmoid", {}, [-huge], "float32") == 0).all()
        assert np.isnan(multiply_tile(np.full((2, 2), np.inf, "f4"), np.zeros((2, 2), "f4"), np.dtype("f4"))).all()
        assert np.isinf(to_declared(huge, "float16")).all()


# --- integers --------------------------------------------------------------------------------------------------------


@given(st.integers(-128, 127), st.integers(-128, 127))
def test_int8_operations_by_python(a: int, b: int) -> None:
    x, y = np.array([a], np.int8), np.array([b], np.int8)

    def wrapped(value: int) -> int:
        return (value + 128) % 256 - 128

    assert apply_elementwise("add", {}, [x, y], "int8") == wrapped(a + b)
    assert apply_elementwise("subtract", {}, [x, y], "int8") == wrapped(a - b)
    assert apply_elementwise("multiply", {}, [x, y], "int8") == wrapped(a * b)
    assert apply_elementwise("maximum", {}, [x, y], "int8") == max(a, b)
    if b:
        assert apply_elementwise("divide", {}, [x, y], "int8") == wrapped(math.trunc(a / b))


def test_int32_divide_truncates_and_wraps() -> None:
    a = np.array([-7, 7, -7, -(2**31), 2**31 - 1], np.int32)
    b = np.array([2, -2, -2, -1, -1], np.int32)
    assert apply_elementwise("divide", {}, [a, b], "int32").tolist() == [-3, -3, 3, -(2**31), -(2**31) + 1]


def test_int32_multiply_wraps() -> None:
    a = np.array([2**31 - 1], np.int32)
    assert apply_elementwise("multiply", {}, [a, a], "int32").tolist() == [1]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_divide_by_zero(dtype: str) -> None:
    ones, zeros = np.ones((2, 3), dtype), np.zeros((2, 1), dtype)
    with pytest.raises(ZeroDivisionError, match=f"divide: 2 of 2 {dtype} divisors are 0"):
        apply_elementwise("divide", {}, [ones, zeros], dtype)


def test_unknown_operation() -> None:
    with pytest.raises(UnsupportedError, match=r"'softmax'.*relu"):
        apply_elementwise("softmax", {}, [np.ones(2, np.float32)], "float32")


# --- quantize --------------------------------------------------------------------------------------------------------


def quantize(values: list[float], scale: float = 1.0, zero: int = 0, dtype: str = "int8") -> list[int]:
    x = np.array(values, np.float32)
    found = apply_elementwise("quantize", {}, [x, np.array(scale, np.float32), np.array(zero, np.int32)], dtype)
    return [int(value) for value in found]


def test_quantize_rounds_half_to_even_before_the_zero_point_and_saturates() -> None:
    assert quantize([0.5, 1.5, 2.5, -0.5, -1.5]) == [0, 2, 2, 0, -2]
    assert quantize([0.5, 1.5], zero=1) == [1, 3]  # rounding after adding would give 2 and 2
    assert quantize([300.0, -300.0, math.inf, -math.inf]) == [127, -128, 127, -128]
    assert quantize([300.0, -1.0, 70000.0], dtype="uint16") == [300, 0, 65535]
    assert quantize([1.0], scale=1 / 3) == [3]


def test_quantize_of_nan_warns_once_and_gives_the_highest_value() -> None:
    with pytest.warns(QuantizeWarning, match="2 of 3 values are NaN and become 255") as caught:
        assert quantize([math.nan, 1.0, math.nan], dtype="uint8") == [255, 1, 255]
    assert len(caught) == 1 and issubclass(QuantizeWarning, RuntimeWarning)


def test_dequantize_saturates_in_float16() -> None:
    x, scale, zero = np.array([127, -128, 1], np.int8), np.array(1e4, np.float32), np.array(0, np.int8)
    assert apply_elementwise("dequantize", {}, [x, scale, zero], "float16").tolist() == [65504, -65504, 10000]


@pytest.mark.parametrize(
    ("value", "problem"),
    [(0.0, "a scale is 0"), (-0.5, r"a scale is negative \(-0.5\)"), (math.nan, "NaN"), (math.inf, "infinite")],
)
def test_check_scale_says_what_is_wrong(value: float, problem: str) -> None:
    found = check_scale(np.array([1.0, value], np.float32))
    assert len(found) == 1 and re.search(problem, found[0])


def test_check_scale_accepts_the_smallest_positive_number() -> None:
    assert check_scale(np.array(np.finfo(np.float32).smallest_subnormal)) == []
    assert len(check_scale(np.array([0, -1, math.nan, math.inf], np.float16))) == 4


# --- products of tiles -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    ("tm", "tk", "tn"), [(32, 32, 32), (16, 256, 16), (8, 8, 8), (1, 32, 32), (32, 32, 1), (1, 1, 1)]
)
def test_a_stack_of_tiles_has_the_bits_of_each_tile_alone(dtype: str, tm: int, tk: int, tn: int) -> None:
    rng = np.random.default_rng(tm * tk + tn)
    a = rng.standard_normal((5, 1, tm, tk)).astype(dtype)
    b = rng.standard_normal((1, 4, tk, tn)).astype(dtype)
    together = multiply_tile(a, b, np.dtype(np.float32))
    assert together.dtype == np.float32 and together.shape == (5, 4, tm, tn)
    for i, j in np.ndindex(5, 4):
        assert multiply_tile(a[i, 0], b[0, j], np.dtype(np.float32)).tobytes() == together[i, j].tobytes()
    strided = np.swapaxes(np.swapaxes(a, -1, -2).copy(), -1, -2)
    assert multiply_tile(strided, b, np.dtype(np.float32)).tobytes() == together.tobytes()


@pytest.mark.parametrize("left", INTEGERS)
@pytest.mark.parametrize("right", INTEGERS)
@pytest.mark.parametrize("tk", [1, 256, 300])
def test_integer_products_are_exact_modulo_two_to_the_32(left: str, right: str, tk: int) -> None:
    rng = np.random.default_rng(tk)
    a, b = (np.iinfo(dtype) for dtype in (left, right))
    x = rng.choice([a.min, a.max, a.max - 1, 1], (2, 3, tk)).astype(left)
    y = rng.choice([b.min, b.max, b.max - 1, 1], (2, tk, 4)).astype(right)
    expected = np.matmul(x.astype(object), y.astype(object))
    wrapped = np.vectorize(lambda value: (value + 2**31) % 2**32 - 2**31, otypes=[np.int64])(expected)
    found = multiply_tile(x, y, np.dtype(np.int32))
    assert found.dtype == np.int32 and np.array_equal(found, wrapped)


def test_integer_products_use_the_blas_up_to_its_limit() -> None:
    used = {}
    for dtype, tk in (("uint8", 258), ("uint8", 259), ("int8", 1024), ("int16", 256), ("int32", 1)):
        worst = np.full((1, tk), min(np.iinfo(dtype).min, -np.iinfo(dtype).max), np.int64).astype(dtype)
        found = multiply_tile(worst, worst.T, np.dtype(np.int32))
        assert int(found[0, 0]) == (tk * int(worst[0, 0]) ** 2 + 2**31) % 2**32 - 2**31
        chosen, most = product_dtype(worst.dtype, worst.dtype, tk)
        assert most >= tk
        used[dtype, tk] = chosen
    # 258 * 255 * 255 = 16,776,450 is below 2**24 = 16,777,216; one more term is not. 1024 * 128 * 128 is 2**24.
    assert [str(chosen) for chosen in used.values()] == ["float32", "float64", "float32", "float64", "int32"]


def test_an_empty_reduction_is_zero() -> None:
    for dtype in ("float32", "int8"):
        found = multiply_tile(np.ones((2, 0), dtype), np.ones((0, 3), dtype), compute_dtype(dtype))
        assert found.shape == (2, 3) and (found == 0).all()


def test_compute_dtypes() -> None:
    assert {compute_dtype(dtype) for dtype in ("float16", "float32")} == {np.dtype(np.float32)}
    assert {compute_dtype(dtype) for dtype in INTEGERS} == {np.dtype(np.int32)}


def test_to_declared() -> None:
    assert to_declared(np.array([2049, 2051], np.float32), "float16").tolist() == [2048, 2052]  # half to even
    assert to_declared(np.array([300, -129, 2**31 - 1], np.int32), "int8").tolist() == [44, 127, -1]
    assert to_declared(np.array([-1], np.int32), "uint16").tolist() == [65535]


# --- erf -------------------------------------------------------------------------------------------------------------


def test_erf_is_within_one_unit_in_the_last_place() -> None:
    x = np.concatenate([np.linspace(-5, 5, 40001), np.logspace(-44, 1, 5001), -np.logspace(-44, 1, 5001)])
    x = x.astype(np.float32)
    exact = np.array([math.erf(value) for value in x.tolist()])
    unit = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    assert (np.abs(erf(x).astype(np.float64) - exact) / unit).max() <= 0.51


def test_erf_at_its_edges() -> None:
    found = erf(np.array([np.inf, -np.inf, np.nan, 0.0, -0.0], np.float32))
    np.testing.assert_array_equal(found, np.array([1, -1, np.nan, 0, -0.0], np.float32))
    assert np.signbit(found[4])
    assert erf(np.zeros((0, 3), np.float32)).shape == (0, 3)
    assert erf(np.float32(0.5).reshape(())).shape == ()
    odd = np.linspace(0, 4.5, 20001, dtype=np.float32)
    assert np.array_equal(erf(-odd), -erf(odd))
    assert (np.diff(erf(odd)) >= 0).all()
