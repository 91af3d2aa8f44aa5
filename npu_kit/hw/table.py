"""The table of presets in ``docs/hardware.md``, from the files themselves: ``python -m npu_kit.hw.table`` prints it."""

from __future__ import annotations

from collections.abc import Callable

from npu_kit.hw.peaks import bytes_per_second, peak_macs_per_second, ridge_macs_per_byte
from npu_kit.hw.presets import load_spec, preset_names
from npu_kit.hw.sources import numbers, source_of
from npu_kit.hw.spec import TIER_NAMES, NpuSpec


def preset_table() -> str:
    """All presets as a Markdown table, a column each: ``example`` first, then from the slowest to the fastest."""
    specs = sorted(map(load_spec, preset_names()), key=lambda s: (s.name != "example", peak_macs_per_second(s)))
    lines = ["| | " + " | ".join(f"`{spec.name}`" for spec in specs) + " |", "|---" * (len(specs) + 1) + "|"]
    lines += [f"| {title} | " + " | ".join(map(cell, specs)) + " |" for title, cell in _ROWS]
    return "\n".join(lines) + "\n"


def _tier(name: str) -> Callable[[NpuSpec], str]:
    def cell(spec: NpuSpec) -> str:
        tier = spec.tier(name)
        size = _binary(tier.capacity_bytes)
        return f"{tier.label}: {size}, {tier.bytes_per_cycle} B a cycle, {tier.energy_pj_per_byte:g} pJ a byte"

    return cell


def _mode(spec: NpuSpec) -> str:
    mode = spec.power_mode()
    return f"`{mode.name}`: {mode.clock_mhz} MHz, {mode.active_share:.0%} of the lanes"


def _mac_energies(spec: NpuSpec) -> str:
    return ", ".join(f"{dtype} {energy:g}" for dtype, energy in spec.mac_energy_pj.items() if dtype in spec.dtypes)


def _illustrative(spec: NpuSpec) -> str:
    sources = [source_of(spec, path) for path, _ in numbers(spec)]
    return f"{sum(source.startswith('illustrative') for source in sources)} of {len(sources)}"


def _decimal(value: float, unit: str) -> str:
    """``value`` with three digits and a prefix of powers of 1,000."""
    for power, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= power:
            return f"{value / power:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def _binary(nbytes: int) -> str:
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if nbytes >= 1 << shift:
            return f"{nbytes / (1 << shift):g} {unit}"
    return f"{nbytes} B"


_ROWS: tuple[tuple[str, Callable[[NpuSpec], str]], ...] = (
    ("array", lambda spec: f"{spec.engine('matrix').rows} x {spec.engine('matrix').columns}"),
    ("output tile", lambda spec: f"{spec.tile.rows} x {spec.tile.columns}"),
    ("dtypes", lambda spec: ", ".join(spec.dtypes)),
    ("default power mode", _mode),
    ("peak in that mode", lambda spec: _decimal(peak_macs_per_second(spec), "MAC/s")),
    ("DRAM in that mode", lambda spec: _decimal(bytes_per_second(spec), "B/s")),
    ("ridge point", lambda spec: f"{ridge_macs_per_byte(spec):.4g} MACs a DRAM byte"),
    *((name, _tier(name)) for name in TIER_NAMES),
    ("pJ a MAC", _mac_energies),
    ("illustrative numbers", _illustrative),
)

if __name__ == "__main__":
    print(preset_table(), end="")
