"""How pictures, tables and views call the steps of a plan, and the tensors and slots of a step.

Constants are named after their content and slots after their place in the step, which tells a reader nothing: here a
constant has the number of its node, and what stands beside the running tile is an operand of its operation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from npu_kit.graph.ir import Entry, Graph
from npu_kit.plan.ir import Plan, Step
from npu_kit.plan.storage import JOIN, VIEW
from npu_kit.render.format import shorten

_NAME_CHARACTERS = 24


def step_title(plan: Plan, step: Step, *, with_composite: bool = False) -> str:
    """A step in a few words, "conv2d + relu, rows 10:20": its operations, and for a stripe its rows.

    Args:
        plan, step: a plan and one of its steps.
        with_composite: whether the composite that the operations come from is named too.
    """
    return _title(plan, step, stripe_of_steps(plan), with_composite)


def step_titles(plan: Plan, *, with_composite: bool = False) -> tuple[str, ...]:
    """The title of each step, see ``step_title``; stripes are looked for only once."""
    stripes = stripe_of_steps(plan)
    return tuple(_title(plan, step, stripes, with_composite) for step in plan.steps)


def _title(plan: Plan, step: Step, stripes: dict[int, str], with_composite: bool) -> str:
    anchor = plan.graph.nodes[step.nodes[0]]
    if step.family == "copy":
        return f"copy of {tensor_name(plan.graph, Entry(step.nodes[0]))}"
    words = " + ".join(plan.graph.nodes[node].name for node in step.nodes)
    composite = f" ({anchor.composite.rpartition('.')[2]})" if with_composite and anchor.composite else ""
    rows = f", {stripes[step.index]}" if step.index in stripes else ""
    return f"{words}{composite}{rows}"


def stripe_of_steps(plan: Plan) -> dict[int, str]:
    """By step index, the stripe that a step works on; steps on whole tensors are left out.

    The step that ends a chain writes the "rows 10:20" of the whole tensor, where the join node has them; those before
    it compute what these rows need, more rows or fewer: "for rows 10:20".
    """
    graph = plan.graph
    step_of = {node: step for step in plan.steps for node in step.nodes}
    readers = Counter(entry for node in graph.nodes for entry in node.inputs)
    stripes: dict[int, str] = {}
    for join in (node for node in graph.nodes if node.kind == JOIN):
        axis, start = join.attrs["axis"], 0
        assert isinstance(axis, int)
        for piece in join.inputs:
            stop = start + graph.type_of(piece).shape[axis]
            rows, step = f"rows {start}:{stop}", step_of[piece.node]
            stripes[step.index] = rows
            # Between the steps of a chain only the next one reads; what goes into the chain, every stripe reads.
            before = graph.nodes[step.nodes[0]].inputs[0]
            while before.node in step_of and readers[before] == 1:
                step = step_of[before.node]
                stripes[step.index] = f"for {rows}"
                before = graph.nodes[step.nodes[0]].inputs[0]
            start = stop
    return stripes


def tensor_name(graph: Graph, entry: Entry) -> str:
    """A tensor in a word or two: "image", "constant 2", "conv2d", "conv2d[4:9]" for a view of its rows."""
    node = graph.nodes[entry.node]
    if node.kind == VIEW:
        return f"{tensor_name(graph, node.inputs[0])}[{node.attrs['start']}:{node.attrs['stop']}]"
    if node.kind == "const":
        return f"constant {entry.node}"
    return shorten(node.name, _NAME_CHARACTERS)


def operand_roles(plan: Plan, step: Step) -> dict[str, str]:
    """By slot name, what an operand of the step is: "x of conv2d", "operand 1 of add"."""
    anchor = plan.graph.nodes[step.nodes[0]]
    operation = "copy" if step.family == "copy" else anchor.name
    roles = {operand.name: f"{operand.name} of {operation}" for operand in step.operands}
    for node, position, beside in step.epilogue_reads:
        roles[beside.name] = f"operand {position} of {plan.graph.nodes[node].name}"
    return roles


def spill_sentence(plan: Plan, steps: Iterable[int]) -> str:
    """What some steps copy to DRAM behind their last tile, "" if nothing."""
    spills = [
        f"{tensor_name(plan.graph, entry)} (node {entry.node}) after step {index}"
        for index in steps
        for entry in plan.steps[index].spills
    ]
    return f"Spilled from L2 to L3, to make room: {', '.join(spills)}." if spills else ""


def node_names(plan: Plan, step: Step) -> dict[int, str]:
    """Names of the nodes that a step moves or computes, for events: a constant is called after its role."""
    named = {node: plan.graph.nodes[node].name for node in step.nodes}
    roles = operand_roles(plan, step)
    for operand in step.reads:
        is_constant = plan.graph.nodes[operand.entry.node].kind == "const"
        name = roles[operand.name] if is_constant else tensor_name(plan.graph, operand.entry)
        named.setdefault(operand.entry.node, name)
    for entry in step.spills:
        named.setdefault(entry.node, tensor_name(plan.graph, entry))
    return named
