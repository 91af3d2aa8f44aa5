"""One step in fast mode: bound to arrays, it is a list of NumPy calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.graph.ir import Entry, Node
from npu_kit.plan.geometry import (
    Contraction,
    Elementwise,
    Movement,
    Reduction,
    Rows,
    Window,
    chunk_axes,
    problem_of,
    tile_indices,
)
from npu_kit.plan.ir import Plan, Step
from npu_kit.plan.steps import is_copied
from npu_kit.runtime.arithmetic import apply_elementwise, compute_dtype
from npu_kit.runtime.fast_batches import repeated
from npu_kit.runtime.fast_contraction import FastContraction
from npu_kit.runtime.fast_epilogue import BoundEpilogue, Call, Epilogue, working_order
from npu_kit.runtime.fast_window import FastWindow
from npu_kit.runtime.kernels import finish_reduction, fold_reduction
from npu_kit.runtime.row_kernels import STARTS, gather, normalise
from npu_kit.runtime.slots import keep
from npu_kit.runtime.workspace import Scratch

Array = NDArray[Any]


class FastStep:
    """One step of a plan, ready to be bound to arrays.

    Args:
        plan, step: what is run.
        unchanging: entries whose arrays are the same in every run.
        copies: of the step, each on an image of its own.
        threads: threads that share the work.
    """

    def __init__(self, plan: Plan, step: Step, unchanging: Set[Entry], copies: int = 1, threads: int = 1) -> None:
        self._graph, self._step, self._unchanging = plan.graph, step, unchanging
        problem = problem_of(plan.graph, step.nodes[0])
        self._blocked: Any = None  # FastContraction or FastWindow: of one form, each with blocks of its own
        if isinstance(problem, Contraction):
            problem = repeated(problem, copies)
            self._blocked = FastContraction(plan, step, problem, threads)
        elif isinstance(problem, Window):
            problem = repeated(problem, copies)
            self._blocked = FastWindow(step, problem, threads)
        self._problem = problem
        self._epilogue = Epilogue(plan.graph, step, problem)
        self.scratch_bytes = self._blocked.scratch_bytes if self._blocked else 0
        self.is_shared = self._blocked is not None and len(self._blocked.blocks) >= threads > 1
        self._packed: Any = None

    def memory_order(self, tensors: Mapping[Entry, Array]) -> list[int]:
        """The output's axes, outermost first, as suits the step: channels last, or as in a tensor that it reads."""
        if self._blocked is not None:
            return [axis for axis in working_order(self._problem) if axis is not None]
        shape = self._graph.type_of(self._step.output).shape
        for operand in self._step.operands:
            if operand.entry in tensors and tensors[operand.entry].shape == shape:
                strides = tensors[operand.entry].strides
                return sorted(range(len(shape)), key=lambda axis: -strides[axis])
        return list(range(len(shape)))

    def bind(self, tensors: Mapping[Entry, Array], output: Array, scratches: Sequence[Scratch]) -> list[list[Call]]:
        """Each thread's NumPy calls to compute the step on these arrays; threads do not wait for each other."""
        epilogue = self._epilogue.bind(tensors, output)
        inputs = [tensors[operand.entry] for operand in self._step.operands]
        calls: list[list[Call]] = [[] for _ in scratches]
        blocked, problem = self._blocked, self._problem
        node = self._graph.nodes[self._step.nodes[0]]
        if blocked is not None and blocked.blocks:
            images, weights = blocked.images(inputs[0]), self._weights(blocked, inputs[1:])
            threads = len(scratches)
            for number, block in enumerate(blocked.blocks):
                thread = number * threads // len(blocked.blocks) if len(blocked.blocks) >= threads else 0
                calls[thread] += blocked.bind(block, images, weights, epilogue, scratches[thread])
        elif isinstance(problem, Reduction):
            calls[0].append(partial(_whole, epilogue, partial(_reduction, self._step, problem, inputs[0])))
        elif isinstance(problem, Movement):
            calls[0].append(partial(_whole, epilogue, partial(_movement, problem, inputs)))
        elif isinstance(problem, Rows):
            calls[0].append(partial(_whole, epilogue, partial(_rows, self._step, problem, node, inputs)))
        elif isinstance(problem, Elementwise):
            calls[0].append(partial(_whole, epilogue, partial(_elementwise, node, problem, inputs)))
        else:  # nothing to sum, or nothing to compute
            zeros = partial(np.zeros, epilogue.output.shape, compute_dtype(problem.out.dtype))
            calls[0].append(partial(_whole, epilogue, zeros))
        return calls

    def _weights(self, blocked: Any, operands: Sequence[Array]) -> Any:
        """The weights, packed; packed once if they never change."""
        if not operands or self._step.operands[1].entry not in self._unchanging:
            return blocked.pack_weights(operands[0]) if operands else None
        if self._packed is None:
            self._packed = blocked.pack_weights(operands[0])
        return self._packed


