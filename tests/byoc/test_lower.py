"""Lowering: every form in which a region can arrive gives the same graph, read from its body."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm.relax.backend.contrib.example_npu
from tvm import relax
from tvm.ir import SourceName, Span
from tvm.relax.backend.pattern_registry import get_patterns_with_prefix
from tvm.relax.dpl import is_op, wildcard
from tvm.relax.transform import FuseOpsByPattern, LegalizeOps, MergeCompositeFunctions
from tvm.script import ir as I
from tvm.script import relax as R

from npu_kit.byoc.codegen.lower import lower
from npu_kit.errors import UnsupportedError
from npu_kit.graph.ir import Entry
from npu_kit.graph.serialize import from_json, to_json
from npu_kit.runtime.reference import run_graph


@I.ir_module
class MatmulReluSoftmax:
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.nn.relu(y)
            s = R.nn.softmax(z)
            R.output(s)
        return s


@I.ir_module
class BatchNorm:
    @R.function
    def main(
        x: R.Tensor((2, 3, 4, 4), "float32"),
        gamma: R.Tensor((3,), "float32"),
        beta: R.Tensor((3,), "float32"),
        mean: R.Tensor((3,), "float32"),
        var: R.Tensor((3,), "float32"),
    ):
        with R.dataflow():
            out = R.nn.batch_norm(x, gamma, beta, mean, var, axis=1, epsilon=0.25, training=False)
            R.output(out)
        return out


@I.ir_module
class ReluAndGeluReadConv:
    @R.function
    def main(x: R.Tensor((1, 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
        with R.dataflow():
            y = R.nn.conv2d(x, w)
            a = R.nn.relu(y)
            b = R.nn.gelu(y)
            R.output(a, b)
        return a, b


@I.ir_module
class Subtract:
    @R.function
    def main(
        a: R.Tensor((2, 4), "float32"), b: R.Tensor((4, 4), "float32"), c: R.Tensor((2, 4), "float32")
    ) -> R.Tensor((2, 4), "float32"):
        with R.dataflow():
            y = R.matmul(a, b)
            z = R.subtract(c, y)
            R.output(z)
        return z


def upstream_patterns():
    return get_patterns_with_prefix("example_npu")


def region_functions(mod, patterns=None, *, annotate=False, merge=True, bind_constants=False):
    """(symbol, function) of each region, sorted by symbol."""
    chosen = upstream_patterns() if patterns is None else patterns
    mod = FuseOpsByPattern(chosen, bind_constants=bind_constants, annotate_codegen=annotate)(mod)
    if merge:
        mod = MergeCompositeFunctions()(mod)
    found = [
        (var.name_hint, function)
        for var, function in mod.functions.items()
        if isinstance(function, relax.Function) and function.attrs and "Codegen" in function.attrs
    ]
    return sorted(found, key=lambda item: item[0])


def lower_only_region(mod, patterns=None, **how):
    ((symbol, function),) = region_functions(mod, patterns, **how)
    return lower(function, symbol)


def unary_module(op, shape=(2, 4), dtype="float32"):
    """main(x) = op(x)"""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(op(x))
        builder.emit_func_output(y)
    return builder.get()


def test_merged_region_has_all_composites_in_order():
    graph, constants = lower_only_region(MatmulReluSoftmax)
    assert constants == {}
    assert [(node.kind, node.name) for node in graph.nodes] == [
        ("input", "x"),
        ("input", "w"),
        ("kernel", "matmul"),
        ("kernel", "relu"),
        ("kernel", "softmax"),
    ]
    assert [node.composite for node in graph.nodes[2:]] == [
        "example_npu.matmul_relu_fused#0",
        "example_npu.matmul_relu_fused#0",
        "example_npu.softmax#1",
    ]
    assert [node.inputs for node in graph.nodes[2:]] == [(Entry(0), Entry(1)), (Entry(2),), (Entry(3),)]
    assert graph.heads == (Entry(4),)
    assert graph.nodes[4].attrs == {"axis": 1}


@pytest.mark.parametrize("merge", [False, True], ids=["annotated", "annotated-then-merged"])
def test_annotated_composites_are_one_region_each(merge):
    regions = region_functions(MatmulReluSoftmax, annotate=True, merge=merge)
    assert [symbol.count("example_npu") for symbol, _ in regions] == [2 if merge else 1] * 2
    graphs = [lower(function, symbol)[0] for symbol, function in regions]
    assert [[graph.nodes[i].name for i in graph.kernels] for graph in graphs] == [["matmul", "relu"], ["softmax"]]
    assert {graph.nodes[i].composite for graph in graphs for i in graph.kernels} == {
        "example_npu.matmul_relu_fused#0",
        "example_npu.softmax#0",
    }


def test_all_attributes_of_a_convolution_arrive_in_full_form():
    def conv(x):
        weight = relax.const(np.zeros((3, 3, 2, 8), "float32"))
        return relax.op.nn.conv2d(
            x, weight, strides=2, padding=(1, 0), dilation=(1, 2), groups=2, data_layout="NHWC", kernel_layout="HWIO"
        )

    graph, constants = lower_only_region(unary_module(conv, (1, 9, 9, 4)), bind_constants=True)
    (kernel,) = (graph.nodes[i] for i in graph.kernels)
    assert kernel.attrs == {
        "strides": (2, 2),
        "padding": (1, 0, 1, 0),
        "dilation": (1, 2),
        "groups": 2,
        "data_layout": "NHWC",
        "kernel_layout": "HWIO",
    }
    assert str(kernel.outputs[0]) == "1x5x3x8 float32"
    (name,) = constants
    assert graph.nodes[graph.constants[0]].name == name
    assert from_json(to_json(graph)) == graph


def test_batch_norm_returns_its_statistics_as_they_came_in():
    graph, _ = lower_only_region(BatchNorm)
    assert [graph.nodes[i].name for i in graph.kernels] == ["batch_norm"]
    assert graph.heads == (Entry(5), Entry(3), Entry(4))
    assert graph.nodes[5].attrs["epsilon"] == 0.25


def test_a_tuple_composite_keeps_apart_what_it_returns(rng):
    """The convolution has two readers, so conv2d_relu_fused returns (relu, conv), in an order of TVM's choice."""
    x, w = (rng.standard_normal(s).astype("float32") for s in ((1, 3, 8, 8), (4, 3, 3, 3)))
    regions = region_functions(ReluAndGeluReadConv, annotate=True, merge=False)
    graph = next(graph for graph, _ in (lower(f, s) for s, f in regions) if len(graph.heads) == 2)
    assert [graph.nodes[head.node].name for head in graph.heads] == ["relu", "conv2d"]
    relu, conv = run_graph(graph, [x, w])
    assert (conv < 0).any()
    np.testing.assert_array_equal(relu, np.maximum(conv, 0))


