"""The wheel holds both packages, their data and the lessons, and claims no other name."""

from __future__ import annotations

import subprocess
import sys
import zipfile

import pytest


@pytest.fixture(scope="module")
def wheel(repository, tmp_path_factory):
    """The names of the files in a wheel that is built from this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    result = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    (path,) = folder.glob("npu_kit-*.whl")
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


def files_of(folder):
    return {path.relative_to(folder.parent).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_wheel_claims_two_names(wheel):
    tops = {name.split("/")[0] for name in wheel}
    assert {top for top in tops if not top.startswith("npu_kit-")} == {"npu_kit", "npu_kit_widgets"}


@pytest.mark.parametrize("package", ["npu_kit", "widgets/npu_kit_widgets"])
def test_each_file_of_a_package_is_in_the_wheel(wheel, repository, package):
    expected = {name for name in files_of(repository / package) if not name.endswith(".pyc")}
    assert expected <= set(wheel)
    assert any(not name.endswith(".py") for name in expected), "a package without data makes this test weak"


def test_the_kinds_of_data_that_the_kit_loads_are_in_the_wheel(wheel):
    for ending in ("presets/example.json", ".npz", "npu_kit/py.typed", "npu_kit_widgets/py.typed"):
        assert any(name.endswith(ending) for name in wheel), ending


def test_the_lessons_are_in_the_wheel(wheel, repository):
    notebooks = repository / "notebooks"
    lessons = [*notebooks.glob("*.ipynb"), *notebooks.glob("solutions/*.ipynb")]
    assert lessons
    for path in lessons:
        name = f"/data/share/npu_kit/lessons/{path.relative_to(notebooks).as_posix()}"
        assert any(entry.endswith(name) for entry in wheel), name


def test_installing_makes_nothing_else_importable(tmp_path):
    program = "import importlib.util as u; print([n for n in {names} if u.find_spec(n)])"
    names = ["npu_kit", "npu_kit_widgets", "widgets", "tests", "scripts", "bench", "lessons", "notebooks"]
    command = [sys.executable, "-I", "-c", program.format(names=names)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.stdout.strip() == "['npu_kit', 'npu_kit_widgets']"
