"""What the next best would have cost: each decision of a plan that had a real alternative, with both prices.

The planner decides without this, so that it stays quick; here the alternatives are priced afterwards, by the planner's
own estimate, and what a step waited for is read from its timeline.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from npu_kit.errors import NpuKitError
from npu_kit.graph.ir import Entry
from npu_kit.graph.ops import OPS
from npu_kit.hw.spec import NpuSpec
from npu_kit.plan.cost import CostModel, systolic_cycles
from npu_kit.plan.estimate import Cost, estimate_cost
from npu_kit.plan.forecast import forecast
from npu_kit.plan.fusion import Group
from npu_kit.plan.geometry import Contraction, Window, problem_of, tile_sizes
from npu_kit.plan.ir import Plan, Reason, Step
from npu_kit.plan.metrics import plan_metrics
from npu_kit.plan.reasons import against, long_axes, tile_in_words
from npu_kit.plan.step_builder import StepBuilder
from npu_kit.plan.steps import label, reading_from
from npu_kit.trace.events import Events

CAUSES_IN_WORDS = {
    "operand": "for an operand that was still on its way",
    "accumulator": "for the accumulator, which another engine had",
    "slot": "for a slot that was still being read or filled",
    "tensor": "for a tensor that was still being written",
}


def alternatives(plan: Plan) -> tuple[Reason, ...]:
    """The decisions of a plan that had an alternative, each with the cost of the next best one."""
    readers: dict[Entry, list[Step]] = {}
    for step in plan.steps:
        for entry in {operand.entry for operand in step.reads}:
            readers.setdefault(entry, []).append(step)
    found: list[Reason] = []
    for step in plan.steps:
        for reasons in (_engines(plan, step), _tiles(plan, step), _tiers(plan, step, readers.get(step.output, []))):
            found.extend(reasons)
    return tuple(found)


def waits(plan: Plan, events: Events | None = None) -> tuple[Reason, ...]:
    """What the engines of each step waited for, in cycles by cause.

    Args:
        plan: the plan.
        events: those of a run in step mode; None forecasts them, which takes 20 microseconds an instruction.
    """
    rows = forecast(plan) if events is None else events
    found = []
    for step, metrics in zip(plan.steps, plan_metrics(plan, rows), strict=True):
        stalls = sorted(metrics.stalled_cycles.items(), key=lambda pair: -pair[1])
        total = sum(cycles for _, cycles in stalls)
        because = ", ".join(f"{cycles} cycles {CAUSES_IN_WORDS[cause]}" for cause, cycles in stalls if cycles)
        chosen = f"{total} cycles of waiting in {metrics.cycles}" if total else f"no waiting in {metrics.cycles} cycles"
        because = f"engines waited {because}" if total else "each began as soon as it was free"
        numbers: dict[str, float] = {**dict(stalls), "cycles": metrics.cycles}
        found.append(Reason("wait", label(plan.graph, step.nodes), chosen, because, numbers))
    return tuple(found)


def _priced(here: Cost, other: Cost, name: str, principle: str) -> tuple[str, dict[str, float]]:
    """``against`` the next best, or on which principle this was taken all the same."""
    because, numbers = against(here, other, name)
    if other.cycles < here.cycles:
        because = f"{principle}: about {here.cycles} cycles, and {name} would take {other.cycles}"
    return because, numbers


def _engines(plan: Plan, step: Step) -> Iterator[Reason]:
    """Another engine of the machine that could do the anchor's work."""
    cost = CostModel(plan.spec, plan.power_mode)
    other = _other_engine(plan, step)
    name = label(plan.graph, step.nodes)
    if not other:
        yield Reason("engine", name, step.engine, "no other engine of the machine can do this")
        return
    here = estimate_cost(plan.graph, step, cost)
    problem = problem_of(plan.graph, step.nodes[0])
    if isinstance(problem, Window) and other == "conv":
        there = replace(here, cycles=here.cycles + _depthwise_on_array(step, cost) - _on_lanes(step, cost))
    else:
        there = estimate_cost(plan.graph, replace(step, engine=other), cost)
    because, numbers = _priced(here, there, f"the {other} engine", "it is made for this kind of operation")
    yield Reason("engine", name, step.engine, because, numbers)


