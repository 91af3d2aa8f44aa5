"""The JSON graph of one region, as types: what codegen hands to the planner.

The schema is that of TVM's JSON runtime (``nodes``, ``arg_nodes``, ``heads``, ``node_row_ptr``); ``serialize`` turns it
into text and back, ``verify`` checks it. A kernel node is one primitive operation of a composite's body; the attribute
``composite`` says which composite it came from, so fused operations share one value there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Union

AttrValue = Union[int, float, bool, str, "tuple[AttrValue, ...]"]

DTYPE_BYTES = {
    "float16": 2,
    "float32": 4,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
}


@dataclass(frozen=True)
class TensorType:
    """Shape and dtype of one tensor."""

    shape: tuple[int, ...]
    dtype: str  # one of DTYPE_BYTES

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.elements * DTYPE_BYTES[self.dtype]

    def __str__(self) -> str:
        return f"{'x'.join(map(str, self.shape)) or 'scalar'} {self.dtype}"


class Entry(NamedTuple):
    """One output of one node: TVM writes it ``[node, output, 0]``."""

    node: int
    output: int = 0


@dataclass(frozen=True)
class Node:
    """One node of the graph."""

    kind: str  # "input", "const" or "kernel"
    name: str  # a parameter's name, a constant's name, or the operation ("conv2d"), see graph.ops
    outputs: tuple[TensorType, ...]
    inputs: tuple[Entry, ...] = ()
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)  # operator attributes only
    composite: str = ""  # "example_npu.conv2d_relu_fused#0": pattern name and a number within the region
    span: str = ""  # where the call stands in the original model, "" if unknown

    @property
    def is_kernel(self) -> bool:
        return self.kind == "kernel"


@dataclass(frozen=True)
class Graph:
    """One region: nodes in topological order, inputs first, and what it returns."""

    symbol: str
    nodes: tuple[Node, ...]
    arg_nodes: tuple[int, ...]  # input nodes in argument order, then const nodes
    heads: tuple[Entry, ...]  # what the region returns, in order

    def type_of(self, entry: Entry) -> TensorType:
        """Shape and dtype of ``entry``."""
        return self.nodes[entry.node].outputs[entry.output]

    @property
    def inputs(self) -> tuple[int, ...]:
        """Ids of the input nodes, in argument order."""
        return tuple(i for i in self.arg_nodes if self.nodes[i].kind == "input")

    @property
    def constants(self) -> tuple[int, ...]:
        """Ids of the const nodes, in the order of ``arg_nodes``."""
        return tuple(i for i in self.arg_nodes if self.nodes[i].kind == "const")

    @property
    def kernels(self) -> tuple[int, ...]:
        """Ids of the kernel nodes, in execution order."""
        return tuple(i for i, node in enumerate(self.nodes) if node.is_kernel)

    def consumers(self, entry: Entry) -> tuple[int, ...]:
        """Ids of the nodes that read ``entry``, in order."""
        return tuple(i for i, node in enumerate(self.nodes) if entry in node.inputs)
