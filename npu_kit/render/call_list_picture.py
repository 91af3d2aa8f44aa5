"""The calls of a model from first to last, each with the composite it became part of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npu_kit.render import theme
from npu_kit.render.format import number_of
from npu_kit.render.picture import Picture
from npu_kit.render.svg import Canvas

# One tint per composite, in turn; the label beside it carries the name, so a tint that comes back means nothing.
_TINTS = ("#CFE5F3", "#FBE3B5", "#CDEBDF", "#F1D9E7", "#F7F1AE", "#E3D3C8")

_WIDTH, _TOP, _ROW, _GAP = 760, 58, 30, 4
_COLUMNS = (14.0, 40.0, 164.0, 248.0, 380.0)  # number, operation, variable, result, composite
_RAIL = 368.0  # where a composite's bar stands
_NOTE = 100.0  # "pattern 888 of 888"


@dataclass(frozen=True)
class CallRow:
    """One call of the model."""

    key: str  # ends up as ``data-key``
    number: int
    op: str
    name: str  # the variable it is bound to
    type: str
    composite: str  # what tells composites apart, "" for a call that nothing took
    label: str  # how the composite, or the place, is called: "conv2d_relu_fused#0", "host"
    note: str  # small, after the composite: which pattern it was
    tooltip: str = ""


def call_list(rows: Sequence[CallRow], title: str) -> Picture:
    """Draw one line per call: tinted and barred by composite, dashed where the call stays on the host.

    Args:
        rows: the calls, in order.
        title: the heading.
    """
    composites = list(dict.fromkeys(row.composite for row in rows if row.composite))
    canvas = Canvas(_WIDTH, _TOP + _ROW * max(1, len(rows)) + 10, title, _description(rows))
    canvas.text(_COLUMNS[0], 24, title, size=theme.SIZE_TITLE, bold=True, width=_WIDTH - 28)
    for x, heading in zip(_COLUMNS, ("#", "operation", "variable", "result", "composite"), strict=True):
        canvas.text(x, _TOP - 10, heading, size=theme.SIZE_SMALL, fill=theme.MUTED)
    if not rows:
        canvas.text(_COLUMNS[0], _TOP + 20, "the model has no call", fill=theme.MUTED)
    for line, row in enumerate(rows):
        tint = _TINTS[composites.index(row.composite) % len(_TINTS)] if row.composite else theme.GROUND
        continues = line > 0 and rows[line - 1].composite == row.composite != ""
        _draw_row(canvas, row, _TOP + _ROW * line, tint, continues)
    return canvas.picture()


def _draw_row(canvas: Canvas, row: CallRow, top: float, tint: str, continues: bool) -> None:
    """One call; the bar of a composite runs on into the next line, its name stands on the first one."""
    height = _ROW - _GAP
    with canvas.group(row.tooltip or f"{row.op} {row.name}: {row.label}", key=row.key):
        canvas.rect(
            6, top, _WIDTH - 12, height, fill=tint, radius=3, stroke=theme.RULE, dash="" if row.composite else "4 3"
        )
        y, (number, op, name, kind, composite) = top + 18, _COLUMNS
        canvas.text(number, y, str(row.number), fill=theme.MUTED)
        canvas.text(op, y, row.op, bold=True, width=name - op - 8)
        canvas.text(name, y, row.name, width=kind - name - 8)
        canvas.text(kind, y, row.type, size=theme.SIZE_SMALL, width=_RAIL - kind - 8)
        if row.composite:
            start = top - _GAP if continues else top
            canvas.rect(_RAIL, start, 5, top + height - start, fill=theme.TEXT)
        if not continues:
            canvas.text(composite, y, row.label, width=_WIDTH - composite - 22 - _NOTE, bold=bool(row.composite))
            canvas.text(_WIDTH - 14, y, row.note, size=theme.SIZE_SMALL, anchor="end", width=_NOTE)


def _description(rows: Sequence[CallRow]) -> str:
    taken = sum(bool(row.composite) for row in rows)
    words = [f"{row.number} {row.op} {row.name}: {row.label}" for row in rows]
    return f"{taken} of {number_of(len(rows), 'call')} taken. {'; '.join(words)}."
