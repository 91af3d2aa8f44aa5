"""The rules that a JSON graph keeps, each a named function.

A graph may come from a file, so the rules bound every number before anything is allocated for it. A rule may rely on
the rules before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from npu_kit.errors import GraphError, NpuKitError
from npu_kit.graph.attributes import MAX_INT
from npu_kit.graph.ir import DTYPE_BYTES, Entry, Graph, Node, TensorType
from npu_kit.graph.ops import OPS, find_op
from npu_kit.graph.shapes import in_layout, spatial_letters

MAX_NODES = 10_000
MAX_RANK = 8
MAX_TENSOR_BYTES = 2**40  # a tensor, padding included, is smaller
MAX_NAME = 65_536  # TVM's symbols pass 1,000 characters; nothing sensible comes near this
KINDS = ("input", "const", "kernel")


@dataclass(frozen=True)
class Violation:
    """One rule broken in one place."""

    where: str
    why: str
    hint: str = ""


Rule = Callable[[Graph], Iterator[Violation]]


def verify_graph(graph: Graph) -> None:
    """Check every rule.

    Raises:
        GraphError: the first violation, with the node, the rule and what it found.
    """
    for name, rule in RULES.items():
        for violation in rule(graph):
            what = f"graph {_short(graph.symbol)}, {violation.where}"
            raise GraphError(what, f"rule {name!r}: {violation.why}", violation.hint)


def node_count(graph: Graph) -> Iterator[Violation]:
    """There is a node, and there are not too many."""
    if not 1 <= len(graph.nodes) <= MAX_NODES:
        yield Violation("its nodes", f"a graph has 1 to {MAX_NODES:,} nodes and this has {len(graph.nodes):,}")


def texts(graph: Graph) -> Iterator[Violation]:
    """Symbol, names, composites and spans are text of a sensible length; symbol and names are not empty."""
    places: list[tuple[str, Any, bool]] = [("the symbol", graph.symbol, True)]
    for index, node in enumerate(graph.nodes):
        places += [
            (f"the name of node {index}", node.name, True),
            (f"the composite of node {index}", node.composite, False),
            (f"the span of node {index}", node.span, False),
        ]
    for where, text, needed in places:
        if type(text) is not str:
            yield Violation(where, f"it must be text and is {type(text).__name__}")
        elif not int(needed) <= len(text) <= MAX_NAME:
            yield Violation(where, f"it must have {int(needed)} to {MAX_NAME:,} characters and has {len(text):,}")
        elif any("\ud800" <= character <= "\udfff" for character in text):
            yield Violation(where, "it holds half of a surrogate pair, which no encoding can write")


def kinds(graph: Graph) -> Iterator[Violation]:
    """Every node is an input, a const or a kernel with one output; only kernels have inputs and attributes."""
    for index, node in enumerate(graph.nodes):
        if node.kind not in KINDS:
            yield Violation(_label(index, node), f"a kind is one of {', '.join(KINDS)} and this is {node.kind!r}")
        if len(node.outputs) != 1:
            yield Violation(_label(index, node), f"a node has 1 output and this has {len(node.outputs)}")
        if not node.is_kernel and (node.inputs or node.attrs or node.composite):
            yield Violation(_label(index, node), f"{node.kind} nodes have no inputs, attributes or composite")


def tensors(graph: Graph) -> Iterator[Violation]:
    """Shapes and dtypes are ones that the kit has, and no tensor is absurdly large."""
    for index, node in enumerate(graph.nodes):
        problem = _tensor_problem(node.outputs[0])
        if problem:
            yield Violation(_label(index, node), problem)


def order(graph: Graph) -> Iterator[Violation]:
    """A node reads only outputs of nodes before it."""
    for index, node in enumerate(graph.nodes):
        for entry in node.inputs:
            if not _is_in_range(entry, index):
                why = f"it reads entry ({entry.node}, {entry.output}) and may read outputs 0 of nodes 0 to {index - 1}"
                yield Violation(_label(index, node), why, "a topological order of the nodes")


def arguments(graph: Graph) -> Iterator[Violation]:
    """``arg_nodes`` lists each input once, then each const once."""
    for index in graph.arg_nodes:
        if type(index) is not int or not 0 <= index < len(graph.nodes):
            yield Violation("its arg_nodes", f"node {index} is not one of the {len(graph.nodes)} nodes")
            return
    listed = [graph.nodes[index].kind for index in graph.arg_nodes]
    for kind in ("input", "const"):
        wanted = [index for index, node in enumerate(graph.nodes) if node.kind == kind]
        found = sorted(index for index in graph.arg_nodes if graph.nodes[index].kind == kind)
        if wanted != found:
            yield Violation("its arg_nodes", f"the {kind} nodes are {_some(wanted)} and it lists {_some(found)}")
    if "kernel" in listed:
        yield Violation("its arg_nodes", f"node {graph.arg_nodes[listed.index('kernel')]} is a kernel")
    if listed != sorted(listed, key=KINDS.index):
        first = graph.arg_nodes[listed.index("const")]
        yield Violation("its arg_nodes", f"inputs come before constants, and an input follows const node {first}")


def heads(graph: Graph) -> Iterator[Violation]:
    """The graph returns something, and all that it returns exists."""
    if not graph.heads:
        yield Violation("its heads", "a graph returns at least 1 entry and this returns 0")
    for entry in graph.heads:
        if not _is_in_range(entry, len(graph.nodes)):
            last = len(graph.nodes) - 1
            yield Violation("its heads", f"entry ({entry.node}, {entry.output}) is not output 0 of nodes 0 to {last}")


def unique_names(graph: Graph) -> Iterator[Violation]:
    """No two inputs have one name, and no two constants."""
    seen: dict[tuple[str, str], int] = {}
    for index in graph.arg_nodes:
        node = graph.nodes[index]
        first = seen.setdefault((node.kind, node.name), index)
        if first != index:
            yield Violation(_label(index, node), f"node {first} is called so too")


def operations(graph: Graph) -> Iterator[Violation]:
    """A kernel node's operation is in the table, with all its attributes, in their full form."""
    for index in graph.kernels:
        node = graph.nodes[index]
        if node.name not in OPS:
            yield Violation(_label(index, node), f"there is no such operation; the kit has {', '.join(OPS)}")
            continue
        definitions = find_op(node.name).attributes
        for key in sorted(definitions.keys() ^ node.attrs.keys(), key=str):
            why = f"attribute {_short(key)} is {'missing' if key in definitions else 'not one of the operation'}"
            yield Violation(_label(index, node), why, f"exactly these: {', '.join(definitions) or 'none'}")
        for key, definition in definitions.items():
            problem = definition.check(node.attrs.get(key))
            if problem:
                yield Violation(_label(index, node), f"attribute {key} {problem}", "graph.ops.normalise_attrs")


