"""Recording: every region that runs while ``record()`` is open leaves what it moved and computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from npu_kit.plan.forecast import forecast
from npu_kit.plan.ir import Plan
from npu_kit.trace.counters import Counters, total
from npu_kit.trace.events import EVENT_DTYPE, Events


@dataclass(frozen=True)
class RegionRun:
    """One run of one region."""

    plan: Plan
    mode: str  # "step" or "fast"
    counters: tuple[Counters, ...]  # one per step of the plan
    recorded: Events | None  # None in fast mode, which computes many tiles at once

    @cached_property
    def events(self) -> Events:
        """One row per instruction: recorded in step mode, and in fast mode the same rows by arithmetic.

        Those of fast mode take 20 microseconds each, when they are asked for the first time; until then a trace of a
        network of any size holds its counters alone.
        """
        return forecast(self.plan) if self.recorded is None else self.recorded

    def __repr__(self) -> str:
        return f"RegionRun({len(self.counters)} steps, {self.mode} mode, {total(self.counters).dram_bytes} DRAM bytes)"


@dataclass
class Trace:
    """All region runs of one recording, in order."""

    runs: list[RegionRun] = field(default_factory=list)

    @property
    def counters(self) -> Counters:
        """Totals over all runs."""
        return total(counters for run in self.runs for counters in run.counters)

    @property
    def events(self) -> Events:
        """The events of all runs, one after the other; ``step`` counts within each run's plan."""
        return np.concatenate([np.empty(0, EVENT_DTYPE), *(run.events for run in self.runs)])

    def __repr__(self) -> str:
        return f"Trace({len(self.runs)} region runs, {self.counters.dram_bytes} DRAM bytes, {self.counters.macs} MACs)"


_active: ContextVar[tuple[Trace, ...]] = ContextVar("npu_kit_active_traces", default=())


@contextmanager
def record() -> Iterator[Trace]:
    """Collect every region run of this context, also those of a plain ``VirtualMachine``.

    Recordings nest: an inner one does not hide runs from the outer one.
    """
    trace = Trace()
    token = _active.set((*_active.get(), trace))
    try:
        yield trace
    finally:
        _active.reset(token)


def active_traces() -> tuple[Trace, ...]:
    """The traces that are being recorded in this context."""
    return _active.get()
