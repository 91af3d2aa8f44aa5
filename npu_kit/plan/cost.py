"""Cycles of one transfer and of one piece of work on one engine.

How instructions overlap is a matter of ``schedule``.
"""

from __future__ import annotations

import math

from npu_kit.errors import PlanError
from npu_kit.hw.peaks import active_lanes
from npu_kit.hw.spec import NpuSpec
from npu_kit.trace.counters import Counters

DATAFLOWS = ("output_stationary", "weight_stationary", "input_stationary")


def systolic_cycles(m: int, n: int, k: int, rows: int, columns: int, dataflow: str = "output_stationary") -> int:
    """Cycles of an ``M x K`` by ``K x N`` product on a ``rows x columns`` array, without memory stalls.

    The product is folded onto the array. Under output stationary a fold is ``rows x columns`` outputs and takes
    ``k + rows + columns - 2`` cycles: the last operand enters ``rows + columns - 2`` cycles after the first. Under
    weight (input) stationary a fold is ``rows`` of K by ``columns`` of N (of M); it is filled in ``rows`` cycles and
    then takes ``m`` (``n``) ``+ rows + columns - 2`` more.

    Source: A. Samajdar et al., "A Systematic Methodology for Characterizing Scalability of DNN Accelerators using
    SCALE-Sim", ISPASS 2020, section III; checked against that simulator's cycle counts.

    Raises:
        PlanError: a size below 1 or an unknown dataflow.

    >>> systolic_cycles(16, 16, 16, 16, 16)
    46
    """
    sizes = {"m": m, "n": n, "k": k, "rows": rows, "columns": columns}
    for name, size in sizes.items():
        if size < 1:
            raise PlanError("cannot count systolic cycles", f"{name} is {size}, the least is 1")
    if dataflow == "output_stationary":
        return math.ceil(m / rows) * math.ceil(n / columns) * (k + rows + columns - 2)
    if dataflow == "weight_stationary":
        return math.ceil(k / rows) * math.ceil(n / columns) * (m + 2 * rows + columns - 2)
    if dataflow == "input_stationary":
        return math.ceil(k / rows) * math.ceil(m / columns) * (n + 2 * rows + columns - 2)
    raise PlanError(f"no dataflow {dataflow!r}", f"there are {', '.join(DATAFLOWS)}")


def systolic_accesses(
    m: int, n: int, k: int, rows: int, columns: int, dataflow: str = "output_stationary"
) -> tuple[int, int, int]:
    """Elements of ``x`` and of ``w`` that enter the array, and sums that leave it, in one product.

    A fold takes in only what it multiplies, but one fold knows nothing of another, so what several folds need is read
    again by each:

    ====================  =======================  =======================  ====================
    dataflow              x, of m * k              w, of k * n              sums, of m * n
    ====================  =======================  =======================  ====================
    output stationary     for each fold of N       for each fold of M       once
    weight stationary     for each fold of N       once                     for each fold of K
    input stationary      once                     for each fold of M       for each fold of K
    ====================  =======================  =======================  ====================

    Folds of N are ``columns`` wide; of M ``rows`` under output stationary and ``columns`` under input stationary; of K
    ``rows``. Sizes, folds and source are those of ``systolic_cycles``.

    Raises:
        PlanError: an unknown dataflow.

    >>> systolic_accesses(32, 32, 16, 16, 16)
    (1024, 1024, 1024)
    """
    if dataflow == "output_stationary":
        return m * k * math.ceil(n / columns), k * n * math.ceil(m / rows), m * n
    sums = m * n * math.ceil(k / rows)
    if dataflow == "weight_stationary":
        return m * k * math.ceil(n / columns), k * n, sums
    if dataflow == "input_stationary":
        return m * k, k * n * math.ceil(m / columns), sums
    raise PlanError(f"no dataflow {dataflow!r}", f"there are {', '.join(DATAFLOWS)}")