def types(graph: Graph) -> Iterator[Violation]:
    """The declared type of a kernel's output is what the operation gives for its inputs."""
    for index in graph.kernels:
        node = graph.nodes[index]
        declared = node.outputs[0]
        given = [graph.type_of(entry) for entry in node.inputs]
        try:
            inferred = find_op(node.name).infer(given, node.attrs, declared.dtype)
        except NpuKitError as error:
            yield Violation(_label(index, node), f"{error.what}: {error.why}", error.hint)
            continue
        if inferred != declared:
            operands = " and ".join(map(str, given))
            yield Violation(_label(index, node), f"it declares {declared}, and {operands} give {inferred}")


def padded_sizes(graph: Graph) -> Iterator[Violation]:
    """The input of a convolution or pool is not absurdly large with its padding around it."""
    for index in graph.kernels:
        node = graph.nodes[index]
        attrs: Mapping[str, Any] = node.attrs
        if "padding" not in attrs:
            continue
        data, layout = graph.type_of(node.inputs[0]), attrs.get("data_layout") or attrs["layout"]
        letters = spatial_letters(layout)
        fixed, sizes = in_layout(data.shape, layout, "NC"), in_layout(data.shape, layout, letters)
        before, after = attrs["padding"][: len(letters)], attrs["padding"][len(letters) :]
        padded = (sum(parts) for parts in zip(before, sizes, after, strict=True))
        problem = _tensor_problem(TensorType((*fixed, *padded), data.dtype))
        if problem:
            yield Violation(_label(index, node), f"with padding {attrs['padding']} the data is too large: {problem}")


RULES: dict[str, Rule] = {
    "node count": node_count,
    "texts": texts,
    "kinds": kinds,
    "tensors": tensors,
    "order": order,
    "arguments": arguments,
    "heads": heads,
    "unique names": unique_names,
    "operations": operations,
    "types": types,
    "padded sizes": padded_sizes,
}


def _tensor_problem(tensor: TensorType) -> str:
    if tensor.dtype not in DTYPE_BYTES:
        return f"a dtype is one of {', '.join(DTYPE_BYTES)} and this is {tensor.dtype!r}"
    if len(tensor.shape) > MAX_RANK:
        return f"a tensor has at most {MAX_RANK} axes and this has {len(tensor.shape)}"
    for size in tensor.shape:
        if type(size) is not int or not 0 <= size <= MAX_INT:
            return f"a size is an integer from 0 to {MAX_INT} and this is {size!r}"
    # NumPy multiplies the sizes without the zeros to see whether it can address the array.
    nbytes = math.prod(max(size, 1) for size in tensor.shape) * DTYPE_BYTES[tensor.dtype]
    if nbytes >= MAX_TENSOR_BYTES:
        return f"a tensor has less than {MAX_TENSOR_BYTES:,} bytes and {tensor} has {nbytes:,}"
    return ""


def _is_in_range(entry: Entry, stop: int) -> bool:
    return type(entry.node) is int and type(entry.output) is int and 0 <= entry.node < stop and entry.output == 0


def _label(index: int, node: Node) -> str:
    return f"node {index} ({node.kind} {_short(node.name)})"


def _short(text: Any) -> str:
    text = str(text)
    return repr(text) if len(text) <= 60 else repr(text[:57] + "...")


def _some(indices: list[int]) -> str:
    shown = ", ".join(map(str, indices[:8])) or "none"
    return shown + (", ..." if len(indices) > 8 else "")
