"""What each lesson keeps to: its shape, its rhythm, its exercises, and that every cell can be run twice."""

from __future__ import annotations

import ast
import io
import itertools
import re
import tokenize
from pathlib import Path

import jupytext
import nbformat
import pytest
from nbclient import NotebookClient

from npu_kit.byoc.compile import compile as compile_model
from npu_kit.exercises import exercises_on
from npu_kit.graph.ir import Entry
from npu_kit.hw import load_spec
from npu_kit.plan.forecast import forecast, total_cycles
from npu_kit.plan.planner import make_plan
from npu_kit.plan.traffic import plan_counters
from npu_kit.render.lanes import lanes_of
from npu_kit.trace.counters import total
from npu_kit.zoo import build, probes

ROOT = Path(__file__).resolve().parent.parent
TOPICS = {
    "00_start_here": "start",
    "01_patterns": "patterns",
    "02_partition": "partition",
    "03_codegen": "codegen",
    "04_runtime": "runtime",
}
SOURCES = [ROOT / "lessons" / f"{name}.py" for name in TOPICS]
CHECK = re.compile(r'check\("([a-z_.0-9]+)"')
MARKS = re.compile(r"^[ \t]*### .*\n?", re.MULTILINE)

each_lesson = pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)


def cells_of(source):
    """(kind, text) of each cell that the learner gets, solutions in place of stubs."""
    cells = jupytext.read(source, fmt="py:percent").cells
    shown = (cell for cell in cells if "solution" not in cell.metadata.get("tags", []))
    return [(cell.cell_type, MARKS.sub("", cell.source)) for cell in shown]


def code_of(source):
    return [text for kind, text in cells_of(source) if kind == "code"]


def lines_of(code):
    """Lines with something to read in them: no blank lines, comments or docstrings."""
    doc = {
        line
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node)
        for line in range(node.body[0].lineno, node.body[0].end_lineno + 1)
    }
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(code).readline) if t.type not in skipped]
    return {line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - doc


def words_of(prose):
    """Words outside of headings."""
    return re.sub(r"^#+ .*$", "", prose, flags=re.MULTILINE).split()


@each_lesson
def test_it_opens_with_a_question_goals_needs_and_minutes(source):
    _, opening = cells_of(source)[0]
    assert re.match(r"# .+\?\n", opening)
    goals = re.findall(r"^- ", opening, re.MULTILINE)
    assert "**You will be able to**" in opening
    assert len(goals) in (3, 4)
    assert "**You need**" in opening
    assert re.search(r"\*\*Time:\*\* \d+\s+minutes", opening)


@each_lesson
def test_it_is_of_a_readable_size(source):
    assert 25 <= len(cells_of(source)) <= 45


@each_lesson
def test_a_few_sentences_stand_before_each_cell_of_code(source):
    cells = cells_of(source)
    for (kind_before, prose), (kind, code) in itertools.pairwise(cells):
        if kind == "code":
            assert kind_before == "markdown", f"no prose before:\n{code}"
            assert 15 <= len(words_of(prose)) <= 80, f"{len(words_of(prose))} words:\n{prose}"


@each_lesson
def test_a_cell_of_code_is_short(source):
    for code in code_of(source):
        assert 1 <= len(lines_of(code)) <= 15, f"{len(lines_of(code))} lines:\n{code}"


@each_lesson
def test_everything_is_imported_in_the_first_cell_of_code(source):
    first, *others = code_of(source)
    assert all(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.parse(first).body)
    for code in others:
        assert not [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Import | ast.ImportFrom)], code


@each_lesson
def test_it_shows_where_you_are_a_failure_and_the_real_thing(source):
    code = "\n".join(code_of(source))
    headings = [
        line for kind, text in cells_of(source) if kind == "markdown" for line in text.splitlines() if line[:3] == "## "
    ]
    assert "render.flow(" in code
    assert re.search(r"except [\w.]+Error as error:\n +print|\.refusals", code), "nothing fails or is refused"
    assert headings[-3:] == ["## Recap", "## In the real thing", "## Exercises"]
    exercises = source.read_text(encoding="utf-8").split("## Exercises")[1]
    assert re.findall(r"^# \*\*(Read|Change|Build)\.", exercises, re.MULTILINE).count("Read") == 1
    assert {"Read", "Change", "Build"} == set(re.findall(r"^# \*\*(Read|Change|Build)\.", exercises, re.MULTILINE))


