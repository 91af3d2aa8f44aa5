"""Normalising changes the form of a model and never what it computes: each rewrite against the LLVM build before it."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax, topi
from tvm.relax.frontend.onnx import from_onnx

from npu_kit.byoc.model.guard import MAX_DEPTH, nesting_depth
from npu_kit.byoc.model.normalize import prepare
from npu_kit.byoc.model.walk import model_functions, walk_calls
from npu_kit.errors import PartitionError, UnsupportedError

op, nn = relax.op, relax.op.nn
SHAPE = (2, 3, 4, 4)
SPECIAL = np.array([0.0, -0.0, 6.0, -6.0, 5.999999, 6.000001, 3e38, -3e38, np.inf, -np.inf, 1e-45], "float32")


def ops_of(mod):
    """Short names of the calls of a prepared module, in order."""
    names = [call.op.name for _, function in model_functions(mod) for call, _ in walk_calls(function)]
    return [name.removeprefix("relax.").removeprefix("nn.") for name in names]


@pytest.fixture
def same_values(run_on_host, rng):
    """``same_values(mod)``: the prepared module, after comparing its LLVM build with that of ``mod``, bit by bit."""

    def compare(mod):
        prepared = prepare(mod)
        arrays = []
        for parameter in mod["main"].params:
            shape, dtype = [int(size) for size in parameter.ty.shape.values], str(parameter.ty.dtype)
            if dtype.startswith("float"):
                array = (rng.standard_normal(shape) * 4).astype(dtype)
                array.flat[: min(array.size, SPECIAL.size)] = SPECIAL[: min(array.size, SPECIAL.size)].astype(dtype)
            else:
                array = rng.integers(-100, 100, shape).astype(dtype)
            arrays.append(array)
        expected, found = run_on_host(mod, *arrays), run_on_host(prepared, *arrays)
        for left, right in zip(np.atleast_1d(expected), np.atleast_1d(found), strict=True):
            np.testing.assert_array_equal(left, right)
        return prepared

    return compare


def onnx_model(nodes, opset, shape=SHAPE, **initializers):
    """An ONNX graph from x to y, of one shape."""
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    constants = [numpy_helper.from_array(np.asarray(array), name) for name, array in initializers.items()]
    graph = helper.make_graph(nodes, "g", value[:1], value[1:], constants)
    return from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), opset=opset)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 6.0, ["clip"]),
        (-1.5, 1.5, ["clip"]),
        (2.0, 2.0, ["clip"]),
        (0.0, None, ["relu"]),
        (-1.0, None, ["maximum"]),
        (None, 6.0, ["minimum"]),
        (6.0, 0.0, ["maximum", "minimum"]),  # ONNX: high wins; relax.clip: low wins
        (-np.inf, 6.0, ["minimum"]),
        (0.0, np.inf, ["relu"]),
        (np.nan, 6.0, ["minimum"]),  # ONNX: a NaN bound bounds nothing
    ],
)
def test_onnx_clip_with_bounds_as_inputs(same_values, low, high, expected):
    bounds = {name: np.float32(value) for name, value in (("lo", low), ("hi", high)) if value is not None}
    inputs = ["x", "lo" if low is not None else "", "hi" if high is not None else ""]
    prepared = same_values(onnx_model([helper.make_node("Clip", inputs, ["y"])], 17, **bounds))
    assert ops_of(prepared) == expected
    # The private TensorIR functions are gone with their last reader.
    assert [var.name_hint for var in prepared.get_global_vars()] == ["main"]


@pytest.mark.parametrize(("low", "high", "expected"), [(0.0, 6.0, ["clip"]), (-2.0, 2.5, ["clip"])])
def test_onnx_clip_with_bounds_as_attributes(same_values, low, high, expected):
    prepared = same_values(onnx_model([helper.make_node("Clip", ["x"], ["y"], min=low, max=high)], 7))
    assert ops_of(prepared) == expected


@pytest.mark.parametrize(("kind", "expected"), [("Sum", "add"), ("Max", "maximum"), ("Min", "minimum")])
@pytest.mark.parametrize("count", [2, 3])
def test_onnx_sum_max_and_min_of_several(same_values, rng, kind, expected, count):
    others = {f"c{i}": rng.standard_normal((1, 3, 1, 1)).astype("float32") for i in range(count - 1)}
    prepared = same_values(onnx_model([helper.make_node(kind, ["x", *others], ["y"])], 17, **others))
    assert ops_of(prepared) == [expected] * (count - 1)


def test_onnx_convolution_keeps_its_bias_as_a_constant(same_values, rng):
    weights = rng.standard_normal((3, 3, 3, 3)).astype("float32")
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1])
    prepared = same_values(onnx_model([node], 17, w=weights, b=np.arange(3, dtype="float32")))
    assert ops_of(prepared) == ["conv2d", "add"]
    add = list(walk_calls(prepared["main"]))[1][0]
    assert [int(size) for size in add.args[1].value.shape] == [1, 3, 1, 1]


def test_onnx_gemm_has_its_weight_transposed_beforehand(same_values, rng):
    constants = {"w": rng.standard_normal((4, 4)).astype("float32"), "b": np.ones(4, "float32")}
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1, beta=0.5)
    assert ops_of(same_values(onnx_model([node], 17, shape=(2, 4), **constants))) == ["matmul", "add"]


def test_onnx_dropout_is_nothing_at_inference(same_values):
    nodes = [helper.make_node("Dropout", ["x"], ["d"]), helper.make_node("Relu", ["d"], ["y"])]
    assert ops_of(same_values(onnx_model(nodes, 17))) == ["relu"]


# --- Relax ------------------------------------------------------------------------------------------------------------


def unary(make_model, *steps, shape=SHAPE, dtype="float32"):
    def body(builder, value):
        for step in steps[:-1]:
            value = builder.emit(step(value))
        return steps[-1](value)

    return make_model(body, x=(shape, dtype))


@pytest.mark.parametrize(
    ("step", "shape"),
    [
        (lambda x: op.expand_dims(x, [2]), (3, 4, 0)),
        (lambda x: op.squeeze(x, [1]), (3, 1, 2, 0)),
        (op.flatten, (3, 0)),
        (lambda x: nn.max_pool1d(x, 2), (3, 0, 5)),
    ],
)
def test_what_is_written_as_a_reshape_stays_as_it_is_where_a_size_is_0(make_model, same_values, step, shape):
    """To ``relax.reshape`` a size of 0 means: as before."""
    same_values(unary(make_model, nn.relu, step, shape=shape))


def number(value, dtype="float32"):
    return relax.const(value, dtype)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([lambda x: op.maximum(x, number(0.0))], ["relu"]),
        ([lambda x: op.maximum(number(0.0), x)], ["relu"]),
        ([lambda x: op.maximum(x, number(1.0))], ["maximum"]),
        ([nn.relu, lambda x: op.minimum(x, number(6.0))], ["clip"]),
        ([lambda x: op.minimum(x, number(6.0)), nn.relu], ["clip"]),
        ([lambda x: op.minimum(x, number(-1.0)), nn.relu], ["minimum", "relu"]),
        ([lambda x: op.maximum(x, number(1.0)), lambda x: op.maximum(x, number(2.0))], ["maximum", "maximum"]),
        ([lambda x: op.maximum(x, number(np.full((1, 1), 0.5)))], ["maximum"]),
        ([lambda x: op.astype(x, "float32"), nn.relu], ["relu"]),
        ([lambda x: op.reshape(x, SHAPE), nn.relu], ["relu"]),
        ([lambda x: op.reshape(x, (2, 48))], ["reshape"]),
        ([lambda x: op.broadcast_to(x, SHAPE), nn.relu], ["relu"]),
        ([lambda x: op.add(x, op.multiply(number(2.0), number(3.0)))], ["add"]),
        ([lambda x: op.add(op.permute_dims(number(np.arange(16.0).reshape(4, 4))), x)], ["add"]),
        ([lambda x: op.sum(op.stack([x, x], axis=1), axis=1)], ["add"]),
        ([lambda x: op.sum(op.stack([x, x], axis=1), axis=2)], ["stack", "sum"]),
        ([lambda x: op.max(op.stack([x, x]), axis=0, keepdims=True)], ["stack", "max"]),
    ],
)
def test_rewrites(make_model, same_values, steps, expected):
    assert ops_of(same_values(unary(make_model, *steps))) == expected


def test_constant_of_matching_shape_is_moved(make_model, same_values):
    weight = np.arange(12, dtype="float32").reshape(4, 3)
    prepared = same_values(unary(make_model, lambda x: op.matmul(x, op.permute_dims(number(weight))), shape=(2, 3)))
    (call,) = [call for call, _ in walk_calls(prepared["main"])]
    np.testing.assert_array_equal(call.args[1].value.numpy(), weight.T)


def test_maximum_of_a_vector_is_no_clip(make_model, same_values):
    steps = [lambda x: op.maximum(x, number(np.zeros(4))), lambda x: op.minimum(x, number(6.0))]
    assert ops_of(same_values(unary(make_model, *steps))) == ["maximum", "minimum"]
    # One number that makes the result larger than x is no bound of x either.
    assert ops_of(same_values(unary(make_model, lambda x: op.maximum(x, number(np.zeros((1, 1)))), shape=(3,)))) == [
        "maximum"
    ]


def test_integer_bounds_stay_integers(make_model, same_values):
    steps = [lambda x: op.maximum(x, number(-5, "int8")), lambda x: op.minimum(x, number(7, "int8"))]
    prepared = same_values(unary(make_model, *steps, dtype="int8"))
    (call,) = [call for call, _ in walk_calls(prepared["main"])]
    assert call.op.name == "relax.clip"
    assert [bound.value for bound in call.args[1:]] == [-5, 7]


def test_bound_with_another_reader_stays(make_model, same_values):
    def body(builder, x):
        low = builder.emit(op.maximum(x, number(1.0)))
        return op.add(builder.emit(op.minimum(low, number(2.0))), low)

    assert ops_of(same_values(make_model(body, x=(SHAPE, "float32")))) == ["maximum", "clip", "add"]


def test_nan_differs_only_as_documented(make_model, run_on_host):
    """TVM's own code loses a NaN in a maximum, minimum or clip; which bound it becomes may change with the rewrite."""
    steps = [lambda x: op.maximum(x, number(0.0)), lambda x: op.minimum(x, number(6.0))]
    model = unary(make_model, *steps, shape=(3,))
    x = np.array([np.nan, 1.0, 7.0], "float32")
    before, after = run_on_host(model, x), run_on_host(prepare(model), x)
    np.testing.assert_array_equal(before[1:], after[1:])
    assert {float(before[0]), float(after[0])} <= {0.0, 6.0}


