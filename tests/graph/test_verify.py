"""Each rule of the graph just inside and just outside, and what the message says."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from npu_kit.errors import GraphError
from npu_kit.graph.attributes import MAX_INT
from npu_kit.graph.ir import Entry, Graph, Node, TensorType
from npu_kit.graph.ops import OPS, normalise_attrs
from npu_kit.graph.verify import MAX_NAME, MAX_NODES, MAX_TENSOR_BYTES, RULES, verify_graph

MATRIX = TensorType((2, 2), "float32")


def tensor(*shape: int, dtype: str = "float32") -> TensorType:
    return TensorType(shape, dtype)


def good() -> Graph:
    """relu(x @ w) and x itself."""
    return Graph(
        symbol="region0",
        nodes=(
            Node("input", "x", (MATRIX,)),
            Node("const", "w", (MATRIX,)),
            Node("kernel", "matmul", (MATRIX,), (Entry(0), Entry(1)), {}, "example_npu.matmul_relu_fused#0", "main:0"),
            Node("kernel", "relu", (MATRIX,), (Entry(2),), {}, "example_npu.matmul_relu_fused#0", "main:1"),
        ),
        arg_nodes=(0, 1),
        heads=(Entry(3), Entry(0)),
    )


def changed(index: int, **fields: Any) -> Graph:
    nodes = list(good().nodes)
    nodes[index] = dataclasses.replace(nodes[index], **fields)
    return dataclasses.replace(good(), nodes=tuple(nodes))


def one_kernel(name: str, *types: TensorType, out_dtype: str | None = None, **attrs: Any) -> Graph:
    full = normalise_attrs(name, attrs, types)
    output = OPS[name].infer(types, full, out_dtype)
    inputs = tuple(Node("input", f"x{i}", (t,)) for i, t in enumerate(types))
    kernel = Node("kernel", name, (output,), tuple(Entry(i) for i in range(len(types))), full)
    return Graph("region0", (*inputs, kernel), tuple(range(len(types))), (Entry(len(types)),))


def with_attrs(name: str, *types: TensorType, change: dict[str, Any], **attrs: Any) -> Graph:
    """A good graph of one kernel, whose attributes are changed afterwards; None removes one."""
    graph = one_kernel(name, *types, **attrs)
    kernel = graph.nodes[-1]
    found = {key: value for key, value in {**kernel.attrs, **change}.items() if value is not None}
    return dataclasses.replace(graph, nodes=(*graph.nodes[:-1], dataclasses.replace(kernel, attrs=found)))


def chain(length: int) -> Graph:
    kernels = tuple(Node("kernel", "relu", (MATRIX,), (Entry(i),)) for i in range(length - 1))
    return Graph("region0", (Node("input", "x", (MATRIX,)), *kernels), (0,), (Entry(length - 1),))


def typed(t: TensorType) -> Graph:
    return Graph("region0", (Node("input", "x", (t,)),), (0,), (Entry(0),))


IMAGE, FILTER = tensor(1, 1, 4, 4), tensor(1, 1, 3, 3)

ACCEPTED = {
    "the example": good(),
    "one node": typed(MATRIX),
    "10,000 nodes": chain(MAX_NODES),
    "a long name": changed(0, name="x" * MAX_NAME),
    "any letters": changed(0, name="größe\0\n\U0001f600"),
    "no composite, no span": changed(2, composite="", span=""),
    "rank 8": typed(tensor(*[1] * 8)),
    "rank 0": typed(tensor()),
    "no elements": typed(tensor(0, 3)),
    "a large tensor": typed(tensor(2**19 - 1, 2**21, dtype="int8")),
    "a constant as head": dataclasses.replace(good(), heads=(Entry(1),)),
    "one head twice": dataclasses.replace(good(), heads=(Entry(3), Entry(3))),
    "inputs in another order": dataclasses.replace(one_kernel("add", MATRIX, MATRIX), arg_nodes=(1, 0)),
    "an input and a const of one name": changed(1, name="x"),
    "an unused input": dataclasses.replace(good(), heads=(Entry(0),)),
    "wide padding": one_kernel("conv2d", IMAGE, FILTER, padding=2**18 - 3, strides=2**18),
    "int8 into int32": one_kernel("matmul", tensor(2, 2, dtype="int8"), tensor(2, 2, dtype="int8"), out_dtype="int32"),
}

REFUSED = [
    ("node count", dataclasses.replace(good(), nodes=()), "1 to 10,000 nodes and this has 0"),
    ("node count", chain(MAX_NODES + 1), "1 to 10,000 nodes and this has 10,001"),
    ("texts", dataclasses.replace(good(), symbol=""), "the symbol.*1 to 65,536 characters and has 0"),
    ("texts", dataclasses.replace(good(), symbol=7), "the symbol.*must be text and is int"),
    ("texts", changed(0, name=""), "the name of node 0.*has 0"),
    ("texts", changed(0, name="x" * (MAX_NAME + 1)), "the name of node 0.*1 to 65,536.*has 65,537"),
    ("texts", changed(2, composite=None), "the composite of node 2.*NoneType"),
    ("texts", changed(2, span="\ud800"), "the span of node 2.*surrogate"),
    ("kinds", changed(0, kind="null"), "node 0.*one of input, const, kernel and this is 'null'"),
    ("kinds", changed(3, outputs=(MATRIX, MATRIX)), r"node 3 \(kernel 'relu'\).*1 output and this has 2"),
    ("kinds", changed(0, outputs=()), "node 0.*1 output and this has 0"),
    ("kinds", changed(1, inputs=(Entry(0),)), "node 1.*const nodes have no inputs"),
    ("kinds", changed(0, attrs={"axis": 1}), "node 0.*input nodes have no inputs, attributes"),
    ("kinds", changed(0, composite="c"), "node 0.*composite"),
    ("tensors", typed(tensor(2, dtype="float64")), "node 0.*float16, float32.*this is 'float64'"),
    ("tensors", typed(tensor(*[1] * 9)), "node 0.*at most 8 axes and this has 9"),
    ("tensors", typed(tensor(-1)), "from 0 to 2147483647 and this is -1"),
    ("tensors", typed(tensor(True)), "and this is True"),
    ("tensors", typed(TensorType((2.0,), "float32")), "and this is 2.0"),  # type: ignore[arg-type]
    ("tensors", typed(tensor(0, MAX_INT + 1)), "and this is 2147483648"),
    ("tensors", typed(tensor(2**19, 2**21, dtype="int8")), "less than 1,099,511,627,776 bytes.*1,099,511,627,776"),
    ("tensors", typed(tensor(0, 2**20, 2**20)), "less than 1,099,511,627,776 bytes"),
    ("order", changed(3, inputs=(Entry(3),)), r"node 3.*entry \(3, 0\).*nodes 0 to 2"),
    ("order", changed(3, inputs=(Entry(-1),)), r"entry \(-1, 0\)"),
    ("order", changed(3, inputs=(Entry(2, 1),)), r"entry \(2, 1\)"),
    ("order", changed(3, inputs=(Entry(True),)), r"entry \(True, 0\)"),
    ("arguments", dataclasses.replace(good(), arg_nodes=(0,)), "const nodes are 1 and it lists none"),
    ("arguments", dataclasses.replace(good(), arg_nodes=(0, 0, 1)), "input nodes are 0 and it lists 0, 0"),
    ("arguments", dataclasses.replace(good(), arg_nodes=(0, 1, 2)), "node 2 is a kernel"),
    ("arguments", dataclasses.replace(good(), arg_nodes=(1, 0)), "inputs come before constants.*const node 1"),
    ("arguments", dataclasses.replace(good(), arg_nodes=(0, 4)), "node 4 is not one of the 4 nodes"),
    ("arguments", dataclasses.replace(good(), arg_nodes=(-1, 1)), "node -1 is not one of the 4 nodes"),
    ("heads", dataclasses.replace(good(), heads=()), "at least 1 entry and this returns 0"),
    ("heads", dataclasses.replace(good(), heads=(Entry(4),)), r"entry \(4, 0\) is not output 0 of nodes 0 to 3"),
    ("heads", dataclasses.replace(good(), heads=(Entry(3, 1),)), r"entry \(3, 1\)"),
    (
        "unique names",
        dataclasses.replace(
            one_kernel("add", MATRIX, MATRIX),
            nodes=(Node("input", "x", (MATRIX,)), Node("input", "x", (MATRIX,)), Node("kernel", "relu", (MATRIX,))),
        ),
        r"node 1 \(input 'x'\).*node 0 is called so too",
    ),
    ("operations", changed(3, name="sin"), "node 3.*no such operation; the kit has matmul"),
    ("operations", changed(3, attrs={"axis": 1}), "attribute 'axis' is not one of the operation.*exactly these: none"),
    ("operations", changed(3, attrs={1: 1}), "attribute '1' is not one"),
    ("operations", with_attrs("softmax", MATRIX, change={"axis": None}), "attribute 'axis' is missing"),
    ("operations", with_attrs("softmax", MATRIX, change={"axis": -1}), "attribute axis needs at least 0.*got -1"),
    (
        "operations",
        with_attrs("softmax", MATRIX, change={"axis": True}),
        "attribute axis needs an integer and got True",
    ),
    ("operations", with_attrs("max_pool2d", IMAGE, change={"padding": (1, 1)}), "padding needs a tuple of 4"),
    ("operations", with_attrs("max_pool2d", IMAGE, change={"padding": [0, 0, 0, 0]}), "padding needs a tuple of 4"),
    ("operations", with_attrs("max_pool2d", IMAGE, change={"ceil_mode": 0}), "ceil_mode needs True or False and got 0"),
    ("operations", with_attrs("max_pool2d", IMAGE, change={"layout": "NCHW4c"}), "layout needs one of NCHW, NHWC"),
    ("operations", with_attrs("clip", MATRIX, min=0, max=6, change={"max": math.inf}), "max needs a finite number"),
    ("operations", with_attrs("clip", MATRIX, min=0, max=6, change={"max": 6}), "max needs a float and got 6"),
    ("types", changed(3, outputs=(tensor(2, 3),)), "declares 2x3 float32, and 2x2 float32 give 2x2 float32"),
    ("types", changed(3, outputs=(tensor(2, 2, dtype="float16"),)), "one dtype and have float16, float32"),
    ("types", changed(3, inputs=(Entry(2), Entry(2))), "takes 1 inputs"),
    ("types", changed(2, inputs=(Entry(0),)), r"takes 2 inputs \(a, b\) and got 1"),
    ("types", changed(1, outputs=(tensor(3, 2),)), r"node 2.*inner sizes must be equal and are 2 and 3"),
    ("types", changed(1, outputs=(tensor(2, 2, dtype="int8"),)), "float32 and int8"),
    ("types", with_attrs("softmax", MATRIX, change={"axis": 2}), "axis 2 is not one of the 2 axes"),
    (
        "padded sizes",
        one_kernel("conv2d", IMAGE, FILTER, padding=2**18, strides=2**18),
        "with padding.*the data is too large: .*1x1x524292x524292",
    ),
    (
        "padded sizes",
        one_kernel("max_pool2d", IMAGE, padding=(MAX_INT, 0, 0, 0), strides=(MAX_INT, 1)),
        "from 0 to 2147483647 and this is 2147483651",
    ),
]


@pytest.mark.parametrize("graph", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepted(graph: Graph) -> None:
    verify_graph(graph)


@pytest.mark.parametrize(("rule", "graph", "message"), REFUSED)
def test_refused(rule: str, graph: Graph, message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        verify_graph(graph)
    assert f"rule {rule!r}" in str(caught.value)
    assert "graph '" in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_every_rule_has_a_case() -> None:
    assert {rule for rule, _, _ in REFUSED} == set(RULES)


def test_the_limit_of_a_tensor_is_the_one_tested() -> None:
    assert tensor(2**19, 2**21, dtype="int8").nbytes == MAX_TENSOR_BYTES
    padded = 4 + 2 * (2**18 - 3)
    assert padded**2 * 4 < MAX_TENSOR_BYTES <= (padded + 6) ** 2 * 4


def test_a_long_symbol_is_shortened_in_messages() -> None:
    graph = dataclasses.replace(changed(3, name="sin"), symbol="fused_" * 500)
    with pytest.raises(GraphError) as caught:
        verify_graph(graph)
    assert "fused_fused_" in str(caught.value) and len(str(caught.value)) < 600
