"""Graphs survive the way through text; text that is no graph gives GraphError and nothing else."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npu_kit.errors import GraphError
from npu_kit.graph import serialize, strict_json
from npu_kit.graph.attributes import AttrDef
from npu_kit.graph.ir import Entry, Graph, Node, TensorType
from npu_kit.graph.ops import OPS, OpDef, normalise_attrs
from npu_kit.graph.serialize import from_json, to_json
from npu_kit.graph.shapes import in_layout, spatial_letters

# --- random graphs that keep every rule ------------------------------------------------------------------------------


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
maybe_names = st.just("") | names


def draw_attribute(draw: Any, definition: AttrDef) -> Any:
    low = definition.minimum or 0
    if definition.kind in ("ints", "padding"):
        return draw(st.tuples(*[st.integers(low, low + 2)] * definition.length))
    if definition.kind in ("int", "axis"):
        return draw(st.integers(low, low + 2))
    if definition.kind in ("axes", "order", "sizes"):
        axes = draw(st.permutations(range(3)))
        return tuple(sorted(axes[: draw(st.integers(0, 3))])) if definition.kind == "axes" else tuple(axes)
    if definition.kind == "float":
        return float(draw(st.integers(0, 6)))
    return draw(st.booleans()) if definition.kind == "bool" else draw(st.sampled_from(definition.choices))


def draw_operands(draw: Any, op: OpDef, attrs: dict[str, Any]) -> list[TensorType]:
    """Types that fit ``op`` with the attributes drawn: axes are among the 3 first, windows span at most 7."""
    dtype = draw(st.sampled_from(next(iter(op.inputs.values()))))
    shape = tuple(draw(st.lists(st.integers(0, 3), min_size=3, max_size=3)))
    if op.name == "matmul":
        return [TensorType(shape, dtype), TensorType((shape[-1], draw(st.integers(0, 3))), dtype)]
    if op.name in ("conv1d", "conv2d"):
        letters = spatial_letters(attrs["data_layout"])
        sizes, taps = [7] * len(letters), [draw(st.integers(1, 2)) for _ in letters]
        data = in_layout((1, 2 * attrs["groups"], *sizes), "NC" + letters, attrs["data_layout"])
        weights = in_layout((attrs["groups"], 2, *taps), "OI" + letters, attrs["kernel_layout"])
        return [TensorType(data, dtype), TensorType(weights, dtype)]
    if op.name == "conv2d_transpose":
        weights = TensorType((2 * attrs["groups"], 2, 3, 3), dtype)
        attrs["output_padding"] = (0, 0)
        return [TensorType((1, 2 * attrs["groups"], 7, 7), dtype), weights]
    if op.name == "adaptive_avg_pool2d":
        attrs["output_size"] = draw(st.sampled_from([(), (1,), (2, 4)]))
        return [TensorType(in_layout((1, 2, 4, 4), "NCHW", attrs["layout"]), dtype)]
    if op.family in ("movement", "reshape", "reduction"):
        shape = tuple(size + 1 for size in shape)
        fitting: dict[str, Any] = {
            "newshape": (2, *shape) if op.name == "broadcast_to" else (math.prod(shape),),
            "begin": (0, 0, 0),
            "end": shape,
            "strides": (1, 1, 1),
            "pad_width": (0, 1, 2, 0, 0, 3),
        }
        attrs |= {key: value for key, value in fitting.items() if key in attrs}
        return [TensorType(shape, dtype)] * (draw(st.integers(1, 3)) if op.is_variadic else 1)
    if op.family == "rows" or op.name == "prelu":
        return [TensorType(shape, dtype), *[TensorType((shape[attrs["axis"]],), dtype)] * (op.arity - 1)]
    if op.family == "window":
        return [TensorType(in_layout((1, 2, 7, 7), "NCHW", attrs["layout"]), dtype)]
    if op.name == "batch_norm":
        return [TensorType(shape, dtype), *[TensorType((shape[attrs["axis"]],), dtype)] * 4]
    if op.name in ("quantize", "dequantize"):
        scales = draw(st.sampled_from([(), (1,), (shape[attrs["axis"]],)]))
        return [TensorType(shape, dtype), TensorType(scales, "float32"), TensorType((), "int8")]
    return [TensorType(shape, dtype), TensorType(shape[draw(st.integers(0, 3)) :], dtype)][: op.arity]


@st.composite
def graphs(draw: Any) -> Graph:
    """One to six operations; an operand is any earlier value of its type, or a new input or constant."""
    leaves: list[Node] = [Node("input", "x", (TensorType((2,), "float32"),))]
    kernels: list[Node] = []  # their entries count from the last leaf while the number of leaves is unknown
    for _ in range(draw(st.integers(1, 6))):
        op = OPS[draw(st.sampled_from(sorted(OPS)))]
        attrs = {key: draw_attribute(draw, definition) for key, definition in op.attributes.items()}
        if op.name == "avg_pool2d":
            attrs["padding"] = tuple(map(min, attrs["padding"], [size - 1 for size in attrs["pool_size"] * 2]))
        entries = []
        types = draw_operands(draw, op, attrs)
        for wanted in types:
            found = [i for i, node in enumerate(kernels) if node.outputs == (wanted,)]
            found += [i - len(leaves) for i, node in enumerate(leaves) if node.outputs == (wanted,)]
            if not found or draw(st.booleans()):
                kind = draw(st.sampled_from(["input", "const"]))
                leaves.append(Node(kind, f"{draw(names)}{len(leaves)}", (wanted,), span=draw(maybe_names)))
                kernels = [dataclasses.replace(k, inputs=tuple(shifted(e) for e in k.inputs)) for k in kernels]
                entries = [shifted(entry) for entry in entries]
                found = [-1]
            entries.append(Entry(draw(st.sampled_from(found))))
        out_dtype = {"quantize": "int16", "dequantize": "float16"}.get(op.name)
        output = op.infer(types, attrs, out_dtype)
        kernels.append(Node("kernel", op.name, (output,), tuple(entries), attrs, draw(maybe_names), draw(maybe_names)))
    count = len(leaves)
    nodes = [
        *leaves,
        *(dataclasses.replace(k, inputs=tuple(Entry(e.node + count) for e in k.inputs)) for k in kernels),
    ]
    heads = draw(st.lists(st.integers(0, len(nodes) - 1).map(Entry), min_size=1, max_size=3))
    by_kind = [[i for i, node in enumerate(leaves) if node.kind == kind] for kind in ("input", "const")]
    arguments = [*draw(st.permutations(by_kind[0])), *by_kind[1]]
    return Graph(draw(names), tuple(nodes), tuple(arguments), tuple(heads))


def shifted(entry: Entry) -> Entry:
    """The entry after one more leaf: leaves count backwards from -1."""
    return Entry(entry.node - 1) if entry.node < 0 else entry


def example() -> Graph:
    """One graph with every kind of attribute."""
    image, weights, pooled = (TensorType(shape, "float32") for shape in ((1, 3, 6, 6), (4, 3, 3, 3), (1, 4, 3, 3)))
    conv = normalise_attrs("conv2d", {"padding": 1}, [image, weights])
    out = TensorType((1, 4, 6, 6), "float32")
    pool = normalise_attrs("max_pool2d", {"pool_size": 2, "strides": 2}, [out])
    label = "example_npu.conv2d_relu_fused#0"
    return Graph(
        symbol="fused_conv2d_relu_example_npu0",
        nodes=(
            Node("input", "x", (image,)),
            Node("const", "w", (weights,)),
            Node("kernel", "conv2d", (out,), (Entry(0), Entry(1)), conv, label, "main:0"),
            Node("kernel", "clip", (out,), (Entry(2),), {"min": 0.0, "max": 6.0}, label, "main:1"),
            Node("kernel", "max_pool2d", (pooled,), (Entry(3),), pool, "example_npu.max_pool2d#1", "main:2"),
            Node("kernel", "softmax", (pooled,), (Entry(4),), {"axis": 1}),
        ),
        arg_nodes=(0, 1),
        heads=(Entry(5), Entry(2)),
    )


# --- there and back --------------------------------------------------------------------------------------------------


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_round_trip(graph: Graph) -> None:
    text = to_json(graph)
    again = from_json(text)
    assert again == graph
    assert text.isascii() and "\0" not in text
    assert to_json(again) == text
    for node, read in zip(graph.nodes, again.nodes, strict=True):
        for key, value in node.attrs.items():  # 1 == True == 1.0, so compare types as well
            assert type(read.attrs[key]) is type(value)


def test_text_does_not_depend_on_the_order_of_attributes() -> None:
    graph = example()
    shuffled = tuple(dataclasses.replace(n, attrs=dict(reversed(n.attrs.items()))) for n in graph.nodes)
    assert to_json(dataclasses.replace(graph, nodes=shuffled)) == to_json(graph)


def test_schema_is_tvms() -> None:
    """The keys that TVM's JSON runtime reads; it throws at any other at the top or in a node."""
    root = json.loads(to_json(example()))
    assert set(root) == {"nodes", "arg_nodes", "heads", "node_row_ptr", "symbol"}
    assert root["arg_nodes"] == [0, 1]
    assert root["heads"] == [[5, 0, 0], [2, 0, 0]]
    assert root["node_row_ptr"] == [0, 1, 2, 3, 4, 5, 6]
    for node in root["nodes"]:
        assert set(node) <= {"op", "name", "inputs", "attrs"}
    weights, conv = root["nodes"][1], root["nodes"][2]
    assert weights == {"op": "const", "name": "w", "attrs": {"shape": [[4, 3, 3, 3]], "dtype": ["float32"]}}
    assert (conv["op"], conv["name"], conv["inputs"]) == ("kernel", "conv2d", [[0, 0, 0], [1, 0, 0]])
    attrs = conv["attrs"]
    assert (attrs["num_inputs"], attrs["num_outputs"]) == (2, 1)
    assert (attrs["padding"], attrs["strides"], attrs["groups"]) == ([1, 1, 1, 1], [1, 1], 1)
    assert attrs["kernel_layout"] == "OIHW"
    assert attrs["composite"] == "example_npu.conv2d_relu_fused#0" and attrs["span"] == "main:0"
    assert root["nodes"][0]["attrs"]["format_version"] == 1


