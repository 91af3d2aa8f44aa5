"""What a step is called, which engine runs it, and the same step of other nodes or from other tiers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from npu_kit.graph.ir import Entry, Graph, Node
from npu_kit.graph.ops import find_op, is_reshape
from npu_kit.plan.fusion import Group
from npu_kit.plan.geometry import Problem, Window
from npu_kit.plan.ir import Operand, Step


def label(graph: Graph, nodes: tuple[int, ...]) -> str:
    """A step in the user's words: ``conv2d+add+relu (example_npu.conv2d_relu_fused#0)``."""
    names = "+".join("copy" if is_copied(graph.nodes[node]) else graph.nodes[node].name for node in nodes)
    composite = graph.nodes[nodes[0]].composite
    return f"{names} ({composite})" if composite else f"{names} (node {nodes[0]})"


def is_copied(node: Node) -> bool:
    """Whether a step of this node copies it: nothing computes an input, a constant or a reshape."""
    return node.kind in ("input", "const") or is_reshape(node)


def engine_of(graph: Graph, node_id: int, problem: Problem | None = None) -> str:
    """The engine that runs a node."""
    node = graph.nodes[node_id]
    if isinstance(problem, Window) and problem.w is not None:
        return "vector"  # a depthwise convolution, lane by lane
    return find_op(node.name).engine if node.is_kernel else "dma"


def rebound(step: Step, graph: Graph, index: int, group: Group) -> Step:
    """``step`` for the nodes of another group that looks the same."""
    if step.nodes == group.nodes and step.index == index:
        return step
    anchor = graph.nodes[group.nodes[0]]
    sources = (Entry(group.nodes[0]),) if is_copied(anchor) else anchor.inputs
    output = Entry(group.nodes[-1])
    return replace(
        step,
        index=index,
        nodes=group.nodes,
        operands=tuple(replace(one, entry=source) for one, source in zip(step.operands, sources, strict=True)),
        epilogue_operands=tuple(
            tuple(
                None if one is None else replace(one, entry=source)
                for one, source in zip(operands, graph.nodes[node].inputs, strict=True)
            )
            for node, operands in zip(group.nodes[1:], step.epilogue_operands, strict=True)
        ),
        output=output,
    )


def reading_from(step: Step, tiers: Mapping[Entry, str]) -> Step:
    """``step`` with the tiles of the tensors in ``tiers`` loaded from there."""

    def moved(operand: Operand) -> Operand:
        tier = tiers.get(operand.entry, operand.tier)
        return operand if tier == operand.tier else replace(operand, tier=tier)

    return replace(
        step,
        operands=tuple(map(moved, step.operands)),
        epilogue_operands=tuple(
            tuple(None if operand is None else moved(operand) for operand in group) for group in step.epilogue_operands
        ),
    )
