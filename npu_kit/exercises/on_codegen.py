"""Exercises of lesson 03: from a region to a JSON graph and a module."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from npu_kit.byoc.codegen.lower import lower
from npu_kit.byoc.partition import partition
from npu_kit.exercises.exercise import function_exercise, value_exercise
from npu_kit.graph.ir import Graph
from npu_kit.graph.ops import OPS
from npu_kit.graph.serialize import to_json
from npu_kit.zoo import build, probes

_ONE_COMPOSITE = ("conv_relu", "matmul_relu", "conv_add_relu")
_KEYS = ("op", "name", "inputs")


@cache
def _regions(name: str) -> tuple[Any, ...]:
    model = probes.conv_add_relu() if name == "conv_add_relu" else build(name)
    return partition(model, bind_constants=True).regions


def _graphs(name: str) -> list[Graph]:
    return [lower(region.function, region.symbol)[0] for region in _regions(name)]


def _nodes_of(region: Any) -> list[dict[str, Any]]:
    nodes = json.loads(to_json(lower(region, "region")[0]))["nodes"]
    return [{key: node[key] for key in _KEYS if key in node} for node in nodes]


def _row_pointers(nodes: Any) -> list[int]:
    pointers = [0]
    for node in nodes:
        pointers.append(pointers[-1] + len(node["attrs"]["shape"]))
    return pointers


def _node_lists() -> list[tuple[Any]]:
    """Nodes of a real graph, and a row that a graph with several outputs per node would have."""
    real = [json.loads(to_json(graph))["nodes"] for graph in _graphs("conv_relu")]
    made = [{"attrs": {"shape": [[2, 2]] * outputs}} for outputs in (1, 3, 2)]
    return [*((nodes,) for nodes in real), (made,)]


def _constant_nodes() -> int:
    return len(_graphs("digits")[0].constants)


def _macs_of(graph: Graph) -> int:
    kernels = (graph.nodes[number] for number in graph.kernels)
    return sum(
        OPS[node.name].macs([graph.type_of(entry) for entry in node.inputs], node.attrs, node.outputs[0])
        for node in kernels
    )


EXERCISES = (
    function_exercise(
        "codegen.nodes",
        _nodes_of,
        lambda: [
            *((_regions(name)[0].function,) for name in _ONE_COMPOSITE),
            (probes.turned_round(_regions("matmul_relu")[0].function),),
        ],
        hint="a parameter of the composite is the node of the argument that stands at its place in the call",
        labels=[
            *(f"region of {name}" for name in _ONE_COMPOSITE),
            "region of matmul_relu, its parameters turned round",
        ],
    ),
    function_exercise("codegen.row_pointers", _row_pointers, _node_lists, hint="begin with 0, add as you go"),
    value_exercise(
        "codegen.constant_nodes", _constant_nodes, hint="a batch norm has four, the conv2d, matmul and add one each"
    ),
    function_exercise(
        "codegen.macs_of",
        _macs_of,
        lambda: [(graph,) for name in ("matmul_relu", "conv_relu", "digits") for graph in _graphs(name)],
        hint="operations without multiply-accumulates count 0, so nothing has to be left out",
        labels=[f"graph of {name}" for name in ("matmul_relu", "conv_relu", "digits")],
    ),
)
