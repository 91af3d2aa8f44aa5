"""The rules that a hardware description keeps, checked by value and by type.

``verify_spec`` runs when a file is read and when ``NpuSpec.replace`` makes a changed copy, so a spec that exists is a
machine. A violation is a SpecError that names the key (``tiers[1].capacity_bytes``), the value and the limit.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from npu_kit.errors import SpecError
from npu_kit.hw.sources import numbers, source_keys, source_of
from npu_kit.hw.spec import ENGINE_NAMES, SIGNED, TIER_NAMES, Engine, MemoryTier, NpuSpec, PowerMode, TileSpec

DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "float16", "float32")  # those the kit has kernels for
LANE_WISE = ("vector", "pooling", "activation", "dma")  # engines that are a row of lanes, not an array
ACCUMULATOR_BYTES = 4  # one int32 or float32 partial sum

MAX_CAPACITY_BYTES = 2**50
MAX_ACCESS_CYCLES = 10**6
MAX_BYTES_PER_CYCLE = 2**20
MAX_SIDE = 2**16 - 1  # of an engine, a tile or a vector
MAX_CLOCK_MHZ = 100_000
MAX_PICOJOULES = 10**6  # a microjoule for one byte or one MAC: thousands of times what DRAM takes
MAX_MODES = 64
MAX_TEXT = 2_000

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def verify_spec(spec: NpuSpec, origin: str = "") -> None:
    """Check every rule of a machine.

    Args:
        spec: the machine.
        origin: where it was read from, for the message; the spec's own name if empty.

    Raises:
        SpecError: a rule is broken; the message names the key, the value and the limit.
    """
    if not isinstance(spec, NpuSpec):
        raise SpecError("a machine is needed", f"it is {_show(spec)} ({type(spec).__name__})", "npu_kit.load_spec.")
    check = _Check(origin or f"spec {_show(spec.name)}")
    check.name("name", spec.name)
    check.text("description", spec.description)
    _check_tiers(check, spec.tiers)
    _check_engines(check, spec.engines)
    _check_tile(check, spec.tile, spec.tiers[0])
    check.integer("vector_elements", spec.vector_elements, 1, MAX_SIDE)
    check.names("dtypes", spec.dtypes)
    for index, dtype in enumerate(spec.dtypes):
        check.one_of(f"dtypes[{index}]", dtype, DTYPES)
    _check_power_modes(check, spec)
    _check_mac_energy(check, spec)
    _check_sources(check, spec)


@dataclass(frozen=True)
class _Check:
    """Checks of one value each, which know where the spec came from."""

    origin: str

    def fail(self, key: str, why: str, hint: str = "") -> NoReturn:
        raise SpecError(f"{key} in {self.origin}", why, hint)

    def integer(self, key: str, value: object, low: int, high: int) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            self.fail(key, f"it is {_show(value)} ({type(value).__name__}) and must be a whole number")
        if not low <= value <= high:
            self.fail(key, f"it is {_show(value)} and must be between {low:,} and {high:,}")

    def number(self, key: str, value: object) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            self.fail(key, f"it is {_show(value)} ({type(value).__name__}) and must be a number")
        return value

    def share(self, key: str, value: object) -> None:
        if not 0 < self.number(key, value) <= 1:  # also false for NaN
            self.fail(key, f"it is {_show(value)} and must be above 0 and at most 1")

    def energy(self, key: str, value: object) -> None:
        if not 0 <= self.number(key, value) <= MAX_PICOJOULES:
            self.fail(key, f"it is {_show(value)} and must be between 0 and {MAX_PICOJOULES:,} picojoules")

    def text(self, key: str, value: object, limit: int = MAX_TEXT) -> None:
        if not isinstance(value, str):
            self.fail(key, f"it is {_show(value)} ({type(value).__name__}) and must be text")
        if len(value) > limit:
            self.fail(key, f"it has {len(value):,} characters and the limit is {limit:,}")
        if not value.isprintable():
            self.fail(key, f"it is {_show(value)} and must hold printable characters only")

    def name(self, key: str, value: object) -> None:
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            self.fail(key, f"it is {_show(value)} and must be 1 to 64 letters, digits, '_', '-' or '.'")

    def one_of(self, key: str, value: object, allowed: Sequence[str]) -> None:
        if value in allowed:
            return
        near = difflib.get_close_matches(value, allowed, n=1) if isinstance(value, str) else []
        self.fail(key, f"it is {_show(value)} and must be one of {', '.join(allowed)}", f"{near[0]!r}." if near else "")

    def rows(self, key: str, value: object, kind: type, limit: int) -> None:
        """A non-empty tuple of at most ``limit`` values of ``kind``."""
        if not isinstance(value, tuple):
            self.fail(key, f"it is {_show(value)} ({type(value).__name__}) and must be a tuple")
        if not 1 <= len(value) <= limit:
            self.fail(key, f"it has {len(value):,} entries and must have 1 to {limit}")
        for index, item in enumerate(value):
            if not isinstance(item, kind):
                self.fail(f"{key}[{index}]", f"it is {_show(item)} and must be a {kind.__name__}")

    def names(self, key: str, value: object) -> None:
        """A non-empty tuple of different texts."""
        self.rows(key, value, str, MAX_MODES)
        assert isinstance(value, tuple)
        for index, item in enumerate(value):
            if item in value[:index]:
                self.fail(f"{key}[{index}]", f"{_show(item)} is already {key}[{value.index(item)}]", "remove one.")


def _check_tiers(check: _Check, tiers: tuple[MemoryTier, ...]) -> None:
    check.rows("tiers", tiers, MemoryTier, len(TIER_NAMES))
    if len(tiers) != len(TIER_NAMES):
        check.fail("tiers", f"there are {len(tiers)} and there must be {len(TIER_NAMES)}: {', '.join(TIER_NAMES)}")
    for index, tier in enumerate(tiers):
        key = f"tiers[{index}]"
        if tier.name != TIER_NAMES[index]:
            check.fail(f"{key}.name", f"it is {_show(tier.name)} and must be {TIER_NAMES[index]!r}: nearest tier first")
        check.text(f"{key}.label", tier.label, 32)
        check.integer(f"{key}.capacity_bytes", tier.capacity_bytes, 1, MAX_CAPACITY_BYTES)
        check.integer(f"{key}.access_cycles", tier.access_cycles, 0, MAX_ACCESS_CYCLES)
        check.integer(f"{key}.bytes_per_cycle", tier.bytes_per_cycle, 1, MAX_BYTES_PER_CYCLE)
        check.energy(f"{key}.energy_pj_per_byte", tier.energy_pj_per_byte)
    # A smaller L2 than L1 is odd but a machine. What makes no sense: a far tier that answers sooner than a near one,
    # and a last tier, where every argument and spill must find room, that is not the largest.
    for index, (near, far) in enumerate(itertools.pairwise(tiers), start=1):
        if far.access_cycles < near.access_cycles:
            check.fail(
                f"tiers[{index}].access_cycles",
                f"{far.name} answers in {far.access_cycles} cycles and the nearer {near.name} in {near.access_cycles}",
                "order the tiers from near to far.",
            )
    last = tiers[-1]
    for index, tier in enumerate(tiers[:-1]):
        if tier.capacity_bytes > last.capacity_bytes:
            check.fail(
                f"tiers[{index}].capacity_bytes",
                f"{tier.name} holds {tier.capacity_bytes:,} bytes and {last.name}, the last tier, only "
                f"{last.capacity_bytes:,}",
                f"give {last.name} at least as much.",
            )


def _check_engines(check: _Check, engines: tuple[Engine, ...]) -> None:
    check.rows("engines", engines, Engine, len(ENGINE_NAMES))
    seen: list[str] = []
    for index, engine in enumerate(engines):
        key = f"engines[{index}]"
        check.one_of(f"{key}.name", engine.name, ENGINE_NAMES)
        if engine.name in seen:
            check.fail(f"{key}.name", f"{engine.name!r} is already engines[{seen.index(engine.name)}]", "remove one.")
        seen.append(engine.name)
        check.integer(f"{key}.rows", engine.rows, 1, MAX_SIDE)
        check.integer(f"{key}.columns", engine.columns, 1, MAX_SIDE)
        if engine.name in LANE_WISE and engine.rows != 1:
            check.fail(
                f"{key}.rows",
                f"it is {engine.rows} and the {engine.name} engine is one row of lanes",
                f"rows 1 and columns {engine.lanes}.",
            )
    missing = [name for name in ENGINE_NAMES if name not in seen]
    if missing:
        check.fail("engines", f"there are {len(engines)} of {len(ENGINE_NAMES)}; missing: {', '.join(missing)}")


def _check_tile(check: _Check, tile: TileSpec, accumulators: MemoryTier) -> None:
    if not isinstance(tile, TileSpec):
        check.fail("tile", f"it is {_show(tile)} and must be a TileSpec")
    check.integer("tile.minimum", tile.minimum, 1, MAX_SIDE)
    check.integer("tile.rows", tile.rows, 1, MAX_SIDE)
    check.integer("tile.columns", tile.columns, 1, MAX_SIDE)
    for side, length in (("rows", tile.rows), ("columns", tile.columns)):
        if length < tile.minimum:
            check.fail(
                f"tile.{side}",
                f"it is {length} and the smallest tile side of this machine is {tile.minimum}",
                f"a side of {tile.minimum} or more, or a smaller tile.minimum.",
            )
    needed, have = tile.rows * tile.columns * ACCUMULATOR_BYTES, accumulators.capacity_bytes
    if needed > have:
        check.fail(
            "tile",
            f"a tile of {tile.rows}x{tile.columns} accumulators takes {needed:,} bytes and {accumulators.name} holds "
            f"{have:,}, {needed - have:,} are missing",
            f"{_fitting_tile(tile, have // ACCUMULATOR_BYTES)}{accumulators.name} of {needed} bytes.",
        )


def _fitting_tile(tile: TileSpec, accumulators: int) -> str:
    """The nearest tile of so many accumulators, in words: one side less if that is enough, else a square."""
    for rows, columns in (
        (min(tile.rows, accumulators // tile.columns), tile.columns),
        (math.isqrt(accumulators), math.isqrt(accumulators)),
    ):
        if min(rows, columns) >= tile.minimum:
            return f"a tile of {rows}x{columns}, or "
    return ""


def _check_power_modes(check: _Check, spec: NpuSpec) -> None:
    check.rows("power_modes", spec.power_modes, PowerMode, MAX_MODES)
    seen: list[str] = []
    for index, mode in enumerate(spec.power_modes):
        key = f"power_modes[{index}]"
        check.name(f"{key}.name", mode.name)
        if mode.name in seen:
            check.fail(f"{key}.name", f"{mode.name!r} is already power_modes[{seen.index(mode.name)}]", "rename one.")
        seen.append(mode.name)
        check.integer(f"{key}.clock_mhz", mode.clock_mhz, 1, MAX_CLOCK_MHZ)
        check.share(f"{key}.active_share", mode.active_share)
    check.one_of("default_power_mode", spec.default_power_mode, seen)


def _check_mac_energy(check: _Check, spec: NpuSpec) -> None:
    energies = spec.mac_energy_pj
    if not isinstance(energies, Mapping):
        check.fail("mac_energy_pj", f"it is {_show(energies)} and must map dtypes to picojoules")
    for dtype, energy in energies.items():
        check.one_of(f"mac_energy_pj.{dtype:.40}" if isinstance(dtype, str) else "mac_energy_pj", dtype, DTYPES)
        check.energy(f"mac_energy_pj.{dtype}", energy)
    for dtype in spec.dtypes:
        if not {dtype, SIGNED.get(dtype, dtype)} & set(energies):
            check.fail(f"mac_energy_pj.{dtype}", f"missing, and {dtype} is one of the dtypes", "add it, in picojoules.")


def _check_sources(check: _Check, spec: NpuSpec) -> None:
    if not isinstance(spec.sources, Mapping):
        check.fail("sources", f"it is {_show(spec.sources)} and must map key paths to text")
    known = source_keys(spec)
    for path, text in spec.sources.items():
        if path not in known:
            near = difflib.get_close_matches(path, sorted(known), n=1) if isinstance(path, str) else []
            hint = f"{near[0]!r}." if near else ""
            check.fail(f"sources[{_show(path)}]", "no such key in this description", hint)
        check.text(f"sources[{path!r}]", text)
        if not text.strip():
            check.fail(f"sources[{path!r}]", "it is empty", "name a document, or write 'illustrative'.")
    for path, value in numbers(spec):
        if not source_of(spec, path):
            check.fail(path, f"{value!r} has no source", f"add {path!r} to sources: a document, or 'illustrative'.")


def _show(value: object) -> str:
    """A short form of any value: a file may hold a huge one."""
    if isinstance(value, int) and not isinstance(value, bool):
        # Python refuses to print integers of more than 4,300 digits.
        return f"{value:,}" if value.bit_length() <= 128 else f"an integer of {value.bit_length():,} bits"
    return reprlib.repr(value)
