"""How each family of operations looks to the planner and the runtime: iteration axes, tiles, boxes."""

from __future__ import annotations

from npu_kit.graph.ir import Graph
from npu_kit.plan.geometry.base import Box, TileLayout, spans_of
from npu_kit.plan.geometry.contraction import Contraction, contraction_of
from npu_kit.plan.geometry.elementwise import Aligned, Elementwise, aligned_operand, copy_of, elementwise_of
from npu_kit.plan.geometry.softmax import Softmax, softmax_of
from npu_kit.plan.geometry.window import Window, is_depthwise, window_of

Problem = Contraction | Window | Elementwise | Softmax

__all__ = [
    "Aligned",
    "Box",
    "Contraction",
    "Elementwise",
    "Problem",
    "Softmax",
    "TileLayout",
    "Window",
    "aligned_operand",
    "is_depthwise",
    "problem_of",
    "spans_of",
]


def problem_of(graph: Graph, node_id: int) -> Problem:
    """The problem of a node, or of copying it where it is an input or a constant."""
    node = graph.nodes[node_id]
    if not node.is_kernel:
        return copy_of(node.outputs[0])
    if node.name in ("max_pool2d", "avg_pool2d") or is_depthwise(graph, node_id):
        return window_of(graph, node_id)
    if node.name in ("matmul", "conv1d", "conv2d"):
        return contraction_of(graph, node_id)
    if node.name == "softmax":
        return softmax_of(graph, node_id)
    return elementwise_of(graph, node_id)
