"""Checks what the kit stands on: Python, NumPy, TVM and its ffi package, Graphviz, a C compiler.

Imports without TVM, so that it can say what is wrong where TVM is missing or broken.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata

from npu_kit.errors import ToolError

# TVM 0.27 itself declares only the lower bound. With 0.1.15, saving or copying a module ends the process.
WANTED_TVM = "0.27.*"
WANTED_FFI = ">=0.1.14.post0,<0.1.15"
WANTED_PYTHON = (3, 10)
WANTED_NUMPY = (2, 0)

FIX_TVM = f'pip install "apache-tvm=={WANTED_TVM}" "apache-tvm-ffi{WANTED_FFI}", and a new kernel'
_COMPILERS = ("g++", "gcc", "clang++", "clang", "c++", "cc")  # those TVM looks for, in its order


@dataclass(frozen=True)
class Finding:
    """One row of a diagnosis."""

    what: str
    found: str
    wanted: str
    is_ok: bool
    fix: str  # what to do where it is not ok, "" otherwise
    is_required: bool = True  # the lessons do not run without it


@functools.cache
def require_tvm() -> None:
    """Make sure that the installed TVM and its ffi package fit; looks once per process if they do.

    Raises:
        ToolError: TVM is not installed, or the pair crashes; the message says what to install.
    """
    tvm, ffi = _version("apache-tvm"), _version("apache-tvm-ffi")
    if tvm is None and ffi is None and not _is_importable("tvm"):
        raise ToolError("TVM is not installed", "no module named tvm", f"{FIX_TVM}.")
    if _is_pair_broken(tvm, ffi):
        raise ToolError(
            f"apache-tvm {tvm} with apache-tvm-ffi {ffi or '(not installed)'}",
            f"TVM 0.27 needs apache-tvm-ffi {WANTED_FFI}: with others, saving and copying a module ends the process",
            f"{FIX_TVM}.",
        )


def diagnose() -> tuple[Finding, ...]:
    """Look at everything the kit needs, without changing anything."""
    return (_python(), _numpy(), _tvm(), _ffi(), _import_of_tvm(), _dot(), _compiler())


def describe(findings: Iterable[Finding]) -> str:
    """The diagnosis as text, one line per finding, and what to do about each that is not ok."""
    lines = []
    for finding in findings:
        mark = "ok" if finding.is_ok else "WRONG" if finding.is_required else "missing"
        lines.append(f"{mark:8}{finding.what:12}{finding.found} (wanted: {finding.wanted})")
        if not finding.is_ok:
            lines.append(f"{'':20}fix: {finding.fix}")
    return "\n".join(lines)


def _python() -> Finding:
    wanted = ".".join(map(str, WANTED_PYTHON)) + " or later"
    found = tuple(map(int, platform.python_version_tuple()[:2]))
    is_ok = found >= WANTED_PYTHON
    return _finding("Python", platform.python_version(), wanted, is_ok, f"an environment with Python {wanted}")


def _numpy() -> Finding:
    found = _version("numpy")
    is_ok = found is not None and _release(found)[:2] >= WANTED_NUMPY
    return _finding("NumPy", found or "not installed", "2.0 or later", is_ok, 'pip install "numpy>=2.0,<3"')


def _tvm() -> Finding:
    found = _version("apache-tvm")
    is_ok = found is not None and _release(found)[:2] == (0, 27)
    return _finding("TVM", found or "not installed with pip", WANTED_TVM, is_ok, FIX_TVM)


def _ffi() -> Finding:
    found = _version("apache-tvm-ffi")
    is_ok = found is not None and _is_ffi_wanted(found)
    return _finding("TVM ffi", found or "not installed with pip", WANTED_FFI, is_ok, FIX_TVM)


def _import_of_tvm() -> Finding:
    try:
        import tvm
    except Exception as error:  # a broken installation can raise anything
        return _finding("import tvm", f"{type(error).__name__}: {error}", "no error", False, FIX_TVM)
    llvm = tvm.get_global_func("target.build.llvm", allow_missing=True) is not None
    fix = "a TVM that was built with LLVM, as the pip package is"
    return _finding("import tvm", "works, with LLVM" if llvm else "works, without LLVM", "TVM with LLVM", llvm, fix)


def _dot() -> Finding:
    from npu_kit.render.dot import find_backend  # here: what only asks for TVM needs no renderers

    try:
        name, program = find_backend()
    except ToolError as error:
        return _finding("Graphviz", f"{error.what}: {error.why}", "graphviz-pure or dot", False, error.hint)
    return _finding("Graphviz", f"{name} {program or ''}".strip(), "graphviz-pure or dot", True, "")


def _compiler() -> Finding:
    found = _find_compiler()
    wanted = "a C compiler, for export_library only"
    fix = "apt-get install g++, xcode-select --install, or conda install -c conda-forge cxx-compiler"
    return Finding("C compiler", found or "none", wanted, found is not None, "" if found else fix, is_required=False)


def _find_compiler() -> str | None:
    chosen = os.environ.get("CXX") or os.environ.get("CC")
    if chosen:
        return chosen if shutil.which(chosen.split()[0]) else None
    return next((path for name in _COMPILERS if (path := shutil.which(name))), None)


def _finding(what: str, found: str, wanted: str, is_ok: bool, fix: str) -> Finding:
    return Finding(what, found, wanted, is_ok, "" if is_ok else fix)


def _is_pair_broken(tvm: str | None, ffi: str | None) -> bool:
    """Whether a TVM 0.27 from pip meets an ffi package outside of the bounds. A TVM built from source is left alone."""
    return tvm is not None and _release(tvm)[:2] == (0, 27) and (ffi is None or not _is_ffi_wanted(ffi))


def _is_ffi_wanted(version: str) -> bool:
    # 0.1.14.post0 is later than 0.1.14, and 0.1.15rc1 counts as 0.1.15.
    return re.fullmatch(r"0\.1\.14\.post\d+", version) is not None


def _release(version: str) -> tuple[int, ...]:
    """The numbers at the start of a version: (0, 27, 0) for 0.27.0.post1."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _is_importable(module: str) -> bool:
    from importlib.util import find_spec

    return find_spec(module) is not None
