"""A compiled model as a file: a shared library, and beside it a manifest that is checked before anything is loaded."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import tvm
from tvm.support import cc

from npu_kit.byoc.run.model import RunnableModel
from npu_kit.doctor import require_tvm
from npu_kit.errors import ToolError
from npu_kit.runtime.inputs import Parameter

FORMAT = "npu_kit.model"
FORMAT_VERSION = 1
MAX_MANIFEST_BYTES = 1_000_000


def export(model: RunnableModel, executable: Any, path: str | os.PathLike[str]) -> Path:
    """Write a compiled model to ``path`` (a shared library) and its manifest to ``path`` + ``.json``.

    Raises:
        ToolError: there is no C compiler, which TVM needs to link a library, or the files cannot be written.
    """
    compiler = cc.get_cc()
    if compiler is None:
        raise ToolError(
            f"cannot export {path}",
            "TVM links a shared library with a C compiler, and none was found",
            "installing gcc or clang; Compiled.run needs none.",
        )
    library = Path(path)
    try:
        executable.export_library(str(library))
        manifest = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "sha256": _sha256(library),
            "entry": model.entry,
            "parameters": [[p.name, list(p.shape), p.dtype] for p in model.parameters],
        }
        _manifest_path(library).write_text(json.dumps(manifest, indent=2) + "\n", encoding="ascii")
    except OSError as error:
        raise ToolError(f"cannot export {path}", str(error)) from error
    return library


def load(path: str | os.PathLike[str], *, trust: bool = False) -> RunnableModel:
    """Load what ``Compiled.export`` wrote.

    Args:
        path: the shared library; its manifest stands beside it.
        trust: a shared library is a program: with True you say that you know where this one comes from.

    Raises:
        ToolError: ``trust`` is False, a file is missing, or the library is not the one that the manifest describes.
    """
    if not trust:
        raise ToolError(
            f"{path} was not loaded",
            "a shared library is a program, which can do anything that you can",
            "load(path, trust=True), for a file of your own.",
        )
    require_tvm()
    library = Path(path)
    sha256, entry, parameters = _read_manifest(_manifest_path(library))
    # TVM maps the file: one that was cut short ends the process.
    try:
        found = _sha256(library)
    except OSError as error:
        raise ToolError(f"cannot load {path}", str(error)) from None
    if found != sha256:
        raise ToolError(
            f"cannot load {path}", f"its sha256 is {found} and its manifest says {sha256}", "exporting the model again."
        )
    return RunnableModel(tvm.runtime.load_module(str(_copy_by_content(library, sha256))), entry, parameters)


@functools.cache
def _copies() -> tempfile.TemporaryDirectory[str]:
    """A folder of this process for loaded libraries, removed when it ends."""
    return tempfile.TemporaryDirectory(prefix="npu_kit_", ignore_cleanup_errors=True)


def _copy_by_content(library: Path, sha256: str) -> Path:
    """The library under a name that stands for its content.

    The system's loader gives a path that it has loaded once the same library again, whatever the file holds by then: a
    model exported twice to one path would go on to be the first.
    """
    copy = Path(_copies().name) / f"{sha256}{library.suffix}"
    if not copy.exists():
        shutil.copyfile(library, copy)
    return copy


def _read_manifest(path: Path) -> tuple[str, str, tuple[Parameter, ...]]:
    try:
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise ValueError(f"it has more than {MAX_MANIFEST_BYTES:,} bytes")
        manifest = json.loads(path.read_text(encoding="ascii"))
        if (manifest["format"], manifest["format_version"]) != (FORMAT, FORMAT_VERSION):
            raise ValueError(f"it is not of format {FORMAT!r}, version {FORMAT_VERSION}")
        parameters = tuple(
            Parameter(str(name), tuple(e if isinstance(e, int) else str(e) for e in shape), str(dtype))
            for name, shape, dtype in manifest["parameters"]
        )
        return str(manifest["sha256"]), str(manifest["entry"]), parameters
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ToolError(f"cannot read the manifest {path}", str(error), "exporting the model again.") from error


def _manifest_path(library: Path) -> Path:
    return library.with_name(f"{library.name}.json")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
