"""Where each number of a hardware description comes from: key paths, and the texts of ``sources`` for them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from npu_kit.hw.spec import NpuSpec


def numbers(spec: NpuSpec) -> Iterator[tuple[str, int | float]]:
    """Every number of a spec with its key path, in file order: ``("tiers[0].capacity_bytes", 4096)`` and so on."""
    for path, value in _leaves(spec, ""):
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield path, value


def source_of(spec: NpuSpec, path: str) -> str:
    """The source of the number at ``path``; ``""`` if the spec gives none.

    A key of ``sources`` is a full path (``tiers[0].capacity_bytes``), which goes first, or one with ``[*]`` for every
    index (``tiers[*].bytes_per_cycle``).
    """
    return spec.sources.get(path, spec.sources.get(_any_index(path), ""))


def sources_after(old: NpuSpec, new: NpuSpec) -> dict[str, str]:
    """The sources of ``new``, a changed copy of ``old``: a number that differs must not keep the old one's source."""
    before = dict(numbers(old))
    known = source_keys(new)
    sources = {path: text for path, text in old.sources.items() if path in known}
    return sources | {path: "changed with replace" for path, value in numbers(new) if before.get(path) != value}


def _any_index(path: str) -> str:
    return re.sub(r"\[\d+\]", "[*]", path)


def source_keys(spec: NpuSpec) -> set[str]:
    """Every key that ``sources`` may have."""
    paths = {path for path, _ in _leaves(spec, "")} | {"dtypes"}
    return paths | {_any_index(path) for path in paths}


def _leaves(value: object, path: str) -> Iterator[tuple[str, Any]]:
    """Every leaf below ``value`` with its key path; sources are about leaves and are none."""
    if is_dataclass(value):
        for field in fields(value):
            if field.name != "sources":
                below = getattr(value, field.name)
                yield from _leaves(below, f"{path}.{field.name}" if path else field.name)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}")
    else:
        yield path, value
