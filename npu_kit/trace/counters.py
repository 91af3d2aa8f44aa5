"""Totals of one step: bytes and transfers over each boundary, multiply-accumulates, tiles, elements written.

Three sources fill this type: the plan by arithmetic (``plan.traffic``), step mode from the copies it makes, and fast
mode, which counts real elements on the padded arrays that it packs and multiplies by how often the plan's loops come
back to them. Tests hold the three equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

Boundary = tuple[str, str]  # ("L3", "L1"): from, to


@dataclass
class Counters:
    """What one step, or a whole run, moved and computed; padding is never counted."""

    nbytes: dict[Boundary, int] = field(default_factory=dict)
    transfers: dict[Boundary, int] = field(default_factory=dict)
    macs: int = 0
    sum_bytes: int = 0  # of the sums that are added up in the accumulator, 4 bytes each, once for each fold or chunk
    tiles: int = 0  # output tiles finished
    stored_elements: int = 0  # elements written to the step's output tensor

    def move(self, source: str, target: str, nbytes: int, transfers: int = 1) -> None:
        """Count ``transfers`` copies of ``nbytes`` bytes in all; a copy of nothing is not a transfer."""
        if nbytes:
            boundary = (source, target)
            self.nbytes[boundary] = self.nbytes.get(boundary, 0) + nbytes
            self.transfers[boundary] = self.transfers.get(boundary, 0) + transfers

    @property
    def dram_bytes(self) -> int:
        """Bytes that cross the border of the chip, both ways."""
        return sum(nbytes for boundary, nbytes in self.nbytes.items() if "L3" in boundary)


def total(counters: Iterable[Counters]) -> Counters:
    """The sum of ``counters``."""
    result = Counters()
    for one in counters:
        for (source, target), nbytes in one.nbytes.items():
            result.move(source, target, nbytes, one.transfers[source, target])
        result.macs += one.macs
        result.sum_bytes += one.sum_bytes
        result.tiles += one.tiles
        result.stored_elements += one.stored_elements
    return result
