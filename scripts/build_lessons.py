"""Build the notebooks: one source in lessons/ gives the learner's notebook and the solved one, both without outputs.

A source is a py:percent file. What lies between ``### BEGIN SOLUTION`` and ``### END SOLUTION`` is in the solved
notebook only; the learner gets the lines marked ``### STUB`` inside that block, or ``...`` where there are none. Cells
with the tag ``solution`` are left out of the learner's notebook. The same source always gives the same bytes.

    python scripts/build_lessons.py            write notebooks/ and notebooks/solutions/
    python scripts/build_lessons.py --check    only say what is out of date; exit code 1 if anything is
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import re
import sys
from collections import Counter
from pathlib import Path

import jupytext
import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
SOLUTION = re.compile(
    r"^(?P<indent>[ \t]*)### BEGIN SOLUTION *\n(?P<body>.*?)^[ \t]*### END SOLUTION *$", re.DOTALL | re.MULTILINE
)
STUB = re.compile(r"^[ \t]*### STUB ?(?P<line>.*)$", re.MULTILINE)
MARKER = re.compile(r"### *(BEGIN|END|STUB)")
DEFAULT_STUB = "...  # your code here"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


class LessonError(Exception):
    """A lesson's source breaks a rule; the message names the lesson and the cell."""


def build(source: Path) -> tuple[str, str]:
    """Return the texts of the learner's and of the solved notebook of one source.

    Raises:
        LessonError: a marker without its partner, or a stub that is no Python.
    """
    lesson = jupytext.read(source, fmt="py:percent")
    learner: list[NotebookNode] = []
    solved: list[NotebookNode] = []
    seen: Counter[str] = Counter()
    for number, cell in enumerate(lesson.cells):
        tags = list(cell.metadata.get("tags", []))
        identity = hashlib.sha256(cell.source.encode()).hexdigest()[:12]  # moves with its cell: small diffs
        seen[identity] += 1
        if seen[identity] > 1:
            identity += f"-{seen[identity]}"
        where = f"{source.name}, cell {number}"
        for cells, text in (
            (learner, to_learner(cell.source, where)),
            (solved, to_solved(cell.source, where)),
        ):
            if cells is learner and "solution" in tags:
                continue
            if cell.cell_type == "code":
                check_python(text, where)
            cells.append(make_cell(cell.cell_type, text, tags, identity))
    return to_text(learner), to_text(solved)


def to_learner(text: str, where: str) -> str:
    """Replace each solution by its stub."""

    def stub(match: re.Match[str]) -> str:
        lines = STUB.findall(match["body"]) or [DEFAULT_STUB]
        return "\n".join(match["indent"] + line for line in lines)

    return without_markers(SOLUTION.sub(stub, text), where)


def to_solved(text: str, where: str) -> str:
    """Keep each solution, without the marks around it."""

    def solution(match: re.Match[str]) -> str:
        lines = match["body"].splitlines()
        return "\n".join(line for line in lines if not STUB.match(line))

    return without_markers(SOLUTION.sub(solution, text), where)


def without_markers(text: str, where: str) -> str:
    """Return ``text``; LessonError if a marker is left in it."""
    if found := MARKER.search(text):
        raise LessonError(f"{where}: '{found[0]}' outside a pair of '### BEGIN SOLUTION' and '### END SOLUTION'")
    return text


def check_python(text: str, where: str) -> None:
    """LessonError if ``text`` is not what a code cell may hold (IPython's magics are allowed)."""
    try:
        ast.parse(TransformerManager().transform_cell(text))
    except SyntaxError as error:
        raise LessonError(f"{where}: {error.msg} in line {error.lineno}: {(error.text or '').strip()}") from None


def make_cell(kind: str, text: str, tags: list[str], identity: str) -> NotebookNode:
    """A notebook cell without outputs."""
    make = nbformat.v4.new_code_cell if kind == "code" else nbformat.v4.new_markdown_cell
    return make(text, id=identity, metadata={"tags": tags} if tags else {})


def to_text(cells: list[NotebookNode]) -> str:
    """The notebook file with these cells; the same bytes for the same cells."""
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=METADATA, nbformat_minor=5)
    nbformat.validate(notebook)
    return nbformat.writes(notebook, version=4) + "\n"


def build_all(root: Path = ROOT) -> dict[Path, str]:
    """The text of every notebook that ``root`` should hold, by path."""
    texts = {}
    for source in sorted((root / "lessons").glob("[0-9][0-9]_*.py")):
        learner, solved = build(source)
        texts[root / "notebooks" / f"{source.stem}.ipynb"] = learner
        texts[root / "notebooks" / "solutions" / f"{source.stem}.ipynb"] = solved
    return texts


def out_of_date(root: Path = ROOT) -> list[str]:
    """One sentence for each notebook under ``root`` that is not what its source gives."""
    texts = build_all(root)
    faults = [
        f"{path.relative_to(root)} {'differs from' if path.exists() else 'is missing; it comes from'} its source"
        for path, text in texts.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    stored = [*(root / "notebooks").glob("*.ipynb"), *(root / "notebooks" / "solutions").glob("*.ipynb")]
    return faults + [f"{path.relative_to(root)} has no source in lessons/" for path in stored if path not in texts]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Build notebooks/ from lessons/.")
    parser.add_argument("--check", action="store_true", help="write nothing, say what is out of date")
    if parser.parse_args(arguments).check:
        faults = out_of_date()
        print("\n".join(faults) or "all notebooks are what their sources give")
        return 1 if faults else 0
    for path, text in build_all().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LessonError as error:
        sys.exit(f"{error}")
