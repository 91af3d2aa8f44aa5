"""Where the lessons of this installation are, and a copy of them to work in."""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path

from npu_kit.errors import NpuKitError

FIRST = "00_start_here.ipynb"


def lessons_folder() -> Path:
    """The folder with the notebooks: the checkout's where the kit is installed editable, else the one in the wheel.

    Raises:
        NpuKitError: this installation has no lessons.
    """
    beside_the_package = Path(__file__).resolve().parent.parent / "notebooks"
    if (beside_the_package / FIRST).exists():
        return beside_the_package
    try:
        files = metadata.files("npu-kit") or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == FIRST and "solutions" not in file.parts:
            return Path(str(file.locate())).resolve().parent
    raise NpuKitError("no lessons found", "this installation of npu_kit came without them", "reinstall npu-kit.")


def copy_lessons(target: Path) -> tuple[list[Path], list[Path]]:
    """Copy the lessons and their solutions into ``target``; what is there already stays as it is.

    Returns:
        The files written, and those left alone.

    Raises:
        NpuKitError: there are no lessons, or ``target`` cannot be written.
    """
    source = lessons_folder()
    written: list[Path] = []
    kept: list[Path] = []
    try:
        for notebook in sorted([*source.glob("*.ipynb"), *source.glob("solutions/*.ipynb")]):
            copy = target / notebook.relative_to(source)
            if copy.exists() or copy.is_symlink():  # a link that leads nowhere would be followed, and written
                kept.append(copy)
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(notebook, copy)
            written.append(copy)
    except OSError as error:
        raise NpuKitError(f"cannot copy the lessons to {target}", error.strerror or str(error)) from None
    return written, kept
