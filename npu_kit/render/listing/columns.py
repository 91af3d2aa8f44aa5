"""Text in columns: words to the left, numbers to the right."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

Cells = Sequence[str]


def aligned(rows: Iterable[Cells], is_number: Sequence[bool]) -> list[str]:
    """One line for each row; a row of a single cell is a line of its own and makes no column wider."""
    rows = list(rows)
    widths = [max((len(row[i]) for row in rows if len(row) > 1), default=0) for i in range(len(is_number))]
    lines = []
    for row in rows:
        if len(row) == 1:
            lines.append(row[0].rstrip())
            continue
        cells = (
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, is_number, strict=True)
        )
        lines.append("  ".join(cells).rstrip())
    return lines


def preformatted(text: str) -> str:
    """Text for a notebook, in its columns."""
    style = "white-space:pre;overflow-x:auto;line-height:1.25"
    return f'<pre style="{style}">{html.escape(text)}</pre>'
