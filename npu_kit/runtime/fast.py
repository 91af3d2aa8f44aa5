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
from npu_kit.runtime.fast_contraction import FastContraction
from npu_kit.runtime.fast_epilogue import Call, Epilogue, working_order
from npu_kit.runtime.fast_window import FastWindow
from npu_kit.runtime.kernels import softmax_maximum, softmax_powers, softmax_sum
from npu_kit.runtime.workspace import Scratch, TensorPool
from npu_kit.trace.counters import Counters

Array = NDArray[Any]


class FastPlan:
    """A plan, ready to run on arrays again and again, from several threads if need be.

    Args:
        plan: the plan.
        constants: one array for each of ``plan.graph.constants``, which will never change; what is made of them is kept.
    """

    def __init__(self, plan: Plan, constants: Sequence[Array] = ()) -> None:
        self.constants = tuple(constants)
        self._graph, self._owner = plan.graph, homes(plan.graph)
        unchanging = set(map(Entry, plan.graph.constants)) if constants else set()
        self._steps = [FastStep(plan, step, unchanging) for step in plan.steps]
        # The tensors between steps: the first step that writes each, and the last that writes or reads it.
        self._lives: dict[Entry, tuple[int, int]] = {}
        ends = {self._owner[entry] for entry in (*plan.graph.heads, *map(Entry, plan.graph.arg_nodes))}
        for step in plan.steps:
            for entry in (self._owner[one] for one in (step.output, *self._steps[step.index].reads)):
                if entry not in ends:
                    self._lives[entry] = (self._lives.get(entry, (step.index, 0))[0], step.index)
        # Whether a step's arrays are the same in every run.
        kept = unchanging | set(self._lives)
        self._is_inner = [
            kept.issuperset(self._owner[entry] for entry in (step.step.output, *step.reads)) for step in self._steps
        ]
        self._threads = threading.local()

    def place(self, tensors: dict[Entry, Array]) -> None:
        """Add the arrays of the tensors between steps to those of the region's arguments and results."""
        tensors.update(self._workspace().tensors)
        place_views(self._graph, tensors)

    def run_step(self, index: int, tensors: Mapping[Entry, Array], output: Array) -> Counters:
        """Run one step on whole arrays; returns what it counts.

        Args:
            index: of the step, in order.
            tensors: the arrays of the region, after ``place``.
            output: where the result goes.
        """
        workspace, step = self._workspace(), self._steps[index]
        calls = workspace.calls.get(index)
        if calls is None:
            calls = list(step.bind(tensors, output, workspace.scratch))
            if self._is_inner[index]:
                workspace.calls[index] = calls
        with np.errstate(all="ignore"):
            for call in calls:
                call()
        return step.counters

    def _workspace(self) -> _Workspace:
        """This thread's."""
        if not hasattr(self._threads, "workspace"):
            scratch = Scratch(max(step.scratch_bytes for step in self._steps))
            self._threads.workspace = _Workspace(scratch, self._tensors())
        workspace: _Workspace = self._threads.workspace
        return workspace

    def _tensors(self) -> dict[Entry, Array]:
        """Arrays for the tensors between steps; those that do not live at the same time share memory."""
        pool, tensors = TensorPool(), dict[Entry, Array]()
        for index, step in enumerate(self._steps):
            entry = self._owner[step.step.output]
            if self._lives.get(entry, (-1, -1))[0] == index:
                kind = self._graph.type_of(entry)
                tensors[entry] = pool.take(kind.shape, kind.dtype, step.memory_order(tensors))
            for other, (_, last) in self._lives.items():
                if last == index:
                    pool.release(tensors[other])
        return tensors


@dataclass(frozen=True)
class _Workspace:
    """The memory of one thread."""

    scratch: Scratch
    tensors: dict[Entry, Array]
    calls: dict[int, list[Call]] = field(default_factory=dict)  # of inner steps


class FastStep:
    """One step of a plan, ready to be bound to arrays."""

    def __init__(self, plan: Plan, step: Step, unchanging: Set[Entry]) -> None:
        self.step, self._graph, self._unchanging = step, plan.graph, unchanging
        beside = [operand for operands in step.epilogue_operands for operand in operands if operand is not None]
        self.reads = [operand.entry for operand in (*step.operands, *beside)]
        self._problem = problem_of(plan.graph, step.nodes[0])
        self.counters = count_step(plan.graph, step, self._problem)
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
        if not operands or self.reads[1] not in self._unchanging:
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
