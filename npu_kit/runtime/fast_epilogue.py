"""The way out of a step in fast mode: its epilogue and the output, block by block, while a block is in the caches.

A block is a box of the output in *working axes*: the tensor's own axes in another order, channels last, one element
long where the tensor has no such axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from npu_kit.graph.ir import Entry, Graph, Node
from npu_kit.graph.shapes import FLOATS
from npu_kit.plan.geometry import Contraction, Problem, Window, aligned_operand
from npu_kit.plan.ir import Step
from npu_kit.runtime.arithmetic import Array, apply_elementwise, compute_dtype, to_declared

WorkingOrder = tuple[int | None, ...]
Where = tuple[slice, ...]
Call = Callable[[], object]  # a NumPy call whose arrays are bound

ROW_ELEMENTS = 1 << 16  # the longest row along which values per channel are repeated


def working_order(problem: Problem) -> WorkingOrder:
    """For each working axis the output tensor's axis, None where it has none: batch axes, rows, columns, channels."""
    if isinstance(problem, Contraction):
        return order_of(problem.out_axes, "HWC")
    if isinstance(problem, Window):
        return tuple(problem.x_axes.index(letter) for letter in "NHWC")
    return tuple(range(len(problem.out.shape)))


def order_of(axes: str, letters: str) -> WorkingOrder:
    """The batch axes among a tensor's ``axes``, then those of ``letters``, None where it has none."""
    return (*range(axes.count("B")), *(axes.index(one) if one in axes else None for one in letters))


def arrange(array: Array, order: WorkingOrder) -> Array:
    """``array`` in working axes, as a view."""
    transposed = array.transpose([axis for axis in order if axis is not None])
    return _view(transposed, (None if axis is None else slice(None) for axis in order))


class Epilogue:
    """The epilogue of a step, ready to be bound to arrays.

    Args:
        graph, step: what is run.
        problem: of the step's anchor.
    """

    def __init__(self, graph: Graph, step: Step, problem: Problem) -> None:
        self._graph, self._step = graph, step
        self._order = working_order(problem)
        self._declared = graph.nodes[step.nodes[0]].outputs[0].dtype
        self._is_sum = isinstance(problem, Contraction) or (isinstance(problem, Window) and not problem.is_maximum)

    def bind(self, tensors: Mapping[Entry, Array], output: Array) -> BoundEpilogue:
        """The epilogue on the arrays of the region."""
        calls = []
        for node_id, operands in zip(self._step.nodes[1:], self._step.epilogue_operands, strict=True):
            seen = [
                None if operand is None else self._seen(node_id, position, operand.entry, tensors[operand.entry])
                for position, operand in enumerate(operands)
            ]
            calls.append((self._graph.nodes[node_id], seen))
        addend: Array | None = None
        if self._is_sum and self._declared in FLOATS:
            addend = np.zeros((), np.float32)
            if calls and self._declared == "float32" and calls[0][0].name == "add":
                (bias,) = (operand for operand in calls[0][1] if operand is not None)
                (entry,) = (one.entry for one in self._step.epilogue_operands[0] if one is not None)
                if math.prod(bias.shape[:-2]) == 1 and self._may_copy(entry):
                    addend = bias + addend
                    del calls[0]
        return BoundEpilogue(arrange(output, self._order), self._declared, addend, calls)

    def _may_copy(self, entry: Entry) -> bool:
        """Whether a binding may keep a copy: not of what the plan computes, which is another value in each run."""
        return entry.node in self._graph.arg_nodes

    def _seen(self, node_id: int, position: int, entry: Entry, array: Array) -> Array:
        """An operand in working axes, one element long along those it is broadcast over."""
        along = aligned_operand(self._graph, node_id, position).along
        sizes = [array.shape[axis] if axis >= 0 else 1 for axis in along]
        if array.ndim == len(sizes) > 0:
            sizes[0] = array.shape[0]  # one for each image of a batch of steps
        seen = arrange(array.reshape(sizes), self._order)
        shape = [self._graph.nodes[node_id].outputs[0].shape[axis] if axis is not None else 1 for axis in self._order]
        is_row = len(shape) > 1 and seen.size == shape[-1] and shape[-2] * shape[-1] <= ROW_ELEMENTS
        if is_row and self._may_copy(entry):
            # Beside each other along a row of the output: NumPy then walks the row in one loop.
            seen = np.broadcast_to(seen, (*seen.shape[:-2], *shape[-2:])).copy()
        return seen


@dataclass(frozen=True)
class BoundEpilogue:
    """The epilogue of a step on arrays in working axes, and its output."""

    output: Array
    declared: str  # dtype of the anchor's result
    # Of an anchor that hands over a sum of products. A sum that starts from 0.0, as in the accumulator, is never -0.0,
    # but a product that underflows can be. A bias is added with it: the bits of 0.0 and then the bias are the same.
    addend: Array | None
    calls: list[tuple[Node, list[Array | None]]]  # operands, None for the running value

    def call(self, value: Array, where: Where) -> Call:
        """What takes ``value``, computed by the anchor for the block at ``where``, to the output. It overwrites it."""
        target = _view(self.output, where)
        addend = None if self.addend is None else _part(self.addend, where)
        calls = [
            (node, [None if operand is None else _part(operand, where) for operand in operands])
            for node, operands in self.calls
        ]
        return partial(_finish, value, self.declared, addend, calls, target)


def _finish(
    value: Array,
    declared: str,
    addend: Array | None,
    calls: list[tuple[Node, list[Array | None]]],
    target: Array,
) -> None:
    if addend is not None:
        is_last = not calls and declared == "float32"
        value = np.add(value, addend, out=target if is_last else value)
    value = to_declared(value, declared)
    for number, (node, operands) in enumerate(calls, start=1):
        inputs = [value if operand is None else operand for operand in operands]
        dtype = node.outputs[0].dtype
        out = target if number == len(calls) else value
        fits = out.dtype == compute_dtype(dtype)
        value = apply_elementwise(node.name, node.attrs, inputs, dtype, out if fits else None)
    if value is not target:
        target[...] = value


def _part(operand: Array, where: Where) -> Array:
    """The block of an operand that is one element long along the axes it is broadcast over."""
    if not operand.ndim:
        return operand
    return _view(
        operand, (piece if size > 1 else slice(None) for piece, size in zip(where, operand.shape, strict=True))
    )


def _view(array: Array, index: Iterable[slice | None]) -> Array:
    """A part of an array as a view, also of a scalar's, which a plain empty index would turn into a number."""
    part: Array = array[tuple([*index, Ellipsis])]
    return part