def _other_engine(plan: Plan, step: Step) -> str:
    """The engine that could take over, "" if none can."""
    node = plan.graph.nodes[step.nodes[0]]
    if step.family == "copy":
        return ""
    definition = OPS[node.name]
    if step.engine != definition.engine:
        return definition.engine  # a depthwise convolution, which the array could do as well
    problem = problem_of(plan.graph, step.nodes[0])
    if isinstance(problem, Contraction) and (problem.rows.kernel, problem.columns.kernel) != (1, 1):
        return ""  # its patches have to be gathered, which the conv engine alone does
    return definition.other_engine


def _depthwise_on_array(step: Step, cost: CostModel) -> int:
    """Cycles of a depthwise convolution on the array: each channel is a product with one column."""
    rows, columns = cost.array_shape("conv")
    return sum(
        count * size["c"] * systolic_cycles(size["y"] * size["x"], 1, size["kh"] * size["kw"], rows, columns)
        for size, count in tile_sizes(step.axes)
    )


def _on_lanes(step: Step, cost: CostModel) -> int:
    """Cycles of a depthwise convolution on the vector engine, whose rows are the channels."""
    return sum(
        count * cost.lanes(step.engine, (size["y"] * size["x"], size["c"]), size["kh"] * size["kw"])
        for size, count in tile_sizes(step.axes)
    )


def _tiles(plan: Plan, step: Step) -> Iterator[Reason]:
    """The best other shape of the output tile: a side halved, or one halved and the other doubled."""
    cost, name = CostModel(plan.spec, plan.power_mode), label(plan.graph, step.nodes)
    here = estimate_cost(plan.graph, step, cost)
    priced = []
    for spec in _other_tiles(plan.spec):
        other = _with_tile(plan, step, spec)
        if other is not None and other.axes != step.axes:
            shape = f"{spec.tile.rows}x{spec.tile.columns}"
            priced.append((estimate_cost(plan.graph, other, cost), shape))
    if not priced:
        return
    best, shape = min(priced)
    because, numbers = _priced(here, best, f"a tile of {shape}", "no shape but the machine's is searched")
    yield Reason("tile", name, tile_in_words(long_axes(step)), because, numbers)


def _other_tiles(spec: NpuSpec) -> Iterator[NpuSpec]:
    rows, columns = spec.tile.rows, spec.tile.columns
    for tile in ((rows // 2, columns), (rows, columns // 2), (rows // 2, columns * 2), (rows * 2, columns // 2)):
        try:
            yield spec.replace(tile=tile)
        except NpuKitError:  # a side below the machine's minimum, or a tile that L0 does not hold
            continue


def _with_tile(plan: Plan, step: Step, spec: NpuSpec) -> Step | None:
    """The step with another tile and everything else as it is; None if that does not fit."""
    tiers = {operand.entry: operand.tier for operand in step.reads} | {step.output: step.output_tier}
    running = tuple(next(i for i, operand in enumerate(group) if operand is None) for group in step.epilogue_operands)
    builder = StepBuilder(plan.graph, spec, step.index, Group(step.nodes, running), tiers)
    try:
        candidates = list(builder.candidates(step.dataflow or None, like=step))
    except NpuKitError:
        return None
    return replace(candidates[0], prefetch=step.prefetch)


def _tiers(plan: Plan, step: Step, readers: Sequence[Step]) -> Iterator[Reason]:
    """What it would cost to keep the step's result in DRAM instead of L2."""
    if step.output_tier != "L2":
        return
    cost = CostModel(plan.spec, plan.power_mode)
    near = [estimate_cost(plan.graph, one, cost) for one in (step, *readers)]
    moved = (replace(step, output_tier="L3"), *(reading_from(one, {step.output: "L3"}) for one in readers))
    far = [estimate_cost(plan.graph, one, cost) for one in moved]
    here, other = (sum(of, Cost(0, 0)) for of in (near, far))
    because, numbers = _priced(here, other, "with a place in DRAM", "what fits stays on the chip")
    because = f"with the steps that read it, {because}"
    yield Reason("tier", label(plan.graph, step.nodes), "L2", because, numbers)
