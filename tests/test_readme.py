"""What the README and its neighbours tell people to run exists and runs."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from npu_kit import cli

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def fences(page: Path, language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(page.read_text(encoding="utf-8")) if kind == language]


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture(scope="module")
def makefile() -> str:
    return (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def targets(makefile) -> set[str]:
    return set(re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split())


def run_make(*arguments: str) -> str:
    """What make prints, free of the settings of a make that this test may run under."""
    inherited = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "PYTEST_ARGS", "LAB_ARGS", "PYTHON", "V"}
    environment = {name: value for name, value in os.environ.items() if name not in inherited}
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


def recipe(target: str) -> list[str]:
    """The commands that make would run, one a line."""
    text = run_make("--dry-run", "--always-make", target)
    return [words(line) for line in text.replace("\\\n", " ").splitlines()]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_make_target_that_is_named_exists(page, targets):
    text = page.read_text(encoding="utf-8")
    lines = [line for body in fences(page, "console") for line in body.splitlines()]
    commands = [*lines, *re.findall(r"`([^`\n]*)`", FENCE.sub("", text))]
    for command in commands:
        if match := re.match(r"(?:[A-Z_]+=\S+ )*make((?: [^ ]+)*)$", re.sub(r'="[^"]*"', "=x", command.strip())):
            named = [word for word in match[1].split() if "=" not in word and word != "TARGET"]
            assert set(named) <= targets, f"{command!r} in {name_of(page)}"


def test_the_two_commands_of_the_start_are_shown(targets):
    assert fences(ROOT / "README.md", "console")[:2] == ["make lab\n", "make test\n"]
    assert {"lab", "test"} <= targets


@needs_make
def test_help_lists_each_target(makefile, targets):
    described = set(re.findall(r"^([a-z-]+):.*## \S", makefile, re.MULTILINE))
    assert described == targets
    assert re.search(r"^\.DEFAULT_GOAL := help$", makefile, re.MULTILINE)
    assert targets <= set(run_make().split())


@pytest.mark.parametrize("position", range(len(fences(ROOT / "README.md", "python"))))
def test_python_in_the_readme_runs(position, tmp_path):
    code = fences(ROOT / "README.md", "python")[position]
    script = tmp_path / "snippet.py"  # TVMScript reads the source of what it decorates, so it has to be a file
    script.write_text(code, encoding="utf-8")
    result = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "region0" in result.stdout


def test_the_exercise_module_in_contributing_runs():
    (code,) = (code for code in fences(ROOT / "CONTRIBUTING.md", "python") if "EXERCISES" in code)
    namespace: dict[str, object] = {}
    exec(code, namespace)
    names = [exercise.name for exercise in namespace["EXERCISES"]]
    assert names == ["tiles.cycles", "tiles.prediction"]
    function, value = namespace["EXERCISES"]
    assert function.check(namespace["systolic_cycles"])
    assert function.check(...).state == "not done yet"
    assert value.check(12)


@needs_make
def test_commands_without_make_are_those_of_the_makefile():
    lines = [line for body in fences(ROOT / "README.md", "powershell") for line in body.splitlines()]
    as_make = [words(re.sub(r"^\.venv\\Scripts\\", ".venv/bin/", line)) for line in lines]
    made = [line.removeprefix("NPU_KIT_EXERCISES=strict ") for line in recipe("lab") + recipe("test")]
    assert '$env:NPU_KIT_EXERCISES = "strict"' in as_make
    for command in as_make:
        if command == "py -3 -m venv .venv" or command.startswith("$env:"):
            continue
        in_make = command.replace("-m pip install", "-m pip --disable-pip-version-check install --quiet")
        assert in_make in made, command
    steps = [line for line in made if line.startswith(".venv/bin/") and "-m pip" not in line]
    assert [line for line in steps if line not in as_make] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_link_inside_the_repository_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{target} in {name_of(page)}"


def test_the_table_of_lessons_is_the_lessons_there_are():
    listed = re.findall(r"^\| `(\d\d_\w+)` \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == sorted(path.stem for path in (ROOT / "lessons").glob("*.py"))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_command_of_npu_kit_that_is_named_exists(page, capsys):
    for name in re.findall(r"`(?:\S*/)?npu-kit ([a-z]+)[^`]*`", page.read_text(encoding="utf-8")):
        with pytest.raises(SystemExit) as exit:
            cli.main([name, "--help"])
        assert exit.value.code == 0, f"npu-kit {name} in {name_of(page)}"
    capsys.readouterr()


def test_the_index_of_decisions_lists_each_page_with_its_title():
    folder = ROOT / "docs" / "decisions"
    rows = re.findall(r"^\| \[(\d+)\]\(([\w-]+\.md)\) \| (.*) \|$", (folder / "README.md").read_text(), re.MULTILINE)
    assert [row[1] for row in rows] == sorted(path.name for path in folder.glob("0*.md"))
    for number, file, title in rows:
        assert (folder / file).read_text().startswith(f"# {int(number)}. {title}\n")


def test_the_pictures_are_what_the_renderers_draw():
    spec = importlib.util.spec_from_file_location("build_pictures", ROOT / "scripts" / "build_pictures.py")
    build_pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build_pictures)
    for name, draw in build_pictures.PICTURES.items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == draw() + "\n", "run make lessons"


def test_notice_and_licence():
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in licence
    assert "END OF TERMS AND CONDITIONS" in licence
    assert "Creative Commons Attribution 4.0" in (ROOT / "NOTICE").read_text(encoding="utf-8")


@pytest.mark.parametrize(("answer", "failed"), [("1024", 0), ("7", 1)])
def test_the_guide_grades_by_checks_and_not_by_saved_outputs(answer, failed, tmp_path):
    setting, _, *arguments = fences(ROOT / "docs" / "instructor-guide.md", "console")[0].split()
    assert setting == "NPU_KIT_EXERCISES=strict" and arguments.pop() == "submission.ipynb"
    source = f"from npu_kit.exercises import check\nprint(check('start.image_bytes', {answer}))"
    cell = nbformat.v4.new_code_cell(source, execution_count=1)
    cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text="as it was on the learner's machine")]
    submission = tmp_path / "submission.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), submission)
    command = [sys.executable, *arguments, "-p", "no:cacheprovider", str(submission)]
    environment = {**os.environ, "NPU_KIT_EXERCISES": "strict"}
    assert subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True).returncode == failed
