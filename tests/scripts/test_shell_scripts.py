"""The shell scripts behind make: what they say where something is missing."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the scripts are for make, which needs a POSIX shell")


@pytest.fixture
def program(tmp_path):
    """Make an executable in a folder that can be the whole PATH."""

    def make(name, text):
        path = tmp_path / name
        path.write_text(f"#!{shutil.which('sh')}\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return make


def run(repository, script, *arguments, path=None, **variables):
    environment = {"PATH": str(path) if path else os.environ["PATH"], **variables}
    command = [shutil.which("sh"), str(repository / "scripts" / script), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_this_python_will_do(repository):
    result = run(repository, "check_python.sh", sys.executable)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_no_such_python(repository):
    result = run(repository, "check_python.sh", "python9.99")
    assert result.returncode == 1
    assert result.stderr.startswith("There is no program python9.99. Install Python 3.10 or later")


def test_an_old_python_is_named_with_its_version(repository, program):
    old = program("python3", "echo 3.9; exit 1")
    result = run(repository, "check_python.sh", str(old))
    assert result.returncode == 1
    assert "is Python 3.9, and npu_kit needs 3.10 or later" in result.stderr


def test_a_python_without_venv_is_told_how_to_get_it(repository, program):
    bare = program("python3", 'case "$2" in *venv*) exit 1;; *) echo 3.12;; esac')
    result = run(repository, "check_python.sh", str(bare))
    assert result.returncode == 1
    assert "has no venv module" in result.stderr
    assert "python3-venv" in result.stderr


def test_a_chromium_that_is_there_is_printed(repository, program, tmp_path):
    path = program("google-chrome", "exit 0")
    result = run(repository, "ensure_chromium.sh", path=tmp_path)
    assert (result.returncode, result.stdout) == (0, f"{path}\n")


def test_the_named_chromium_wins(repository, program, tmp_path):
    program("chromium", "exit 0")
    mine = program("mine", "exit 0")
    result = run(repository, "ensure_chromium.sh", path=tmp_path, NPU_KIT_CHROMIUM=str(mine))
    assert result.stdout == f"{mine}\n"


@pytest.mark.parametrize("user", ["1000", "0"])
def test_without_chromium_the_message_says_what_to_install(repository, program, tmp_path, user):
    program("id", f"echo {user}")  # root, too, where there is no apt-get
    result = run(repository, "ensure_chromium.sh", path=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert "Debian: sudo apt-get install chromium" in result.stderr
    assert "NPU_KIT_CHROMIUM=" in result.stderr


def test_root_on_debian_installs_it(repository, program, tmp_path):
    program("id", "echo 0")
    sh, chmod = shutil.which("sh"), shutil.which("chmod")
    install = f'echo "#!{sh}" > {tmp_path}/chromium; {chmod} +x {tmp_path}/chromium'
    program("apt-get", f'echo "$@" >> {tmp_path}/log; case "$1" in install) {install};; esac')
    result = run(repository, "ensure_chromium.sh", path=tmp_path)
    assert (result.returncode, result.stdout) == (0, f"{tmp_path}/chromium\n")
    update, installation = (tmp_path / "log").read_text().splitlines()
    assert update.startswith("update")
    assert installation.endswith("--no-install-recommends chromium fonts-dejavu-core")
