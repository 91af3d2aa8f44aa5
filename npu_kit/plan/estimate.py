"""A quick estimate of a step's cycles, to compare candidates: sums in closed form, no instruction is listed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from npu_kit.graph.ir import DTYPE_BYTES, Graph
from npu_kit.plan.cost import CostModel
from npu_kit.plan.geometry import Contraction, Problem, Rows, problem_of
from npu_kit.plan.ir import Step
from npu_kit.plan.traffic import operand_loads, step_transfers, tile_sizes


@dataclass(frozen=True, order=True)
class Cost:
    """What choices are compared by: cycles first, then traffic."""

    cycles: int  # by estimate
    dram_bytes: int  # to and from DRAM, exact

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.cycles + other.cycles, self.dram_bytes + other.dram_bytes)

    def __str__(self) -> str:
        return f"about {self.cycles} cycles and {self.dram_bytes} bytes of DRAM traffic"


def estimate_cost(graph: Graph, step: Step, cost: CostModel, problem: Problem | None = None) -> Cost:
    """About how many cycles a step takes, and how many bytes it moves to and from DRAM.

    With single slots transfers and work take turns. With double slots the longer of the two remains, and what cannot
    hide: copies to L2 before the first tile, and panels, which are loaded during one piece of work and not during all.
    """
    problem = problem or problem_of(graph, step.nodes[0])
    moved = step_transfers(graph, step, problem)
    transfers = cost.transfers(moved)
    work = _work_cycles(graph, step, problem, cost)
    if not step.is_double_buffered:
        return Cost(transfers + work, moved.dram_bytes)
    ahead = sum(cost.transfer("L3", "L2", graph.type_of(entry).nbytes) for entry in step.prefetch)
    pieces = max(1, math.prod(axis.count for axis in step.axes))
    uncovered = 0
    for operand in step.operands:
        if operand.is_panel:
            number, nbytes = operand_loads(problem, step.axes, operand)
            panels = max(1, number // operand.slot.parts)
            each = cost.transfer(operand.tier, "L1", nbytes // panels) + (operand.slot.parts - 1) * cost.latency(
                operand.tier, "L1"
            )
            uncovered += panels * max(0, each - work // pieces)
    return Cost(ahead + max(transfers - ahead, work + uncovered), moved.dram_bytes)


def _work_cycles(graph: Graph, step: Step, problem: Problem, cost: CostModel) -> int:
    """Cycles of the engines, the way out of the accumulator included."""
    outer = [axis for axis in step.axes if axis.name not in problem.reduction]
    inner = [axis for axis in step.axes if axis.name in problem.reduction]
    out_bytes = DTYPE_BYTES[graph.type_of(step.output).dtype]
    cycles = 0
    for size, count in tile_sizes(outer):
        elements = math.prod(size.values())
        cycles += count * cost.transfer("L0", "L1", elements * out_bytes)
        cycles += count * sum(cost.lanes(engine, elements) for engine in step.epilogue_engines)
        if isinstance(problem, Contraction):
            for depth, chunks in tile_sizes(inner):
                m, n, k = size["y"] * size["x"], size["n"], math.prod(depth.values())
                cycles += count * chunks * cost.array(step.engine, m, n, k, step.dataflow, refills=False)
        else:
            passes = len(problem.stages) if isinstance(problem, Rows) else 1
            for window, chunks in tile_sizes(inner):
                cycles += count * chunks * passes * cost.lanes(step.engine, elements * math.prod(window.values()))
    if isinstance(problem, Contraction) and step.dataflow != "output_stationary":
        visits = (math.prod(axis.count for axis in inner) - 1) * math.prod(axis.count for axis in outer)
        tile_bytes = math.prod(axis.tile for axis in outer) * DTYPE_BYTES["float32"]
        cycles += 2 * visits * cost.transfer("L0", "L1", tile_bytes)
    return cycles