def test_call_tir_that_is_no_extremum_stays(make_model, same_values):
    def body(builder, x):
        lowered = builder.emit_te(lambda x: topi.maximum(x, 0.0) + 1.0, x)
        return builder.emit_te(topi.minimum, builder.emit_te(topi.maximum, lowered, x), 6.0)

    prepared = same_values(make_model(body, x=(SHAPE, "float32")))
    assert ops_of(prepared) == ["call_tir", "maximum", "minimum"]


def test_dropout_whose_mask_is_read_stays(make_model, same_values):
    def body(builder, x):
        both = builder.emit(nn.dropout(x, 0.5))
        return op.add(builder.emit(relax.TupleGetItem(both, 0)), builder.emit(relax.TupleGetItem(both, 1)))

    assert ops_of(same_values(make_model(body, x=(SHAPE, "float32")))) == ["dropout", "add"]


def test_each_reader_gets_its_own_dequantize(make_model, same_values):
    def body(builder, x):
        real = builder.emit(op.dequantize(x, number(0.5), number(0, "int8"), out_dtype="float32"))
        left = builder.emit(op.matmul(real, number(np.eye(4))))
        right = builder.emit(op.matmul(real, number(np.ones((4, 4)))))
        return op.add(builder.emit(op.add(left, right)), real)

    prepared = same_values(make_model(body, x=((2, 4), "int8")))
    assert ops_of(prepared).count("dequantize") == 3
    assert ops_of(prepared).count("matmul") == 2