def _whole(epilogue: BoundEpilogue, compute: Callable[[], Array]) -> None:
    """Compute all of the anchor's result and take it to the output."""
    epilogue.call(compute(), tuple(slice(0, size) for size in epilogue.output.shape))()


def _elementwise(node: Node, problem: Elementwise, inputs: Sequence[Array]) -> Array:
    if is_copied(node):
        return inputs[0]
    if 0 in problem.out.shape:
        return np.empty(problem.out.shape, problem.out.dtype)
    seen = [
        array.reshape([array.shape[axis] if axis >= 0 else 1 for axis in aligned.along])
        for array, aligned in zip(inputs, problem.operands, strict=True)
    ]
    value = apply_elementwise(node.name, node.attrs, seen, problem.out.dtype)
    return value if value.shape == problem.out.shape else np.broadcast_to(value, problem.out.shape).copy()


def _movement(problem: Movement, inputs: Sequence[Array]) -> Array:
    value = np.full(problem.out.shape, problem.fill, problem.out.dtype)
    for array, piece in zip(inputs, problem.pieces, strict=True):
        whole = piece.box([(0, size) for size in problem.out.shape])
        if not whole.elements:
            continue
        shown = [axis for axis in piece.along if axis >= 0]
        order = [axis for axis in range(array.ndim) if axis not in shown] + shown
        some = array[keep(whole.index)].transpose(order).reshape(whole.lengths)
        sides = zip(whole.target, piece.along, strict=True)
        value[tuple(place if axis >= 0 else slice(None) for place, axis in sides)] = some
    return value


def _rows(step: Step, problem: Rows, node: Node, inputs: Sequence[Array]) -> Array:
    """Rows stay apart; the columns are padded to whole tiles and taken tile by tile, as in step mode."""
    columns = step.axes[-1]
    moved = np.moveaxis(inputs[0], problem.axis, -1)
    rows = moved.size // max(1, columns.extent)
    packed = np.full((columns.count, rows, columns.tile), problem.fill, moved.dtype)
    places = [slice(*columns.span(part)) for part in range(columns.count)]
    for tile, place in zip(packed, places, strict=True):
        tile[:, : place.stop - place.start] = moved[..., place].reshape(rows, place.stop - place.start)
    statistics = [np.full(rows, STARTS[name], np.float32) for name in problem.stages[:-1]]
    for stage in problem.stages[:-1]:
        for tile, place in zip(packed, places, strict=True):
            gather(stage, statistics, tile, place.stop - place.start, problem)
    value = np.empty((rows, columns.extent), np.float32)
    for tile, place in zip(packed, places, strict=True):
        parameters = [one[None, place] for one in inputs[1:]]
        some = tile[:, : place.stop - place.start]
        value[:, place] = normalise(some, statistics, parameters, problem, node.attrs)
    return np.moveaxis(value.reshape(moved.shape), -1, problem.axis)


def _reduction(step: Step, problem: Reduction, x: Array) -> Array:
    """The reduced axes are padded to whole tiles and folded tile by tile, as in step mode."""
    axes = chunk_axes(step)
    moved = x.transpose(*problem.kept, *problem.reduced)
    kept = moved.shape[: len(problem.kept)]
    all_kept = (slice(None),) * len(kept)
    total = np.full(kept, problem.start, compute_dtype(problem.out.dtype))
    if total.size:
        for index in tile_indices(axes):
            spans = tuple(slice(*axis.span(i)) for axis, i in zip(axes, index, strict=True))
            here = tuple(slice(0, span.stop - span.start) for span in spans)
            tile = np.full(kept + tuple(axis.tile for axis in axes), problem.start, x.dtype)
            tile[all_kept + here] = moved[all_kept + spans]
            fold_reduction(total, tile.reshape(*kept, -1), problem.operation)
    finish_reduction(total, problem.operation, problem.count)
    return total.reshape(problem.out.shape)
