"""The roofline (Williams et al., CACM 2009): what a machine can attain at each arithmetic intensity, and what was.

Both axes are logarithmic. Below the ridge point DRAM's bandwidth is the limit, above it the array's peak.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from npu_kit.errors import RenderError
from npu_kit.plan.metrics import Metrics
from npu_kit.render import theme
from npu_kit.render.format import format_rate, format_share, shorten
from npu_kit.render.picture import Picture
from npu_kit.render.svg import Canvas
from npu_kit.render.text import text_width

MAX_POINTS = 24

_WIDTH, _LEFT, _RIGHT, _TOP, _HEIGHT = 900, 76, 24, 56, 340
_LINE = 17
_PARTS = 16  # of the sloping line, each in an upright rectangle
_DOT = 4.5  # pixels from the middle of a point to its rim
_NAME_CHARACTERS = 36
_ROOM = 4.0  # by how much the axes reach beyond what is drawn


@dataclass(frozen=True)
class Point:
    """One measured thing, ready to draw."""

    number: int  # of its line below the picture
    name: str
    intensity: float  # MACs for each byte over the border of the chip
    achieved: float  # MACs per cycle
    attainable: float
    bound: str

    def __str__(self) -> str:
        share = format_share(self.achieved, self.attainable)
        numbers = f"{format_rate(self.achieved)} of {format_rate(self.attainable)} attainable MACs per cycle, {share}"
        return f"{self.name}: {numbers}; {format_rate(self.intensity)} MACs per byte, {self.bound}-bound"


@dataclass(frozen=True)
class Roof:
    """The two lines of one machine, as far as it is powered."""

    peak_macs_per_cycle: float
    ridge_macs_per_byte: float

    @property
    def bytes_per_cycle(self) -> float:
        """The slope: what DRAM delivers."""
        return self.peak_macs_per_cycle / self.ridge_macs_per_byte

    def height(self, intensity: float) -> float:
        """MACs per cycle that can be attained."""
        return min(self.peak_macs_per_cycle, intensity * self.bytes_per_cycle)


@dataclass(frozen=True)
class _Axes:
    """Where a value stands, in pixels."""

    low: tuple[float, float]  # decimal logarithms of the lower left corner
    high: tuple[float, float]

    def x(self, intensity: float) -> float:
        share = (math.log10(intensity) - self.low[0]) / (self.high[0] - self.low[0])
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(self, macs_per_cycle: float) -> float:
        share = (math.log10(macs_per_cycle) - self.low[1]) / (self.high[1] - self.low[1])
        return _TOP + _HEIGHT * (1 - share)


def roofline(measured: Mapping[str, Metrics], *, title: str = "Roofline") -> Picture:
    """Draw the attainable MACs per cycle over the arithmetic intensity, and each of ``measured`` as a point below.

    What multiplies nothing, or moves nothing over the border of the chip, has no place on logarithmic axes; a line of
    text says so. Steps on different engines, or machines, have a roof each.

    Args:
        measured: metrics of steps or plans, by the name that the picture shows.
        title: the heading.

    Raises:
        RenderError: nothing to draw, or more than MAX_POINTS.
    """
    if not 1 <= len(measured) <= MAX_POINTS:
        raise RenderError(f"cannot draw {len(measured)} points", f"the picture has room for 1 to {MAX_POINTS}")
    points, left_out = points_of(measured)
    roofs = list(dict.fromkeys(Roof(m.peak_macs_per_cycle, m.ridge_macs_per_byte) for m in measured.values()))
    axes = _axes(points, roofs)
    lines = [*(f"{point.number}. {point}" for point in points), *left_out]
    bottom = _TOP + _HEIGHT
    canvas = Canvas(_WIDTH, bottom + 62 + _LINE * len(lines), title, "; ".join(lines))
    canvas.text(12, 24, title, size=theme.SIZE_TITLE, bold=True, width=_WIDTH - 24)
    _draw_axes(canvas, axes)
    taken = [area for roof in roofs for area in _draw_roof(canvas, axes, roof)]
    places: dict[tuple[int, int], list[Point]] = {}
    for point in points:
        taken.append(_draw_point(canvas, axes, point))
        place = round(axes.x(point.intensity) / _DOT), round(axes.y(point.achieved) / _DOT)
        places.setdefault(place, []).append(point)
    for together in places.values():
        taken.append(_label(canvas, axes, together, taken))
    for number, line in enumerate(lines):
        canvas.text(12, bottom + 56 + _LINE * number, line, size=theme.SIZE_SMALL, width=_WIDTH - 24)
    return canvas.picture()


def points_of(measured: Mapping[str, Metrics]) -> tuple[list[Point], list[str]]:
    """The points that can be drawn, and a sentence for each that cannot."""
    points: list[Point] = []
    left_out = []
    for name, one in measured.items():
        if not one.macs or not one.cycles:
            left_out.append(f"{name} multiplies nothing: it has no point.")
        elif not one.macs_per_dram_byte or math.isinf(one.macs_per_dram_byte):
            left_out.append(f"{name} moves nothing over the border of the chip: it has no point.")
        else:
            achieved = one.macs / one.cycles
            numbers = (one.macs_per_dram_byte, achieved, one.attainable_macs_per_cycle)
            points.append(Point(len(points) + 1, name, *numbers, one.bound))
    return points, left_out


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten between two decimal logarithms, and where these are few also 2 and 5 times them."""
    factors = (1, 2, 5) if high - low < 2.5 else (1,)
    found = [factor * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for factor in factors]
    return [tick for tick in found if low <= math.log10(tick) <= high]


