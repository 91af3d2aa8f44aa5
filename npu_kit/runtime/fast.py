"""Fast mode: the tiles of a plan, computed in batches.

The same tiles as in step mode, packed side by side, go through the same products in one NumPy call; each keeps its own
order of summation, so the bits are the same. A plan is bound to arrays once and is then a list of NumPy calls.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.graph.ir import Entry
from npu_kit.plan.cost import CostModel
from npu_kit.plan.geometry import problem_of
from npu_kit.plan.ir import Plan, Step
from npu_kit.plan.steps import is_copied
from npu_kit.plan.storage import homes, place_views, reshaped
from npu_kit.runtime.counting import count_step
from npu_kit.runtime.fast_batches import batches, stack
from npu_kit.runtime.fast_epilogue import Call
from npu_kit.runtime.fast_step import FastStep
from npu_kit.runtime.workspace import Scratch, TensorPool
from npu_kit.trace.counters import Counters

Array = NDArray[Any]
COPIED_BYTES = 4 << 20  # of arguments and results that are worth a copy, so that their arrays stay the same
MOST_THREADS = 2
# Set by who wants fewer threads, ours or those of every library that keeps to OpenMP's customs.
THREADS_VARIABLES = ("NPU_KIT_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def threads_allowed() -> int:
    """Threads that a run uses: two, or as many as the process and its environment allow."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wishes = (os.environ.get(name, "").split(",")[0] for name in THREADS_VARIABLES)
    return max(1, min([MOST_THREADS, count, *(int(wish) for wish in wishes if wish.isdecimal())]))