class CostModel:
    """The cycles of instructions on one machine in one power mode."""

    def __init__(self, spec: NpuSpec, power_mode: str) -> None:
        self._tiers = {tier.name: tier for tier in spec.tiers}
        self._vector = spec.vector_elements
        self._rows = {engine.name: engine.rows for engine in spec.engines}
        self._columns = {
            engine.name: active_lanes(spec, engine.name, power_mode) // engine.rows for engine in spec.engines
        }

    def latency(self, source: str, target: str) -> int:
        """Cycles before the first byte of a transfer arrives: the slower tier's."""
        return max(self._tiers[source].access_cycles, self._tiers[target].access_cycles)

    def transfer(self, source: str, target: str, nbytes: int) -> int:
        """Cycles of one transfer: the slower tier's latency, then its bandwidth."""
        bytes_per_cycle = min(self._tiers[source].bytes_per_cycle, self._tiers[target].bytes_per_cycle)
        return self.latency(source, target) + math.ceil(nbytes / bytes_per_cycle)

    def transfers(self, counters: Counters) -> int:
        """Cycles of all transfers counted, between tiers outside the engines."""
        cycles = 0
        for (source, target), nbytes in counters.nbytes.items():
            if "L0" in (source, target):
                continue
            latency = self.latency(source, target)
            cycles += latency * (counters.transfers[source, target] - 1) + self.transfer(source, target, nbytes)
        return cycles

    def array(
        self, engine: str, m: int, n: int, k: int, dataflow: str = "output_stationary", refills: bool = True
    ) -> int:
        """Cycles of an ``m x k`` by ``k x n`` product on a systolic engine.

        ``refills`` is False where the operand that stays is on the array already, from the tile before. That takes an
        operand of one fold; a larger one is filled in again fold by fold for every tile.
        """
        rows, columns = self.array_shape(engine)
        cycles = systolic_cycles(m, n, k, rows, columns, dataflow)
        return cycles if refills or not self.is_one_fold(engine, m, n, k, dataflow) else cycles - rows

    def array_shape(self, engine: str) -> tuple[int, int]:
        """Rows of an engine's array, and those of its columns that are powered."""
        return self._rows[engine], self._columns[engine]

    def is_one_fold(self, engine: str, m: int, n: int, k: int, dataflow: str) -> bool:
        """Whether the operand that stays fits the array whole, so that it can stay for the next tile too."""
        stays = {"weight_stationary": (k, n), "input_stationary": (k, m)}.get(dataflow)
        rows, columns = self.array_shape(engine)
        return stays is not None and stays[0] <= rows and stays[1] <= columns

    def array_accesses(
        self, engine: str, m: int, n: int, k: int, dataflow: str, refills: bool = True
    ) -> tuple[int, int, int]:
        """``systolic_accesses`` on an engine; what is on the array already (see ``array``) is not read."""
        x, w, sums = systolic_accesses(m, n, k, *self.array_shape(engine), dataflow)
        if refills or not self.is_one_fold(engine, m, n, k, dataflow):
            return x, w, sums
        return (x, 0, sums) if dataflow == "weight_stationary" else (0, w, sums)

    def copying(self, nbytes: int) -> int:
        """Cycles in which the dma engine puts a tile of ``nbytes`` bytes together in L0, out of tiles in L1.

        It computes nothing, so no lane decides: the two tiers do.
        """
        return self.transfer("L1", "L0", nbytes)

    def lanes(self, engine: str, lengths: tuple[int, ...], times: int = 1) -> int:
        """Cycles of one operation on each element of a box, ``times`` times over, on a lane-wise engine.

        A lane does one operation a cycle, and lanes are filled by vectors: ``vector_elements`` neighbours along the
        box's last axis. The last vector of a row counts whole, so a row of 20 elements takes as long as one of 32.
        """
        rows, row = math.prod(lengths[:-1]), lengths[-1] if lengths else 1
        operations = times * rows * math.ceil(row / self._vector) * self._vector
        return math.ceil(operations / (self._rows[engine] * self._columns[engine]))
