"""What a machine could do at best: MACs a second, bytes a second, and the ridge point between the two.

These are the lines of a roofline (S. Williams et al., "Roofline: an insightful visual performance model for multicore
architectures", CACM 2009), with MACs in the place of floating-point operations. No plan reaches them.
"""

from __future__ import annotations

from npu_kit.hw.spec import NpuSpec


def active_lanes(spec: NpuSpec, engine: str, power_mode: str | None = None) -> int:
    """Lanes of ``engine`` that are powered: a share of its columns, rounded down, and at least one column.

    Args:
        spec: the machine.
        engine: a name from the spec.
        power_mode: a name from the spec; None for its default.

    Raises:
        SpecError: there is no such engine or power mode.

    >>> from npu_kit.hw import load_spec
    >>> active_lanes(load_spec("example"), "matrix", "low_power")  # 16 rows, 4 of 16 columns
    64
    """
    unit = spec.engine(engine)
    return unit.rows * max(1, int(unit.columns * spec.power_mode(power_mode).active_share))


def peak_macs_per_second(spec: NpuSpec, power_mode: str | None = None) -> int:
    """MACs a second with every powered lane of the matrix engine busy in every cycle. Raises as ``active_lanes``."""
    return active_lanes(spec, "matrix", power_mode) * _hertz(spec, power_mode)


def bytes_per_second(spec: NpuSpec, tier: str = "L3", power_mode: str | None = None) -> int:
    """Bytes a second into or out of ``tier`` without latency. Raises SpecError as ``active_lanes``."""
    return spec.tier(tier).bytes_per_cycle * _hertz(spec, power_mode)


def ridge_macs_per_byte(spec: NpuSpec, tier: str = "L3", power_mode: str | None = None) -> float:
    """The least MACs per byte of ``tier`` with which the matrix engine can be kept busy; below it, the tier decides.

    The clock drops out: the kit's memories run with it. Raises SpecError as ``active_lanes``.

    >>> from npu_kit.hw import load_spec
    >>> ridge_macs_per_byte(load_spec("example"), "L3", "high_performance")  # 256 MACs and 16 bytes a cycle
    16.0
    """
    return peak_macs_per_second(spec, power_mode) / bytes_per_second(spec, tier, power_mode)


def _hertz(spec: NpuSpec, power_mode: str | None) -> int:
    return spec.power_mode(power_mode).clock_mhz * 10**6
