"""Bytes moved over each boundary between tiers, for one run or several side by side."""

from __future__ import annotations

from collections.abc import Mapping

from npu_kit.errors import RenderError
from npu_kit.render import theme
from npu_kit.render.format import format_bytes, format_share, shorten
from npu_kit.render.picture import Picture
from npu_kit.render.svg import Canvas

NEAREST, FARTHEST = "L0", "L3"

_WIDTH, _LEFT, _RIGHT, _TOP, _BAR = 900, 250, 150, 46, 20
_HATCHES = ("", "diagonal", "dots", "cross")  # one per run, so runs differ without colour

Totals = Mapping[tuple[str, str], int]


def traffic(
    runs: Mapping[str, Totals], *, with_registers: bool = False, title: str = "Bytes moved between tiers"
) -> Picture:
    """Draw one bar per boundary and run.

    Args:
        runs: bytes by boundary, ``{("L3", "L1"): 4096, ...}``, by the name of the run; at most four runs. They are
            ``Counters.nbytes`` of a trace or of a forecast, or ``bytes_by_boundary(events)``.
        with_registers: whether L0 is drawn too; its traffic is many times that of the other tiers.
        title: the heading.

    Raises:
        RenderError: no run, or more than four.
    """
    if not 1 <= len(runs) <= len(_HATCHES):
        raise RenderError(f"cannot compare {len(runs)} runs", f"the picture has room for 1 to {len(_HATCHES)}")
    totals = {shorten(name, 60): _drawn(total, with_registers) for name, total in runs.items()}
    boundaries = sorted({key for total in totals.values() for key in total}, key=lambda key: (-_depth(key), key[::-1]))
    largest = max((value for total in totals.values() for value in total.values()), default=1)
    block = _BAR * len(totals) + 14
    bottom = _TOP + block * max(1, len(boundaries))
    canvas = Canvas(_WIDTH, bottom + 40 + 20 * len(totals), title, _sentences(totals))
    canvas.text(12, 24, title, size=theme.SIZE_TITLE, bold=True, width=_WIDTH - 24)
    scale = (_WIDTH - _LEFT - _RIGHT) / largest
    for number, boundary in enumerate(boundaries):
        _draw_boundary(canvas, boundary, totals, _TOP + number * block, scale)
    canvas.line([(_LEFT, _TOP - 6), (_LEFT, bottom)], stroke=theme.TEXT)
    if not boundaries:
        canvas.text(_LEFT + 8, _TOP + 20, "nothing was moved", fill=theme.MUTED)
    for number, line in enumerate(_sentences(totals).split("\n")):
        canvas.text(12, bottom + 28 + 20 * number, line, width=_WIDTH - 24)
    return canvas.picture()


def _draw_boundary(
    canvas: Canvas, boundary: tuple[str, str], totals: Mapping[str, Totals], top: float, scale: float
) -> None:
    source, target = boundary
    swatch = theme.tier_swatch(max(boundary))
    canvas.text(12, top + 15, f"{source} to {target}", bold=True)
    for number, (name, total) in enumerate(totals.items()):
        y = top + number * _BAR
        nbytes = total.get(boundary, 0)
        tip = f"{name}: {format_bytes(nbytes)} ({nbytes:,} bytes) from {source} to {target}"
        if len(totals) > 1:
            canvas.text(_LEFT - 8, y + 14, name, size=theme.SIZE_SMALL, anchor="end", width=_LEFT - 100)
        canvas.rect(
            _LEFT, y + 2, nbytes * scale, _BAR - 4, fill=swatch.fill, stroke=theme.MUTED, hatch=_HATCHES[number],
            hatch_color=swatch.ink, tooltip=tip,
        )  # fmt: skip
        canvas.text(_LEFT + nbytes * scale + 8, y + 14, format_bytes(nbytes), size=theme.SIZE_SMALL)


def _sentences(totals: Mapping[str, Totals]) -> str:
    """One line per run: its traffic with the farthest tier, compared with the first run."""
    far = {name: sum(n for key, n in total.items() if FARTHEST in key) for name, total in totals.items()}
    base = next(iter(far.values()))
    lines = []
    for number, (name, nbytes) in enumerate(far.items()):
        compared = f", {format_share(nbytes, base)} of {next(iter(far))!r}" if number and base else ""
        lines.append(f"{name}: {format_bytes(nbytes)} to and from {FARTHEST} in all{compared}.")
    return "\n".join(lines)


def _drawn(total: Totals, with_registers: bool) -> Totals:
    return {boundary: nbytes for boundary, nbytes in total.items() if with_registers or NEAREST not in boundary}


def _depth(boundary: tuple[str, str]) -> int:
    return max(int(name[1:]) for name in boundary)
