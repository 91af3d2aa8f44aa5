"""What a plan costs: cycles, waits, utilization, traffic, intensity, energy, and which side of the roofline it is on.

All of it follows from the events (``plan.forecast``, or the trace of a run) and the machine, but for the sums that are
added up inside L0: these cross no boundary, so they are no event, and ``plan.traffic`` counts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from npu_kit.hw.peaks import active_lanes
from npu_kit.plan.cost import CostModel
from npu_kit.plan.forecast import forecast
from npu_kit.plan.ir import Plan
from npu_kit.plan.steps import label
from npu_kit.plan.traffic import step_counters
from npu_kit.trace.events import CAUSES, ENGINES, TIERS, Events, bytes_by_boundary


@dataclass(frozen=True)
class Metrics:
    """The costs of one step, or of all steps of a plan."""

    name: str
    cycles: int
    clock_mhz: int
    busy_cycles: Mapping[str, int]  # by engine
    stalled_cycles: Mapping[str, int]  # by cause, over all engines: waits for each other overlap
    macs: int
    lane_cycles: int  # cycles in which engines multiply, each times its powered lanes
    peak_macs_per_cycle: int  # of the widest engine that does MACs here, as far as it is powered
    nbytes: Mapping[tuple[str, str], int]  # by boundary
    sum_bytes: int  # of the sums that are added to those in the accumulator, see ``trace.counters``
    dram_bytes: int
    dram_bytes_per_cycle: int  # what DRAM could deliver
    tensor_bytes: int  # of the tensors in DRAM that are read or written, each counted once
    energy_pj: Mapping[str, float]  # "MACs", and by tier the energy of its bytes, those of the sums included

    @property
    def microseconds(self) -> float:
        return self.cycles / self.clock_mhz

    @property
    def temporal_utilization(self) -> float:
        """Share of all cycles in which the busiest engine but the dma engine works."""
        busy = [cycles for engine, cycles in self.busy_cycles.items() if engine != "dma"]
        return max(busy, default=0) / self.cycles if self.cycles else 0.0

    @property
    def spatial_utilization(self) -> float:
        """MACs done, over those that the engines could have done in the cycles in which they multiply."""
        return self.macs / self.lane_cycles if self.lane_cycles else 0.0

    @property
    def macs_per_dram_byte(self) -> float:
        """Arithmetic intensity over the border of the chip."""
        return self.macs / self.dram_bytes if self.dram_bytes else 0.0

    @property
    def dram_passes(self) -> float:
        """How often the tensors in DRAM cross the border: bytes that cross, over bytes that are there."""
        return self.dram_bytes / self.tensor_bytes if self.tensor_bytes else 0.0

    @property
    def ridge_macs_per_byte(self) -> float:
        """The intensity at which the array's peak and DRAM's bandwidth meet."""
        return self.peak_macs_per_cycle / self.dram_bytes_per_cycle

    @property
    def bound(self) -> str:
        """ "compute" or "memory": which line of the roofline stands over this intensity."""
        return "compute" if self.macs_per_dram_byte >= self.ridge_macs_per_byte else "memory"

    @property
    def attainable_macs_per_cycle(self) -> float:
        """The roofline at this intensity (Williams et al., CACM 2009)."""
        return min(float(self.peak_macs_per_cycle), self.macs_per_dram_byte * self.dram_bytes_per_cycle)

    @property
    def total_energy_pj(self) -> float:
        return sum(self.energy_pj.values())


def plan_metrics(plan: Plan, events: Events | None = None) -> tuple[Metrics, ...]:
    """The metrics of each step.

    Args:
        plan: the plan.
        events: those of a run in step mode; None forecasts them.
    """
    rows = forecast(plan) if events is None else events
    return tuple(_metrics(plan, rows[rows["step"] == step.index], (step.index,)) for step in plan.steps)


def total_metrics(plan: Plan, events: Events | None = None) -> Metrics:
    """The metrics of the whole plan."""
    rows = forecast(plan) if events is None else events
    return _metrics(plan, rows, tuple(step.index for step in plan.steps))


def metrics_by_power_mode(plan: Plan, events: Events | None = None) -> dict[str, Metrics]:
    """The metrics of the whole plan on the clock and the lanes of each power mode, in the machine's order.

    Args:
        plan: the plan, which stays as it is.
        events: those of a run in step mode, in the plan's own mode; None forecasts them, as for the other modes.
    """
    found = {}
    for mode in (one.name for one in plan.spec.power_modes):
        own = events if mode == plan.power_mode else None
        found[mode] = total_metrics(replace(plan, power_mode=mode), own)
    return found


def _metrics(plan: Plan, rows: Events, steps: tuple[int, ...]) -> Metrics:
    spec, mode = plan.spec, plan.power_mode
    nbytes = bytes_by_boundary(rows)
    ends = rows["start"] + rows["cycles"]
    multiplies = rows[rows["macs"] > 0]
    lanes = {int(engine): active_lanes(spec, ENGINES[engine], mode) for engine in np.unique(multiplies["engine"])}
    dram = sum(count for boundary, count in nbytes.items() if "L3" in boundary)
    cost = CostModel(spec, mode)
    sum_bytes = sum(step_counters(plan.graph, plan.steps[index], cost).sum_bytes for index in steps)
    return Metrics(
        name=label(plan.graph, plan.steps[steps[0]].nodes) if len(steps) == 1 else f"{len(steps)} steps",
        cycles=int(ends.max(initial=0) - rows["start"].min()) if len(rows) else 0,
        clock_mhz=spec.power_mode(mode).clock_mhz,
        busy_cycles={
            name: int(rows["cycles"][rows["engine"] == i].sum())
            for i, name in enumerate(ENGINES)
            if (rows["engine"] == i).any()
        },
        stalled_cycles=_stalls(rows),
        macs=int(rows["macs"].sum()),
        lane_cycles=sum(int(multiplies["cycles"][multiplies["engine"] == i].sum()) * n for i, n in lanes.items()),
        peak_macs_per_cycle=max(lanes.values(), default=active_lanes(spec, "matrix", mode)),
        nbytes=nbytes,
        sum_bytes=sum_bytes,
        dram_bytes=dram,
        dram_bytes_per_cycle=spec.tier("L3").bytes_per_cycle,
        tensor_bytes=_tensor_bytes(plan, steps),
        energy_pj=_energy(plan, rows, nbytes, sum_bytes),
    )


def _stalls(rows: Events) -> dict[str, int]:
    """Cycles between the end of what an engine did before and the start of an event that had to wait, by cause."""
    stalls: dict[str, int] = {}
    begin = int(rows["start"].min()) if len(rows) else 0
    for engine in np.unique(rows["engine"]):
        mine = rows[rows["engine"] == engine]
        free = np.concatenate([[begin], (mine["start"] + mine["cycles"])[:-1]])
        for cause in np.unique(mine["cause"][mine["cause"] > 0]):
            waits = mine["cause"] == cause
            stalls[CAUSES[cause]] = stalls.get(CAUSES[cause], 0) + int((mine["start"] - free)[waits].sum())
    return stalls


def _tensor_bytes(plan: Plan, steps: tuple[int, ...]) -> int:
    """Bytes of the tensors in DRAM that the steps read or write, each counted once."""
    far = {buffer.entry for buffer in plan.buffers if buffer.tier == "L3"}
    touched = set()
    for step in (plan.steps[index] for index in steps):
        touched |= {operand.entry for operand in step.reads}
        touched |= {step.output} if step.output_tier == "L3" else set()
    return sum(plan.graph.type_of(entry).nbytes for entry in touched & far)


def _energy(plan: Plan, rows: Events, nbytes: Mapping[tuple[str, str], int], sum_bytes: int) -> dict[str, float]:
    """Picojoules of the MACs, and of reading or writing each tier. Elementwise arithmetic is left out: it is small.

    To add a sum to the one in the accumulator is to read that one and to write what comes out.
    """
    energy = {tier: 0.0 for tier in TIERS}
    energy["L0"] = 2 * sum_bytes * plan.spec.tier("L0").energy_pj_per_byte
    for boundary, count in nbytes.items():
        for tier in boundary:
            energy[tier] += count * plan.spec.tier(tier).energy_pj_per_byte
    macs = 0.0
    for node in np.unique(rows["node"][rows["macs"] > 0]):
        dtype = plan.graph.type_of(plan.graph.nodes[node].inputs[0]).dtype
        macs += plan.spec.mac_energy(dtype) * int(rows["macs"][rows["node"] == node].sum())
    return {"MACs": macs} | {tier: pj for tier, pj in energy.items() if pj}
