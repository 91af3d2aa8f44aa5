"""One region with everything that running it needs, as text: what a compiled module carries and hands to the kit.

The key of a package is the sha256 of its text, and the text holds the sha256 of the constants. So a key stands for
content: TVM's symbols and constant names derive from structure, and two models of one shape share them.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.errors import GraphError
from npu_kit.graph.ir import Graph
from npu_kit.graph.serialize import from_json, to_json
from npu_kit.graph.strict_json import MAX_TEXT
from npu_kit.hw.presets import spec_from_json, spec_to_json
from npu_kit.hw.spec import NpuSpec
from npu_kit.outside import OutsideError, parse_json
from npu_kit.runtime.execute import verify_mode

FORMAT = "npu_kit.region"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class Settings:
    """How a region is planned and run."""

    spec: NpuSpec  # with the tile that was asked for
    power_mode: str | None = None  # None: the spec's default
    mode: str = "fast"  # one of runtime.execute.MODES

    def __post_init__(self) -> None:
        verify_mode(self.mode)
        self.spec.power_mode(self.power_mode)

    @functools.cached_property
    def spec_content(self) -> Any:
        """The spec as JSON content: every region of a model holds the same."""
        return json.loads(spec_to_json(self.spec))


@dataclass(frozen=True)
class Package:
    """One region: its graph, how it is planned and run, and which constants belong to it."""

    graph: Graph
    settings: Settings
    constants_sha256: str  # of ``digest_constants``; "" where they were not known when the package was made

    def to_json(self) -> str:
        """The text, ASCII only: TVM cuts a string at a NUL byte, which ASCII JSON never holds."""
        settings = self.settings
        content = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "graph": json.loads(to_json(self.graph)),
            "constants_sha256": self.constants_sha256,
            "power_mode": settings.power_mode,
            "mode": settings.mode,
            "spec": settings.spec_content,
        }
        return json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def key_of(text: str) -> str:
    """The content key of a package's text."""
    return hashlib.sha256(text.encode()).hexdigest()


def digest_constants(constants: Iterable[NDArray[Any]]) -> str:
    """A sha256 over dtype, shape and bytes of each constant, in the order of the graph's const nodes."""
    digest = hashlib.sha256()
    for constant in constants:
        digest.update(f"{constant.dtype.str}{constant.shape};".encode())
        digest.update(np.ascontiguousarray(constant).data)
    return digest.hexdigest()


def package_from_json(text: str) -> Package:
    """Read what ``Package.to_json`` wrote.

    Raises:
        GraphError: not the text of a package, or its graph breaks a rule.
        SpecError: its machine is not one.
        ExecutionError: its mode is none of the runtime's.
    """
    if len(text) > MAX_TEXT:
        raise GraphError("a region cannot be read", f"it has {len(text):,} characters and the limit is {MAX_TEXT:,}")
    try:
        content = parse_json(text)
    except OutsideError as error:
        raise GraphError("a region cannot be read", f"its text is not JSON ({error})") from None
    if not isinstance(content, dict) or set(content) != set(_KEYS):
        raise GraphError("a region cannot be read", f"its text must be an object with the keys {', '.join(_KEYS)}")
    if (content["format"], content["format_version"]) != (FORMAT, FORMAT_VERSION):
        found = f"{content['format']!r:.40} version {content['format_version']!r:.40}"
        raise GraphError(
            "a region cannot be read",
            f"it is {found}, and this kit reads {FORMAT!r} version {FORMAT_VERSION}",
            "compiling the model again with this kit.",
        )
    settings = Settings(
        spec=spec_from_json(json.dumps(content["spec"]), "the spec of a region"),
        power_mode=content["power_mode"],
        mode=content["mode"],
    )
    digest = content["constants_sha256"]
    if not isinstance(digest, str) or not re.fullmatch("([0-9a-f]{64})?", digest):
        raise GraphError("a region cannot be read", f"constants_sha256 is {digest!r:.80}, which is no sha256")
    return Package(from_json(json.dumps(content["graph"])), settings, digest)


_KEYS = ("format", "format_version", "graph", "constants_sha256", "power_mode", "mode", "spec")
