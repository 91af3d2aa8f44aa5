"""The form that a plan has to have before its numbers mean anything: what ``verify`` and the runtime take for granted.

The planner makes no other plans. One that was read from a file is held to the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from npu_kit.errors import PlanError
from npu_kit.graph.ir import Entry
from npu_kit.graph.ops import OPS
from npu_kit.plan import tiling
from npu_kit.plan.geometry import Contraction, Reduction, Rows, Window, problem_of
from npu_kit.plan.ir import Plan, Step
from npu_kit.plan.steps import engine_of, is_copied
from npu_kit.plan.well_placed import (
    chunks_of,
    places_have_a_role_and_a_time,
    slots_are_those_of_the_step,
    tiers_are_reached_by_the_dma_engine,
)

Rule = Callable[[Plan], Iterator[str]]


def verify_form(plan: Plan) -> None:
    """Check the form of every step and place.

    Raises:
        PlanError: the first rule that is broken, with what it found.
        SpecError: a power mode that the machine has not.
    """
    plan.spec.power_mode(plan.power_mode)
    for rule in RULES:
        for text in rule(plan):
            raise PlanError(f"the plan of {plan.graph.symbol[:80]}", f"{rule.__name__.replace('_', ' ')}: {text}")


def entries_exist(plan: Plan) -> Iterator[str]:
    """Every node and entry that is named is one of the graph's."""
    count = len(plan.graph.nodes)
    for step in plan.steps:
        for node in step.nodes:
            if not 0 <= node < count:
                yield f"step {step.index} has node {node} of {count}"
        for entry in (step.output, *step.prefetch, *(operand.entry for operand in step.reads)):
            if not 0 <= entry.node < count or entry.output:
                yield f"step {step.index} names entry ({entry.node}, {entry.output}) of {count} nodes"
    for buffer in plan.buffers:
        if not 0 <= buffer.entry.node < count or buffer.entry.output:
            yield f"{buffer.name!r:.80} is entry ({buffer.entry.node}, {buffer.entry.output}) of {count} nodes"


def steps_are_an_anchor_and_its_epilogue(plan: Plan) -> Iterator[str]:
    """A step is numbered by its place, has a family, and ends with the node that it writes."""
    graph = plan.graph
    for place, step in enumerate(plan.steps):
        if step.index != place or not step.nodes:
            yield f"step {step.index} stands at place {place} and has {len(step.nodes)} nodes"
            return
        anchor = graph.nodes[step.nodes[0]]
        is_copy = is_copied(anchor)
        family = "copy" if is_copy else ""
        if anchor.is_kernel and not is_copy:
            family = type(problem_of(graph, step.nodes[0])).__name__.lower()
        if step.family != family or (is_copy and (len(step.nodes) > 1 or Entry(step.nodes[0]) not in graph.heads)):
            yield f"step {step.index} is a {step.family!r:.40} of {anchor.kind} node {step.nodes[0]}"
        if step.output != Entry(step.nodes[-1]):
            yield f"step {step.index} writes node {step.output.node} and ends with node {step.nodes[-1]}"
        lengths = [len(step.nodes) - 1, len(step.epilogue_engines), len(step.epilogue_operands)]
        if len(set(lengths)) > 1:
            yield f"step {step.index} has epilogues of different lengths: {lengths}"
            return
        yield from _epilogue_problems(plan, step)


def _epilogue_problems(plan: Plan, step: Step) -> Iterator[str]:
    graph = plan.graph
    pairs = zip(step.nodes[:-1], step.nodes[1:], step.epilogue_operands, step.epilogue_engines, strict=True)
    for before, node_id, operands, engine in pairs:
        node = graph.nodes[node_id]
        if not node.is_kernel or OPS[node.name].family != "elementwise":
            yield f"node {node_id} cannot follow in the tile of step {step.index}"
            return
        running = [i for i, operand in enumerate(operands) if operand is None]
        if len(running) != 1 or [i for i, entry in enumerate(node.inputs) if entry == Entry(before)] != running:
            yield f"the running tile of step {step.index} is not the one input of node {node_id}"
        elif running[0] and OPS[node.name].parameters_on_axis:
            yield f"the tile of step {step.index} would be a parameter of node {node_id}"
        if graph.nodes[before].outputs[0].shape != node.outputs[0].shape or Entry(before) in graph.heads:
            yield f"node {node_id} has not the shape of the tile before it, or that is returned"
        if engine != engine_of(graph, node_id):
            yield f"node {node_id} runs on {engine!r:.40}, not {engine_of(graph, node_id)}"


