"""Building notebooks: what the learner gets, what the solved one holds, and that what is stored is what is built."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import nbformat
import pytest

LESSON = '''\
# %% [markdown]
# # How many tiles?

# %%
def tile_count(extent, tile):
    """Tiles along one axis."""
    ### BEGIN SOLUTION
    return -(-extent // tile)
    ### END SOLUTION

# %%
### BEGIN SOLUTION
prediction = 12
### STUB prediction = ...  # your number
### END SOLUTION

# %% [markdown] tags=["solution"]
# A ragged tile counts as one.

# %%
tile_count(10, 4)
'''


@pytest.fixture(scope="module")
def build_lessons(repository):
    spec = importlib.util.spec_from_file_location("build_lessons", repository / "scripts" / "build_lessons.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def root(tmp_path):
    (tmp_path / "lessons").mkdir()
    (tmp_path / "lessons" / "01_tiles.py").write_text(LESSON)
    return tmp_path


def sources(text):
    return [cell.source for cell in nbformat.reads(text, as_version=4).cells]


def test_the_learner_gets_stubs_and_the_solved_notebook_the_solutions(build_lessons, root):
    learner, solved = map(sources, build_lessons.build(root / "lessons" / "01_tiles.py"))
    head = 'def tile_count(extent, tile):\n    """Tiles along one axis."""\n'
    assert learner == [
        "# How many tiles?",
        head + "    ...  # your code here",
        "prediction = ...  # your number",
        "tile_count(10, 4)",
    ]
    assert solved == [
        "# How many tiles?",
        head + "    return -(-extent // tile)",
        "prediction = 12",
        "A ragged tile counts as one.",
        "tile_count(10, 4)",
    ]


def test_the_same_source_gives_the_same_bytes_and_no_outputs(build_lessons, root):
    path = root / "lessons" / "01_tiles.py"
    assert build_lessons.build(path) == build_lessons.build(path)
    for text in build_lessons.build(path):
        for cell in nbformat.reads(text, as_version=4).cells:
            assert cell.cell_type == "markdown" or (cell.outputs == [] and cell.execution_count is None)


def test_a_cell_keeps_its_id_when_another_is_put_before_it(build_lessons, root):
    path = root / "lessons" / "01_tiles.py"
    before = nbformat.reads(build_lessons.build(path)[0], as_version=4).cells
    path.write_text("# %%\nimport npu_kit\n\n" + LESSON)
    after = nbformat.reads(build_lessons.build(path)[0], as_version=4).cells
    assert [cell.id for cell in after[1:]] == [cell.id for cell in before]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("# %%\n### BEGIN SOLUTION\nx = 1\n", "cell 0: '### BEGIN' outside a pair"),
        ("# %%\nx = 1\n### END SOLUTION\n", "cell 0: '### END' outside a pair"),
        ("# %%\n### STUB x = 1\n", "cell 0: '### STUB' outside a pair"),
        ("# %%\n### BEGIN SOLUTION\nx = 1\n### STUB x =\n### END SOLUTION\n", "01_tiles.py, cell 0: invalid syntax"),
    ],
)
def test_a_fault_in_a_source_names_the_lesson_and_the_cell(build_lessons, root, source, message):
    path = root / "lessons" / "01_tiles.py"
    path.write_text(source)
    with pytest.raises(build_lessons.LessonError, match=message):
        build_lessons.build(path)


def test_what_is_out_of_date_is_named(build_lessons, root):
    missing = build_lessons.out_of_date(root)
    assert len(missing) == 2
    assert all("is missing" in sentence for sentence in missing)
    for path, text in build_lessons.build_all(root).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, newline="\n")
    assert build_lessons.out_of_date(root) == []
    (root / "lessons" / "01_tiles.py").write_text(LESSON + "\n# %%\n1\n")
    assert all("differs" in sentence for sentence in build_lessons.out_of_date(root))
    (root / "lessons" / "01_tiles.py").unlink()
    assert all("has no source" in sentence for sentence in build_lessons.out_of_date(root))


def test_the_stored_notebooks_are_what_their_sources_give(build_lessons, repository):
    faults = build_lessons.out_of_date(repository)
    if faults and "CI" not in os.environ and edited_by_hand(repository):
        pytest.skip("you have worked in a notebook: git stash, or git restore notebooks, to test what is committed")
    assert faults == [], "run make lessons"
    assert build_lessons.build_all(repository), "there are no lessons"


def edited_by_hand(repository):
    """Has a committed notebook been changed while no lesson source was?"""

    def is_changed(folder):
        git = ["git", "-C", str(repository), "status", "--porcelain", "--untracked-files=no", "--", folder]
        return subprocess.run(git, capture_output=True, text=True).stdout != ""

    return is_changed("notebooks") and not is_changed("lessons")


def test_check_mode_as_a_command(repository):
    command = [sys.executable, str(repository / "scripts" / "build_lessons.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == (0 if "all notebooks are what their sources give" in result.stdout else 1)
    assert result.stderr == ""
