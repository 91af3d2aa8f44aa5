"""The grid of a step's output tiles: which are done, which one is running, which are ragged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from npu_kit.plan.ir import Axis
from npu_kit.render import theme
from npu_kit.render.format import number_of
from npu_kit.render.svg import Canvas
from npu_kit.render.text import text_width
from npu_kit.render.tile.scene import TileScene

MAX_SIDE = 40  # tiles drawn along one side; of more, only the ends and the surroundings of the current one

LEFT, TOP, WIDTH, HEIGHT = 52, 72, 420, 330

_LARGEST = 84.0  # pixels of a tile's side
_GAP = 16.0  # pixels where tiles are left out

Place = tuple[float, float]  # start and length in pixels


def sample(count: int, current: int, limit: int = MAX_SIDE) -> list[int | None]:
    """Indices to draw of ``count``: all, or both ends and what surrounds ``current``; None where some are left out.

    >>> sample(100, 50, 7)
    [0, None, 49, 50, 51, None, 99]
    """
    if count <= limit:
        return list(range(count))
    around = max(1, (limit - 4) // 2)
    kept = sorted({0, count - 1, *range(max(0, current - around), min(count, current + around + 1))})
    shown: list[int | None] = []
    for index in kept:
        if shown and index - (shown[-1] or 0) > 1:
            shown.append(None)
        shown.append(index)
    return shown


def grid_bottom(scene: TileScene) -> float:
    """Where the grid ends: the same for all tiles of a step, or everything below would jump."""
    if scene.rows.count > MAX_SIDE:
        return TOP + HEIGHT
    return max(start + length for start, length in _row_places(scene).values())


def draw_grid(canvas: Canvas, scene: TileScene) -> None:
    """Draw the grid, with the position at which each tile starts."""
    rows = _row_places(scene)
    columns = _places(scene.columns, sample(scene.columns.count, scene.at[1]), LEFT, WIDTH)
    for row in rows:
        for column in columns:
            _draw_tile(canvas, scene, row, column, columns[column], rows[row])
    (x, width), (y, height) = columns[scene.at[1]], rows[scene.at[0]]
    canvas.rect(x, y, width, height, stroke=theme.ATTENTION, stroke_width=3)
    directions = ((scene.labels[1], "to the right", scene.columns), (scene.labels[0], "downwards", scene.rows))
    words = "; ".join(f"{label} {where}: {_cut(axis)}" for label, where, axis in directions if label)
    canvas.text(12, 46, words, size=theme.SIZE_SMALL, width=WIDTH + LEFT)
    _label_columns(canvas, scene.columns, columns)
    _label_rows(canvas, scene.rows, rows)


def _row_places(scene: TileScene) -> dict[int, Place]:
    return _places(scene.rows, sample(scene.rows.count, scene.at[0]), TOP, HEIGHT)


def _draw_tile(canvas: Canvas, scene: TileScene, row: int, column: int, across: Place, down: Place) -> None:
    swatch = theme.engine_swatch(scene.engine)
    (x, width), (y, height) = across, down
    number, spans = scene.number(row, column), (scene.rows.span(row), scene.columns.span(column))
    sizes = tuple(stop - start for start, stop in spans)
    is_ragged = sizes != (scene.rows.tile, scene.columns.tile)
    is_current = (row, column) == scene.at
    fill = swatch.fill if is_current else swatch.pale if number < scene.tile else theme.GROUND
    ink = swatch.ink if is_current else theme.TEXT
    where = ", ".join(f"{label} {start}:{stop}" for label, (start, stop) in zip(scene.labels, spans, strict=True))
    tip = f"tile {number:,}: {where}, {sizes[0]} x {sizes[1]}" + (", ragged" if is_ragged else "")
    with canvas.group(tip, tile=number):
        hatch = "diagonal" if is_ragged and min(width, height) > 5 else ""
        hatch_color = swatch.ink if is_current else theme.MUTED
        canvas.rect(x, y, width, height, fill=fill, stroke=theme.RULE, hatch=hatch, hatch_color=hatch_color)
        half = text_width(str(number), theme.SIZE_SMALL, is_current) / 2 + 3
        if 2 * half < width - 2 and height > 17:
            center, middle = x + width / 2, y + height / 2
            if hatch:
                canvas.rect(center - half, middle - 8, 2 * half, 16, fill=fill)
            canvas.text(
                center, middle + 4, str(number), size=theme.SIZE_SMALL, anchor="middle", bold=is_current, fill=ink
            )


def _places(axis: Axis, shown: Sequence[int | None], start: float, room: float) -> dict[int, Place]:
    """Start and length in pixels of each tile that is drawn; a ragged tile is shorter."""
    spans = {index: axis.span(index) for index in shown if index is not None}
    shares = {index: (stop - begin) / axis.tile for index, (begin, stop) in spans.items()}
    unit = min(_LARGEST, (room - _GAP * list(shown).count(None)) / max(sum(shares.values()), 1e-9))
    placed, at = {}, start
    for index in shown:
        length = _GAP if index is None else max(1.0, unit * shares[index])
        if index is not None:
            placed[index] = at, length
        at += length
    return placed


def _label_columns(canvas: Canvas, axis: Axis, columns: Mapping[int, Place]) -> None:
    free = 0.0
    for column, (x, width) in columns.items():
        label = str(axis.span(column)[0])
        if x >= free:
            canvas.text(x, TOP - 6, label, size=theme.SIZE_SMALL, fill=theme.MUTED)
            free = x + text_width(label, theme.SIZE_SMALL) + 8
        if column + 1 < axis.count and column + 1 not in columns:
            canvas.text(x + width + 2, TOP + 12, "...", fill=theme.MUTED)


def _label_rows(canvas: Canvas, axis: Axis, rows: Mapping[int, Place]) -> None:
    free = 0.0
    for row, (y, height) in rows.items():
        if y >= free:
            label = str(axis.span(row)[0])
            canvas.text(LEFT - 6, y + 10, label, size=theme.SIZE_SMALL, anchor="end", fill=theme.MUTED, width=LEFT - 8)
            free = y + 14
        if row + 1 < axis.count and row + 1 not in rows:
            canvas.text(LEFT + 8, y + height + 11, "...", fill=theme.MUTED)


def _cut(axis: Axis) -> str:
    return f"{axis.extent:,} in {number_of(axis.count, 'tile')} of {axis.tile}"