def test_operand_order_is_that_of_the_body(rng):
    product = is_op("relax.matmul")(wildcard(), wildcard())
    pattern = ("example_npu.matmul_sub", is_op("relax.subtract")(wildcard(), product))
    graph, _ = lower_only_region(Subtract, [pattern])
    shapes = {"a": (2, 4), "b": (4, 4), "c": (2, 4)}
    arrays = {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    (result,) = run_graph(graph, [arrays[graph.nodes[i].name] for i in graph.arg_nodes])
    np.testing.assert_allclose(result, arrays["c"] - arrays["a"] @ arrays["b"], atol=1e-5)


def test_the_name_of_a_composite_decides_nothing():
    wrong = [("example_npu.conv2d_relu_fused", is_op("relax.nn.gelu")(wildcard()))]
    graph, _ = lower_only_region(unary_module(relax.op.nn.gelu), wrong)
    assert [graph.nodes[i].name for i in graph.kernels] == ["gelu"]
    assert graph.nodes[graph.kernels[0]].composite == "example_npu.conv2d_relu_fused#0"


def add_constants(values):
    """main(x) = x + values[0] + values[1] + ..."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = x
            for value in values:
                y = builder.emit(relax.op.add(y, relax.const(np.full((4,), value, "float32"))))
            y = builder.emit_output(y)
        builder.emit_func_output(y)
    return builder.get()


def test_constants_are_named_after_their_content():
    graph, constants = lower_only_region(add_constants([1.0, 2.0, 1.0]), bind_constants=True)
    assert len(graph.constants) == len(constants) == 2
    first, second, third = (graph.nodes[i].inputs[1].node for i in graph.kernels)
    assert first == third != second
    assert constants[graph.nodes[first].name].tolist() == [1.0] * 4
    other, _ = lower_only_region(add_constants([1.0, 3.0, 1.0]), bind_constants=True)
    assert graph.nodes[first].name == other.nodes[first].name
    assert graph.nodes[second].name != other.nodes[second].name
    assert [node.kind for node in graph.nodes] == ["input", "const", "const", "kernel", "kernel", "kernel"]


def test_given_names_replace_content_names():
    ((symbol, function),) = region_functions(add_constants([1.0, 2.0]), bind_constants=True)
    found = []
    relax.analysis.post_order_visit(function, lambda e: found.append(e) if isinstance(e, tvm.ir.GenericConst) else None)
    graph, constants = lower(function, symbol, {constant: f"c{i}" for i, constant in enumerate(found)})
    assert [graph.nodes[i].name for i in graph.constants] == ["c0", "c1"] == list(constants)


def test_constants_are_read_only():
    _, constants = lower_only_region(add_constants([1.0]), bind_constants=True)
    (value,) = constants.values()
    with pytest.raises(ValueError, match="read-only"):
        value[0] = 5


def test_a_span_names_source_and_line():
    def relu(x):
        call = relax.op.nn.relu(x)
        return relax.Call(call.op, call.args, call.attrs, call.ty_args, Span(SourceName("/a/b/main"), 7, 7, 0, 0))

    graph, _ = lower_only_region(unary_module(relu))
    assert graph.nodes[1].span == "main:7"


def test_dropout_is_its_input():
    item = relax.dpl.is_tuple_get_item(is_op("relax.nn.dropout")(wildcard()), 0)
    pattern = ("example_npu.dropout_relu", is_op("relax.nn.relu")(item))

    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            kept = builder.emit(relax.TupleGetItem(builder.emit(relax.op.nn.dropout(x)), 0))
            y = builder.emit_output(relax.op.nn.relu(kept))
        builder.emit_func_output(y)
    graph, _ = lower_only_region(builder.get(), [pattern])
    assert [(node.kind, node.name) for node in graph.nodes] == [("input", "x"), ("kernel", "relu")]
    assert graph.nodes[1].inputs == (Entry(0),)


def test_clip_takes_its_bounds_from_the_arguments():
    pattern = ("example_npu.relu6", is_op("relax.clip")(wildcard(), wildcard(), wildcard()))
    graph, _ = lower_only_region(unary_module(lambda x: relax.op.clip(x, 0, 6)), [pattern])
    (kernel,) = (graph.nodes[i] for i in graph.kernels)
    assert kernel.attrs == {"min": 0.0, "max": 6.0} and kernel.inputs == (Entry(0),)


def test_quantize_and_dequantize_keep_axis_and_dtype():
    def op(x):
        scale, zero = relax.const(np.array([0.5, 0.25, 1.0, 2.0], "float32")), relax.const(np.zeros(4, "int8"))
        return relax.op.quantize(x, scale, zero, axis=-1, out_dtype="int8")

    pattern = ("example_npu.quantize", is_op("relax.quantize")(wildcard(), wildcard(), wildcard()))
    graph, constants = lower_only_region(unary_module(op), [pattern], bind_constants=True)
    (kernel,) = (graph.nodes[i] for i in graph.kernels)
    assert kernel.attrs == {"axis": 1} and kernel.outputs[0].dtype == "int8"
    assert sorted(value.dtype.name for value in constants.values()) == ["float32", "int8"]


def test_a_tuple_parameter_becomes_one_input_per_field():
    @R.function
    def region(t: R.Tuple(R.Tensor((2,), "float32"), R.Tensor((2,), "float32"))) -> R.Tensor((2,), "float32"):
        R.func_attr({"Codegen": "example_npu"})
        a = t[0]
        b = t[1]
        c: R.Tensor((2,), "float32") = R.subtract(b, a)
        return c

    graph, _ = lower(region, "region")
    assert [graph.nodes[i].name for i in graph.inputs] == ["t_0", "t_1"]
    assert graph.nodes[2].inputs == (Entry(1), Entry(0))
    assert graph.nodes[2].composite == ""


def test_an_unknown_operation_is_named_with_its_composite():
    pattern = ("example_npu.sin", is_op("relax.sin")(wildcard()))
    with pytest.raises(UnsupportedError, match=r"relax\.sin in composite example_npu\.sin#0: the NPU .*matmul"):
        lower_only_region(unary_module(relax.op.sin), [pattern])


def test_a_call_to_a_loop_says_when_to_legalize():
    mod = FuseOpsByPattern(upstream_patterns(), bind_constants=False, annotate_codegen=False)(MatmulReluSoftmax)
    mod = MergeCompositeFunctions()(LegalizeOps()(mod))
    function = next(f for f in mod.functions.values() if isinstance(f, relax.Function) and "Codegen" in (f.attrs or {}))
    with pytest.raises(UnsupportedError, match=r"call_tir matmul in composite .*LegalizeOps after RunCodegen"):
        lower(function, "region")


def test_training_batch_norm_is_refused():
    def op(x):
        ones = relax.const(np.ones(3, "float32"))
        return relax.op.nn.batch_norm(x, ones, ones, ones, ones, axis=1, training=True)

    with pytest.raises(UnsupportedError, match=r"in composite example_npu\.batch_norm#0: training is True"):
        lower_only_region(unary_module(op, (1, 3, 2, 2)), bind_constants=True)


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((2, 4), "bfloat16", "parameter x: it is 2x4 bfloat16"),
        ((2, 4), "float64", "parameter x: it is 2x4 float64"),
        ((2, 4), "int64", "parameter x: it is 2x4 int64"),
        ((tvm.tirx.Var("n", "int64"), 4), "float32", "the shape of nx4 float32 is not known"),
    ],
)
def test_types_the_npu_does_not_have_are_refused(shape, dtype, message):
    with pytest.raises(UnsupportedError, match=message):
        lower_only_region(unary_module(relax.op.nn.relu, shape, dtype))


def test_a_function_outside_of_the_region_is_refused():
    callee = relax.GlobalVar("helper")
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    body = relax.SeqExpr([], relax.Call(callee, [x]))
    function = relax.Function([x], body, relax.TensorType((2,), "float32"))
    with pytest.raises(UnsupportedError, match=r"call of helper in region outer.*InlinePrivateFunctions"):
        lower(function, "outer")


@pytest.mark.parametrize("annotate", [False, True])
def test_graphs_compute_what_tvm_computes(rng, annotate):
    x, w = (rng.standard_normal(s).astype("float32") for s in ((2, 4), (4, 8)))
    value = {"x": x, "w": w}
    for symbol, function in region_functions(MatmulReluSoftmax, annotate=annotate):
        graph, _ = lower(function, symbol)
        names = [graph.nodes[i].name for i in graph.arg_nodes]
        arguments = [value.get(name, value.get("last")) for name in names]
        (value["last"],) = run_graph(graph, arguments)
    executable = relax.build(MatmulReluSoftmax, tvm.target.Target("llvm"))
    machine = relax.VirtualMachine(executable.mod, tvm.cpu())
    expected = machine["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(w)).numpy()
    np.testing.assert_allclose(value["last"], expected, atol=1e-6)
