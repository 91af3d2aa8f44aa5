"""Shape rules, attributes and MAC counts, against NumPy, Relax's own inference and counting by hand."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_kit.errors import GraphError, NpuKitError, UnsupportedError
from npu_kit.graph.attributes import MAX_INT, AttrDef
from npu_kit.graph.ir import DTYPE_BYTES, TensorType
from npu_kit.graph.ops import FAMILIES, OPS, family_of, find_op, normalise_attrs
from npu_kit.graph.shapes import in_layout, integer_range, permutation, window_count, window_extent
from npu_kit.hw.spec import ENGINE_NAMES


def tensor(*shape: int, dtype: str = "float32") -> TensorType:
    return TensorType(shape, dtype)


def infer(name: str, *types: TensorType, out_dtype: str | None = None, **attrs: Any) -> TensorType:
    return OPS[name].infer(types, normalise_attrs(name, attrs, types), out_dtype)


def macs(name: str, *types: TensorType, out_dtype: str | None = None, **attrs: Any) -> int:
    full = normalise_attrs(name, attrs, types)
    return OPS[name].macs(types, full, OPS[name].infer(types, full, out_dtype))


# --- the table -------------------------------------------------------------------------------------------------------


def test_every_operation_is_consistent() -> None:
    for name, op in OPS.items():
        assert op.name == name
        assert op.family in FAMILIES and op.engine in ENGINE_NAMES and op.summary and op.formula
        assert op.other_engine in {*ENGINE_NAMES, ""} - {op.engine}
        assert family_of(name) == op.family
        assert op.arity == len(op.inputs) >= 1
        assert (op.count is not None) == (op.family == "contraction"), "only contractions have MACs"
        for dtypes in op.inputs.values():
            assert set(dtypes) <= set(DTYPE_BYTES)
        for key, attribute in op.attributes.items():
            if attribute.default is not None:
                assert attribute.check(attribute.complete(attribute.default, 4)) == "", key


def test_relax_names_exist_in_the_wheel() -> None:
    tvm = pytest.importorskip("tvm")
    for op in OPS.values():
        assert tvm.ir.Op.get(op.relax_name).name == op.relax_name


def test_unknown_operation_lists_the_known_ones() -> None:
    with pytest.raises(GraphError, match=r"'sin'.*matmul"):
        find_op("sin")


# --- attributes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_padding", "full"),
    [(1, (1, 1, 1, 1)), ((2,), (2, 2, 2, 2)), ((1, 2), (1, 2, 1, 2)), ([1, 2, 3, 4], (1, 2, 3, 4))],
)
def test_padding_forms_2d(given_padding: Any, full: tuple[int, ...]) -> None:
    attrs = normalise_attrs("conv2d", {"padding": given_padding}, [tensor(1, 1, 9, 9), tensor(1, 1, 1, 1)])
    assert attrs["padding"] == full


@pytest.mark.parametrize(("given_padding", "full"), [(3, (3, 3)), ((3,), (3, 3)), ((1, 2), (1, 2))])
def test_padding_forms_1d(given_padding: Any, full: tuple[int, ...]) -> None:
    attrs = normalise_attrs("conv1d", {"padding": given_padding}, [tensor(1, 1, 9), tensor(1, 1, 1)])
    assert attrs["padding"] == full


def test_axes_count_from_the_front() -> None:
    assert normalise_attrs("softmax", {"axis": -1}, [tensor(2, 3, 4)]) == {"axis": 2}
    assert normalise_attrs("softmax", {}, [tensor(2, 3)]) == {"axis": 1}
    scalar = [tensor(), tensor(), tensor(dtype="int8")]
    assert normalise_attrs("quantize", {"axis": -1}, scalar) == {"axis": 0}
    with pytest.raises(UnsupportedError, match=r"softmax of 2x3 float32.*axis.*-1"):
        normalise_attrs("softmax", {"axis": -3}, [tensor(2, 3)])


def test_values_of_numpy_and_lists_become_plain_python() -> None:
    attrs = normalise_attrs(
        "max_pool2d",
        {"pool_size": [np.int64(2), np.int64(3)], "ceil_mode": 1, "strides": np.int32(2)},
        [tensor(1, 1, 9, 9)],
    )
    assert attrs["pool_size"] == (2, 3) and attrs["strides"] == (2, 2) and attrs["ceil_mode"] is True
    assert [type(item) for item in (*attrs["pool_size"], *attrs["strides"])] == [int] * 4  # type: ignore[misc]
    clip = normalise_attrs("clip", {"min": 0, "max": np.float32(6)}, [tensor(3)])
    assert clip == {"min": 0.0, "max": 6.0} and [type(value) for value in clip.values()] == [float, float]


@pytest.mark.parametrize(
    ("name", "attrs", "message"),
    [
        ("conv2d", {"stride": 2}, "no attribute 'stride'"),
        ("relu", {"axis": 1}, "no attribute 'axis'.*no attributes"),
        ("clip", {"min": 0.0}, "attribute max is missing"),
        ("conv2d", {"strides": 0}, "strides needs at least 1.*got 0"),
        ("conv2d", {"strides": (1, 1, 1)}, "strides needs a tuple of 2"),
        ("conv2d", {"strides": "11"}, "strides needs a tuple of 2"),
        ("conv2d", {"strides": True}, "strides needs a tuple of 2"),
        ("conv2d", {"dilation": 0}, "dilation needs at least 1"),
        ("conv2d", {"groups": 0}, "groups needs at least 1"),
        ("conv2d", {"groups": 1.0}, "groups needs an integer"),
        ("conv2d", {"padding": (0, -1)}, "padding needs at least 0.*got -1"),
        ("conv2d", {"padding": (0, 0, 0)}, "padding needs a tuple of 4"),
        ("conv2d", {"padding": MAX_INT + 1}, f"at most {MAX_INT}"),
        ("conv2d", {"data_layout": "NCHW4c"}, "data_layout needs one of NCHW, NHWC and got 'NCHW4c'"),
        ("conv2d", {"out_layout": "NHWC"}, "out_layout is 'NHWC' and must be data_layout's 'NCHW'"),
        ("max_pool2d", {"pool_size": 0}, "pool_size needs at least 1"),
        ("max_pool2d", {"strides": (2, 0)}, "strides needs at least 1"),
        ("avg_pool2d", {"padding": -1}, "padding needs at least 0"),
        ("max_pool2d", {"ceil_mode": 2}, "ceil_mode needs True or False"),
        ("max_pool2d", {"out_layout": "NHWC"}, "out_layout"),
        ("batch_norm", {"axis": 1, "training": True}, "training is True"),
        ("batch_norm", {}, "axis is missing"),
        ("batch_norm", {"axis": 1, "epsilon": float("nan")}, "epsilon needs a finite number"),
        ("clip", {"min": float("-inf"), "max": 6.0}, "min needs a finite number"),
        ("clip", {"min": 10**400, "max": 6.0}, "min needs a float"),
    ],
)
def test_refused_attributes(name: str, attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(NpuKitError, match=message) as caught:
        normalise_attrs(name, attrs, [tensor(1, 1, 9, 9)] * OPS[name].arity)
    assert caught.value.hint, "a refusal says what to try"


def test_strides_just_inside_and_just_outside() -> None:
    attribute = AttrDef("ints", 1, 1, minimum=1)
    assert attribute.check((1,)) == attribute.check((MAX_INT,)) == ""
    assert attribute.check((0,)) and attribute.check((MAX_INT + 1,)) and attribute.check((True,))


def test_defaults_are_those_of_relax() -> None:
    pytest.importorskip("tvm")
    from tvm import relax

    shapes = {
        "conv1d": [(1, 1, 9), (1, 1, 1)],
        "conv2d": [(1, 1, 9, 9), (1, 1, 1, 1)],
        "batch_norm": [(1, 2)] + [(2,)] * 4,
        "conv2d_transpose": [(1, 1, 9, 9), (1, 1, 1, 1)],
        "prelu": [(1, 2), (2,)],
        "layer_norm": [(1, 2), (2,), (2,)],
        "rms_norm": [(1, 2), (2,)],
    }
    positional = {"pad": [[0] * 8], "layer_norm": [[-1]]}  # arguments without which Relax makes no call
    required = {"batch_norm": {"axis": 1}, "clip": {"min": 0.0, "max": 1.0}}
    checked = 0
    for name, op in OPS.items():
        if not op.attributes or op.arguments or op.has_more_arguments:  # what Relax has as arguments has no default
            continue
        types = [TensorType(shape, "float32") for shape in shapes.get(name, [(1, 1, 9, 9)] * op.arity)]
        if name in ("quantize", "dequantize"):
            types = [tensor(4, dtype="float32" if name == "quantize" else "int8"), tensor(), tensor(dtype="int8")]
        variables = [relax.Var(f"v{i}", relax.TensorType(t.shape, t.dtype)) for i, t in enumerate(types)]
        call = relax_function(op.relax_name)(
            *([variables] if op.is_variadic else variables), *positional.get(name, ()), **required.get(name, {})
        )
        names = {key: op.renamed.get(key, key) for key in (*op.attributes, *op.dropped)}
        found = {key: getattr(call.attrs, own) for key, own in names.items() if hasattr(call.attrs, own)}
        found.pop("training", None)  # Relax's default is True, which the kit refuses
        assert normalise_attrs(name, found, types) == normalise_attrs(
            name, required.get(name, {"pad_width": [0] * 8} if name == "pad" else {}), types
        ), name
        checked += 1
    assert checked >= 8


# --- shapes ----------------------------------------------------------------------------------------------------------


@given(
    st.integers(0, 12), st.integers(1, 5), st.integers(1, 3), st.integers(1, 4), st.integers(0, 3), st.integers(0, 3)
)
def test_window_count_is_the_number_of_places_a_window_fits(
    size: int, taps: int, dilation: int, stride: int, before: int, after: int
) -> None:
    window = window_extent(taps, dilation)
    padded = before + size + after
    if window > padded:
        return
    starts = [start for start in range(0, padded, stride) if start + window <= padded]
    assert window_count(size, window, stride, before, after) == len(starts)


@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 4), st.integers(0, 3))
def test_ceil_mode_covers_the_data_and_no_window_starts_behind_it(
    size: int, window: int, stride: int, pad: int
) -> None:
    if window > size + 2 * pad or pad >= window:
        return
    count = window_count(size, window, stride, pad, pad, ceil_mode=True)
    floor = window_count(size, window, stride, pad, pad)
    assert count in (floor, floor + 1)
    last_start = (count - 1) * stride - pad
    assert last_start < size
    if stride <= window:
        assert last_start + window >= size, "every element of the data is in a window"


def test_a_ceil_window_that_starts_behind_the_data_is_dropped() -> None:
    # 5 elements, window 2, stride 3, 1 before and 1 behind: windows start at -1 and 2; one at 5 would see padding only.
    assert window_count(5, 2, 3, 1, 1, ceil_mode=True) == 2
    assert window_count(6, 2, 3, 1, 1, ceil_mode=True) == 3


shapes_1_to_4 = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@given(shapes_1_to_4, shapes_1_to_4)
def test_broadcasting_is_numpys(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    try:
        expected = np.broadcast_shapes(a, b)
    except ValueError:
        with pytest.raises(GraphError, match="neither is 1"):
            infer("add", tensor(*a), tensor(*b))
    else:
        assert infer("add", tensor(*a), tensor(*b)).shape == expected


@given(shapes_1_to_4, shapes_1_to_4)
def test_matmul_shapes_are_numpys(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    try:
        expected = np.matmul(np.zeros(a), np.zeros(b)).shape
    except ValueError:
        with pytest.raises(GraphError):
            infer("matmul", tensor(*a), tensor(*b))
    else:
        found = infer("matmul", tensor(*a), tensor(*b))
        assert found.shape == expected
        assert macs("matmul", tensor(*a), tensor(*b)) == found.elements * a[-1]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("kernel_layout", ["OIHW", "HWIO", "OHWI", "HWOI"])
def test_conv2d_layouts_are_one_operation(layout: str, kernel_layout: str) -> None:
    data = TensorType(in_layout((2, 6, 9, 7), "NCHW", layout), "float32")
    weights = TensorType(in_layout((4, 3, 3, 2), "OIHW", kernel_layout), "float32")
    attrs = dict(groups=2, strides=(2, 1), padding=(1, 0, 2, 3), dilation=(1, 2))
    out = infer("conv2d", data, weights, data_layout=layout, kernel_layout=kernel_layout, **attrs)
    assert in_layout(out.shape, layout, "NCHW") == (2, 4, 5, 8)
    assert macs("conv2d", data, weights, data_layout=layout, kernel_layout=kernel_layout, **attrs) == 2 * 4 * 5 * 8 * 18


def test_macs_of_a_convolution_by_counting() -> None:
    n, o, i, h, w, groups = 2, 6, 2, 5, 4, 3
    out = infer("conv2d", tensor(n, i * groups, h, w), tensor(o, i, 3, 2), groups=groups)
    loops = itertools.product(*map(range, (n, o, out.shape[2], out.shape[3], i, 3, 2)))
    assert macs("conv2d", tensor(n, i * groups, h, w), tensor(o, i, 3, 2), groups=groups) == sum(1 for _ in loops)


def test_macs_edges() -> None:
    assert macs("matmul", tensor(5, 0), tensor(0, 3)) == 0
    assert macs("matmul", tensor(7), tensor(7)) == 7
    assert macs("conv2d", tensor(1, 0, 5, 5), tensor(4, 0, 3, 3)) == 0
    depthwise = tensor(1, 8, 6, 6), tensor(8, 1, 3, 3)
    assert macs("conv2d", *depthwise, groups=8) == 8 * 16 * 9
    assert macs("max_pool2d", tensor(1, 8, 6, 6), pool_size=3) == 0
    assert macs("add", tensor(3), tensor(3)) == 0


def test_permutation_is_what_transpose_needs() -> None:
    assert permutation("NHWC", "NCHW") == (0, 3, 1, 2)
    assert np.zeros((1, 2, 3, 4)).transpose(permutation("NHWC", "NCHW")).shape == (1, 4, 2, 3)


def test_integer_ranges_are_numpys() -> None:
    for dtype in ("int8", "uint8", "int16", "uint16", "int32"):
        assert integer_range(dtype) == (np.iinfo(dtype).min, np.iinfo(dtype).max)


I8, U8, F16, I32 = "int8", "uint8", "float16", "int32"


@pytest.mark.parametrize(
    ("name", "types", "attrs", "out_dtype", "message"),
    [
        ("matmul", [tensor(2, 3), tensor(4, 5)], {}, None, "inner sizes must be equal and are 3 and 4"),
        ("matmul", [tensor(), tensor(4, 5)], {}, None, "at least one axis"),
        ("matmul", [tensor(2, 3), tensor(3, 2, dtype=F16)], {}, None, "float32 and float16"),
        ("matmul", [tensor(2, 3, dtype=I8), tensor(3, 2)], {}, "float32", "int8 and float32"),
        ("matmul", [tensor(2, 3, dtype=I8), tensor(3, 2, dtype=U8)], {}, None, "out_dtype must be given"),
        ("matmul", [tensor(2, 3, dtype=I8), tensor(3, 2, dtype=I8)], {}, "float32", "int8 operands need an output of"),
        ("matmul", [tensor(2, 3), tensor(3, 2)], {}, "int8", "float32 operands need an output of"),
        ("matmul", [tensor(2, 3)], {}, None, r"takes 2 inputs \(a, b\) and got 1"),
        ("conv2d", [tensor(1, 3, 8, 8), tensor(4, 2, 3, 3)], {}, None, "3 channels.*take 2 in each of 1"),
        ("conv2d", [tensor(1, 4, 8, 8), tensor(3, 2, 3, 3)], {"groups": 2}, None, "3 filters do not divide into 2"),
        ("conv2d", [tensor(1, 3, 8), tensor(4, 3, 3, 3)], {}, None, "data need 4 axes and have 3"),
        ("conv2d", [tensor(1, 3, 8, 8), tensor(4, 3, 3)], {}, None, "weights need 4 axes and have 3"),
        ("conv2d", [tensor(1, 3, 2, 8), tensor(4, 3, 5, 3)], {"padding": 1}, None, "spans 5.*padded data has 4"),
        ("conv2d", [tensor(1, 3, 8, 8), tensor(4, 3, 0, 3)], {}, None, "0 taps"),
        ("max_pool2d", [tensor(1, 3, 2, 2)], {"pool_size": 3}, None, "spans 3.*padded data has 2"),
        ("max_pool2d", [tensor(1, 3, 0, 2)], {"padding": 1}, None, "0x2"),
        ("avg_pool2d", [tensor(1, 3, 8, 8)], {"pool_size": 2, "padding": 2}, None, "padding of 2.*window of 2"),
        ("avg_pool2d", [tensor(1, 3, 8, 8, dtype=I8)], {}, None, "x needs one of float16, float32 and is int8"),
        ("add", [tensor(2), tensor(2, dtype=F16)], {}, None, "one dtype and have float16, float32"),
        ("add", [tensor(2), tensor(2)], {}, "float16", "one dtype and have float16, float32"),
        ("sigmoid", [tensor(2, dtype=I8)], {}, None, "x needs one of float16, float32 and is int8"),
        ("clip", [tensor(2, dtype=I8)], {"min": 0.5, "max": 6}, None, "min is 0.5, which is no int8 value"),
        ("clip", [tensor(2, dtype=U8)], {"min": -1, "max": 6}, None, r"min is -1.0.*\(0 to 255\)"),
        ("softmax", [tensor()], {}, None, "axis 0 is not one of the 0 axes"),
        ("softmax", [tensor(2, 3)], {"axis": 2}, None, "axis 2 is not one of the 2 axes"),
        (
            "batch_norm",
            [tensor(2, 3)] + [tensor(3)] * 3 + [tensor(2)],
            {"axis": 1},
            None,
            r"moving_var.*\(3,\).*\(2,\)",
        ),
        ("quantize", [tensor(2, 3), tensor(3), tensor(dtype=I8)], {}, "int32", "the output needs one of int8"),
        ("quantize", [tensor(2, 3), tensor(3), tensor(dtype=I8)], {}, None, "and is None"),
        ("quantize", [tensor(2, 3), tensor(2), tensor(dtype=I8)], {}, "int8", r"scale.*\(3,\).*has \(2,\)"),
        ("quantize", [tensor(2, 3), tensor(3), tensor(2, dtype=I8)], {}, "int8", "zero_point"),
        ("quantize", [tensor(2, 3), tensor(1, 3), tensor(dtype=I8)], {}, "int8", "scale"),
        ("quantize", [tensor(2, 3, dtype=I32), tensor(), tensor(dtype=I8)], {}, "int8", "x needs one of float16"),
        ("dequantize", [tensor(2, 3, dtype=I8), tensor(), tensor(dtype=I8)], {}, "int8", "needs one of float16"),
        ("reshape", [tensor(2, 6)], {"newshape": (3, 5)}, None, r"shape \(3, 5\) has 15 elements and the data 12"),
        ("adaptive_avg_pool2d", [tensor(1, 2, 4, 4)], {"output_size": (2, 2, 2)}, None, "at most 2 numbers and has 3"),
    ],
)
def test_refused_types(
    name: str, types: list[TensorType], attrs: dict[str, Any], out_dtype: str | None, message: str
) -> None:
    with pytest.raises((GraphError, UnsupportedError), match=message) as caught:
        infer(name, *types, out_dtype=out_dtype, **attrs)
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("name", "types", "attrs", "out_dtype", "expected"),
    [
        ("conv2d", [tensor(1, 3, 3, 8), tensor(4, 3, 5, 3)], {"padding": 1}, None, tensor(1, 4, 1, 8)),
        ("avg_pool2d", [tensor(1, 3, 8, 8)], {"pool_size": 2, "padding": 1}, None, tensor(1, 3, 9, 9)),
        ("clip", [tensor(2, dtype=I8)], {"min": -128, "max": 127}, None, tensor(2, dtype=I8)),
        ("matmul", [tensor(2, 3, dtype=U8), tensor(3, 2, dtype=I8)], {}, I32, tensor(2, 2, dtype=I32)),
        ("matmul", [tensor(2, 3, dtype=F16), tensor(3, 2, dtype=F16)], {}, "float32", tensor(2, 2)),
        ("dequantize", [tensor(2, 3, dtype=I32), tensor(3), tensor(1, 1, dtype=I8)], {}, F16, tensor(2, 3, dtype=F16)),
        ("quantize", [tensor(), tensor(1), tensor(dtype=I32)], {}, "uint16", tensor(dtype="uint16")),
        ("conv1d", [tensor(0, 2, 4), tensor(3, 2, 4)], {}, None, tensor(0, 3, 1)),
    ],
)
def test_just_inside(
    name: str, types: list[TensorType], attrs: dict[str, Any], out_dtype: str | None, expected: TensorType
) -> None:
    assert infer(name, *types, out_dtype=out_dtype, **attrs) == expected


def any_attribute(definition: AttrDef) -> st.SearchStrategy[Any]:
    """A value that ``definition.check`` lets through, whether or not it suits a tensor."""
    numbers = st.integers(definition.minimum or 0, 7)
    if definition.kind in ("ints", "padding"):
        return st.tuples(*[numbers] * definition.length)
    if definition.kind in ("axes", "order"):
        return st.lists(st.integers(0, 5), max_size=4, unique=True).map(tuple)
    return {
        "int": numbers,
        "axis": numbers,
        "sizes": st.lists(numbers, max_size=5).map(tuple),
        "float": st.sampled_from([0.0, 0.5, -1.0, 300.0, 1e30]),
        "bool": st.booleans(),
        "str": st.sampled_from(definition.choices or ("",)),
    }[definition.kind]


@pytest.mark.parametrize("name", OPS)
@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_a_rule_gives_a_type_or_refuses_whatever_attributes_a_file_may_hold(name: str, data: st.DataObject) -> None:
    op = OPS[name]
    attrs = {key: data.draw(any_attribute(definition)) for key, definition in op.attributes.items()}
    assert not any(definition.check(attrs[key]) for key, definition in op.attributes.items())
    shapes = st.lists(st.sampled_from([0, 1, 2, 3, 4, 6]), max_size=5).map(tuple)
    shape, dtype = data.draw(shapes), data.draw(st.sampled_from(next(iter(op.inputs.values()))))
    types = []
    for dtypes in op.inputs.values():
        types.append(TensorType(data.draw(st.just(shape) | shapes), dtype if dtype in dtypes else dtypes[0]))
    try:
        out = op.infer(types, attrs, data.draw(st.sampled_from([None, dtype, "int8"])))
    except NpuKitError:
        return
    assert all(size >= 0 for size in out.shape) and out.dtype in DTYPE_BYTES


# --- against Relax's own inference -----------------------------------------------------------------------------------


def relax_function(relax_name: str) -> Any:
    from tvm import relax

    return functools.reduce(getattr, relax_name.split(".")[1:], relax.op)


def relax_type(name: str, types: list[TensorType], attrs: dict[str, Any]) -> TensorType:
    from tvm import relax

    variables = [relax.Var(f"v{i}", relax.TensorType(t.shape, t.dtype)) for i, t in enumerate(types)]
    call = relax.BlockBuilder().normalize(relax_function(OPS[name].relax_name)(*variables, **attrs))
    return TensorType(tuple(int(size) for size in call.ty.shape), str(call.ty.dtype))


windows = st.fixed_dictionaries(
    {
        "strides": st.tuples(st.integers(1, 3), st.integers(1, 3)),
        "padding": st.tuples(*[st.integers(0, 3)] * 4),
        "dilation": st.tuples(st.integers(1, 3), st.integers(1, 3)),
    }
)
image = st.tuples(st.integers(1, 2), st.sampled_from([2, 4]), st.integers(1, 9), st.integers(1, 9))


@settings(deadline=None, max_examples=100)
@given(image, windows, st.sampled_from([1, 2]), st.integers(1, 3), st.integers(1, 3), st.sampled_from(["NCHW", "NHWC"]))
def test_convolutions_as_relax(
    shape: tuple[int, ...], attrs: dict[str, Any], groups: int, height: int, width: int, layout: str
) -> None:
    pytest.importorskip("tvm")
    types = [tensor(*in_layout(shape, "NCHW", layout)), tensor(height, width, shape[1] // groups, 6)]
    attrs |= {"groups": groups, "data_layout": layout, "kernel_layout": "HWIO"}
    try:
        found = infer("conv2d", *types, **attrs)
    except GraphError:
        sizes = zip(shape[2:], (height, width), attrs["dilation"], attrs["padding"], attrs["padding"][2:], strict=False)
        assert any(d * (k - 1) + 1 > size + before + after for size, k, d, before, after in sizes)
    else:
        assert found == relax_type("conv2d", types, attrs)


@settings(deadline=None, max_examples=100)
@given(
    image, windows, st.booleans(), st.tuples(st.integers(1, 4), st.integers(1, 4)), st.sampled_from(["NCHW", "NHWC"])
)
def test_pools_as_relax(
    shape: tuple[int, ...], attrs: dict[str, Any], ceil_mode: bool, pool_size: tuple[int, int], layout: str
) -> None:
    pytest.importorskip("tvm")
    types = [tensor(*in_layout(shape, "NCHW", layout))]
    attrs |= {"ceil_mode": ceil_mode, "pool_size": pool_size, "layout": layout}
    try:
        found = infer("max_pool2d", *types, **attrs)
    except GraphError:
        sizes = zip(shape[2:], pool_size, attrs["dilation"], attrs["padding"], attrs["padding"][2:], strict=False)
        assert any(d * (k - 1) + 1 > size + before + after for size, k, d, before, after in sizes)
    else:
        assert found == relax_type("max_pool2d", types, attrs)
