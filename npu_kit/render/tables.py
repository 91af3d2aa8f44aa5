"""Small tables, as text and as HTML: the reasons of a plan, its steps, what they cost, events."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from npu_kit.plan.ir import Plan, Reason
from npu_kit.plan.metrics import Metrics
from npu_kit.render.format import clean, format_bytes, format_count, format_rate, number_of, shorten
from npu_kit.render.names import step_titles
from npu_kit.render.wanted import shows
from npu_kit.trace.events import ENGINES, KINDS, TIERS, Events

_CELL_CHARACTERS = 72  # in text; HTML wraps by itself


@dataclass(frozen=True)
class Table:
    """Rows of text under headings; ``str`` gives aligned text, a notebook shows HTML."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def __str__(self) -> str:
        cells = [tuple(shorten(cell, _CELL_CHARACTERS) for cell in row) for row in (self.headings, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
        ]
        lines.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join([*lines, *([clean(self.note)] if self.note else [])])

    def __repr__(self) -> str:
        return f"Table({', '.join(self.headings)}: {number_of(len(self.rows), 'row')})"

    def _repr_html_(self) -> str:
        head = "".join(_cell("th", cell) for cell in self.headings)
        body = "".join(f"<tr>{''.join(_cell('td', cell) for cell in row)}</tr>" for row in self.rows)
        note = f"<p>{html.escape(clean(self.note))}</p>" if self.note else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


@shows(Plan)
def reasons_table(plan: Plan, subject: str = "", reasons: Sequence[Reason] | None = None) -> Table:
    """Every decision of the planner with its numbers.

    Args:
        plan: the plan.
        subject: only the decisions about this step, tensor or operand.
        reasons: others than the plan's own, such as ``plan.alternatives.alternatives(plan)``.
    """
    given = plan.reasons if reasons is None else reasons
    chosen = [reason for reason in given if not subject or reason.subject == subject]
    rows = tuple(
        (
            reason.decision,
            reason.subject,
            reason.chosen,
            reason.because,
            ", ".join(f"{key} = {value:,.10g}" for key, value in reason.numbers.items()),
        )
        for reason in chosen
    )
    return Table(("decision", "of", "chosen", "because", "numbers"), rows)


@shows(Plan)
def steps_table(plan: Plan) -> Table:
    """The steps of a plan, one row each: operations, engine, tile, tiers."""
    rows = []
    for step, title in zip(plan.steps, step_titles(plan), strict=True):
        tiles = [f"{axis.name} {axis.tile}/{axis.extent}" for axis in step.axes if axis.extent > 1]
        tiers = [f"{operand.name} {operand.tier}" for operand in step.operands]
        engines = dict.fromkeys((step.engine, *step.epilogue_engines))
        near = sum(slot.nbytes for slot in step.slots)
        rows.append(
            (
                str(step.index),
                title,
                ", ".join(engines),
                ", ".join(tiles),
                ", ".join((*tiers, f"out {step.output_tier}")),
                format_bytes(near),
            )
        )
    return Table(("step", "operations", "engines", "tile/extent", "tiers", "slots"), tuple(rows))


def metrics_table(metrics: Sequence[Metrics]) -> Table:
    """What steps cost, one row each: ``metrics_table([*plan_metrics(plan), total_metrics(plan)])`` has a sum below.

    A row without MACs has no intensity; the roofline is over the traffic with DRAM.
    """
    headings = ("step", "cycles", "MACs", "MACs/cycle", "attainable", "MACs/DRAM byte", "bound", "energy")
    return Table(headings, tuple(map(_metrics_row, metrics)))


def _metrics_row(one: Metrics) -> tuple[str, ...]:
    rates = (one.macs / max(1, one.cycles), one.attainable_macs_per_cycle, one.macs_per_dram_byte)
    return (
        one.name,
        format_count(one.cycles),
        format_count(one.macs),
        *(format_rate(rate) if one.macs else "-" for rate in rates),
        one.bound,
        f"{format_rate(one.total_energy_pj / 1e6)} uJ",
    )


def events_table(events: Events, first: int = 0, count: int = 20) -> Table:
    """A window of events, one row each; a note says what is left out."""
    window = events[first : first + count]
    rows = tuple(_event_row(first + i, event) for i, event in enumerate(window))
    left = len(events) - len(window)
    note = f"{number_of(left, 'other event')} not shown." if left else ""
    headings = ("event", "step", "tile", "node", "kind", "engine", "from", "to", "bytes", "MACs", "start", "cycles")
    return Table(headings, rows, note)


def _event_row(index: int, event: Events) -> tuple[str, ...]:
    moves = int(event["nbytes"]) > 0
    return (
        str(index),
        *(str(int(event[key])) for key in ("step", "tile", "node")),
        KINDS[int(event["kind"])],
        ENGINES[int(event["engine"])],
        TIERS[int(event["src"])] if moves else "",
        TIERS[int(event["dst"])] if moves else "",
        *(format_count(int(event[key])) for key in ("nbytes", "macs", "start", "cycles")),
    )


def _cell(tag: str, text: str) -> str:
    return f'<{tag} style="text-align:left">{html.escape(clean(text))}</{tag}>'
