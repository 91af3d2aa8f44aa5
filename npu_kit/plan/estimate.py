"""A quick estimate of a step's cycles, to compare candidates: sums in closed form, no instruction is listed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping

from npu_kit.graph.ir import DTYPE_BYTES, Graph
from npu_kit.plan.cost import CostModel
from npu_kit.plan.geometry import Contraction, Problem, Rows, problem_of
from npu_kit.plan.ir import Axis, Step
from npu_kit.plan.traffic import operand_loads, step_counters


def estimate_cycles(graph: Graph, step: Step, cost: CostModel) -> int:
    """About how many cycles a step takes.

    With single slots transfers and work take turns. With double slots the longer of the two remains, and what cannot
    hide: copies to L2 before the first tile, and panels, which are loaded during one piece of work and not during all.
    """
    problem = problem_of(graph, step.nodes[0])
    transfers = cost.transfers(step_counters(graph, step))
    work = _work_cycles(graph, step, problem, cost)
    if not step.is_double_buffered:
        return transfers + work
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
    return ahead + max(transfers - ahead, work + uncovered)


def _work_cycles(graph: Graph, step: Step, problem: Problem, cost: CostModel) -> int:
    """Cycles of the engines, the way out of the accumulator included."""
    outer = [axis for axis in step.axes if axis.name not in problem.reduction]
    inner = [axis for axis in step.axes if axis.name in problem.reduction]
    out_bytes = DTYPE_BYTES[graph.type_of(step.output).dtype]
    cycles = 0
    for size, count in _tile_sizes(outer):
        elements = math.prod(size.values())
        cycles += count * cost.transfer("L0", "L1", elements * out_bytes)
        cycles += count * sum(cost.lanes(engine, elements) for engine in step.epilogue_engines)
        if isinstance(problem, Contraction):
            for depth, chunks in _tile_sizes(inner):
                m, n, k = size["y"] * size["x"], size["n"], math.prod(depth.values())
                cycles += count * chunks * cost.array(step.engine, m, n, k, step.dataflow, refills=False)
        else:
            passes = len(problem.stages) if isinstance(problem, Rows) else 1
            for window, chunks in _tile_sizes(inner):
                cycles += count * chunks * passes * cost.lanes(step.engine, elements * math.prod(window.values()))
    if isinstance(problem, Contraction) and step.dataflow != "output_stationary":
        visits = (math.prod(axis.count for axis in inner) - 1) * math.prod(axis.count for axis in outer)
        tile_bytes = math.prod(axis.tile for axis in outer) * DTYPE_BYTES["float32"]
        cycles += 2 * visits * cost.transfer("L0", "L1", tile_bytes)
    return cycles


def _tile_sizes(axes: Iterable[Axis]) -> Iterator[tuple[Mapping[str, int], int]]:
    """The different tile sizes, axis by axis, and how many tiles have each: an axis has full tiles and a ragged one."""
    choices = []
    for axis in axes:
        full, rest = divmod(axis.extent, axis.tile)
        sizes = [(axis.name, axis.tile, full)] * bool(full) + [(axis.name, rest, 1)] * bool(rest)
        choices.append(sizes)
    for combination in itertools.product(*choices):
        yield {name: size for name, size, _ in combination}, math.prod(count for _, _, count in combination)