def _axes(points: Sequence[Point], roofs: Sequence[Roof]) -> _Axes:
    across = [*(point.intensity for point in points), *(roof.ridge_macs_per_byte for roof in roofs)]
    upwards = [*(point.achieved for point in points), *(roof.peak_macs_per_cycle for roof in roofs)]
    # Enough of the slope to be seen as one, even where all points are on the far side of the ridge.
    left = min(min(across), min(roof.ridge_macs_per_byte for roof in roofs) / 10) / _ROOM
    lowest = min(*upwards, *(roof.height(left) for roof in roofs)) / 1.5
    return _Axes(
        (math.log10(left), math.log10(lowest)), (math.log10(max(across) * 3 * _ROOM), math.log10(max(upwards) * 2.5))
    )


def _draw_axes(canvas: Canvas, axes: _Axes) -> None:
    right, bottom = _WIDTH - _RIGHT, _TOP + _HEIGHT
    for tick in log_ticks(axes.low[0], axes.high[0]):
        x = axes.x(tick)
        canvas.line([(x, _TOP), (x, bottom)], stroke=theme.RULE)
        canvas.text(x, bottom + 14, _tick_text(tick), size=theme.SIZE_SMALL, anchor="middle", fill=theme.MUTED)
    for tick in log_ticks(axes.low[1], axes.high[1]):
        y = axes.y(tick)
        canvas.line([(_LEFT, y), (right, y)], stroke=theme.RULE)
        canvas.text(_LEFT - 6, y + 4, _tick_text(tick), size=theme.SIZE_SMALL, anchor="end", fill=theme.MUTED)
    canvas.line([(_LEFT, _TOP), (_LEFT, bottom), (right, bottom)])
    canvas.text(12, _TOP - 6, "MACs per cycle", size=theme.SIZE_SMALL)
    words = "arithmetic intensity: MACs for each byte to or from DRAM"
    canvas.text((_LEFT + right) / 2, bottom + 31, words, size=theme.SIZE_SMALL, anchor="middle")


def _tick_text(tick: float) -> str:
    return f"{tick:,.0f}" if tick >= 1 else f"{tick:g}"


Area = tuple[float, float, float, float]  # left, top, right, bottom