def test_dequantized_weights_are_not_folded(make_model, same_values):
    weight = number(np.arange(16, dtype="int8").reshape(4, 4), "int8")

    def body(builder, x):
        real = builder.emit(op.dequantize(weight, number(0.5), number(0, "int8"), out_dtype="float32"))
        return op.matmul(x, real)

    assert ops_of(same_values(make_model(body, x=((2, 4), "float32")))) == ["dequantize", "matmul"]


def test_the_given_module_stays_as_it_is(make_model):
    model = unary(make_model, lambda x: op.maximum(x, number(0.0)), lambda x: op.minimum(x, number(6.0)))
    before = model.script()
    prepare(model)
    assert model.script() == before


def test_every_call_has_its_number(make_model):
    prepared = prepare(unary(make_model, nn.relu, op.sin, op.tanh))
    spans = [(call.span.source_name.name, call.span.line) for call, _ in walk_calls(prepared["main"])]
    assert spans == [("main", 0), ("main", 1), ("main", 2)]


def test_normalising_again_changes_nothing(make_model):
    model = unary(make_model, lambda x: op.maximum(x, number(0.0)), lambda x: op.minimum(x, number(6.0)), op.sin)
    once = prepare(model)
    tvm.ir.assert_structural_equal(prepare(once), once)


