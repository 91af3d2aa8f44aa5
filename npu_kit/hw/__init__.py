"""The machine as data: a frozen description, the files it is read from, the rules it keeps, and its peaks."""

from npu_kit.hw.peaks import active_lanes, bytes_per_second, peak_macs_per_second, ridge_macs_per_byte
from npu_kit.hw.presets import content_key, load_spec, preset_names, save_spec, spec_from_json, spec_to_json
from npu_kit.hw.sources import numbers, source_of
from npu_kit.hw.spec import ENGINE_NAMES, TIER_NAMES, Engine, MemoryTier, NpuSpec, PowerMode, TileSpec
from npu_kit.hw.verify import verify_spec

__all__ = [
    "ENGINE_NAMES",
    "TIER_NAMES",
    "Engine",
    "MemoryTier",
    "NpuSpec",
    "PowerMode",
    "TileSpec",
    "active_lanes",
    "bytes_per_second",
    "content_key",
    "load_spec",
    "numbers",
    "peak_macs_per_second",
    "preset_names",
    "ridge_macs_per_byte",
    "save_spec",
    "source_of",
    "spec_from_json",
    "spec_to_json",
    "verify_spec",
]
