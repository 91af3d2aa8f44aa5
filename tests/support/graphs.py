"""Graphs for tests: a small builder, random data, and hypothesis strategies over every operation of the planner."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from npu_kit.graph.ir import Entry, Graph, Node, TensorType
from npu_kit.graph.ops import OPS, normalise_attrs
from npu_kit.graph.verify import verify_graph


class GraphBuilder:
    """Builds a verified graph, one node at a time."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.inputs: list[int] = []

    def input(self, shape: Sequence[int], dtype: str = "float32") -> int:
        """Add an input and return its id."""
        self.inputs.append(len(self.nodes))
        self.nodes.append(Node("input", f"a{len(self.nodes)}", (TensorType(tuple(shape), dtype),)))
        return len(self.nodes) - 1

    def op(
        self,
        name: str,
        *inputs: int,
        out_dtype: str | None = None,
        composite: str = "",
        **attrs: Any,
    ) -> int:
        """Add a kernel node with complete attributes and return its id."""
        types = [self.nodes[i].outputs[0] for i in inputs]
        full = normalise_attrs(name, attrs, types)
        out = OPS[name].infer(types, full, out_dtype)
        self.nodes.append(Node("kernel", name, (out,), tuple(map(Entry, inputs)), full, composite))
        return len(self.nodes) - 1

    def graph(self, *heads: int) -> Graph:
        """The graph that returns ``heads`` (the last node if none is given)."""
        order = [*self.inputs, *(i for i in range(len(self.nodes)) if i not in self.inputs)]
        place = {old: new for new, old in enumerate(order)}
        nodes = []
        for old in order:
            node = self.nodes[old]
            inputs = tuple(Entry(place[entry.node], entry.output) for entry in node.inputs)
            nodes.append(Node(node.kind, node.name, node.outputs, inputs, node.attrs, node.composite, node.span))
        wanted = heads or (len(self.nodes) - 1,)
        graph = Graph("sample", tuple(nodes), tuple(range(len(self.inputs))), tuple(Entry(place[h]) for h in wanted))
        verify_graph(graph)
        return graph