class FastPlan:
    """A plan, ready to run on arrays again and again, from several threads if need be.

    Args:
        plan: the plan.
        constants: one array for each of ``plan.graph.constants``, which will never change: weights are packed once.
        threads: that a run uses; None for ``threads_allowed()``.
    """

    def __init__(self, plan: Plan, constants: Sequence[Array] = (), threads: int | None = None) -> None:
        graph = plan.graph
        self.constants = tuple(constants)
        self.plan, self._owner = plan, homes(graph)
        self._thread_count = threads_allowed() if threads is None else threads
        self._known = set(map(Entry, graph.constants)) if constants else set[Entry]()
        self._unchanging = self._computed_of(self._known)
        self._batches = {batch[0]: batch for batch in batches(plan)}  # by their first step
        self.steps = [plan.steps[first] for first in self._batches]  # the first of each batch, in order
        self._runs = {
            first: FastStep(plan, plan.steps[first], self._unchanging, len(batch), self._thread_count)
            for first, batch in self._batches.items()
        }
        # Arguments and results of little size are copied to and from arrays that stay.
        self._inputs = {*map(Entry, graph.inputs)}
        parameters = {*map(Entry, graph.constants)}
        computed = {entry for entry in graph.heads if not is_copied(graph.nodes[entry.node])}
        ends = (self._inputs | computed) - parameters
        is_little = sum(graph.type_of(entry).nbytes for entry in ends) <= COPIED_BYTES
        self._copied = ends if is_little else set[Entry]()
        # The tensors that have an array of their own: the first batch that writes each, and the last that uses it.
        self._lives: dict[Entry, tuple[int, int]] = {}
        for first, batch in self._batches.items():
            for entry in self._touched(batch) - parameters - (ends - self._copied):
                self._lives[entry] = (self._lives.get(entry, (first, 0))[0], first)
        self._lives.update((entry, (self._lives.get(entry, (0, 0))[0], len(plan.steps))) for entry in self._copied)
        self._inner = {first for first, batch in self._batches.items() if self._is_inner(batch)}
        self.scratch_bytes = max(run.scratch_bytes for run in self._runs.values())  # of each thread
        self._counters: tuple[Counters, ...] | None = None
        self._of_thread = threading.local()

    def place(self, tensors: dict[Entry, Array]) -> None:
        """Add the arrays of the tensors between steps to those of the region's arguments and results."""
        own = self._workspace().tensors
        for entry in self._copied & self._inputs:
            np.copyto(own[entry], tensors[entry])
        tensors.update(own)
        if len(own) < len(self._owner):
            place_views(self.plan.graph, tensors)

    @contextmanager
    def helper(self) -> Iterator[Executor | None]:
        """The second thread, for the time of one run; None where it has no part in it."""
        if self._thread_count == 1 or not self._workspace().is_shared:
            yield None
            return
        with ThreadPoolExecutor(1, "npu_kit") as executor:
            yield executor

    def run_step(self, step: Step, tensors: Mapping[Entry, Array], output: Array, helper: Executor | None) -> None:
        """Run one of ``steps``, with the others of its batch, on whole arrays.

        Args:
            step: which.
            tensors: the arrays of the region, after ``place``.
            output: where the result goes.
            helper: from ``helper``.
        """
        index, workspace = step.index, self._workspace()
        shares = workspace.calls.get(index)
        if shares is None:
            shares = self._bind(self._batches[index], tensors, output, workspace.scratches)
            if index in self._inner:
                workspace.calls[index] = shares
        if helper is None:
            for calls in shares:
                _run(calls)
            return
        others = [helper.submit(_run, calls) for calls in shares[1:] if calls]
        try:
            _run(shares[0])
        finally:
            wait(others)  # it writes where the caller reads next
        for other in others:
            other.result()

    def collect(self, results: Sequence[Array]) -> None:
        """Copy the results that were computed in arrays of the plan's own."""
        own = self._workspace().tensors
        for entry, result in zip(self.plan.graph.heads, results, strict=True):
            if entry in self._copied and entry not in self._inputs:
                np.copyto(result, own[entry])

    def counters(self) -> tuple[Counters, ...]:
        """What one run of each step of the plan moves and computes."""
        if self._counters is None:
            plan, graph = self.plan, self.plan.graph
            cost = CostModel(plan.spec, plan.power_mode)
            self._counters = tuple(count_step(graph, s, problem_of(graph, s.nodes[0]), cost) for s in plan.steps)
        return self._counters

    def _computed_of(self, constants: Set[Entry]) -> set[Entry]:
        """The constants, and what is computed of nothing else: dequantized weights are the same in every run, too."""
        found = set(constants)
        for step in self.plan.steps:
            if all(self._owner[operand.entry] in found for operand in step.reads):
                found.add(step.output)
        return found

    def _touched(self, batch: Sequence[int]) -> set[Entry]:
        """The entries whose memory a batch reads or writes."""
        steps = [self.plan.steps[index] for index in batch]
        entries = (entry for step in steps for entry in (step.output, *(one.entry for one in step.reads)))
        return {self._owner[entry] for entry in entries}

    def _is_inner(self, batch: Sequence[int]) -> bool:
        """Whether a batch's arrays are the same in every run, and so is what a binding copies out of them."""
        step = self.plan.steps[batch[0]]
        is_packed = step.family in ("contraction", "window")
        weights = {self._owner[operand.entry] for operand in step.operands[1:]} if is_packed else set[Entry]()
        others = {self._owner[operand.entry] for operand in step.reads[1:]}
        is_known = self._touched(batch) <= self._known | set(self._lives)
        # Weights are packed when they are bound, and biases repeated, so neither may be different in the next run.
        return is_known and weights <= self._unchanging and not others & self._inputs and step.family != "copy"

    def _bind(
        self, batch: Sequence[int], tensors: Mapping[Entry, Array], output: Array, scratches: Sequence[Scratch]
    ) -> list[list[Call]]:
        """Each thread's NumPy calls for a batch: as one, or step by step where the arrays do not lie side by side."""
        first, *others = (self.plan.steps[index] for index in batch)
        if not others:
            return self._runs[first.index].bind(tensors, output, scratches)
        together = {first.output: stack([tensors[step.output] for step in (first, *others)])}
        for operands in zip(*(step.reads for step in (first, *others)), strict=True):
            together[operands[0].entry] = stack([tensors[operand.entry] for operand in operands])
        ready = {entry: array for entry, array in together.items() if array is not None}
        if len(ready) == len(together):
            return self._runs[first.index].bind(ready, ready[first.output], scratches)
        calls: list[Call] = []
        for step in (first, *others):
            alone = FastStep(self.plan, step, self._unchanging)
            calls += alone.bind(tensors, tensors[step.output], scratches[:1])[0]
        return [calls]

    def _workspace(self) -> _Workspace:
        """This thread's."""
        if not hasattr(self._of_thread, "workspace"):
            tensors = self._tensors()
            constants = dict(zip(map(Entry, self.plan.graph.constants), self.constants, strict=False))
            if set(self._owner.values()) <= {*tensors, *constants}:
                tensors |= constants
                place_views(self.plan.graph, tensors)
            scratches = [Scratch(self.scratch_bytes) for _ in range(self._thread_count)]
            is_shared = any(run.is_shared for run in self._runs.values())
            self._of_thread.workspace = _Workspace(scratches, is_shared, tensors)
        workspace: _Workspace = self._of_thread.workspace
        return workspace

    def _tensors(self) -> dict[Entry, Array]:
        """Arrays of the plan's own; those that do not live at the same time share memory."""
        graph, pool = self.plan.graph, TensorPool()
        types = {entry: graph.type_of(entry) for entry in self._copied & self._inputs}
        tensors = {entry: np.empty(kind.shape, kind.dtype) for entry, kind in types.items()}
        taken: dict[int, list[Array]] = {}
        reshaped_entries = reshaped(graph)
        for first, batch in self._batches.items():
            outputs = dict.fromkeys(self._owner[self.plan.steps[index].output] for index in batch)
            new = [entry for entry in outputs if self._lives.get(entry, (-1, 0))[0] == first and entry not in tensors]
            if new:
                kind = graph.type_of(new[0])
                shape = (len(new) * kind.shape[0], *kind.shape[1:]) if len(new) > 1 else kind.shape
                is_plain = not reshaped_entries.isdisjoint(new)
                order = list(range(len(shape))) if is_plain else self._runs[first].memory_order(tensors)
                array = pool.take(shape, kind.dtype, order)
                tensors.update(zip(new, np.split(array, len(new)) if len(new) > 1 else [array], strict=True))
                taken.setdefault(max(self._lives[entry][1] for entry in new), []).append(array)
            for array in taken.pop(first, ()):
                pool.release(array)
        return tensors


@dataclass(frozen=True)
class _Workspace:
    """The memory of one calling thread."""

    scratches: list[Scratch]  # one for each thread of a run
    is_shared: bool  # whether any step uses more than one thread
    tensors: dict[Entry, Array]
    calls: dict[int, list[list[Call]]] = field(default_factory=dict)  # of each thread, of inner batches by first step


def _run(calls: Sequence[Call]) -> None:
    with np.errstate(all="ignore"):
        for call in calls:
            call()