def test_tvms_own_json_parser_reads_the_same() -> None:
    ffi = pytest.importorskip("tvm_ffi")
    text = to_json(example())
    parsed = ffi.get_global_func("ffi.json.Parse")(text)

    def plain(value: Any) -> Any:
        if isinstance(value, ffi.Array):
            return [plain(item) for item in value]
        return {str(k): plain(v) for k, v in value.items()} if hasattr(value, "items") else value

    assert plain(parsed) == json.loads(text)


def test_attributes_do_not_collide_with_the_keys_of_the_schema() -> None:
    for op in OPS.values():
        assert not set(op.attributes) & set(serialize._RESERVED)


def test_writing_checks_the_rules() -> None:
    graph = example()
    with pytest.raises(GraphError, match="rule 'heads'"):
        to_json(dataclasses.replace(graph, heads=(Entry(6),)))
    clip = dataclasses.replace(graph.nodes[3], attrs={"min": 0.0, "max": float("nan")})
    with pytest.raises(GraphError, match="max needs a finite number"):
        to_json(dataclasses.replace(graph, nodes=(*graph.nodes[:3], clip, *graph.nodes[4:])))


# --- text that is no graph -------------------------------------------------------------------------------------------


def edited(*path: Any, value: Any = None, remove: bool = False) -> str:
    root = json.loads(to_json(example()))
    place = root
    for key in path[:-1]:
        place = place[key]
    if remove:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return json.dumps(root)