def random_arrays(graph: Graph, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """One array per argument: normal floats, small integers, positive variances and scales."""
    rng = np.random.default_rng(seed)
    positive = set()
    for node in graph.nodes:
        if node.name == "batch_norm":
            positive.add(node.inputs[4])
        if node.name in ("quantize", "dequantize"):
            positive.add(node.inputs[1])
        if node.name == "divide":
            positive.add(node.inputs[1])
    arrays = []
    for node_id in graph.arg_nodes:
        kind = graph.nodes[node_id].outputs[0]
        if kind.dtype.startswith("float"):
            array = rng.standard_normal(kind.shape)
        else:
            limits = np.iinfo(kind.dtype)
            array = rng.integers(max(limits.min, -100), min(limits.max, 100), kind.shape, endpoint=True)
        if Entry(node_id) in positive:
            array = np.abs(array) + np.asarray(0.25 if kind.dtype.startswith("float") else 1)
        arrays.append(np.asarray(array).astype(kind.dtype))
    return arrays


def matmul_chain(m: int = 70, k: int = 300, n: int = 45, dtype: str = "float32") -> Graph:
    """matmul, bias and ReLU in one composite: ragged in M, N and K for 32x32 tiles."""
    b = GraphBuilder()
    x, w, bias = b.input((m, k), dtype), b.input((k, n), dtype), b.input((n,), dtype)
    product = b.op("matmul", x, w, composite="matmul_bias_relu#0")
    added = b.op("add", product, bias, composite="matmul_bias_relu#0")
    b.op("relu", added, composite="matmul_bias_relu#0")
    return b.graph()


def conv_relu_pool(channels: int = 12, filters: int = 40, size: int = 21) -> Graph:
    """conv2d, bias, ReLU in one composite and a max pool in another, in one region."""
    b = GraphBuilder()
    x, w = b.input((2, channels, size, size + 3)), b.input((filters, channels, 3, 3))
    bias = b.input((1, filters, 1, 1))
    conv = b.op("conv2d", x, w, composite="conv2d_bias_relu#0", padding=(1, 1, 1, 1))
    added = b.op("add", bias, conv, composite="conv2d_bias_relu#0")
    relu = b.op("relu", added, composite="conv2d_bias_relu#0")
    b.op("max_pool2d", relu, composite="max_pool2d#1", pool_size=(2, 2), strides=(2, 2))
    return b.graph()


def first_layer_of_resnet18() -> Graph:
    """7x7 convolution with stride 2 over 3x224x224: input and output are both larger than L2."""
    b = GraphBuilder()
    x, w = b.input((1, 3, 224, 224)), b.input((64, 3, 7, 7))
    b.op("conv2d", x, w, strides=(2, 2), padding=(3, 3, 3, 3))
    return b.graph()


def _size(maximum: int) -> st.SearchStrategy[int]:
    return st.integers(1, maximum)


def _permuted(layout: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(sizes[letter] for letter in layout)


@st.composite
def convolutions(draw: st.DrawFn) -> Graph:
    """conv1d and conv2d: layouts, groups (depthwise too), strides, dilation, asymmetric padding, dtypes."""
    spatial = draw(st.sampled_from([1, 2, 2, 2]))
    letters = "HW"[2 - spatial :]
    groups = draw(st.sampled_from([1, 1, 2, 3, 7]))
    depth, filters = draw(_size(20)), draw(_size(20))
    if groups == 7 and spatial == 2:
        depth, filters = 1, draw(st.sampled_from([1, 2]))  # depthwise, with and without a multiplier
    kernel = [draw(_size(4)) for _ in letters]
    dilation = [draw(_size(3)) for _ in letters]
    padding = [draw(st.integers(0, 3)) for _ in range(2 * spatial)]
    extent = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    least = [max(1, e - padding[i] - padding[spatial + i]) for i, e in enumerate(extent)]
    size = [low + draw(st.integers(0, 14)) for low in least]
    batch = draw(_size(3))
    layout = draw(st.sampled_from(["NC" + letters, "N" + letters + "C"]))
    kernels = ["OI" + letters, letters + "IO", "O" + letters + "I"] + ([letters + "OI"] if spatial == 2 else [])
    kernel_layout = draw(st.sampled_from(kernels))
    dtype, out = draw(st.sampled_from([("float32", None), ("float32", None), ("float16", None), ("int8", "int32")]))
    x = {"N": batch, "C": depth * groups} | dict(zip(letters, size, strict=True))
    w = {"O": filters * groups, "I": depth} | dict(zip(letters, kernel, strict=True))
    b = GraphBuilder()
    x_id, w_id = b.input(_permuted(layout, x), dtype), b.input(_permuted(kernel_layout, w), dtype)
    b.op(
        f"conv{spatial}d",
        x_id,
        w_id,
        out_dtype=out,
        strides=tuple(draw(_size(3)) for _ in letters),
        dilation=tuple(dilation),
        padding=tuple(padding),
        groups=groups,
        data_layout=layout,
        kernel_layout=kernel_layout,
    )
    return b.graph()


@st.composite
def transposed_convolutions(draw: st.DrawFn) -> Graph:
    """conv2d_transpose: groups, strides, dilation, asymmetric padding beyond the kernel, output padding, dtypes."""
    groups, depth, filters = draw(st.sampled_from([1, 1, 2, 3])), draw(_size(20)), draw(_size(20))
    kernel, strides, dilation = ([draw(_size(4 - i)) for _ in range(2)] for i in range(3))
    size = [draw(_size(9)) for _ in range(2)]
    window = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    most = [((n - 1) * s + k - 1) // 2 for n, s, k in zip(size, strides, window, strict=True)]
    padding = [draw(st.integers(0, min(4, most[i % 2]))) for i in range(4)]
    dtype, out = draw(st.sampled_from([("float32", None), ("float32", None), ("float16", None), ("int8", "int32")]))
    b = GraphBuilder()
    x = b.input((draw(_size(2)), depth * groups, *size), dtype)
    value = b.op(
        "conv2d_transpose",
        x,
        b.input((depth * groups, filters, *kernel), dtype),
        out_dtype=out,
        composite="up#0",
        strides=strides,
        padding=padding,
        output_padding=[draw(st.integers(0, s - 1)) for s in strides],
        dilation=dilation,
        groups=groups,
    )
    if draw(st.booleans()):
        b.op("relu", value, composite="up#0")
    return b.graph()


@st.composite
def matmuls(draw: st.DrawFn) -> Graph:
    """1-D to 4-D, batches that broadcast, an empty K."""
    m, n, k = draw(_size(70)), draw(_size(70)), draw(st.integers(0, 300))
    batch = draw(st.lists(_size(3), max_size=2))
    x_batch = [size if draw(st.booleans()) else 1 for size in batch]
    w_batch = [size if x_batch[i] == 1 or draw(st.booleans()) else 1 for i, size in enumerate(batch)]
    x_shape = [*x_batch, m, k] if batch or draw(st.booleans()) else [k]
    w_shape = [*w_batch, k, n] if batch or draw(st.booleans()) else [k]
    if draw(st.booleans()):
        w_shape = w_shape[-2:]
    dtype, out = draw(st.sampled_from([("float32", None), ("float16", None), ("int8", "int32"), ("int16", "int32")]))
    b = GraphBuilder()
    x, w = b.input(x_shape, dtype), b.input(w_shape, dtype)
    b.op("matmul", x, w, out_dtype=out)
    return b.graph()


@st.composite
def pools(draw: st.DrawFn) -> Graph:
    """max_pool2d and avg_pool2d: every attribute."""
    name = draw(st.sampled_from(["max_pool2d", "avg_pool2d"]))
    kernel = [draw(_size(4)) for _ in range(2)]
    dilation = [draw(_size(2)) for _ in range(2)]
    padding = tuple(draw(st.integers(0, k - 1)) for k in (*kernel, *kernel))
    size = [d * (k - 1) + 1 + draw(st.integers(0, 12)) for k, d in zip(kernel, dilation, strict=True)]
    layout = draw(st.sampled_from(["NCHW", "NHWC"]))
    dtype = draw(st.sampled_from(["float32", "float16", "int8"] if name == "max_pool2d" else ["float32", "float16"]))
    sizes = {"N": draw(_size(2)), "C": draw(_size(40)), "H": size[0], "W": size[1]}
    attrs: dict[str, Any] = {
        "pool_size": tuple(kernel),
        "strides": tuple(draw(_size(3)) for _ in range(2)),
        "padding": padding,
        "dilation": tuple(dilation),
        "layout": layout,
        "ceil_mode": draw(st.booleans()),
        "count_include_pad": draw(st.booleans()),
    }
    b = GraphBuilder()
    b.op(name, b.input(_permuted(layout, sizes), dtype), **attrs)
    return b.graph()


@st.composite
def adaptive_pools(draw: st.DrawFn) -> Graph:
    """adaptive_avg_pool2d: from one window for each element to one for all."""
    out, size = (draw(_size(4)), draw(_size(4))), (draw(_size(9)), draw(_size(9)))
    sizes = {"N": draw(_size(2)), "C": draw(_size(40)), "H": out[0] * size[0], "W": out[1] * size[1]}
    layout = draw(st.sampled_from(["NCHW", "NHWC"]))
    b = GraphBuilder()
    x = b.input(_permuted(layout, sizes), draw(st.sampled_from(["float32", "float16"])))
    b.op("adaptive_avg_pool2d", x, output_size=out, layout=layout)
    return b.graph()


@st.composite
def elementwise_chains(draw: st.DrawFn) -> Graph:
    """One to four elementwise operations in one composite, with operands that broadcast."""
    shape = tuple(draw(st.lists(st.integers(0 if draw(st.booleans()) else 1, 40), max_size=4)))
    while math.prod(shape) > 20_000:
        shape = shape[1:]
    b = GraphBuilder()
    value = b.input(shape)
    for _ in range(draw(_size(4))):
        unary = [name for name, one in OPS.items() if one.is_unary_elementwise and "float32" in one.inputs["x"]]
        unary = [name for name in unary if name not in ("clip",)]
        name = draw(st.sampled_from(["add", "subtract", "multiply", "divide", "maximum", "power", *unary]))
        if name in unary:
            value = b.op(name, value, composite="chain#0")
            continue
        other = b.input([size if draw(st.booleans()) else 1 for size in shape[draw(st.integers(0, len(shape))) :]])
        operands = (value, other) if name == "divide" or draw(st.booleans()) else (other, value)
        value = b.op(name, *operands, composite="chain#0")
    return b.graph()


@st.composite
def softmaxes(draw: st.DrawFn) -> Graph:
    """Every axis of every rank up to 4, rows longer than a tile."""
    shape = draw(st.lists(_size(12), min_size=1, max_size=4))
    axis = draw(st.integers(0, len(shape) - 1))
    shape[axis] = draw(st.one_of(_size(90), st.integers(900, 1200)))
    b = GraphBuilder()
    b.op("softmax", b.input(shape, draw(st.sampled_from(["float32", "float16"]))), axis=axis)
    return b.graph()


@st.composite
def norms(draw: st.DrawFn) -> Graph:
    """log_softmax, layer_norm and rms_norm along every axis, with an addition behind them in half the cases."""
    shape = draw(st.lists(_size(10), min_size=1, max_size=4))
    axis = draw(st.integers(0, len(shape) - 1))
    shape[axis] = draw(_size(90))
    dtype = draw(st.sampled_from(["float32", "float16"]))
    name = draw(st.sampled_from(["log_softmax", "layer_norm", "rms_norm"]))
    b = GraphBuilder()
    x = b.input(shape, dtype)
    parameters = [b.input((shape[axis],), dtype) for _ in range({"layer_norm": 2, "rms_norm": 1}.get(name, 0))]
    flags = {"scale": draw(st.booleans()), "center": draw(st.booleans())} if name == "layer_norm" else {}
    value = b.op(name, x, *parameters, axis=axis, composite="norm#0", **flags)
    if draw(st.booleans()):
        b.op("add", value, b.input(shape[-1:], dtype), composite="norm#0")
    return b.graph()


@st.composite
def reductions(draw: st.DrawFn) -> Graph:
    """Any axes of ranks up to 4, kept or not, with a multiplication behind them in half the cases."""
    shape = draw(st.lists(st.one_of(_size(9), _size(40)), max_size=4))
    while math.prod(shape) > 30_000:
        shape = shape[1:]
    axis = sorted(draw(st.sets(st.integers(0, len(shape) - 1)))) if shape else []
    name = draw(st.sampled_from(["sum", "mean", "max", "min"]))
    dtype = draw(st.sampled_from(["float32", "float16"] + ["int8", "uint16", "int32"] * (name != "mean")))
    b = GraphBuilder()
    value = b.op(name, b.input(shape, dtype), axis=axis, keepdims=draw(st.booleans()), composite="reduction#0")
    if draw(st.booleans()):
        result = b.nodes[value].outputs[0].shape
        b.op("multiply", value, b.input(result[draw(st.integers(0, len(result))) :], dtype), composite="reduction#0")
    return b.graph()


@st.composite
def movements(draw: st.DrawFn) -> Graph:
    """Transposes, slices, pads, broadcasts, concatenations and reshapes, one after the other."""
    dtype = draw(st.sampled_from(["float32", "float16", "int8", "uint16"]))
    b = GraphBuilder()
    value = b.input(draw(st.lists(st.integers(0 if draw(st.booleans()) else 1, 11), max_size=4)), dtype)
    for _ in range(draw(_size(4))):
        shape = b.nodes[value].outputs[0].shape
        name = draw(
            st.sampled_from(["permute_dims", "broadcast_to", "strided_slice", "pad", "concat", "reshape", "relu"])
        )
        if name == "permute_dims":
            value = b.op(name, value, axes=draw(st.permutations(range(len(shape)))))
        elif name == "broadcast_to":
            wider = [draw(_size(4)) if size == 1 else size for size in shape]
            value = b.op(name, value, newshape=([draw(_size(3))] if len(shape) < 4 else []) + wider)
        elif name == "strided_slice":
            begin = [draw(st.integers(0, size)) for size in shape]
            end = [draw(st.integers(low, size)) for low, size in zip(begin, shape, strict=True)]
            value = b.op(name, value, begin=begin, end=end, strides=[draw(_size(3)) for _ in shape])
        elif name == "pad":
            widths = [draw(st.integers(0, 5)) for _ in range(2 * len(shape))]
            value = b.op(name, value, pad_width=widths, pad_value=float(draw(st.integers(0, 9))))
        elif name == "concat" and shape:
            axis = draw(st.integers(0, len(shape) - 1))
            others = [
                b.input([*shape[:axis], draw(_size(20)), *shape[axis + 1 :]], dtype) for _ in range(draw(_size(3)))
            ]
            operands = draw(st.permutations([value, *others]))
            value = b.op(name, *operands, axis=axis)
        elif name == "reshape":
            flat = math.prod(shape)
            value = b.op(name, value, newshape=draw(st.sampled_from([(flat,), (1, flat), (*shape[:1], *shape[1:], 1)])))
        else:
            value = b.op("relu", value)
        if math.prod(b.nodes[value].outputs[0].shape) > 20_000:
            break
    return b.graph(*[value, *(draw(st.lists(st.integers(0, value), max_size=2)))])


@st.composite
def regions(draw: st.DrawFn) -> Graph:
    """Several composites in one region: a convolution with its epilogue, a residual, a pool, two heads or an echo."""
    channels, size = draw(_size(36)), draw(st.integers(3, 14))
    b = GraphBuilder()
    x, w = b.input((draw(_size(2)), channels, size, size + 2)), b.input((channels, channels, 3, 3))
    bias = b.input((1, channels, 1, 1))
    conv = b.op("conv2d", x, w, composite="conv#0", padding=(1, 1, 1, 1))
    added = b.op("add", conv, bias, composite="conv#0")
    if draw(st.booleans()):
        added = b.op("add", *((x, added) if draw(st.booleans()) else (added, x)), composite="conv#0")
    relu = b.op("relu", added, composite="conv#0")
    heads = [relu] if draw(st.booleans()) else []
    if draw(st.booleans()):
        parameters = [b.input((channels,)) for _ in range(4)]
        relu = b.op("batch_norm", relu, *parameters, composite="bn#1", axis=1)
    if draw(st.booleans()):
        relu = b.op("multiply", b.op("sigmoid", relu, composite="silu#2"), relu, composite="silu#2")
    pooled = b.op("avg_pool2d", relu, composite="pool#3", pool_size=(2, 2), strides=(2, 2))
    heads.append(pooled)
    if draw(st.booleans()):
        heads.append(x)  # a region may return one of its inputs
    if draw(st.booleans()):
        heads.append(pooled)  # or one tensor twice
    return b.graph(*heads)


def graphs() -> st.SearchStrategy[Graph]:
    """Any of the above."""
    return st.one_of(
        convolutions(),
        transposed_convolutions(),
        matmuls(),
        pools(),
        adaptive_pools(),
        elementwise_chains(),
        softmaxes(),
        norms(),
        reductions(),
        movements(),
        regions(),
    )
