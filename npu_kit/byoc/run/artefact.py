"""A compiled model as a file: a shared library, and beside it a manifest that is checked before anything is loaded."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm.support import cc

from npu_kit.byoc.run.callback import call_through
from npu_kit.byoc.run.model import RunnableModel
from npu_kit.doctor import require_tvm
from npu_kit.errors import ToolError
from npu_kit.outside import OutsideError, parse_json, read_text, verify_ordinary, verify_target
from npu_kit.runtime.inputs import Parameter

FORMAT = "npu_kit.model"
FORMAT_VERSION = 1
MAX_MANIFEST_BYTES = 1_000_000
MAX_LIBRARY_BYTES = 4 << 30  # it is summed up and copied before it is loaded
MAX_PARAMETERS = 10_000
# By name: np.dtype() evaluates what is in a text such as "(2,)f4" and raises whatever that raises.
_DTYPES = frozenset(np.dtype(code).name for code in "?" + np.typecodes["AllInteger"] + np.typecodes["Float"])
MAX_RANK = 32
_SUFFIX = ".so"  # TVM loads .dll and .dylib in the same way


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
        for target in (library, _manifest_path(library)):
            verify_target(target)
        if not library.parent.is_dir():
            raise NotADirectoryError(f"there is no folder {library.parent}")
        # Under a name of the kit's: TVM takes the kind of file from the name, and compilers take some for options.
        with tempfile.TemporaryDirectory(prefix=".npu_kit_", dir=library.parent.absolute()) as folder:
            linked = Path(folder) / f"model{_SUFFIX}"
            call_through(lambda: executable.export_library(str(linked), fpack_imports=_pack_imports))
            linked.replace(library)
        manifest = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "sha256": _sha256(library),
            "entry": model.entry,
            "parameters": [[p.name, list(p.shape), p.dtype] for p in model.parameters],
        }
        _manifest_path(library).write_text(json.dumps(manifest, indent=2) + "\n", encoding="ascii")
    except (OSError, ValueError, RuntimeError) as error:  # TVM's linker raises a RuntimeError with its whole output
        raise ToolError(f"cannot export {path}", str(error)[:400]) from error
    return library


def _pack_imports(module: Any, _is_system_lib: bool, prefix: str, folder: str) -> str:
    """Write what the executable holds besides code to an object file; returns its path.

    TVM takes code that was built without optimization, as that of regions is, for a system library. Its symbols would
    be registered for the whole process, and each model that is loaded would override those of the one before.
    """
    pack = tvm.get_global_func("runtime.ModulePackImportsToLLVM")
    path = str(Path(folder) / "imports.o")
    pack(module, False, '{"kind": "llvm"}', prefix).write_to_file(path)
    return path


def load(path: str | os.PathLike[str], *, trust: bool = False) -> RunnableModel:
    """Load what ``Compiled.export`` wrote.

    Args:
        path: the shared library; its manifest stands beside it.
        trust: a shared library is a program: with True you say that you know where this one comes from.

    Raises:
        ToolError: ``trust`` is False, a file is missing, or the library is not the one that the manifest describes, or
            none that this system can load.
    """
    if not trust:
        raise ToolError(
            f"{path} was not loaded",
            "a shared library is a program, which can do anything that you can",
            "load(path, trust=True), for a file of your own.",
        )
    require_tvm()
    library = Path(path)
    manifest = _manifest_path(library)
    try:
        sha256, entry, parameters = read_manifest(read_text(manifest, MAX_MANIFEST_BYTES, "ascii"))
    except OutsideError as error:
        raise ToolError(f"cannot read the manifest {manifest}", str(error), "exporting the model again.") from error
    try:
        copy = _copy_by_content(library, sha256)
    except (OSError, ValueError) as error:
        raise ToolError(f"cannot load {path}", str(error), "exporting the model again.") from None
    try:
        module = tvm.runtime.load_module(str(copy))
    except Exception as error:  # whatever TVM and the system's loader raise for a file that is no library of theirs
        why = f"the system does not take it as a library: {str(error)[-400:]}"
        raise ToolError(f"cannot load {path}", why, "exporting the model again, on a machine like this one.") from error
    model = RunnableModel(module, entry, parameters)
    if not model.has_entry():
        raise ToolError(f"cannot load {path}", f"it has no function {entry!r:.80}", "exporting the model again.")
    return model


@functools.cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    """A folder of this process for loaded libraries, removed when it ends."""
    return tempfile.TemporaryDirectory(prefix="npu_kit_", ignore_cleanup_errors=True)


def _copies() -> Path:
    """That folder, a new one where it is gone: a forked process that ends removes it, and so does who tidies /tmp."""
    if not Path(_temporary().name).is_dir():
        _temporary().cleanup()
        _temporary.cache_clear()
    return Path(_temporary().name)


def _copy_by_content(library: Path, sha256: str) -> Path:
    """The library under a name that stands for its content, once that is what the manifest says.

    The system's loader gives a path that it has loaded once the same library again, whatever the file holds by then: a
    model exported twice to one path would go on to be the first. And it maps the file: one that was cut short ends the
    process. What is loaded is the copy that was summed up, not a file that may change in between. TVM chooses a loader
    by the end of a name, so the copy has that of a library.
    """
    verify_ordinary(library)
    _verify_size(library.stat().st_size)
    copy = _copies() / f"{sha256}{_SUFFIX}"
    part, digest, nbytes = copy.with_name(f"{copy.name}.{threading.get_ident()}"), hashlib.sha256(), 0
    try:
        with library.open("rb") as source, part.open("wb") as target:
            while chunk := source.read(1 << 20):
                nbytes += len(chunk)
                _verify_size(nbytes)  # it may grow meanwhile
                digest.update(chunk)
                target.write(chunk)
        if digest.hexdigest() != sha256:
            raise ValueError(f"its sha256 is {digest.hexdigest()} and its manifest says {sha256}")
        if not copy.exists():
            part.replace(copy)
    finally:
        part.unlink(missing_ok=True)
    return copy


def read_manifest(text: str) -> tuple[str, str, tuple[Parameter, ...]]:
    """The sha256 of a library, its entry and its parameters, from the text of its manifest.

    Raises:
        OutsideError: not a manifest of this version of the format; names the key.
    """
    manifest = parse_json(text)
    if not isinstance(manifest, dict):
        raise OutsideError("", f"it is a JSON {type(manifest).__name__} and must be an object")
    for key in ("format", "format_version", "sha256", "entry", "parameters"):
        if key not in manifest:
            raise OutsideError(key, "missing key")
    if manifest["format"] != FORMAT or type(manifest["format_version"]) is not int:
        raise OutsideError("format", f"it is {manifest['format']!r:.80} and must be {FORMAT!r}")
    if manifest["format_version"] != FORMAT_VERSION:
        raise OutsideError("format_version", f"it is {manifest['format_version']} and this kit reads {FORMAT_VERSION}")
    sha256, entry, parameters = manifest["sha256"], manifest["entry"], manifest["parameters"]
    if not isinstance(sha256, str) or not re.fullmatch("[0-9a-f]{64}", sha256):
        raise OutsideError("sha256", f"it is {sha256!r:.80}, which is no sha256")
    if not isinstance(entry, str) or not entry or "\0" in entry:
        raise OutsideError("entry", f"it is {entry!r:.80} and must be the name of a function")
    if not isinstance(parameters, list) or len(parameters) > MAX_PARAMETERS:
        raise OutsideError("parameters", f"it must be an array of at most {MAX_PARAMETERS:,} parameters")
    return sha256, entry, tuple(_read_parameter(item, f"parameters[{i}]") for i, item in enumerate(parameters))


def _read_parameter(value: Any, where: str) -> Parameter:
    if not isinstance(value, list) or len(value) != 3:
        raise OutsideError(where, "it must be an array of name, shape and dtype")
    name, shape, dtype = value
    if not isinstance(name, str):
        raise OutsideError(where, f"its name is {name!r:.80} and must be text")
    if not isinstance(shape, list) or len(shape) > MAX_RANK or not all(map(_is_extent, shape)):
        raise OutsideError(where, f"its shape is {shape!r:.80}: sizes from 0, or names of symbols, are needed")
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise OutsideError(where, f"its dtype is {dtype!r:.80}, and only dtypes of numbers that NumPy has are known")
    return Parameter(name, tuple(shape), dtype)


def _verify_size(nbytes: int) -> None:
    if nbytes > MAX_LIBRARY_BYTES:
        raise ValueError(f"it is larger than {MAX_LIBRARY_BYTES:,} bytes, the limit")


def _is_extent(size: Any) -> bool:
    return (isinstance(size, str) and size != "") or (type(size) is int and 0 <= size <= sys.maxsize)


def _manifest_path(library: Path) -> Path:
    return library.parent / f"{library.name}.json"  # with_name raises where there is no name, as for "."


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
