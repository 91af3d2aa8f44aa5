"""What must not be in the repository, whoever writes it."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = sorted([*(ROOT / "npu_kit").rglob("*.py"), *(ROOT / "widgets").rglob("*.py")])
NOTEBOOKS = sorted([*(ROOT / "notebooks").glob("*.ipynb"), *(ROOT / "notebooks" / "solutions").glob("*.ipynb")])

# Runs code found in data, or reaches out of this machine. A call is named as it is written, from the imported name on.
FORBIDDEN_CALLS = re.compile(
    r"""^(eval|exec|__import__
        |os\.(system|popen|exec\w*|spawn\w*|fork)
        |(\w*pickle|shelve|marshal|dill|joblib)\.(load|loads|open|Unpickler)
        |tvm\.script\.from_source
        |yaml\.(load|unsafe_load))$""",
    re.VERBOSE,
)
FORBIDDEN_IMPORTS = {
    *("pickle", "cPickle", "dill", "marshal", "shelve"),
    *("socket", "ssl", "http", "urllib", "ftplib", "smtplib", "requests", "httpx", "aiohttp"),
}
HOST_PATHS = re.compile(r"(?<![\w./])/(work|home|root|Users|tmp|opt|mnt)/\w|[A-Z]:\\\\?Users")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def dotted(node: ast.expr) -> str:
    """``os.path.join`` for the expression of that name, "" for anything that is no name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{head}.{node.attr}" if (head := dotted(node.value)) else ""
    return ""


def faults_in(tree: ast.AST) -> list[str]:
    """One sentence for each forbidden call, keyword or import in a module."""
    faults = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            names = []
        faults += [f"line {node.lineno}: imports {name}" for name in names if name.split(".")[0] in FORBIDDEN_IMPORTS]
        if isinstance(node, ast.Call):
            if FORBIDDEN_CALLS.match(dotted(node.func)):
                faults.append(f"line {node.lineno}: calls {dotted(node.func)}")
            for keyword in node.keywords:
                is_false = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                if keyword.arg in ("shell", "allow_pickle") and not is_false:
                    faults.append(f"line {node.lineno}: passes {keyword.arg}")
            if dotted(node.func) in ("np.load", "numpy.load") and "allow_pickle" not in {k.arg for k in node.keywords}:
                faults.append(f"line {node.lineno}: np.load without allow_pickle=False")
    return faults


@pytest.mark.parametrize(
    "source",
    [
        "eval('1')",
        "import pickle",
        "from urllib.request import urlopen",
        "os.system('ls')",
        "subprocess.run('ls', shell=True)",
        "np.load('a.npz')",
        "np.load('a.npz', allow_pickle=True)",
        "tvm.script.from_source(text)",
    ],
)
def test_the_search_finds_what_is_forbidden(source):
    assert len(faults_in(ast.parse(source))) == 1


def test_the_search_lets_ordinary_code_pass():
    assert faults_in(ast.parse("re.compile('x'); npu_kit.compile(m); np.load('a', allow_pickle=False)")) == []


@pytest.mark.parametrize("path", SHIPPED, ids=name_of)
def test_shipped_code_runs_no_data_and_uses_no_network(path):
    assert faults_in(ast.parse(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("path", SHIPPED, ids=name_of)
def test_each_module_says_what_it_is(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_widgets_fetch_nothing():
    for path in (ROOT / "widgets").rglob("*.js"):
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/", "")
        assert not re.search(r"https?://|\bfetch\(|XMLHttpRequest|WebSocket|\beval\(", text), name_of(path)


def committed_text_files() -> list[Path]:
    listing = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and b"\0" not in path.read_bytes()[:8000]]


def test_no_file_names_a_folder_of_one_machine():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, so there is no list of the project's files")
    here = Path(__file__).resolve()
    found = [
        f"{name_of(path)}:{number}: {line.strip()[:80]}"
        for path in committed_text_files()
        if path != here
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if HOST_PATHS.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("text", ["/home/ada/x", "open('/tmp/x')", "C:\\Users\\ada", "/work/main/a"])
def test_the_search_finds_folders_of_one_machine(text):
    assert HOST_PATHS.search(text)


@pytest.mark.parametrize("text", ["notebooks/home/x", "https://example.org/home/x", "a /= work", "~/opt"])
def test_the_search_lets_other_paths_pass(text):
    assert not HOST_PATHS.search(text)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_notebooks_are_stored_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "code":
            assert cell.outputs == [], f"cell {number} has outputs: run make lessons"
            assert cell.execution_count is None, f"cell {number} was run: run make lessons"
    assert "widgets" not in notebook.metadata


def test_no_large_file_is_committed():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, so there is no list of the project's files")
    sizes = {name_of(path): path.stat().st_size for path in committed_text_files()}
    assert {name: size for name, size in sizes.items() if size > 500_000} == {}