def _draw_roof(canvas: Canvas, axes: _Axes, roof: Roof) -> Iterator[Area]:
    """Draw the two lines and their labels; gives what they cover."""
    peak, ridge, slope = roof.peak_macs_per_cycle, roof.ridge_macs_per_byte, roof.bytes_per_cycle
    left, right = 10 ** axes.low[0], _WIDTH - _RIGHT
    if roof.height(left) < 10 ** axes.low[1]:
        left = 10 ** axes.low[1] / slope
    corner = (axes.x(ridge), axes.y(peak))
    start = (axes.x(left), axes.y(left * slope))
    canvas.line([start, corner, (right, corner[1])], stroke=theme.ATTENTION, stroke_width=2)
    canvas.line([corner, (corner[0], _TOP + _HEIGHT)], stroke=theme.ATTENTION, dash="4 3")
    yield corner[0], corner[1] - 2, right, corner[1] + 2
    yield corner[0] - 2, corner[1], corner[0] + 2, _TOP + _HEIGHT
    for part in range(_PARTS):
        ends = [[a + (b - a) * (part + i) / _PARTS for a, b in zip(start, corner, strict=True)] for i in (0, 1)]
        yield ends[0][0], ends[1][1], ends[1][0], ends[0][1]
    middle = (start[0] + corner[0]) / 2, (start[1] + corner[1]) / 2
    labels = (
        (right - 4, corner[1] - 6, "end", f"peak {format_rate(peak)} MACs per cycle"),
        (middle[0] - 8, middle[1] - 6, "end", f"DRAM {format_rate(slope)} bytes per cycle"),
        (corner[0], corner[1] - 6, "end", f"ridge point {format_rate(ridge)} MACs per byte"),
    )
    for x, y, anchor, text in labels:
        width = text_width(text, theme.SIZE_SMALL)
        at = max(x, _LEFT + 4 + width) if anchor == "end" else x
        canvas.text(at, y, text, size=theme.SIZE_SMALL, anchor=anchor, fill=theme.ATTENTION_INK)
        yield at - width, y - theme.SIZE_SMALL, at, y + 2


def _draw_point(canvas: Canvas, axes: _Axes, point: Point) -> Area:
    """The point, and a dashed line from it up to what can be attained; returns what they cover."""
    x, y = axes.x(point.intensity), axes.y(point.achieved)
    top = axes.y(point.attainable)
    rim = [(x - _DOT, y), (x, y - _DOT), (x + _DOT, y), (x, y + _DOT), (x - _DOT, y)]
    with canvas.group(str(point), point=point.number):
        canvas.line([(x, y), (x, top)], stroke=theme.MUTED, dash="2 3")
        canvas.line(rim, stroke=theme.GROUND, fill=theme.NPU.fill)
    return x - _DOT, min(y, top) - _DOT, x + _DOT, y + _DOT


def _label(canvas: Canvas, axes: _Axes, points: Sequence[Point], taken: Sequence[Area]) -> Area:
    """Write the name beside a point, or the numbers of points in one place, where nothing else is drawn.

    Returns:
        What the label covers; nothing where there was no room, and the lines below the picture must do.
    """
    x, y = axes.x(points[0].intensity), axes.y(points[0].achieved)
    numbers = ", ".join(str(point.number) for point in points)
    named = [f"{numbers}. {shorten(points[0].name, _NAME_CHARACTERS)}"] if len(points) == 1 else []
    for text in (*named, numbers):
        width = text_width(text, theme.SIZE_SMALL)
        for distance in (14, 24, 36, 50, 70, 100):
            for turn in (0, 4, 1, 7, 3, 5, 2, 6):  # to the right first, then to the left, then the others
                aside, down = (round(part(turn * math.pi / 4), 3) for part in (math.cos, math.sin))
                center = x + aside * distance + (width / 2 if aside > 0 else -width / 2 if aside < 0 else 0)
                middle = y + down * distance
                area = _around(center, middle, width + 4, theme.SIZE_SMALL + 2)
                if _is_inside(area) and not any(_overlap(area, other) for other in taken):
                    if distance > 24:
                        canvas.line([(x, y), (x + aside * (distance - 4), middle)], stroke=theme.MUTED)
                    canvas.text(center, middle + 4, text, size=theme.SIZE_SMALL, anchor="middle")
                    return area
    return _around(x, y, 0, 0)


def _around(x: float, y: float, width: float, height: float) -> Area:
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _is_inside(area: Area) -> bool:
    left, top, right, bottom = area
    return left > _LEFT and top > _TOP and right < _WIDTH - _RIGHT and bottom < _TOP + _HEIGHT


def _overlap(one: Area, other: Area) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
