"""Events: what was moved and computed, one row each, in columns.

The same columns serve the plan's forecast (``plan.forecast``) and the trace of a run; a row is 49 bytes, so a million
tiles stay small.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from npu_kit.hw.spec import ENGINE_NAMES, TIER_NAMES

KINDS = ("prefetch", "load", "compute", "epilogue", "drain", "store", "fill", "spill")
ENGINES = ("dma", *(name for name in ENGINE_NAMES if name != "dma"))
TIERS = TIER_NAMES
# Why an event began later than its engine was free: an operand was still on its way, the accumulator or the slot to be
# written was still in use, the tensor was not written yet.
CAUSES = ("", "operand", "accumulator", "slot", "tensor")

EVENT_DTYPE = np.dtype(
    [
        ("step", "<i4"),  # index of the step in its plan
        ("tile", "<i4"),  # number of the output tile within the step, in loop order; -1: a tensor that is copied whole
        ("node", "<i4"),  # id of the graph node: the one computed, or the one whose tensor is moved
        ("kind", "u1"),  # index into KINDS
        ("engine", "u1"),  # index into ENGINES
        ("src", "u1"),  # index into TIERS: where the bytes come from
        ("dst", "u1"),  # index into TIERS: where they go
        ("nbytes", "<i8"),  # real bytes moved across src -> dst, padding not counted
        ("macs", "<i8"),  # real multiply-accumulates; 0 for everything else
        ("start", "<i8"),  # cycle
        ("cycles", "<i8"),  # duration
        ("cause", "u1"),  # index into CAUSES
    ]
)

Events = NDArray[np.void]


class EventLog:
    """Events as they come, kept in columns: at most ``FLUSH`` rows are Python objects at a time."""

    FLUSH = 4096

    def __init__(self) -> None:
        self._rows: list[tuple[int, ...]] = []
        self._columns: list[Events] = []

    def append(self, row: tuple[int, ...]) -> None:
        """Add a row, in the order of EVENT_DTYPE's fields."""
        self._rows.append(row)
        if len(self._rows) == self.FLUSH:
            self._columns.append(to_events(self._rows))
            self._rows = []

    def events(self) -> Events:
        """All rows so far."""
        return np.concatenate([*self._columns, to_events(self._rows)])


def to_events(rows: Iterable[tuple[int, ...]]) -> Events:
    """Rows in the order of EVENT_DTYPE's fields, as columns."""
    return np.array(list(rows), dtype=EVENT_DTYPE)


def bytes_by_boundary(events: Events) -> dict[tuple[str, str], int]:
    """Bytes moved over each boundary: ``{("L3", "L1"): 4096, ...}``; boundaries without traffic are left out."""
    totals: dict[tuple[str, str], int] = {}
    for source in range(len(TIERS)):
        for target in range(len(TIERS)):
            chosen = (events["src"] == source) & (events["dst"] == target)
            total = int(events["nbytes"][chosen].sum())
            if total:
                totals[TIERS[source], TIERS[target]] = total
    return totals
