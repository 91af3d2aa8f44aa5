"""Tables: aligned text, escaped HTML, the same rows in both."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from graphs import GraphBuilder
from pictures import HOSTILE_NAMES

from npu_kit.hw.presets import load_spec
from npu_kit.plan.ir import Plan
from npu_kit.plan.metrics import total_metrics
from npu_kit.plan.planner import make_plan
from npu_kit.render import Table, events_table, reasons_table, steps_table, summary_table
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


def test_a_summary_has_the_numbers_of_the_metrics(conv_plan: Plan) -> None:
    rows = dict(summary_table(conv_plan).rows)
    metrics = total_metrics(conv_plan)
    assert rows["cycles"].startswith(f"{metrics.cycles:,}, ")
    assert rows["L3 to L2"].startswith(f"{metrics.nbytes['L3', 'L2']:,} bytes")
    assert rows["roofline"].startswith(f"{metrics.bound} bound: ")
    assert rows["spatial utilization"].startswith(f"{100 * metrics.spatial_utilization:.1f} %")
    assert rows["MACs"] == f"{metrics.macs:,}"
    modes = [rows[f"in power mode {mode.name}"] for mode in conv_plan.spec.power_modes]
    times = [float(text.split()[0].replace(",", "")) for text in modes]
    assert times == sorted(times) and len(times) == 3
    assert f"operand {metrics.stalled_cycles['operand']:,} cycles" in rows["waits, by cause"]


def test_a_summary_of_a_plan_without_macs_has_no_roofline() -> None:
    b = GraphBuilder()
    b.op("relu", b.input((4, 4)))
    rows = dict(summary_table(make_plan(b.graph(), load_spec())).rows)
    assert "roofline" not in rows and rows["MACs"] == "0"
