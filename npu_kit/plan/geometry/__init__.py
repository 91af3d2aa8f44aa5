"""How each family of operations looks to the planner and the runtime: iteration axes, tiles, boxes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from npu_kit.graph.ir import Graph
from npu_kit.graph.ops import family_of, is_reshape
from npu_kit.plan.geometry.base import Box, TileLayout, spans_of
from npu_kit.plan.geometry.contraction import Contraction, contraction_of
from npu_kit.plan.geometry.elementwise import Aligned, Elementwise, aligned_operand, copy_of, elementwise_of
from npu_kit.plan.geometry.movement import Movement, movement_of
from npu_kit.plan.geometry.reduction import Reduction, reduction_of
from npu_kit.plan.geometry.rows import Rows, rows_of
from npu_kit.plan.geometry.tiles import chunk_axes, chunk_count, output_axes, tile_count, tile_indices, tile_sizes
from npu_kit.plan.geometry.window import Window, is_depthwise, window_of

Problem = Contraction | Window | Elementwise | Movement | Reduction | Rows

__all__ = [
    "Aligned",
    "Box",
    "Contraction",
    "Elementwise",
    "Movement",
    "Problem",
    "Reduction",
    "Rows",
    "TileLayout",
    "Window",
    "aligned_operand",
    "chunk_axes",
    "chunk_count",
    "is_depthwise",
    "output_axes",
    "problem_of",
    "spans_of",
    "tile_count",
    "tile_indices",
    "tile_sizes",
]


def problem_of(graph: Graph, node_id: int) -> Problem:
    """The problem of a node, or of copying it where it is an input, a constant or a reshape."""
    node = graph.nodes[node_id]
    if not node.is_kernel or is_reshape(node):
        return copy_of(node.outputs[0])
    family = "window" if is_depthwise(graph, node_id) else family_of(node.name)
    return _PROBLEM_OF[family](graph, node_id)


_PROBLEM_OF: Mapping[str, Callable[[Graph, int], Problem]] = {
    "contraction": contraction_of,
    "elementwise": elementwise_of,
    "movement": movement_of,
    "reduction": reduction_of,
    "rows": rows_of,
    "window": window_of,
}