def axes_are_in_a_known_order(plan: Plan) -> Iterator[str]:
    """The loops are those of the operation, nested as its family and dataflow nest them."""
    for step in plan.steps:
        problem = problem_of(plan.graph, step.nodes[0])
        names = tuple(axis.name for axis in step.axes)
        found = {axis.name: axis.extent for axis in step.axes}
        if found != problem.extents or len(names) != len(found) or any(axis.tile < 1 for axis in step.axes):
            yield f"step {step.index} has the axes {found}, its operation {problem.extents}, tiles of 1 or more"
            return
        orders = [(order.names, order.dataflow) for order in tiling.LOOP_ORDERS]
        if isinstance(problem, Contraction):
            if (names, step.dataflow) not in orders or (not problem.macs and step.dataflow != "output_stationary"):
                yield f"step {step.index} has no known loop order for {step.dataflow!r:.40}: {' '.join(names)}"
        elif names != tuple(problem.extents) or step.dataflow:
            yield f"step {step.index} has the loops {' '.join(names)}, not {' '.join(problem.extents)}"


def operands_are_those_of_the_nodes(plan: Plan) -> Iterator[str]:
    """A step reads what its nodes read, in their order."""
    graph = plan.graph
    for step in plan.steps:
        anchor, problem = graph.nodes[step.nodes[0]], problem_of(graph, step.nodes[0])
        order = [name for name in problem.layouts(step.axes) if name != "out"]
        inputs = (Entry(step.nodes[0]),) if is_copied(anchor) else anchor.inputs
        wanted = list(zip(order, inputs, strict=False))
        if [(one.name, one.entry) for one in step.operands] != wanted:
            yield f"step {step.index} reads {[one.name for one in step.operands]!r:.80}, its operation {wanted}"
        for number, (node, group) in enumerate(zip(step.nodes[1:], step.epilogue_operands, strict=True)):
            beside = [(f"epilogue{number}.{i}", entry) for i, entry in enumerate(graph.nodes[node].inputs)]
            found = [one and (one.name, one.entry) for one in group]
            if len(found) != len(beside) or any(a not in (None, b) for a, b in zip(found, beside, strict=True)):
                yield f"epilogue {number} of step {step.index} does not read what node {node} reads"


def tiles_are_summed_in_the_fixed_order(plan: Plan) -> Iterator[str]:
    """What the bits of a result depend on follows from the operation alone."""
    for step in plan.steps:
        problem, tile = problem_of(plan.graph, step.nodes[0]), {axis.name: axis.tile for axis in step.axes}
        fixed: dict[str, int] = {}
        if isinstance(problem, Contraction):
            chunk = tiling.reduction_chunk(problem)
            fixed = {"batch": 1, "group": 1, **dict(zip(problem.reduction, chunk, strict=True))}
            if tile["y"] * tile["x"] > plan.spec.tile.rows:
                rows = f"{tile['y'] * tile['x']} rows, the machine's {plan.spec.tile.rows}"
                yield f"a tile of step {step.index} has {rows}"
        elif isinstance(problem, Rows):
            fixed = {"outer": 1, "k": plan.spec.tile.columns}
        elif isinstance(problem, Reduction):
            fixed = tiling.reduction_chunks(problem, plan.spec)
        elif isinstance(problem, Window):
            fixed = {"batch": 1}
        wrong = {name: tile[name] for name, size in fixed.items() if tile[name] != size}
        if wrong:
            yield f"step {step.index} has tiles of {wrong}, they must be {fixed}"


def panels_are_of_the_operand_that_stays(plan: Plan) -> Iterator[str]:
    """Only the operand that the loops inside come back to is kept in L1 as a panel."""
    for step in plan.steps:
        problem = problem_of(plan.graph, step.nodes[0])
        panels = {operand.name for operand in step.reads if operand.is_panel}
        allowed: tuple[set[str], ...] = (set(),)
        if isinstance(problem, Contraction):
            names = tuple(axis.name for axis in step.axes)
            keeps = next(order.keeps for order in tiling.LOOP_ORDERS if order.names == names)
            is_fixed = step.dataflow != "output_stationary" or chunks_of(problem, step) <= 1
            allowed = ({keeps},) if is_fixed else (set(), {keeps})
        elif isinstance(problem, Rows):
            allowed = ({"x"},) if step.axes[-1].count <= 1 else (set(), {"x"})
        if panels not in allowed:
            yield f"step {step.index} keeps {', '.join(sorted(panels)) or 'nothing'} as a panel"


RULES: tuple[Rule, ...] = (
    entries_exist,
    steps_are_an_anchor_and_its_epilogue,
    axes_are_in_a_known_order,
    operands_are_those_of_the_nodes,
    tiles_are_summed_in_the_fixed_order,
    panels_are_of_the_operand_that_stays,
    slots_are_those_of_the_step,
    places_have_a_role_and_a_time,
    tiers_are_reached_by_the_dma_engine,
)
