"""What a plan costs, on one page: time, utilization, bytes, reuse, roofline, energy, power modes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from npu_kit.plan.ir import Plan
from npu_kit.plan.metrics import Metrics, metrics_by_power_mode
from npu_kit.render.format import format_bytes, format_count, format_cycles, format_rate, format_share
from npu_kit.render.tables import Table
from npu_kit.render.wanted import shows
from npu_kit.trace.events import TIERS, Events


@shows(Plan)
def summary_table(plan: Plan, events: Events | None = None) -> Table:
    """The costs of a whole plan.

    Args:
        plan: the plan.
        events: those of a run in step mode; None forecasts them, which takes 20 microseconds an instruction. The other
            power modes are forecast in any case: the same plan on the other clock and lanes.
    """
    modes = metrics_by_power_mode(plan, events)
    metrics = modes[plan.power_mode]
    rows = [*_time(metrics), *_bytes(metrics), *_roofline(metrics), *_energy(metrics)]
    for mode, one in modes.items():
        text = f"{format_rate(one.microseconds)} us, {format_rate(one.total_energy_pj / 1e6)} uJ"
        rows.append((f"in power mode {mode}", text))
    return Table(("cost", "of the plan"), tuple(rows))


def _time(one: Metrics) -> Iterator[tuple[str, str]]:
    yield "cycles", f"{format_count(one.cycles)}, {format_rate(one.microseconds)} us at {one.clock_mhz:,} MHz"
    busy = sorted(one.busy_cycles.items(), key=lambda pair: -pair[1])
    yield "busy engines", ", ".join(f"{name} {format_share(cycles, one.cycles)}" for name, cycles in busy)
    yield "temporal utilization", f"{100 * one.temporal_utilization:.1f} % of the cycles, by the busiest engine but dma"
    yield "spatial utilization", f"{100 * one.spatial_utilization:.1f} % of the array, while it multiplies"
    stalls = {cause: cycles for cause, cycles in one.stalled_cycles.items() if cycles}
    waited = ", ".join(f"{cause} {format_cycles(cycles)}" for cause, cycles in stalls.items())
    yield "waits, by cause", waited or "none"


def _bytes(one: Metrics) -> Iterator[tuple[str, str]]:
    for (source, target), nbytes in sorted(one.nbytes.items(), reverse=True):
        yield f"{source} to {target}", f"{format_count(nbytes)} bytes ({format_bytes(nbytes)})"
    yield "sums into L0", f"{format_count(one.sum_bytes)} bytes ({format_bytes(one.sum_bytes)})"
    yield "DRAM passes", f"{format_rate(one.dram_passes)} times the tensors that are there"


def _roofline(one: Metrics) -> Iterator[tuple[str, str]]:
    yield "MACs", format_count(one.macs)
    inward = _inward(one.nbytes)
    if not one.macs:
        return
    reuse = (f"{tier} {format_rate(one.macs / nbytes)}" for tier, nbytes in inward.items() if nbytes)
    yield "MACs a byte read from", ", ".join(reuse)
    ridge, peak = format_rate(one.ridge_macs_per_byte), format_count(one.peak_macs_per_cycle)
    yield "arithmetic intensity", f"{format_rate(one.macs_per_dram_byte)} MACs a DRAM byte; the ridge is at {ridge}"
    done = format_rate(one.macs / one.cycles) if one.cycles else "0"
    attainable = format_rate(one.attainable_macs_per_cycle)
    yield "roofline", f"{one.bound} bound: {done} MACs a cycle, at best {attainable}; the array's peak is {peak}"


def _inward(nbytes: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """Bytes that leave each tier towards the engines."""
    return {
        tier: sum(count for (source, target), count in nbytes.items() if source == tier and target < tier)
        for tier in reversed(TIERS)
    }


def _energy(one: Metrics) -> Iterator[tuple[str, str]]:
    parts = ", ".join(f"{name} {format_share(pj, one.total_energy_pj)}" for name, pj in one.energy_pj.items() if pj)
    yield "energy", f"{format_rate(one.total_energy_pj / 1e6)} uJ: {parts}"
