"""Fast mode: the tiles of a plan, computed in batches.

The same tiles as in step mode, packed side by side, go through the same products in one NumPy call; each keeps its own
order of summation, so the bits are the same.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.graph.ir import Entry
from npu_kit.plan.geometry import Contraction, Elementwise, Softmax, Window, problem_of
from npu_kit.plan.ir import Plan, Step
from npu_kit.plan.storage import homes, place_views
from npu_kit.runtime.arithmetic import apply_elementwise, compute_dtype
from npu_kit.runtime.counting import count_step
from npu_kit.runtime.fast_batches import batches, operands_of, repeated, stack
from npu_kit.runtime.fast_contraction import FastContraction
from npu_kit.runtime.fast_epilogue import Call, Epilogue, working_order
from npu_kit.runtime.fast_window import FastWindow
from npu_kit.runtime.kernels import softmax_maximum, softmax_powers, softmax_sum
from npu_kit.runtime.workspace import Scratch, TensorPool
from npu_kit.trace.counters import Counters

Array = NDArray[Any]
COPIED_BYTES = 4 << 20  # of arguments and results that are worth a copy, so that their arrays stay the same


class FastPlan:
    """A plan, ready to run on arrays again and again, from several threads if need be.

    Args:
        plan: the plan.
        constants: one array for each of ``plan.graph.constants``, which will never change; what is made of them is kept.
    """

    def __init__(self, plan: Plan, constants: Sequence[Array] = ()) -> None:
        graph = plan.graph
        self.constants = tuple(constants)
        self._plan, self._owner = plan, homes(graph)
        self._unchanging = set(map(Entry, graph.constants)) if constants else set[Entry]()
        self._batches = {batch[0]: batch for batch in batches(plan)}  # by their first step
        self.steps = [plan.steps[first] for first in self._batches]  # the first of each batch, in order
        self._runs = {
            step.index: FastStep(plan, step, self._unchanging, len(self._batches[step.index])) for step in self.steps
        }
        # Arguments and results of little size are copied to and from arrays that stay.
        self._inputs = {*map(Entry, graph.inputs)}
        parameters = {*map(Entry, graph.constants)}
        ends = (self._inputs | set(graph.heads)) - parameters
        is_little = sum(graph.type_of(entry).nbytes for entry in ends) <= COPIED_BYTES
        self._copied = ends if is_little else set[Entry]()
        # The tensors that have an array of their own: the first batch that writes each, and the last that uses it.
        self._lives: dict[Entry, tuple[int, int]] = {}
        for first, batch in self._batches.items():
            for entry in self._touched(batch) - parameters - (ends - self._copied):
                self._lives[entry] = (self._lives.get(entry, (first, 0))[0], first)
        self._lives.update((entry, (self._lives.get(entry, (0, 0))[0], len(plan.steps))) for entry in self._copied)
        self._inner = {first for first, batch in self._batches.items() if self._is_inner(batch)}
        self._counters: tuple[Counters, ...] | None = None
        self._threads = threading.local()

    def _touched(self, batch: Sequence[int]) -> set[Entry]:
        """The entries whose memory a batch reads or writes."""
        steps = [self._plan.steps[index] for index in batch]
        entries = (entry for step in steps for entry in (step.output, *(one.entry for one in operands_of(step))))
        return {self._owner[entry] for entry in entries}

    def _is_inner(self, batch: Sequence[int]) -> bool:
        """Whether a batch's arrays are the same in every run, and what is packed of them, too."""
        step = self._plan.steps[batch[0]]
        packed = {self._owner[operand.entry] for operand in operands_of(step)[1:]}
        is_known = self._touched(batch) <= self._unchanging | set(self._lives)
        return is_known and not packed & self._inputs and step.family != "copy"

    def place(self, tensors: dict[Entry, Array]) -> None:
        """Add the arrays of the tensors between steps to those of the region's arguments and results."""
        own = self._workspace().tensors
        for entry in self._copied & self._inputs:
            np.copyto(own[entry], tensors[entry])
        tensors.update(own)
        if not self._has_all(own):
            place_views(self._plan.graph, tensors)

    def _has_all(self, tensors: Mapping[Entry, Array]) -> bool:
        return len(tensors) == len(self._owner)

    def run_step(self, step: Step, tensors: Mapping[Entry, Array], output: Array) -> None:
        """Run one of ``steps``, with the others of its batch, on whole arrays.

        Args:
            step: which.
            tensors: the arrays of the region, after ``place``.
            output: where the result goes.
        """
        index, workspace = step.index, self._workspace()
        calls = workspace.calls.get(index)
        if calls is None:
            calls = list(self._bind(self._batches[index], tensors, output, workspace.scratch))
            if index in self._inner:
                workspace.calls[index] = calls
        with np.errstate(all="ignore"):
            for call in calls:
                call()

    def collect(self, results: Sequence[Array]) -> None:
        """Copy results that were computed in arrays of the plan's own."""
        tensors = self._workspace().tensors
        for entry, result in zip(self._plan.graph.heads, results, strict=True):
            if entry in self._copied and entry not in self._inputs:
                np.copyto(result, tensors[entry])

    def counters(self) -> tuple[Counters, ...]:
        """What one run of each step of the plan moves and computes."""
        if self._counters is None:
            graph = self._plan.graph
            self._counters = tuple(count_step(graph, one, problem_of(graph, one.nodes[0])) for one in self._plan.steps)
        return self._counters

    def _bind(
        self, batch: Sequence[int], tensors: Mapping[Entry, Array], output: Array, scratch: Scratch
    ) -> Iterator[Call]:
        """The NumPy calls of a batch: as one, or step by step where the arrays do not lie side by side."""
        first, *others = (self._plan.steps[index] for index in batch)
        if not others:
            yield from self._runs[batch[0]].bind(tensors, output, scratch)
            return
        out = stack([tensors[step.output] for step in (first, *others)])
        together: dict[Entry, Array | None] = {
            operands[0].entry: stack([tensors[operand.entry] for operand in operands])
            for operands in zip(*map(operands_of, (first, *others)), strict=True)
        }
        ready = {entry: array for entry, array in together.items() if array is not None}
        if out is not None and len(ready) == len(together):
            yield from self._runs[batch[0]].bind(ready, out, scratch)
            return
        for step in (first, *others):
            alone = FastStep(self._plan, step, self._unchanging)
            yield from alone.bind(tensors, tensors[step.output], scratch)

    def _workspace(self) -> _Workspace:
        """This thread's."""
        if not hasattr(self._threads, "workspace"):
            scratch = Scratch(max(run.scratch_bytes for run in self._runs.values()))
            tensors = self._tensors()
            constants = dict(zip(map(Entry, self._plan.graph.constants), self.constants, strict=False))
            if set(self._owner.values()) <= {*tensors, *constants}:
                tensors |= constants
                place_views(self._plan.graph, tensors)
            self._threads.workspace = _Workspace(scratch, tensors)
        workspace: _Workspace = self._threads.workspace
        return workspace

    def _tensors(self) -> dict[Entry, Array]:
        """Arrays of the plan's own; those that do not live at the same time share memory."""
        graph, pool = self._plan.graph, TensorPool()
        tensors = {entry: np.empty(graph.type_of(entry).shape, graph.type_of(entry).dtype) for entry in self._copied & self._inputs}
        taken: dict[int, list[Array]] = {}
        for first, batch in self._batches.items():
            new = dict.fromkeys(self._owner[self._plan.steps[index].output] for index in batch)
            new = [entry for entry in new if self._lives.get(entry, (-1, 0))[0] == first and entry not in tensors]
            if new:
                kind = graph.type_of(new[0])
                shape = (len(new) * kind.shape[0], *kind.shape[1:]) if len(new) > 1 else kind.shape
                array = pool.take(shape, kind.dtype, self._runs[first].memory_order(tensors))
                pieces = np.split(array, len(new)) if len(new) > 1 else [array]
                tensors.update(zip(new, pieces, strict=True))
                taken.setdefault(max(self._lives[entry][1] for entry in new), []).append(array)
            for array in taken.pop(first, ()):
                pool.release(array)
        return tensors


