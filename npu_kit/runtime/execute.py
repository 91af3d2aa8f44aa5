"""Run a plan on arrays: step by step in its order, in one of two modes.

``"step"`` executes every instruction on real tiers; ``"fast"`` computes the same tiles in batches. Both give the same
bits and the same counters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.errors import ExecutionError, InputError, leave_note
from npu_kit.graph.ir import Entry, Graph
from npu_kit.plan.ir import Plan, Step
from npu_kit.plan.schedule import Timeline
from npu_kit.plan.steps import is_copied, label
from npu_kit.plan.storage import place_views, reshaped
from npu_kit.runtime.fast import FastPlan
from npu_kit.runtime.memory import OnChipMemory
from npu_kit.runtime.record import RegionRun, active_traces
from npu_kit.runtime.step import StepRunner
from npu_kit.trace.counters import Counters
from npu_kit.trace.events import EventLog, Events

Array = NDArray[Any]
MODES = ("fast", "step")
# Of one thread. A window that reaches far, over 10,000 rows of padding for example, needs that much at once.
LARGEST_SCRATCH_BYTES = 256 << 20


def execute(
    plan: Plan,
    arguments: Sequence[Array],
    outputs: Sequence[Array] | None = None,
    *,
    mode: str = "fast",
    poison: bool = False,
    prepared: FastPlan | None = None,
) -> tuple[Array, ...]:
    """Run one region.

    Args:
        plan: from ``make_plan``.
        arguments: one array per ``plan.graph.arg_nodes``, exact in shape and dtype; they are not modified. Without the
            constants that ``prepared`` has.
        outputs: one array per head, to be written; allocated if None.
        mode: "fast" or "step".
        poison: in step mode, fill every slot with NaN before it is reused.
        prepared: of this plan; saves what does not depend on the arguments when the plan runs again in fast mode.

    Returns:
        One array per head.

    Raises:
        InputError: a wrong number, shape or dtype of arrays, before anything runs.
        ExecutionError: an unknown mode, a plan that leaves its tiers.
        ZeroDivisionError: an integer divide by zero; the message names the operation.
    """
    verify_mode(mode)
    graph = plan.graph
    tensors = _tensors(graph, arguments if prepared is None else [*arguments, *prepared.constants])
    results = _outputs(graph, outputs)
    for entry, result in zip(graph.heads, results, strict=True):
        if not is_copied(graph.nodes[entry.node]):
            tensors.setdefault(entry, result)
    counters: tuple[Counters, ...] = ()
    events: Events | None = None
    traces = active_traces()
    fast = (prepared or FastPlan(plan)) if mode == "fast" else None
    if fast is not None and fast.scratch_bytes <= LARGEST_SCRATCH_BYTES:
        _run_fast(plan, fast, tensors, results)
        counters = fast.counters() if traces else ()
    else:  # the same bits, in the memory that the machine has
        counters, events = _run_steps(plan, tensors, results, poison=poison)
    _repeat_heads(graph, results)
    if traces:
        run = RegionRun(plan, mode, counters, events)
        for trace in traces:
            trace.runs.append(run)
    return tuple(results)


def verify_mode(mode: str) -> None:
    """Raise ExecutionError if ``mode`` is none of ``MODES``."""
    if not isinstance(mode, str) or mode not in MODES:  # an array would be compared element by element
        raise ExecutionError(f"no mode {mode!r:.80}", f"there are {' and '.join(MODES)}")


def _run_fast(plan: Plan, fast: FastPlan, tensors: dict[Entry, Array], results: Sequence[Array]) -> None:
    fast.place(tensors)
    with fast.helper() as helper:
        for step in fast.steps:
            with _named(plan.graph, step):
                fast.run_step(step, tensors, _output(plan.graph, step, tensors, results), helper)
    fast.collect(results)


def _run_steps(
    plan: Plan, tensors: dict[Entry, Array], results: Sequence[Array], *, poison: bool
) -> tuple[tuple[Counters, ...], Events]:
    memory, timeline, log = OnChipMemory(plan.spec, plan), Timeline(), EventLog()
    counters: list[Counters] = []
    _place(plan, tensors, memory)
    for step in plan.steps:
        timeline = Timeline(timeline.end)
        output = _output(plan.graph, step, tensors, results)
        with _named(plan.graph, step):
            runner = StepRunner(plan, step, tensors, output, memory, timeline, log, poison=poison)
            counters.append(runner.run())
        tensors |= {entry: runner.tensors[entry] for entry in step.spills}  # from here on they are in DRAM
    return tuple(counters), log.events()


def _output(graph: Graph, step: Step, tensors: Mapping[Entry, Array], results: Sequence[Array]) -> Array:
    """Where a step writes. A copy reads and writes one entry: the argument, and the array that the region returns."""
    return results[graph.heads.index(step.output)] if step.family == "copy" else tensors[step.output]


def _tensors(graph: Graph, arguments: Sequence[Array]) -> dict[Entry, Array]:
    if len(arguments) != len(graph.arg_nodes):
        raise InputError(
            f"region {graph.symbol[:80]} got {len(arguments)} arrays",
            f"it takes {len(graph.arg_nodes)}: {', '.join(graph.nodes[i].name for i in graph.arg_nodes)}",
        )
    tensors = {}
    for node_id, array in zip(graph.arg_nodes, arguments, strict=True):
        _check(graph, Entry(node_id), array, graph.nodes[node_id].name)
        tensors[Entry(node_id)] = array
    return tensors


def _check(graph: Graph, entry: Entry, array: Array, name: str) -> None:
    wanted = graph.type_of(entry)
    if array.shape != wanted.shape or array.dtype != wanted.dtype:  # another byte order is another dtype
        found = f"{'x'.join(map(str, array.shape)) or 'scalar'} {array.dtype}"
        raise InputError(f"array {name} of region {graph.symbol[:80]}", f"it must be {wanted}, it is {found}")


def _outputs(graph: Graph, outputs: Sequence[Array] | None) -> list[Array]:
    if outputs is None:
        return [np.empty(graph.type_of(entry).shape, graph.type_of(entry).dtype) for entry in graph.heads]
    if len(outputs) != len(graph.heads):
        raise InputError(f"region {graph.symbol[:80]} got {len(outputs)} outputs", f"it returns {len(graph.heads)}")
    shown = reshaped(graph)
    for number, (entry, array) in enumerate(zip(graph.heads, outputs, strict=True)):
        _check(graph, entry, array, f"output {number}")
        if entry in shown and not array.flags.c_contiguous:
            why = "the region goes on with it in another shape, so its rows must stand side by side"
            raise InputError(f"output {number} of region {graph.symbol[:80]}", why, "np.empty(shape, dtype)")
    return list(outputs)


def _place(plan: Plan, tensors: dict[Entry, Array], memory: OnChipMemory) -> None:
    """Give every tensor between steps its place: a view into L2, or an array that stands for DRAM."""
    for buffer in plan.buffers:
        if buffer.role != "intermediate":
            continue
        kind = plan.graph.type_of(buffer.entry)
        if buffer.tier == "L2":
            tensors[buffer.entry] = memory["L2"].view(buffer.offset_bytes, kind.shape, kind.dtype)
        else:
            tensors[buffer.entry] = np.empty(kind.shape, kind.dtype)
    place_views(plan.graph, tensors)


def _repeat_heads(graph: Graph, results: Sequence[Array]) -> None:
    """Fill the outputs that show a tensor which an earlier output already shows."""
    first: dict[Entry, Array] = {}
    for entry, result in zip(graph.heads, results, strict=True):
        if entry in first:
            result[...] = first[entry]
        first.setdefault(entry, result)


@contextmanager
def _named(graph: Graph, step: Step) -> Iterator[None]:
    """Leave on an exception which step it came from: a note that Python 3.11 and later print, and an attribute."""
    try:
        yield
    except BaseException as error:
        where = f"in step {step.index}, {label(graph, step.nodes)}"
        with suppress(BaseException):  # a class of a learner's own need not take one
            error.__dict__.setdefault("npu_kit_node", where)
        leave_note(error, where)
        raise