# --- what TVM does not survive ----------------------------------------------------------------------------------------


def nested(depth):
    """relu(relu(...relu(x))) in one expression."""
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    value = x
    for _ in range(depth):
        value = relax.Call(tvm.ir.Op.get("relax.nn.relu"), [value])
    function = relax.Function([x], value, relax.TensorType((2,), "float32"))
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def test_nested_expressions_have_a_limit():
    assert nesting_depth(nested(1)["main"]) == 1
    assert nesting_depth(nested(MAX_DEPTH)["main"]) == MAX_DEPTH
    prepared = prepare(nested(300))
    assert ops_of(prepared) == ["relu"] * 300
    with pytest.raises(UnsupportedError, match=f"{MAX_DEPTH + 1:,} deep"):
        prepare(nested(MAX_DEPTH + 1))


def test_a_long_chain_of_bindings_is_not_nested(make_model):
    assert nesting_depth(unary(make_model, *[nn.relu] * 1200)["main"]) == 1


@pytest.mark.parametrize("function", [op.divide, op.floor_divide, op.mod, op.floor_mod])
def test_integer_division_by_a_constant_0_is_refused(make_model, function):
    def divide(divisor, dtype):
        return prepare(unary(make_model, lambda x: function(x, number(divisor, dtype)), shape=(2,), dtype=dtype))

    divide([1, 2], "int32")
    divide([1, 0], "float32")
    with pytest.raises(UnsupportedError, match="constant 0"):
        divide([1, 0], "int32")
    with pytest.raises(UnsupportedError, match="variable gv of main"):
        divide(0, "int8")


def test_what_is_no_model_is_refused(make_model):
    model = unary(make_model, nn.relu)
    with pytest.raises(PartitionError, match="from_expr"):
        prepare(model["main"])
    with pytest.raises(PartitionError, match="cannot partition int"):
        prepare(3)
    with pytest.raises(PartitionError, match="no function"):
        prepare(tvm.IRModule())
    with pytest.raises(PartitionError, match="TensorIR functions only"):
        lowered = relax.transform.LegalizeOps()(model)
        prepare(tvm.IRModule({var: f for var, f in lowered.functions.items() if isinstance(f, tvm.tirx.PrimFunc)}))