@dataclass(frozen=True)
class _Workspace:
    """The memory of one thread."""

    scratch: Scratch
    tensors: dict[Entry, Array]
    calls: dict[int, list[Call]] = field(default_factory=dict)  # of inner batches


class FastStep:
    """One step of a plan, ready to be bound to arrays.

    Args:
        plan, step: what is run.
        unchanging: entries whose arrays are the same in every run.
        copies: of the step, each on an image of its own.
    """

    def __init__(self, plan: Plan, step: Step, unchanging: Set[Entry], copies: int = 1) -> None:
        self.step, self._graph, self._unchanging = step, plan.graph, unchanging
        self._problem = problem_of(plan.graph, step.nodes[0])
        if copies > 1:
            assert isinstance(self._problem, Contraction | Window)
            self._problem = repeated(self._problem, copies)
        self._epilogue = Epilogue(plan.graph, step, self._problem)
        self._blocked: FastContraction | FastWindow | None = None
        if isinstance(self._problem, Contraction):
            self._blocked = FastContraction(plan, step, self._problem)
        elif isinstance(self._problem, Window):
            self._blocked = FastWindow(step, self._problem)
        self.scratch_bytes = self._blocked.scratch_bytes if self._blocked else 0
        self._packed: Any = None

    def memory_order(self, tensors: Mapping[Entry, Array]) -> list[int]:
        """The output's axes, outermost first, as suits the step: channels last, or as in a tensor that it reads."""
        if self._blocked is not None:
            return [axis for axis in working_order(self._problem) if axis is not None]
        shape = self._graph.type_of(self.step.output).shape
        for operand in self.step.operands:
            if operand.entry in tensors and tensors[operand.entry].shape == shape:
                return sorted(range(len(shape)), key=lambda axis: -tensors[operand.entry].strides[axis])
        return list(range(len(shape)))

    def bind(self, tensors: Mapping[Entry, Array], output: Array, scratch: Scratch) -> Iterator[Call]:
        """The NumPy calls that compute the step on these arrays."""
        epilogue = self._epilogue.bind(tensors, output)
        inputs = [tensors[operand.entry] for operand in self.step.operands]
        blocked, shape = self._blocked, epilogue.output.shape
        whole = tuple(slice(0, size) for size in shape)
        if blocked is not None and blocked.blocks:
            images, weights = blocked.images(inputs[0]), self._weights(blocked, inputs[1:])
            for block in blocked.blocks:
                yield from blocked.bind(block, images, weights, epilogue, scratch)
        elif isinstance(self._problem, Softmax):
            yield lambda: epilogue.call(_softmax(self.step, self._problem, inputs[0]), whole)()
        elif isinstance(self._problem, Elementwise):
            yield lambda: epilogue.call(self._elementwise(self._problem, inputs), whole)()
        else:  # nothing to sum, or nothing to compute
            yield lambda: epilogue.call(np.zeros(shape, compute_dtype(self._problem.out.dtype)), whole)()

    def _weights(self, blocked: FastContraction | FastWindow, operands: list[Array]) -> Any:
        """The weights, packed; packed once if they never change."""
        if not operands or self.step.operands[1].entry not in self._unchanging:
            return blocked.pack_weights(operands[0]) if operands else None
        if self._packed is None:
            self._packed = blocked.pack_weights(operands[0])
        return self._packed

    def _elementwise(self, problem: Elementwise, inputs: list[Array]) -> Array:
        node = self._graph.nodes[self.step.nodes[0]]
        if not node.is_kernel:
            return inputs[0]
        if 0 in problem.out.shape:
            return np.empty(problem.out.shape, problem.out.dtype)
        seen = [
            array.reshape([array.shape[axis] if axis >= 0 else 1 for axis in aligned.along])
            for array, aligned in zip(inputs, problem.operands, strict=True)
        ]
        value = apply_elementwise(node.name, node.attrs, seen, problem.out.dtype)
        return value if value.shape == problem.out.shape else np.broadcast_to(value, problem.out.shape).copy()


def _softmax(step: Step, problem: Softmax, x: Array) -> Array:
    """Rows stay apart; the columns are padded to whole tiles and summed tile by tile, as in step mode."""
    columns = step.axes[-1]
    moved = np.moveaxis(x, problem.axis, -1)
    rows = moved.size // max(1, columns.extent)
    packed = np.full((rows, columns.count * columns.tile), -np.inf, x.dtype)
    packed[:, : columns.extent] = moved.reshape(rows, columns.extent)
    maximum, total = np.full(rows, -np.inf, np.float32), np.zeros(rows, np.float32)
    chunks = packed.reshape(rows, columns.count, columns.tile)
    for part in range(columns.count):
        softmax_maximum(maximum, chunks[:, part])
    for part in range(columns.count):
        softmax_sum(total, chunks[:, part], maximum)
    with np.errstate(all="ignore"):
        value = softmax_powers(packed, maximum) / total[:, None]
    return np.moveaxis(value[:, : columns.extent].reshape(moved.shape), -1, problem.axis)