WRONG = [
    ("", "Expecting value at line 1 column 1"),
    ("{", "at line 1"),
    ("[]", "the top level: needs an object and got list"),
    ("null", "needs an object and got NoneType"),
    ("NaN", "NaN is not JSON"),
    ('{"nodes": Infinity}', "Infinity is not JSON"),
    ("[" * 200_000, "nested too deep"),
    ('{"a":' * 200_000, "nested too deep"),
    ('{"nodes": 1e999}', "1e999 is larger than any float"),
    ('{"nodes": ' + "9" * 41 + "}", "has 41 characters and the limit is 40"),
    ('{"nodes": ' + "9" * 100_000 + "}", "has 100000 characters"),
    ('{"nodes": [], "nodes": []}', "the key 'nodes' stands there twice"),
    (edited("extra", value=1), "the key 'extra' does not belong there"),
    (edited("symbol", remove=True), "the key 'symbol' is missing"),
    (edited("symbol", value=1), "symbol: needs text and got 1"),
    (edited("symbol", value="\ud800"), "surrogate"),
    (edited("nodes", value={}), "nodes: needs an array and got dict"),
    (edited("nodes", value=[]), "rule 'node count'"),
    (edited("nodes", 2, value=[]), r"nodes\[2\]: needs an object"),
    (edited("nodes", 2, "extra", value=1), r"nodes\[2\]: the key 'extra' does not belong there"),
    (edited("nodes", 2, "inputs", remove=True), r"nodes\[2\]: the key 'inputs' is missing"),
    (edited("nodes", 0, "inputs", value=[]), r"nodes\[0\]: the key 'inputs' does not belong there"),
    (edited("nodes", 2, "op", value="null"), r"nodes\[2\]: the key 'inputs' does not belong"),
    (edited("nodes", 2, "op", value=[1]), r"nodes\[2\]: the key 'inputs' does not belong"),
    (edited("nodes", 0, "op", value="null"), "rule 'kinds'.*'null'"),
    (edited("nodes", 0, "op", value=None), r"nodes\[0\].op: needs text and got None"),
    (edited("nodes", 0, "name", value=3), r"nodes\[0\].name: needs text and got 3"),
    (edited("nodes", 2, "inputs", value=[[0, 0]]), r"inputs\[0\]: needs \[node, output, 0\] and got \[0, 0\]"),
    (edited("nodes", 2, "inputs", 0, value=[0, 0, 1]), r"needs \[node, output, 0\]"),
    (edited("nodes", 2, "inputs", 0, 0, value=True), r"inputs\[0\]\[0\]: needs an integer and got True"),
    (edited("nodes", 2, "inputs", 0, 0, value=0.0), "needs an integer and got 0.0"),
    (edited("nodes", 2, "inputs", 0, 0, value=2), "rule 'order'"),
    (edited("nodes", 2, "inputs", value=[[0, 0, 0]] * 3), "num_inputs: it is 2 and there are 3"),
    (edited("nodes", 2, "attrs", "num_outputs", value=2), "num_outputs: it is 2 and there are 1"),
    (edited("nodes", 2, "attrs", "num_inputs", value=True), "num_inputs: needs an integer and got True"),
    (edited("nodes", 2, "attrs", "shape", value=[[1], [1]]), "2 shapes and 1 dtypes"),
    (edited("nodes", 2, "attrs", "shape", value=[1]), r"shape\[0\]: needs an array and got int"),
    (edited("nodes", 2, "attrs", "shape", 0, 1, value=True), r"shape\[0\]\[1\]: needs an integer and got True"),
    (edited("nodes", 2, "attrs", "shape", 0, 1, value=10**39), "rule 'tensors'"),
    (edited("nodes", 2, "attrs", "dtype", value=[None]), r"dtype\[0\]: needs text and got None"),
    (edited("nodes", 2, "attrs", "dtype", value=["float64"]), "rule 'tensors'.*'float64'"),
    (edited("nodes", 2, "attrs", "padding", value=[1, 1]), "rule 'operations'.*padding needs a tuple of 4"),
    (edited("nodes", 2, "attrs", "padding", value=[[1], 1, 1, 1]), r"padding\[0\]: needs a number.*and got list"),
    (edited("nodes", 2, "attrs", "padding", value={}), "padding: needs a number.*and got dict"),
    (edited("nodes", 2, "attrs", "padding", value=None), "padding: needs a number.*and got None"),
    (edited("nodes", 2, "attrs", "groups", value=True), "groups needs an integer and got True"),
    (edited("nodes", 2, "attrs", "weird", value=1), "attribute 'weird' is not one of the operation"),
    (edited("nodes", 2, "attrs", "composite", value=1), "composite: needs text and got 1"),
    (edited("nodes", 4, "attrs", "ceil_mode", value=0), "ceil_mode needs True or False and got 0"),
    (edited("nodes", 3, "attrs", "max", value=6), "max needs a float and got 6"),
    (edited("nodes", 0, "attrs", "format_version", remove=True), "'format_version' is missing"),
    (edited("nodes", 0, "attrs", "format_version", value=2), "format_version: it is 2 and this kit reads 1"),
    (edited("nodes", 0, "attrs", "format_version", value=True), "format_version: needs an integer and got True"),
    (edited("nodes", 1, "attrs", "format_version", value=1), "only the first node carries it"),
    (edited("arg_nodes", value=[0, True]), r"arg_nodes\[1\]: needs an integer and got True"),
    (edited("heads", value=[]), "rule 'heads'"),
    (edited("node_row_ptr", value=[0, 1]), r"node_row_ptr\[2\]: it must be 2, .*, and is missing"),
    (edited("node_row_ptr", value=[0, 1, 3, 3, 4, 5, 6]), r"node_row_ptr\[2\]: it must be 2, .*, and is 3"),
    (edited("node_row_ptr", value=[*range(8)]), r"node_row_ptr: it must have 7 numbers and has 8"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=range(len(WRONG)))
def test_wrong_text(text: str, message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        from_json(text)
    assert len(str(caught.value)) < 1500


def test_too_many_nodes_are_refused_before_they_are_read() -> None:
    with pytest.raises(GraphError, match="nodes: there are 10,001 and the limit is 10,000"):
        from_json(edited("nodes", value=[0] * 10_001))


def test_the_length_of_the_text_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    text = to_json(example())
    monkeypatch.setattr(strict_json, "MAX_TEXT", len(text))
    assert from_json(text) == example()
    monkeypatch.setattr(strict_json, "MAX_TEXT", len(text) - 1)
    for refused in (lambda: from_json(text), lambda: to_json(example())):
        with pytest.raises(GraphError, match=f"has {len(text):,} characters and the limit is {len(text) - 1:,}"):
            refused()


def test_only_text_is_read() -> None:
    with pytest.raises(GraphError, match="must be text and is bytes"):
        from_json(b"{}")  # type: ignore[arg-type]


def test_text_cut_anywhere() -> None:
    text = to_json(example())
    for length in range(len(text)):
        with pytest.raises(GraphError):
            from_json(text[:length])


def is_refused_or_a_graph(text: str) -> None:
    try:
        graph = from_json(text)
    except GraphError:
        return
    assert from_json(to_json(graph)) == graph


def test_characters_changed_at_random() -> None:
    generator = random.Random(7)
    text = to_json(example())
    for _ in range(1500):
        place = generator.randrange(len(text))
        is_refused_or_a_graph(text[:place] + generator.choice('{}[],:"0-9e.tfn\\x\0\ud800') + text[place + 1 :])


JUNK = [
    None,
    True,
    0,
    -1,
    1,
    2**31,
    10**39,
    0.5,
    -0.0,
    1e308,
    "",
    "x",
    "conv2d",
    "kernel",
    [],
    [[]],
    {},
    {"a": 1},
    [0] * 9,
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += places(item, (*path, key))
    return found


def test_every_place_with_every_kind_of_junk() -> None:
    root = json.loads(to_json(example()))
    for path in places(root):
        for junk in JUNK:
            changed = copy.deepcopy(root)
            place = changed
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = junk
            is_refused_or_a_graph(json.dumps(changed))


def test_every_key_is_needed() -> None:
    for path in places(json.loads(to_json(example()))):
        if path[-1] in ("composite", "span"):
            from_json(edited(*path, remove=True))
        elif isinstance(path[-1], str):
            with pytest.raises(GraphError):
                from_json(edited(*path, remove=True))
        else:
            is_refused_or_a_graph(edited(*path, remove=True))
