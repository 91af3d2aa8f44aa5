"""A quick estimate of a step's cycles, to compare candidates: sums in closed form, no instruction is listed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from npu_kit.graph.ir import DTYPE_BYTES, Graph
from npu_kit.plan.cost import CostModel
from npu_kit.plan.geometry import (
    Contraction,
    Problem,
    Reduction,
    Rows,
    chunk_axes,
    chunk_count,
    output_axes,
    problem_of,
    tile_count,
    tile_sizes,
)
from npu_kit.plan.ir import Operand, Step
from npu_kit.plan.traffic import operand_loads, step_transfers


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

    With single slots transfers and work take turns, and so they do where the work is the dma engine's own. With double
    slots the longer of the two remains, and what cannot hide: copies to L2 before the first tile, the first tile's
    loads and the last one's store, and panels, which are loaded during one piece of work and not during all.
    """
    problem = problem or problem_of(graph, step.nodes[0])
    moved = step_transfers(graph, step, problem)
    transfers = cost.transfers(moved)
    work = _work_cycles(graph, step, problem, cost)
    passes = len(problem.stages) if isinstance(problem, Rows) else 1
    each = work // (passes * max(1, math.prod(axis.count for axis in step.axes)))  # of one piece of work
    loads = [(operand, *_loads(problem, step, operand, cost)) for operand in step.operands]
    if not step.is_double_buffered or step.only_moves:
        # The first pass over rows works on the first columns of their panel while the others come.
        hidden = sum(_hidden(*load, each) for load in loads) if isinstance(problem, Rows) else 0
        return Cost(transfers + work - hidden, moved.dram_bytes)
    ahead = sum(cost.transfer("L3", "L2", graph.type_of(entry).nbytes) for entry in step.prefetch)
    out = graph.type_of(step.output).nbytes // max(1, tile_count(step))
    uncovered = cost.transfer("L1", step.output_tier, out)
    for operand, times, cycles in loads:
        uncovered += times * max(0, cycles - each) if operand.is_panel else cycles
    return Cost(ahead + max(transfers - ahead, work + uncovered), moved.dram_bytes)


def _loads(problem: Problem, step: Step, operand: Operand, cost: CostModel) -> tuple[int, int]:
    """How many tiles, or panels of several, an operand's slot takes in, and the cycles that each takes."""
    parts = operand.slot.parts
    number, nbytes = operand_loads(problem, step.axes, operand)
    times = max(1, number // parts)
    latency = cost.latency(operand.tier, "L1")
    return times, cost.transfer(operand.tier, "L1", nbytes // times) + (parts - 1) * latency


def _hidden(operand: Operand, times: int, cycles: int, each: int) -> int:
    """Cycles of a panel's loads that are hidden by work on the parts that are there."""
    parts = operand.slot.parts
    return times * min(cycles * (parts - 1) // parts, each * (parts - 1))


_ROW = {"contraction": "n", "window": "c", "rows": "k"}  # the axis of a tile's rows; elsewhere the last one


def _work_cycles(graph: Graph, step: Step, problem: Problem, cost: CostModel) -> int:
    """Cycles of the engines, the way out of the accumulator included."""
    outer, inner = output_axes(step), chunk_axes(step)
    out_bytes = DTYPE_BYTES[graph.type_of(step.output).dtype]
    cycles = 0
    for size, count in tile_sizes(outer):
        elements = math.prod(size.values())
        row = size.get(_ROW.get(step.family, outer[-1].name if outer else ""), 1)
        box = (elements // row if row else 0, row)
        cycles += count * cost.transfer("L0", "L1", elements * out_bytes)
        cycles += count * sum(cost.lanes(engine, box) for engine in step.epilogue_engines)
        if isinstance(problem, Contraction):
            for depth, chunks in tile_sizes(inner):
                m, n, k = size["y"] * size["x"], size["n"], math.prod(depth.values())
                cycles += count * chunks * cost.array(step.engine, m, n, k, step.dataflow, refills=False)
        elif step.engine == "dma":
            cycles += count * cost.copying(elements * DTYPE_BYTES[problem.out.dtype])
        else:
            passes = len(problem.stages) if isinstance(problem, Rows) else 1
            for window, chunks in tile_sizes(inner):
                times = math.prod(window.values())
                if isinstance(problem, Reduction):  # a row is what lies along the last reduced axis
                    row = next(reversed(list(window.values())), 1)
                    lanes = cost.lanes(step.engine, (elements * times // max(1, row), row))
                else:
                    lanes = cost.lanes(step.engine, box, times)
                cycles += count * chunks * passes * lanes
    if isinstance(problem, Contraction) and step.dataflow != "output_stationary":
        visits = (chunk_count(step) - 1) * tile_count(step)
        tile_bytes = math.prod(axis.tile for axis in outer) * DTYPE_BYTES["float32"]
        cycles += 2 * visits * cost.transfer("L0", "L1", tile_bytes)
    return cycles
