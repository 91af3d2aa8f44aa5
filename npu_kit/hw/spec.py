"""The hardware description: tiers, engines, tile, power modes and energies, frozen, in bytes, cycles, MHz and pJ.

A spec is data. ``presets`` reads it from a JSON file; ``verify_spec`` checks it; ``replace`` makes a changed copy, and
checks that again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from npu_kit.errors import SpecError
from npu_kit.hw.frozen import FrozenMapping

TIER_NAMES = ("L0", "L1", "L2", "L3")
ENGINE_NAMES = ("matrix", "conv", "vector", "pooling", "activation", "dma")
SIGNED = {"uint8": "int8", "uint16": "int16"}  # unsigned dtype -> the signed one of its width


@dataclass(frozen=True)
class MemoryTier:
    """One level of memory."""

    name: str  # "L0" .. "L3"
    label: str  # "register", "SRAM", "CMX", "DRAM"
    capacity_bytes: int
    access_cycles: int  # latency of one transfer that touches this tier
    bytes_per_cycle: int  # bandwidth of a transfer that touches this tier
    energy_pj_per_byte: float  # picojoules of reading one byte from this tier, or of writing one to it

    def __str__(self) -> str:
        return f"{self.name} {self.label}"


@dataclass(frozen=True)
class Engine:
    """One unit that executes. ``rows x columns`` is a systolic array; a lane-wise unit has one row."""

    name: str  # one of ENGINE_NAMES
    rows: int
    columns: int

    @property
    def lanes(self) -> int:
        """MACs (matrix, conv) or elements (others) per cycle when every lane is busy."""
        return self.rows * self.columns


@dataclass(frozen=True)
class PowerMode:
    """A clock and a share of active lanes."""

    name: str
    clock_mhz: int
    active_share: float  # 0 < share <= 1: lanes of every engine that are powered


@dataclass(frozen=True)
class TileSpec:
    """The shape of the output tile, in elements."""

    rows: int
    columns: int
    minimum: int  # no side is ever below this unless the tensor is


@dataclass(frozen=True)
class NpuSpec:
    """One machine. Build it with ``npu_kit.load_spec``; change it with ``replace``."""

    name: str
    description: str
    tiers: tuple[MemoryTier, ...]  # L0, L1, L2, L3
    engines: tuple[Engine, ...]
    tile: TileSpec
    vector_elements: int  # neighbours along a tile's last axis that lane-wise engines take together
    dtypes: tuple[str, ...]
    power_modes: tuple[PowerMode, ...]
    default_power_mode: str
    mac_energy_pj: Mapping[str, float]  # dtype of the operands -> picojoules of one multiply-accumulate
    # Key path -> source, or "illustrative"; left out of the hash, which has enough in the numbers.
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        # A dict that someone still holds would let a frozen spec change. What is no mapping, verify_spec names.
        for name in ("mac_energy_pj", "sources"):
            value = getattr(self, name)
            if isinstance(value, Mapping):
                object.__setattr__(self, name, FrozenMapping(value))

    def tier(self, name: str) -> MemoryTier:
        """The tier called ``name``; SpecError if there is none."""
        for tier in self.tiers:
            if tier.name == name:
                return tier
        raise SpecError(f"no tier {name!r} in spec {self.name!r}", f"it has {', '.join(t.name for t in self.tiers)}")

    def engine(self, name: str) -> Engine:
        """The engine called ``name``; SpecError if there is none."""
        for engine in self.engines:
            if engine.name == name:
                return engine
        raise SpecError(
            f"no engine {name!r} in spec {self.name!r}", f"it has {', '.join(e.name for e in self.engines)}"
        )

    def power_mode(self, name: str | None = None) -> PowerMode:
        """The power mode called ``name``, the default one for None; SpecError if there is none."""
        wanted = self.default_power_mode if name is None else name
        for mode in self.power_modes:
            if mode.name == wanted:
                return mode
        raise SpecError(
            f"no power mode {wanted!r} in spec {self.name!r}",
            f"it has {', '.join(m.name for m in self.power_modes)}",
        )

    def mac_energy(self, dtype: str) -> float:
        """Picojoules of one multiply-accumulate of ``dtype`` operands; an unsigned one costs what its signed one does.

        Raises:
            SpecError: the spec gives none for this dtype.
        """
        for known in (dtype, SIGNED.get(dtype, dtype)):
            if known in self.mac_energy_pj:
                return self.mac_energy_pj[known]
        raise SpecError(f"no energy of a {dtype} MAC in spec {self.name!r}", f"it has {', '.join(self.mac_energy_pj)}")

    def replace(
        self,
        *,
        tile: int | tuple[int, int] | None = None,
        capacity_bytes: Mapping[str, int] | None = None,
        energy_pj_per_byte: Mapping[str, float] | None = None,
        **changes: Any,
    ) -> NpuSpec:
        """A changed and checked copy, whose ``sources`` say of every changed number that it was changed here.

        Args:
            tile: rows and columns of the output tile, or one number for both.
            capacity_bytes: new capacities by tier name, ``{"L1": 128 * 1024}``.
            energy_pj_per_byte: new energies by tier name, ``{"L3": 30.0}``.
            changes: any other field of this class.

        Raises:
            SpecError: the changed spec is not a machine; the message names the key.
        """
        from npu_kit.hw.sources import sources_after
        from npu_kit.hw.verify import verify_spec

        if tile is not None:
            rows, columns = _sides(tile)
            changes["tile"] = dataclasses.replace(self.tile, rows=rows, columns=columns)
        tiers = changes.get("tiers", self.tiers)
        for field_name, by_tier in (("capacity_bytes", capacity_bytes), ("energy_pj_per_byte", energy_pj_per_byte)):
            if by_tier is not None:
                changes["tiers"] = tiers = self._with_tier_field(tiers, field_name, by_tier)
        try:
            changed = dataclasses.replace(self, **changes)
        except TypeError as error:
            raise SpecError(f"cannot change spec {self.name!r}", str(error)) from None
        if "sources" not in changes:
            changed = dataclasses.replace(changed, sources=sources_after(self, changed))
        verify_spec(changed)
        return changed

    def _with_tier_field(
        self, tiers: tuple[MemoryTier, ...], field_name: str, by_tier: Mapping[str, float]
    ) -> tuple[MemoryTier, ...]:
        """``tiers`` with one field changed in those that ``by_tier`` names; SpecError if there is no such tier."""
        if not isinstance(by_tier, Mapping):
            raise SpecError(f"{field_name}={by_tier!r:.80}", "it must map names of tiers to numbers", '{"L1": 65536}.')
        for name in by_tier:
            self.tier(name)
        return tuple(dataclasses.replace(t, **{field_name: by_tier.get(t.name, getattr(t, field_name))}) for t in tiers)


def _sides(tile: object) -> tuple[int, int]:
    """Rows and columns of a tile that was asked for, as Python integers; NumPy's are taken too."""
    sides = (tile, tile) if isinstance(tile, Integral) else tile
    if isinstance(sides, tuple | list) and len(sides) == 2 and all(_is_whole(side) for side in sides):
        return int(sides[0]), int(sides[1])
    raise SpecError(f"a tile of {tile!r:.80}", "it must be one whole number, or two: rows and columns", "tile=16.")


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
