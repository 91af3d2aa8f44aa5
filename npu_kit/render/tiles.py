"""The tile grid of one step: where the current tile stands in the output, and the boxes of the operands it needs."""

from __future__ import annotations

from npu_kit.plan.ir import Axis, Plan
from npu_kit.render import theme
from npu_kit.render.format import format_bytes, format_count, number_of
from npu_kit.render.operand_view import OperandView, Side
from npu_kit.render.picture import Picture
from npu_kit.render.svg import Canvas, text_width
from npu_kit.render.tile_scene import TileScene, tile_scene

MAX_SIDE = 40  # tiles drawn along one side; of more, only the ends and the surroundings of the current one

_WIDTH, _TOP = 940, 66
_GRID_LEFT, _GRID_WIDTH, _GRID_HEIGHT = 64, 400, 320
_VIEW_LEFT, _VIEW_WIDTH, _VIEW_HEIGHT = 530, 300, 92
_VIEW_STEP = _VIEW_HEIGHT + 62
_GAP = 16.0  # pixels where tiles are left out


def tiles(plan: Plan, step: int, tile: int = 0, chunk: int | None = None) -> Picture:
    """Draw one tile of one step; the arguments are those of ``tile_scene``.

    Raises:
        RenderError: no such step, tile or chunk.
    """
    return draw_tiles(tile_scene(plan, step, tile, chunk))


def draw_tiles(scene: TileScene) -> Picture:
    """Draw the output's tiles on the left and the operands on the right."""
    height = max(_TOP + _GRID_HEIGHT + 96, _TOP + _VIEW_STEP * len(scene.views) + 24)
    canvas = Canvas(_WIDTH, height, scene.title, _description(scene))
    canvas.text(12, 22, scene.title, size=theme.SIZE_TITLE, bold=True, width=_WIDTH - 24)
    bottom = _draw_grid(canvas, scene)
    for number, line in enumerate(_sentences(scene)):
        canvas.text(12, bottom + 22 + 17 * number, line, size=theme.SIZE_SMALL, width=_VIEW_LEFT - 40)
    _draw_legend(canvas, scene, height - 14)
    canvas.text(_VIEW_LEFT, 48, _needs(scene), bold=True)
    for number, view in enumerate(scene.views):
        _draw_view(canvas, view, _TOP + number * _VIEW_STEP)
    return canvas.picture()


