"""The machine as data: a frozen description, the files it is read from, and the rules it keeps."""

from npu_kit.hw.presets import content_key, load_spec, preset_names, save_spec, spec_from_json, spec_to_json
from npu_kit.hw.spec import ENGINE_NAMES, TIER_NAMES, Engine, MemoryTier, NpuSpec, PowerMode, TileSpec
from npu_kit.hw.verify import numbers, source_of, verify_spec

__all__ = [
    "ENGINE_NAMES",
    "TIER_NAMES",
    "Engine",
    "MemoryTier",
    "NpuSpec",
    "PowerMode",
    "TileSpec",
    "content_key",
    "load_spec",
    "numbers",
    "preset_names",
    "save_spec",
    "source_of",
    "spec_from_json",
    "spec_to_json",
    "verify_spec",
]
