"""The doctor finds what is missing or does not fit, and works where TVM is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from npu_kit import doctor
from npu_kit.doctor import Finding, describe, diagnose, require_tvm
from npu_kit.errors import ToolError


@pytest.fixture
def installed(monkeypatch):
    """``installed(**{"apache-tvm": "0.27.0"})``: these versions and no others, as pip sees it."""
    require_tvm.cache_clear()

    def pretend(**versions):
        monkeypatch.setattr(doctor, "_version", versions.get)

    yield pretend
    require_tvm.cache_clear()


@pytest.mark.parametrize(
    ("ffi", "fits"),
    [
        ("0.1.13", False),
        ("0.1.14", False),  # before 0.1.14.post0
        ("0.1.14.post0", True),
        ("0.1.14.post1", True),
        ("0.1.15rc1", False),
        ("0.1.15", False),
        ("0.1.15.post2", False),
        ("0.2.0", False),
        (None, False),
    ],
)
def test_pair_of_tvm_and_ffi(installed, ffi, fits):
    versions = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": ffi}
    installed(**versions)
    if fits:
        require_tvm()
        return
    with pytest.raises(ToolError) as caught:
        require_tvm()
    message = str(caught.value)
    assert "0.27.0.post1" in message and "pip install" in message and ">=0.1.14.post0,<0.1.15" in message
    assert (ffi or "not installed") in message
    found = next(row for row in diagnose() if row.what == "TVM ffi")
    assert not found.is_ok and "pip install" in found.fix


def test_bounds_are_those_of_pyproject(repository):
    text = (repository / "pyproject.toml").read_text(encoding="utf-8")
    assert f'"apache-tvm-ffi{doctor.WANTED_FFI}"' in text
    assert '"apache-tvm>=0.27,<0.28"' in text
    assert f'requires-python = ">={".".join(map(str, doctor.WANTED_PYTHON))}"' in text


def test_tvm_from_source_is_left_alone(installed):
    installed()  # importable here, and pip knows nothing of it
    require_tvm()


def test_another_tvm_is_reported_and_not_refused(installed):
    installed(**{"apache-tvm": "0.28.0", "apache-tvm-ffi": "0.2.0", "numpy": "2.4"})
    require_tvm()
    rows = {row.what: row for row in diagnose()}
    assert not rows["TVM"].is_ok and rows["NumPy"].is_ok


def test_missing_tvm(installed, monkeypatch):
    installed()
    monkeypatch.setattr(doctor, "_is_importable", lambda module: False)
    with pytest.raises(ToolError, match="not installed"):
        require_tvm()


def test_a_good_pair_is_looked_up_once(installed, monkeypatch):
    installed(**{"apache-tvm": "0.27.0", "apache-tvm-ffi": "0.1.14.post0"})
    require_tvm()
    monkeypatch.setattr(doctor, "_version", lambda package: pytest.fail("looked up again"))
    require_tvm()


def test_a_bad_pair_is_looked_up_again_after_it_is_fixed(installed):
    installed(**{"apache-tvm": "0.27.0", "apache-tvm-ffi": "0.1.15"})
    with pytest.raises(ToolError):
        require_tvm()
    installed(**{"apache-tvm": "0.27.0", "apache-tvm-ffi": "0.1.14.post0"})
    require_tvm()


def test_this_environment_is_ok():
    rows = diagnose()
    assert [row.what for row in rows] == [
        "Python",
        "NumPy",
        "TVM",
        "TVM ffi",
        "import tvm",
        "Graphviz",
        "C compiler",
    ]
    for row in rows:
        assert row.found and row.wanted
        assert row.is_ok or not row.is_required, describe(rows)
        assert bool(row.fix) != row.is_ok


def test_old_numpy_is_found(installed):
    installed(numpy="1.26.4")
    assert not next(row for row in diagnose() if row.what == "NumPy").is_ok


def test_missing_graphviz_is_found(monkeypatch):
    monkeypatch.setenv("NPU_KIT_DOT", "nothing")
    row = next(row for row in diagnose() if row.what == "Graphviz")
    assert not row.is_ok and "nothing" in describe([row])


@pytest.mark.parametrize("variable", ["CXX", "CC"])
def test_compiler_is_the_one_tvm_would_take(monkeypatch, tmp_path, variable):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    def compiler():
        return next(row for row in diagnose() if row.what == "C compiler")

    assert (compiler().is_ok, compiler().is_required) == (False, False)
    for name in ("cc", "g++"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
        assert compiler().found == str(tmp_path / name)
    monkeypatch.setenv(variable, str(tmp_path / "gone"))
    assert not compiler().is_ok
    monkeypatch.setenv(variable, f"{tmp_path / 'cc'} -O1")
    assert compiler().is_ok


def test_description_says_what_to_do():
    text = describe(
        [
            Finding("TVM", "0.27.0", "0.27.*", True, ""),
            Finding("TVM ffi", "0.1.15", "<0.1.15", False, "pip install it"),
            Finding("C compiler", "none", "one", False, "apt-get install g++", is_required=False),
        ]
    )
    assert text.splitlines() == [
        "ok      TVM         0.27.0 (wanted: 0.27.*)",
        "WRONG   TVM ffi     0.1.15 (wanted: <0.1.15)",
        "                    fix: pip install it",
        "missing C compiler  none (wanted: one)",
        "                    fix: apt-get install g++",
    ]


WITHOUT_TVM = """
import importlib.abc, sys

class NoTvm(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in ("tvm", "tvm_ffi"):
            raise ImportError("libtvm.so: cannot open shared object file")

sys.meta_path.insert(0, NoTvm())
from npu_kit.doctor import describe, diagnose
from npu_kit.byoc.report import Report
row = next(row for row in diagnose() if row.what == "import tvm")
assert not row.is_ok and "libtvm.so" in row.found and "pip install" in row.fix
assert len(Report(())) == 0
assert "tvm" not in sys.modules
"""


def test_doctor_and_report_work_without_tvm():
    subprocess.run([sys.executable, "-c", WITHOUT_TVM], check=True)