def sample(count: int, current: int, limit: int = MAX_SIDE) -> list[int | None]:
    """Indices to draw of ``count``: all, or both ends and what surrounds ``current``, with None where some are left out.

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


def _draw_grid(canvas: Canvas, scene: TileScene) -> float:
    """Draw the grid and return where it ends."""
    swatch = theme.engine_swatch(scene.engine)
    row_at = _positions(scene.rows, sample(scene.rows.count, scene.at[0]), _TOP, _GRID_HEIGHT)
    column_at = _positions(scene.columns, sample(scene.columns.count, scene.at[1]), _GRID_LEFT, _GRID_WIDTH)
    for row, (y, height) in row_at.items():
        for column, (x, width) in column_at.items():
            number = scene.number(row, column)
            is_current = (row, column) == scene.at
            spans = scene.rows.span(row), scene.columns.span(column)
            sizes = spans[0][1] - spans[0][0], spans[1][1] - spans[1][0]
            is_ragged = sizes != (scene.rows.tile, scene.columns.tile)
            fill = swatch.fill if is_current else swatch.pale if number < scene.tile else theme.GROUND
            tip = f"tile {number:,}: {scene.labels[0]} {spans[0][0]}:{spans[0][1]}, {scene.labels[1]} {spans[1][0]}:{spans[1][1]}"
            tip += f", {sizes[0]}x{sizes[1]}" + (", ragged" if is_ragged else "")
            with canvas.group(tip, tile=number):
                hatch = "diagonal" if is_ragged and min(width, height) > 5 else ""
                canvas.rect(x, y, width, height, fill=fill, stroke=theme.RULE, hatch=hatch, hatch_color=swatch.ink if is_current else theme.MUTED)
                if text_width(str(number), theme.SIZE_SMALL) < width - 8 and height > 18:
                    ink = swatch.ink if is_current else theme.TEXT
                    center, middle = x + width / 2, y + height / 2
                    half = text_width(str(number), theme.SIZE_SMALL, is_current) / 2 + 3
                    if hatch:
                        canvas.rect(center - half, middle - 8, 2 * half, 16, fill=fill)
                    canvas.text(center, middle + 4, str(number), size=theme.SIZE_SMALL, anchor="middle", fill=ink, bold=is_current)
    if scene.at[0] in row_at and scene.at[1] in column_at:
        (y, height), (x, width) = row_at[scene.at[0]], column_at[scene.at[1]]
        canvas.rect(x, y, width, height, stroke=theme.ATTENTION, stroke_width=3)
    bottom = max(y + height for y, height in row_at.values())
    _draw_sides(canvas, scene, row_at, column_at, bottom)
    return bottom


def _positions(axis: Axis, shown: list[int | None], start: float, room: float) -> dict[int, tuple[float, float]]:
    """Start and length in pixels of each tile that is drawn; a ragged tile is shorter."""
    units = sum(0.0 if i is None else (axis.span(i)[1] - axis.span(i)[0]) / axis.tile for i in shown)
    unit = min(64.0, (room - _GAP * shown.count(None)) / max(units, 1e-9))
    placed, at = {}, start
    for index in shown:
        if index is None:
            at += _GAP
            continue
        begin, end = axis.span(index)
        length = unit * (end - begin) / axis.tile
        placed[index] = at, length
        at += length
    return placed


def _draw_sides(
    canvas: Canvas,
    scene: TileScene,
    row_at: dict[int, tuple[float, float]],
    column_at: dict[int, tuple[float, float]],
    bottom: float,
) -> None:
    """Axis titles, and the positions at which the drawn tiles start, as far as there is room."""
    rows, columns = scene.rows, scene.columns
    right = max(x + width for x, width in column_at.values())
    canvas.text(_GRID_LEFT, 40, f"{scene.labels[1]} to the right: {_cut(columns)}", size=theme.SIZE_SMALL)
    canvas.text(_GRID_LEFT + 200, 40, f"{scene.labels[0]} downwards: {_cut(rows)}", size=theme.SIZE_SMALL)
    free = 0.0
    for column, (x, _) in column_at.items():
        label = str(columns.span(column)[0])
        width = text_width(label, theme.SIZE_SMALL)
        if x >= free and x + width < right + 30:
            canvas.text(x, _TOP - 6, label, size=theme.SIZE_SMALL, fill=theme.MUTED)
            free = x + width + 6
    free = 0.0
    for row, (y, _) in row_at.items():
        if y >= free and y + 10 <= bottom:
            canvas.text(_GRID_LEFT - 6, y + 10, str(rows.span(row)[0]), size=theme.SIZE_SMALL, anchor="end", fill=theme.MUTED)
            free = y + 14
    for placed, is_row in ((row_at, True), (column_at, False)):
        ends = [(start + length, index) for index, (start, length) in placed.items()]
        for end, index in ends:
            following = placed.get(index + 1)
            if following is None and index + 1 < (rows.count if is_row else columns.count):
                x, y = (_GRID_LEFT + 8, end + 11) if is_row else (end + 2, _TOP + 12)
                canvas.text(x, y, "...", fill=theme.MUTED)


def _cut(axis: Axis) -> str:
    return f"{axis.extent} in {number_of(axis.count, 'tile')} of {axis.tile}"


def _needs(scene: TileScene) -> str:
    if scene.chunk is not None:
        return f"Pass {scene.chunk} of {scene.chunks} needs"
    return "The tile needs" + (f", in {number_of(scene.chunks, 'pass')[:-1]}es" if scene.chunks > 1 else "")


def _draw_view(canvas: Canvas, view: OperandView, top: float) -> None:
    swatch = theme.tier_swatch(view.tier)
    tallest = max(view.rows.extent, view.columns.extent)
    scale = min(_VIEW_WIDTH / max(1, view.columns.extent), _VIEW_HEIGHT / max(1, view.rows.extent))
    width = max(20.0, view.columns.extent * scale) if tallest else 20.0
    height = max(14.0, view.rows.extent * scale) if tallest else 14.0
    canvas.text(_VIEW_LEFT, top + 12, f"{view.name} = {view.tensor}", width=_WIDTH - _VIEW_LEFT - 12, bold=True)
    y, x = top + 22.0, float(_VIEW_LEFT + 30)
    canvas.rect(x, y, width, height, fill=theme.FREE, stroke=theme.MUTED)
    box = _pixels(view.columns, view.columns.span, x, width), _pixels(view.rows, view.rows.span, y, height)
    own = _pixels(view.columns, view.columns.own, x, width), _pixels(view.rows, view.rows.own, y, height)
    tip = f"{view.name}{view.index}: {number_of(view.elements, 'element')}, {format_bytes(view.nbytes)} from {view.tier}"
    if view.elements:
        has_halo = own != box
        canvas.rect(box[0][0], box[1][0], box[0][1], box[1][1], fill=swatch.pale if has_halo else swatch.fill, stroke=swatch.fill, hatch="back" if has_halo else "", tooltip=tip)
        if has_halo:
            canvas.rect(own[0][0], own[1][0], own[0][1], own[1][1], fill=swatch.fill, tooltip=tip)
        canvas.rect(box[0][0], box[1][0], box[0][1], box[1][1], stroke=theme.ATTENTION, stroke_width=2)
    canvas.text(x - 6, y + 10, f"{view.rows.label} {view.rows.extent}" if view.rows.label else "", size=9.5, anchor="end", fill=theme.MUTED)
    canvas.text(x + width + 6, y + height, f"{view.columns.label} {view.columns.extent}" if view.columns.label else "", size=9.5, fill=theme.MUTED)
    kept = ", kept in L1 for the tiles that follow" if view.is_panel else ""
    line = f"{view.index}: {number_of(view.elements, 'element')}, {format_bytes(view.nbytes)} from {view.tier}{kept}"
    canvas.text(_VIEW_LEFT, y + height + 15, line, size=theme.SIZE_SMALL, width=_WIDTH - _VIEW_LEFT - 12)


def _pixels(side: Side, span: tuple[int, int], start: float, length: float) -> tuple[float, float]:
    """Start and length in pixels of a span, at least two pixels long."""
    scale = length / max(1, side.extent)
    size = max(2.0, (span[1] - span[0]) * scale)
    return min(start + span[0] * scale, start + length - size), size


def _sentences(scene: TileScene) -> list[str]:
    ragged = f", ragged: a full tile has {format_count(scene.full_elements)}" if scene.elements < scene.full_elements else ""
    lines = [f"This tile: {number_of(scene.elements, 'element')}{ragged}."]
    if scene.others:
        lines.append(f"Along the other axes it stands at {'; '.join(scene.others)}.")
    hidden = scene.rows.count * scene.columns.count - len(sample(scene.rows.count, 0)) * len(sample(scene.columns.count, 0))
    if max(scene.rows.count, scene.columns.count) > MAX_SIDE:
        lines.append(f"A sample is drawn: {scene.rows.count:,} x {scene.columns.count:,} tiles are too many ({hidden:,} left out).")
    return lines


def _draw_legend(canvas: Canvas, scene: TileScene, y: float) -> None:
    swatch = theme.engine_swatch(scene.engine)
    entries = [
        (swatch.pale, "", theme.RULE, "done"),
        (swatch.fill, "", theme.ATTENTION, f"this tile ({swatch.label})"),
        (theme.GROUND, "", theme.RULE, "to come"),
        (theme.GROUND, "diagonal", theme.RULE, "ragged: zero-padded to full size"),
        (theme.FREE, "back", theme.MUTED, "halo: read by neighbours too"),
    ]
    x = 12.0
    for fill, hatch, stroke, label in entries:
        canvas.rect(x, y - 10, 18, 12, fill=fill, stroke=stroke, hatch=hatch)
        canvas.text(x + 24, y, label, size=theme.SIZE_SMALL)
        x += 24 + text_width(label, theme.SIZE_SMALL) + 18


def _description(scene: TileScene) -> str:
    needs = [f"{view.name}{view.index}, {number_of(view.elements, 'element')} from {view.tier}" for view in scene.views]
    return " ".join([*_sentences(scene), f"It needs {'; '.join(needs)}."])