@each_lesson
def test_each_of_its_exercises_is_asked_once_and_is_known(source):
    asked = CHECK.findall(source.read_text(encoding="utf-8"))
    assert sorted(asked) == sorted(exercises_on(TOPICS[source.stem]))


@each_lesson
def test_each_cell_can_be_run_twice(source, tmp_path):
    notebook = nbformat.read(ROOT / "notebooks" / f"{source.stem}.ipynb", as_version=4)
    twice = [copy for cell in notebook.cells if cell.cell_type == "code" for copy in (cell.source, cell.source)]
    again = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in twice])
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(again, timeout=120, kernel_name="python3", resources=resources, store_widget_state=False).execute()
    assert not list(tmp_path.iterdir()), "a lesson leaves files behind"


def text_of(name):
    """A lesson's source with its line breaks undone."""
    return (ROOT / "lessons" / f"{name}.py").read_text(encoding="utf-8").replace("\n# ", " ")


def counters_of(model, **options):
    plans = compile_model(model, bind_constants=True, **options).plans
    return total(counters for plan in plans for counters in plan_counters(plan))


def test_what_lesson_00_says_about_larger_batches():
    for batch, words in ((32, "With 32 it is {:.1f}"), (360, "With 360 it is {:.1f}")):
        counters = counters_of(build("digits", batch=batch))
        assert words.format(counters.macs / counters.dram_bytes) in text_of("00_start_here")


def test_what_lesson_02_says_about_merging():
    text = text_of("02_partition")
    one, apart = (counters_of(build("digits", batch=1), merge=merge).dram_bytes for merge in ("safe", "never"))
    assert f"{1 - one / apart:.0%}".replace("%", " %: ") + f"{one:,} of {apart:,} bytes" in text
    many, apart = (counters_of(build("digits", batch=64), merge=merge).dram_bytes for merge in ("safe", "never"))
    assert f"For 64 images it is {1 - many / apart:.0%}".replace("%", " %") in text
    edge = build("conv_relu_pool", channels=16, size=64, filters=32)
    one, apart = (counters_of(edge, merge=merge).dram_bytes for merge in ("safe", "never"))
    assert f"{apart - one:,} bytes instead of {2 * 32 * 64 * 64 * 4:,}" in text


def conv_stalls(tile, l1_bytes):
    (plan,) = compile_model(probes.conv_nhwc()).plans
    spec = load_spec().replace(tile=tile, capacity_bytes={"L1": l1_bytes})
    lanes = lanes_of(forecast(make_plan(plan.graph, spec)), {0: "x", 1: "w"})
    return next(lane.stalls for lane in lanes if lane.engine == "conv")


def test_what_lesson_04_says_about_stalls():
    stalls = conv_stalls(16, 256 * 1024)
    assert stalls
    assert {(stall.waits_for, stall.cause) for stall in stalls} == {("operand", "load x")}
    assert not conv_stalls(28, 256 * 1024)
    assert len(conv_stalls(16, 16 * 1024)) > 2 * len(stalls)


def test_what_lesson_03_says_about_constants():
    (graph,) = compile_model(build("digits"), bind_constants=True).graphs
    users = [graph.nodes[min(graph.consumers(Entry(number)))].name for number in graph.constants]
    assert {name: users.count(name) for name in users} == {"conv2d": 2, "batch_norm": 8, "matmul": 1, "add": 1}
    assert "2 * (1 + 4) + 1 + 1" in text_of("03_codegen")


def test_what_lesson_04_says_about_shapes_of_tiles():
    (graph,) = compile_model(probes.matmul_of(100, 300, 80)).graphs
    plans = [make_plan(graph, load_spec(), tile=shape) for shape in ((32, 32), (16, 64), (8, 128))]
    square, wide, flat = (total(plan_counters(plan)) for plan in plans)
    a, b, out = (4 * size for size in (100 * 300, 300 * 80, 100 * 80))
    assert square.nbytes["L2", "L1"] == 3 * a
    assert square.dram_bytes == flat.dram_bytes == a + b + out
    assert ("L3", "L2") not in wide.nbytes and wide.dram_bytes == 2 * a + b + out
    assert flat.nbytes["L2", "L1"] == 13 * b
    assert f"{wide.dram_bytes:,} bytes in place of {square.dram_bytes:,}" in text_of("04_runtime")
    assert total_cycles(forecast(plans[1])) < total_cycles(forecast(plans[0]))
