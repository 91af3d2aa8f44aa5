"""Steps that do the same to other rows, brought together: the stripes of a chain, all at once.

A chain in stripes is planned stripe by stripe, because only one stripe's rows fit the chip. Fast mode has room for all,
so it takes one link after the other: each link's stripes are images of one batch, with the same tiles as in the plan.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from npu_kit.graph.ir import Entry, Graph, TensorType
from npu_kit.plan.geometry import Contraction, Window
from npu_kit.plan.ir import Plan, Step
from npu_kit.plan.storage import JOIN, homes

Array = NDArray[Any]


def batches(plan: Plan) -> list[tuple[int, ...]]:
    """The plan's steps in batches that can run in this order: alike within a batch, on tensors of batches before it."""
    graph, owner = plan.graph, homes(plan.graph)
    has_stripes = any(node.kind == JOIN for node in graph.nodes)
    found: list[list[int]] = []
    latest: dict[Hashable, int] = {}  # batch of steps that look like this
    written: dict[Entry, int] = {}  # the last batch that writes to an entry's memory
    for step in plan.steps:
        after = max((written.get(owner[operand.entry], -1) for operand in step.reads), default=-1)
        key = _likeness(graph, step) if has_stripes else step.index
        number = latest.get(key, -1)
        if number > after:
            found[number].append(step.index)
        else:
            number = latest[key] = len(found)
            found.append([step.index])
        written[owner[step.output]] = max(number, written.get(owner[step.output], -1))
    return [tuple(batch) for batch in found]


def _likeness(graph: Graph, step: Step) -> Hashable:
    """Equal for steps that can be one batch: the same operations, tiles and parameters, on one image."""
    out = graph.type_of(step.output)
    if step.family not in ("contraction", "window") or len(out.shape) != 4 or out.shape[0] != 1:
        return step.index
    nodes = [graph.nodes[node] for node in step.nodes]
    calls = tuple((node.name, tuple(sorted(node.attrs.items())), node.outputs) for node in nodes)
    reads = tuple(
        operand.entry if operand.entry.node in graph.arg_nodes else graph.type_of(operand.entry)
        for operand in step.reads
    )
    running = tuple(tuple(one is None for one in operands) for operands in step.epilogue_operands)
    return calls, step.axes, reads, running


@overload
def repeated(problem: Contraction, copies: int) -> Contraction: ...
@overload
def repeated(problem: Window, copies: int) -> Window: ...
def repeated(problem: Contraction | Window, copies: int) -> Contraction | Window:
    """A problem of one image as that of so many."""
    if copies == 1:
        return problem

    def more(kind: TensorType) -> TensorType:
        return TensorType((copies, *kind.shape[1:]), kind.dtype)

    if isinstance(problem, Contraction):
        return replace(problem, x=more(problem.x), out=more(problem.out), batch_shape=(copies,))
    return replace(problem, x=more(problem.x), out=more(problem.out))


def stack(arrays: Sequence[Array]) -> Array | None:
    """Arrays (1, ..), the same distance apart in one memory, as one array (k, ..); None if they are not. No copy."""
    first = arrays[0]
    if all(array is first for array in arrays):
        return first
    starts = [array.__array_interface__["data"][0] for array in arrays]
    distances = {after - before for before, after in pairwise(starts)}
    is_one_memory = len({id(_memory(array)) for array in arrays}) == 1
    if len(distances) != 1 or not is_one_memory or len({(array.shape, array.strides) for array in arrays}) != 1:
        return None
    shape, strides = (len(arrays), *first.shape[1:]), (*distances, *first.strides[1:])
    return np.lib.stride_tricks.as_strided(first, shape, strides, writeable=first.flags.writeable)


def _memory(array: Array) -> Any:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
