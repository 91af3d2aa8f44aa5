"""What each engine did when: one lane per engine, the dma engine's transfers one lane per pair of tiers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from npu_kit.errors import RenderError
from npu_kit.render import theme
from npu_kit.render.format import format_count, format_cycles, format_share, number_of
from npu_kit.render.lanes import WINDOW, Lane, Slice, lanes_of
from npu_kit.render.picture import Picture
from npu_kit.render.svg import Canvas
from npu_kit.render.text import fit, text_width
from npu_kit.trace.events import Events

_WIDTH, _LEFT, _RIGHT, _TOP, _LANE, _BAR = 940, 132, 32, 58, 34, 24


def timeline(
    events: Events,
    *,
    names: Mapping[int, str] | None = None,
    first: int = 0,
    count: int = WINDOW,
    cursor: int | None = None,
    title: str = "Engine timeline",
) -> Picture:
    """Draw a window of events over a cycle axis; gaps between the computes of a step are hatched.

    Args:
        events, names, first, count: as for ``lanes_of``; ``count`` is cut to WINDOW.
        cursor: index of the event to point at, None for none.
        title: the heading.

    Raises:
        RenderError: ``first`` or ``cursor`` is no index of ``events``.
    """
    total = len(events)
    if total and not 0 <= first < total:
        raise RenderError(f"no event {first}", f"there are {format_count(total)}, counted from 0")
    if cursor is not None and not 0 <= cursor < total:
        raise RenderError(f"no event {cursor} to point at", f"there are {format_count(total)}, counted from 0")
    lanes = lanes_of(events, names, first=first, count=min(count, WINDOW))
    slices = [piece for lane in lanes for piece in lane.slices]
    start = min((piece.start for piece in slices), default=0)
    stop = max((piece.stop for piece in slices), default=1)
    scale = (_WIDTH - _LEFT - _RIGHT) / max(1, stop - start)
    bottom = _TOP + _LANE * max(1, len(lanes))
    canvas = Canvas(_WIDTH, bottom + 62, title, _description(lanes, start, stop))
    canvas.text(12, 22, title, size=theme.SIZE_TITLE, bold=True, width=420)
    _draw_legend(canvas)
    _draw_axis(canvas, start, stop, scale, bottom)
    _draw_steps(canvas, slices, start, scale)
    for number, lane in enumerate(lanes):
        _draw_lane(canvas, lane, _TOP + number * _LANE, start, scale, cursor)
    if not lanes:
        canvas.text(_LEFT, _TOP + 22, "no events", fill=theme.MUTED)
    if cursor is not None:
        _draw_cursor(canvas, events[cursor], start, stop, scale, bottom)
    shown = len(slices)
    note = f"{number_of(shown, 'event')} of {format_count(total)}"
    if shown < total:
        note += f": numbers {format_count(first)} to {format_count(first + shown - 1)}; the others are not drawn"
    canvas.text(
        12, bottom + 52, f"{note}. Cycles {format_count(start)} to {format_count(stop)}.", size=theme.SIZE_SMALL
    )
    return canvas.picture()


def ticks(start: int, stop: int, at_most: int = 10) -> list[int]:
    """Round positions for an axis: multiples of 1, 2 or 5 times a power of ten.

    They lie in ``[start, stop]`` and are at most ``at_most``.
    """
    extent = max(1, stop - start)
    rough = max(1.0, extent / max(1, at_most - 1))
    power = 10 ** math.floor(math.log10(rough))
    step = int(next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough))
    first = -(-start // step) * step
    return list(range(first, stop + 1, step))


def _draw_lane(canvas: Canvas, lane: Lane, top: float, start: int, scale: float, cursor: int | None) -> None:
    swatch = theme.engine_swatch(lane.engine)
    busy = sum(piece.stop - piece.start for piece in lane.slices)
    canvas.rect(12, top + 4, 10, _BAR, fill=swatch.fill)
    canvas.text(28, top + 14, lane.label, width=_LEFT - 34)
    canvas.text(28, top + 27, f"{format_cycles(busy)} busy", size=9.5, fill=theme.MUTED, width=_LEFT - 34)
    for stall in lane.stalls:
        x, width = _LEFT + (stall.start - start) * scale, (stall.stop - stall.start) * scale
        what = f" for its {stall.waits_for}" if stall.waits_for else ""
        until = f", until the end of {stall.cause}" if stall.cause else ""
        tip = f"{lane.label} waits {format_cycles(stall.stop - stall.start)}{what}{until}"
        canvas.rect(x, top + 4, width, _BAR, fill=theme.FREE, hatch="diagonal" if width > 3 else "", tooltip=tip)
        if width > text_width("stall", theme.SIZE_SMALL) + 8:
            center = x + width / 2
            canvas.rect(center - 17, top + 9, 34, 14, fill=theme.FREE)
            canvas.text(center, top + 20, "stall", size=theme.SIZE_SMALL, anchor="middle", fill=theme.ATTENTION_INK)
    for piece in lane.slices:
        x, width = _LEFT + (piece.start - start) * scale, max(0.8, (piece.stop - piece.start) * scale)
        marked = piece.index == cursor
        with canvas.group(piece.tooltip, event=piece.index):
            rim = theme.TEXT if marked else theme.GROUND if width > 3 else ""
            canvas.rect(x, top + 4, width, _BAR, fill=swatch.fill, stroke=rim, stroke_width=2.5 if marked else 0.5)
            fitting = [text for text in (piece.label, piece.short) if text_width(text, theme.SIZE_SMALL) <= width - 6]
            if width > 40 and not fitting:
                fitting = [fit(piece.short, width - 6, theme.SIZE_SMALL)]
            if fitting:
                center = x + width / 2
                canvas.text(center, top + 20, fitting[0], size=theme.SIZE_SMALL, anchor="middle", fill=swatch.ink)


def _draw_axis(canvas: Canvas, start: int, stop: int, scale: float, bottom: float) -> None:
    for cycle in ticks(start, stop):
        x = _LEFT + (cycle - start) * scale
        canvas.line([(x, _TOP), (x, bottom + 4)], stroke=theme.RULE)
        canvas.text(x, bottom + 17, format_count(cycle), size=theme.SIZE_SMALL, anchor="middle", fill=theme.MUTED)
    canvas.line([(_LEFT, bottom), (_WIDTH - _RIGHT, bottom)], stroke=theme.TEXT)
    canvas.text((_LEFT + _WIDTH - _RIGHT) / 2, bottom + 33, "cycle", size=theme.SIZE_SMALL, anchor="middle")


def _draw_steps(canvas: Canvas, slices: Sequence[Slice], start: int, scale: float) -> None:
    """A bar per step above the lanes: from the start of its first slice to the end of its last."""
    for step in sorted({piece.step for piece in slices}):
        mine = [piece for piece in slices if piece.step == step]
        x = _LEFT + (min(piece.start for piece in mine) - start) * scale
        width = _LEFT + (max(piece.stop for piece in mine) - start) * scale - x
        canvas.line([(x, _TOP), (x, _TOP - 8), (x + width, _TOP - 8), (x + width, _TOP)], stroke=theme.MUTED)
        canvas.text(x + width / 2, _TOP - 12, f"step {step}", size=theme.SIZE_SMALL, anchor="middle", width=width)


def _draw_cursor(canvas: Canvas, event: Events, start: int, stop: int, scale: float, bottom: float) -> None:
    cycle = int(event["start"])
    if start <= cycle <= stop:
        x = _LEFT + (cycle - start) * scale
        canvas.line([(x, _TOP - 4), (x, bottom)], stroke=theme.ATTENTION, stroke_width=2)
        canvas.line(
            [(x - 5, _TOP - 10), (x + 5, _TOP - 10), (x, _TOP - 3)], stroke=theme.ATTENTION, fill=theme.ATTENTION
        )


def _draw_legend(canvas: Canvas) -> None:
    canvas.rect(_WIDTH - 306, 12, 26, 12, fill=theme.FREE, hatch="diagonal")
    canvas.text(_WIDTH - 274, 22, "stall: waits for data or room;  t3: tile 3", size=theme.SIZE_SMALL)


def _description(lanes: Sequence[Lane], start: int, stop: int) -> str:
    shares = [
        f"{lane.label} busy {format_share(sum(p.stop - p.start for p in lane.slices), stop - start)}" for lane in lanes
    ]
    return f"Cycles {start} to {stop}. {'; '.join(shares)}."
