"""Refuses windows that are too large to be computed tap by tap."""

from __future__ import annotations

from npu_kit.errors import PlanError
from npu_kit.graph.ir import Graph
from npu_kit.plan.geometry import Window, problem_of
from npu_kit.plan.steps import label

# Of one window. Each tap is a pass over the output, in Python: a window of 30,000 x 30,000 would take days.
MAX_TAPS = 65_536


def verify_windows(graph: Graph) -> None:
    """Raise PlanError if a pool or a depthwise convolution has a window of more than ``MAX_TAPS`` taps."""
    for node_id in graph.kernels:
        problem = problem_of(graph, node_id)
        taps = problem.rows.kernel * problem.columns.kernel if isinstance(problem, Window) else 0
        if taps > MAX_TAPS:
            raise PlanError(
                f"{label(graph, (node_id,))} has a window of {taps:,} taps",
                f"the kit computes windows of at most {MAX_TAPS:,}",
                "several smaller windows one after the other",
            )
