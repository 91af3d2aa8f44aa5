"""Tables: aligned text, escaped HTML, the same rows in both."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from pictures import HOSTILE_NAMES

from npu_kit.errors import RenderError
from npu_kit.plan.geometry import problem_of
from npu_kit.plan.ir import Plan
from npu_kit.plan.program import instructions
from npu_kit.render import Table, events_table, program_table, reasons_table, steps_table
from npu_kit.render.format import clean
from npu_kit.trace.events import Events


class Cells(HTMLParser):
    """Collects tags and the text of cells."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


def cells_of(table: Table) -> Cells:
    parser = Cells()
    parser.feed(table._repr_html_())
    return parser


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_cells_are_only_text(name: str) -> None:
    table = Table(("what", name), ((name, "1"), ("2", name)), note=name)
    parsed = cells_of(table)
    assert parsed.tags <= {"table", "thead", "tbody", "tr", "th", "td", "p"}
    assert parsed.cells[:5] == ["what", clean(name), clean(name), "1", "2"]
    lines = str(table).splitlines()
    assert len(lines) == 4 + bool(name)
    assert all(len(line) < 160 for line in lines[:4])


def test_columns_are_aligned() -> None:
    text = str(Table(("a", "b"), (("1", "2"), ("long cell", "3"))))
    assert text.splitlines() == ["a          b", "---------  -", "1          2", "long cell  3"]


def test_repr_is_short(conv_plan: Plan) -> None:
    assert repr(steps_table(conv_plan)) == "Table(step, operations, engines, tile/extent, tiers, slots: 2 rows)"


def test_reasons_are_all_there_and_can_be_chosen(conv_plan: Plan) -> None:
    table = reasons_table(conv_plan)
    assert [row[:4] for row in table.rows] == [
        (reason.decision, reason.subject, reason.chosen, reason.because) for reason in conv_plan.reasons
    ]
    subject = conv_plan.reasons[0].subject
    chosen = reasons_table(conv_plan, subject)
    assert {row[1] for row in chosen.rows} == {subject}
    assert 0 < len(chosen.rows) < len(table.rows)


def test_steps_say_operations_engines_and_tiers(conv_plan: Plan) -> None:
    first, second = steps_table(conv_plan).rows
    assert first[1:3] == ("conv2d + add + relu", "conv, vector, activation")
    assert second[1:3] == ("max_pool2d", "pooling")
    assert first[4].endswith("out L2")


def test_events_are_a_window_with_a_note(events: Events) -> None:
    table = events_table(events, first=5, count=10)
    assert [row[0] for row in table.rows] == [str(i) for i in range(5, 15)]
    assert table.note == f"{len(events) - 10:,} other events not shown."
    assert events_table(events, count=len(events)).note == ""


@pytest.mark.parametrize("family", ["conv", "matmul", "softmax"])
def test_the_program_is_what_the_runtime_executes(plans: dict[str, Plan], family: str) -> None:
    plan = plans[family]
    for step in plan.steps:
        program = list(instructions(step, problem_of(plan.graph, step.nodes[0])))
        table = program_table(plan, step.index, count=len(program))
        assert [(row[1], row[2]) for row in table.rows] == [(one.kind, str(one.tile)) for one in program]
        assert table.note == ""
        window = program_table(plan, step.index, first=2, count=3)
        assert window.rows == table.rows[2:5]
        assert window.note == f"{len(program) - 3:,} other instructions not shown."


def test_a_step_that_is_not_there_is_refused(conv_plan: Plan) -> None:
    with pytest.raises(RenderError, match="no step 2: the plan has 2 steps"):
        program_table(conv_plan, 2)
