"""Rules on what the steps compute: every operation once, on its operands, on an engine that can."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from npu_kit.errors import SpecError
from npu_kit.graph.ir import Entry, Graph
from npu_kit.plan.geometry import is_depthwise, problem_of
from npu_kit.plan.ir import Plan
from npu_kit.plan.steps import engine_of, is_copied, label
from npu_kit.plan.storage import JOIN, VIEW

# Engine of each operation, written down once more; of one that is not here the planner's table is believed.
_ENGINE_OF = {
    "matmul": "matrix",
    "conv1d": "conv",
    "conv2d": "conv",
    "max_pool2d": "pooling",
    "avg_pool2d": "pooling",
    "relu": "activation",
    "clip": "activation",
    "sigmoid": "activation",
    "tanh": "activation",
    "gelu": "activation",
    "gelu_tanh": "activation",
    "softmax": "activation",
    "add": "vector",
    "subtract": "vector",
    "multiply": "vector",
    "divide": "vector",
    "maximum": "vector",
    "minimum": "vector",
    "batch_norm": "vector",
    "quantize": "vector",
    "dequantize": "vector",
}


def _the_power_mode_is_one_of_the_machine(plan: Plan) -> Iterator[str]:
    try:
        plan.spec.power_mode(plan.power_mode)
    except SpecError as error:
        yield str(error)


def _tensors_are_those_of_the_graph(plan: Plan) -> Iterator[str]:
    nodes = plan.graph.nodes
    named = [(f"buffer {buffer.name:.80}", buffer.entry) for buffer in plan.buffers]
    for step in plan.steps:
        entries = (
            *map(Entry, step.nodes),
            step.output,
            *step.prefetch,
            *step.spills,
            *(one.entry for one in step.reads),
        )
        named += [(f"step {step.index}", entry) for entry in entries]
    for what, entry in named:
        if not (0 <= entry.node < len(nodes) and 0 <= entry.output < len(nodes[entry.node].outputs)):
            yield f"{what} names output {entry.output} of node {entry.node}, which the graph does not have"


def _steps_are_numbered_in_order(plan: Plan) -> Iterator[str]:
    for position, step in enumerate(plan.steps):
        if step.index != position:
            yield f"step {step.index} stands at place {position}"


def _every_kernel_runs_once(plan: Plan) -> Iterator[str]:
    kernels, copied = frozenset(plan.graph.kernels), [is_copied(node) for node in plan.graph.nodes]
    for step in plan.steps:
        known = kernels if step.family != "copy" else frozenset(filter(copied.__getitem__, range(len(copied))))
        if not step.nodes or not known.issuperset(step.nodes):
            yield f"step {step.index} runs nodes {step.nodes}, which are not all operations"
    runs = Counter(node for step in plan.steps if step.family != "copy" for node in step.nodes)
    for node in plan.graph.kernels:
        if runs[node] != 1 and not copied[node]:  # a reshape shows what another step has written
            yield f"node {node} ({plan.graph.nodes[node].name}) runs {runs[node]} times"


def _steps_have_the_family_of_their_operation(plan: Plan) -> Iterator[str]:
    for step in plan.steps:
        anchor = plan.graph.nodes[step.nodes[0]]
        wanted = "copy" if is_copied(anchor) else type(problem_of(plan.graph, step.nodes[0])).__name__.lower()
        if step.family != wanted:
            yield f"step {step.index}, {label(plan.graph, step.nodes)}, is called {step.family}, it is {wanted}"


def _engines_can_do_their_work(plan: Plan) -> Iterator[str]:
    for step in plan.steps:
        for node, engine in zip(step.nodes, (step.engine, *step.epilogue_engines), strict=False):
            if engine != _engine(plan.graph, node):
                name = plan.graph.nodes[node].name
                yield f"step {step.index} runs {name} on {engine}, not {_engine(plan.graph, node)}"
        if len(step.epilogue_engines) != len(step.nodes) - 1:
            found, wanted = len(step.epilogue_engines), len(step.nodes) - 1
            yield f"step {step.index} has {found} engines for {wanted} epilogue operations"


def _engine(graph: Graph, node: int) -> str:
    if is_copied(graph.nodes[node]):
        return "dma"
    if is_depthwise(graph, node):
        return "vector"  # lane by lane
    name = graph.nodes[node].name
    return _ENGINE_OF[name] if name in _ENGINE_OF else engine_of(graph, node, problem_of(graph, node))


def _operands_are_those_of_the_operation(plan: Plan) -> Iterator[str]:
    for step in plan.steps:
        anchor = plan.graph.nodes[step.nodes[0]]
        wanted = (Entry(step.nodes[0]),) if is_copied(anchor) else anchor.inputs
        found = tuple(operand.entry for operand in step.operands)
        if found != wanted:
            yield f"step {step.index} reads {_show(found)}, {anchor.name} has {_show(wanted)}"
        if step.output != Entry(step.nodes[-1]):
            yield f"step {step.index} writes {_show((step.output,))}, its last operation is node {step.nodes[-1]}"


def _epilogues_follow_the_running_tile(plan: Plan) -> Iterator[str]:
    for step in plan.steps:
        if len(step.epilogue_operands) != len(step.nodes) - 1:
            found, wanted = len(step.epilogue_operands), len(step.nodes) - 1
            yield f"step {step.index} has operands of {found} epilogue operations, it has {wanted}"
        pairs = zip(step.nodes, step.nodes[1:], strict=False)
        for (before, node), operands in zip(pairs, step.epilogue_operands, strict=False):
            found_entries = tuple(Entry(before) if operand is None else operand.entry for operand in operands)
            inputs = plan.graph.nodes[node].inputs
            if found_entries != inputs or sum(operand is None for operand in operands) != 1:
                name = plan.graph.nodes[node].name
                yield f"{name} in step {step.index} reads {_show(found_entries)} with the tile, it has {_show(inputs)}"


def _values_inside_a_step_are_read_there_alone(plan: Plan) -> Iterator[str]:
    readers = Counter(entry for node in plan.graph.nodes for entry in node.inputs) + Counter(plan.graph.heads)
    for step in plan.steps:
        for node in step.nodes[:-1]:
            if readers[Entry(node)] != 1:
                yield f"node {node} never leaves step {step.index} and is read {readers[Entry(node)]} times"


def _stripes_make_up_their_tensor(plan: Plan) -> Iterator[str]:
    joined: Counter[Entry] = Counter()
    for number, node in enumerate(plan.graph.nodes):
        if node.kind == JOIN:
            axis = int(node.attrs["axis"])  # type: ignore[arg-type]
            joined.update(node.inputs)
            rows, wanted = sum(plan.graph.type_of(one).shape[axis] for one in node.inputs), node.outputs[0].shape[axis]
            if rows != wanted:
                yield f"the stripes of node {number} have {rows} rows, it has {wanted}"
        elif node.kind == VIEW:
            axis, start, stop = (int(node.attrs[key]) for key in ("axis", "start", "stop"))  # type: ignore[arg-type]
            rows = plan.graph.type_of(node.inputs[0]).shape[axis]
            if not 0 <= start < stop <= rows or node.outputs[0].shape[axis] != stop - start:
                yield f"view {number} shows rows {start} to {stop} of {rows} as {node.outputs[0]}"
    for entry, times in joined.items():
        if times > 1:
            yield f"node {entry.node} is a stripe of {times} tensors"


def _show(entries: tuple[Entry, ...]) -> str:
    return "nodes " + ", ".join(str(entry.node) for entry in entries) if entries else "nothing"


RULES = (
    _the_power_mode_is_one_of_the_machine,
    _tensors_are_those_of_the_graph,
    _steps_are_numbered_in_order,
    _every_kernel_runs_once,
    _steps_have_the_family_of_their_operation,
    _engines_can_do_their_work,
    _operands_are_those_of_the_operation,
    _epilogues_follow_the_running_tile,
    _values_inside_a_step_are_read_there_alone,
    _stripes_make_up_their_tensor,
)
