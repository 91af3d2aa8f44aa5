"""Hardware descriptions as JSON files: read strictly, written so that they read back the same.

The package ships its descriptions in the folder ``presets/``. A file of one's own starts with ``save_spec`` and is
loaded by its path.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import os
from pathlib import Path
from typing import Any, NoReturn

from npu_kit.errors import SpecError
from npu_kit.hw.spec import Engine, MemoryTier, NpuSpec, PowerMode, TileSpec
from npu_kit.hw.verify import verify_spec
from npu_kit.outside import OutsideError, is_path, parse_json, read_text, write_text

FORMAT_VERSION = 1
MAX_FILE_BYTES = 1_000_000
_PRESETS = Path(__file__).with_name("presets")


def preset_names() -> tuple[str, ...]:
    """Names of the descriptions that come with the kit, sorted."""
    return tuple(sorted(path.stem for path in _PRESETS.glob("*.json")))


def load_spec(name_or_path: str | os.PathLike[str] | NpuSpec = "example") -> NpuSpec:
    """Load a machine and check it.

    Args:
        name_or_path: a preset's name, the path of a JSON file (text with a slash or ending in ``.json``, or a Path), or
            an NpuSpec, which is checked and returned.

    Raises:
        SpecError: there is no such preset or file, or a rule is broken; the message names the key and the file.

    >>> load_spec("example").tier("L1").capacity_bytes
    262144
    """
    if isinstance(name_or_path, NpuSpec):
        verify_spec(name_or_path)
        return name_or_path
    if not isinstance(name_or_path, str | os.PathLike):
        raise SpecError(
            f"cannot load a spec from {type(name_or_path).__name__}", "a preset's name, a path or an NpuSpec is needed"
        )
    if isinstance(name_or_path, str):
        if name_or_path in preset_names():
            return spec_from_json(_read(_PRESETS / f"{name_or_path}.json"), f"preset {name_or_path!r}")
        if not is_path(name_or_path):
            near = difflib.get_close_matches(name_or_path, preset_names(), n=1)
            hint = f"{near[0]!r}." if near else "one of these, or the path of a .json file."
            raise SpecError(f"no preset {name_or_path!r:.80}", f"the kit has {', '.join(preset_names())}", hint)
    return spec_from_json(_read(Path(name_or_path)), str(name_or_path))


def save_spec(spec: NpuSpec, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write ``spec`` as a JSON file, to edit and to load by its path.

    Raises:
        SpecError: the spec is not a machine, the file exists and ``overwrite`` is False, or it cannot be written.
    """
    target = Path(path)
    text = spec_to_json(spec)
    try:
        write_text(target, text, overwrite=overwrite)
    except OutsideError as error:
        raise SpecError(f"cannot write {target}", error.why, error.hint) from None
    return target


def spec_to_json(spec: NpuSpec) -> str:
    """The file text of ``spec``; ``spec_from_json`` gives an equal spec back. Raises SpecError as ``verify_spec``."""
    return json.dumps(_content(spec), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def content_key(spec: NpuSpec) -> str:
    """A sha256 of everything in ``spec``: equal specs have equal keys, in every process."""
    return hashlib.sha256(json.dumps(_content(spec), sort_keys=True, allow_nan=False).encode()).hexdigest()


def _content(spec: NpuSpec) -> dict[str, Any]:
    """What a file says of ``spec``, the same for equal specs but for the order of keys."""
    verify_spec(spec)
    content = {"format_version": FORMAT_VERSION, **dataclasses.asdict(spec), "sources": dict(spec.sources)}
    for owner, key in (
        *((tier, "energy_pj_per_byte") for tier in content["tiers"]),
        *((mode, "active_share") for mode in content["power_modes"]),
    ):
        owner[key] = _as_float(owner[key])
    content["mac_energy_pj"] = {dtype: _as_float(energy) for dtype, energy in spec.mac_energy_pj.items()}
    return content


def _as_float(value: float) -> float:
    """``value`` as JSON writes it in one way only: 1 and 1.0 are equal, and so are 0.0 and -0.0."""
    return float(value) + 0.0


def spec_from_json(text: str, origin: str = "text") -> NpuSpec:
    """Read one description. ``origin`` is where the text came from, for messages.

    Raises:
        SpecError: not JSON; a key unknown, missing or given twice; a rule of ``verify_spec`` broken.
    """
    reader = _Reader(origin)
    top = reader.fields(reader.parse(text), "", ("format_version", *_names(NpuSpec)))
    version = top.pop("format_version")
    if type(version) is not int or version != FORMAT_VERSION:
        reader.fail("format_version", f"it is {version!r:.40} and this kit reads {FORMAT_VERSION}")
    sources, energies = (reader.table(top.pop(key), key) for key in ("sources", "mac_energy_pj"))
    top["tiers"] = reader.objects(top["tiers"], "tiers", MemoryTier)
    top["engines"] = reader.objects(top["engines"], "engines", Engine)
    top["power_modes"] = reader.objects(top["power_modes"], "power_modes", PowerMode)
    top["tile"] = TileSpec(**reader.fields(top["tile"], "tile", _names(TileSpec)))
    top["dtypes"] = tuple(reader.items(top["dtypes"], "dtypes"))
    spec = NpuSpec(**top, sources=sources, mac_energy_pj=energies)
    verify_spec(spec, origin)
    return spec


@dataclasses.dataclass(frozen=True)
class _Reader:
    """Reads the shape of a description (which keys, objects and arrays); the values are ``verify_spec``'s."""

    origin: str

    def fail(self, key: str, why: str, hint: str = "") -> NoReturn:
        raise SpecError(f"{key} in {self.origin}", why, hint)

    def parse(self, text: str) -> Any:
        try:
            return parse_json(text)
        except OutsideError as error:
            if error.where:
                self.fail(error.where, error.why, error.hint)
            raise SpecError(f"{self.origin} is not JSON", error.why) from None

    def fields(self, value: Any, path: str, names: tuple[str, ...]) -> dict[str, Any]:
        """The members of an object that has exactly the keys ``names``."""
        members = self.table(value, path)
        prefix = f"{path}." if path else ""
        for key in members:
            if key not in names:
                near = difflib.get_close_matches(key, names, n=1)
                hint = f"{near[0]!r}." if near else ""
                self.fail(f"{prefix}{key:.80}", f"unknown key; known here: {', '.join(names)}", hint)
        for name in names:
            if name not in members:
                self.fail(f"{prefix}{name}", "missing key")
        return members

    def table(self, value: Any, path: str) -> dict[str, Any]:
        """The members of an object with keys of its own."""
        if not isinstance(value, dict):
            self.fail(path or "the description", f"it is a JSON {_json_type(value)} and must be an object")
        return dict(value)

    def items(self, value: Any, path: str) -> list[Any]:
        if not isinstance(value, list):
            self.fail(path, f"it is a JSON {_json_type(value)} and must be an array")
        return value

    def objects(self, value: Any, path: str, kind: type) -> tuple[Any, ...]:
        names = _names(kind)
        rows = (self.fields(item, f"{path}[{i}]", names) for i, item in enumerate(self.items(value, path)))
        return tuple(kind(**row) for row in rows)


def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _json_type(value: object) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return next((name for kind, name in names.items() if isinstance(value, kind)), "number")


def _read(path: Path) -> str:
    try:
        return read_text(path, MAX_FILE_BYTES)
    except OutsideError as error:
        raise SpecError(f"cannot read {path}", error.why, error.hint) from None
