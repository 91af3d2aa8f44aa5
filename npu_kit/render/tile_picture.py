"""The tiles of one step: where the current one stands in the output, and the boxes of the operands it needs."""

from __future__ import annotations

from npu_kit.plan.ir import Plan
from npu_kit.render import theme
from npu_kit.render.format import format_count, number_of
from npu_kit.render.operand_picture import LEFT as OPERANDS_LEFT
from npu_kit.render.operand_picture import draw_operand, operand_height
from npu_kit.render.picture import Picture
from npu_kit.render.svg import Canvas
from npu_kit.render.text import text_width
from npu_kit.render.tile_grid import HEIGHT as GRID_HEIGHT
from npu_kit.render.tile_grid import MAX_SIDE, TOP, draw_grid
from npu_kit.render.tile_scene import TileScene, tile_scene

_WIDTH = 940
_OPERANDS_TOP = 58.0


def tiles(plan: Plan, step: int, tile: int = 0, chunk: int | None = None) -> Picture:
    """Draw one tile of one step; the arguments are those of ``tile_scene``.

    Raises:
        RenderError: no such step, tile or chunk.
    """
    return draw_tiles(tile_scene(plan, step, tile, chunk))


def draw_tiles(scene: TileScene) -> Picture:
    """Draw the output's tiles on the left and the operands on the right.

    The size depends on the step alone, so nothing jumps while a slider moves from tile to tile.
    """
    height = max(TOP + GRID_HEIGHT + 92, _OPERANDS_TOP + sum(map(operand_height, scene.operands)) + 30)
    canvas = Canvas(_WIDTH, height, scene.title, _description(scene))
    canvas.text(12, 22, scene.title, size=theme.SIZE_TITLE, bold=True, width=_WIDTH - 24)
    bottom = draw_grid(canvas, scene)
    for number, line in enumerate(_sentences(scene)):
        canvas.text(12, bottom + 22 + 17 * number, line, size=theme.SIZE_SMALL, width=OPERANDS_LEFT - 30)
    canvas.text(OPERANDS_LEFT, 46, _heading(scene), bold=True)
    top = _OPERANDS_TOP
    for operand in scene.operands:
        top = draw_operand(canvas, operand, top)
    _draw_legend(canvas, scene, height - 12)
    return canvas.picture()


def _heading(scene: TileScene) -> str:
    if scene.chunk is not None:
        return f"Pass {scene.chunk} of {scene.chunks} (counted from 0) needs"
    return "The tile needs" if scene.chunks == 1 else f"The tile needs, in {scene.chunks} passes"


def _sentences(scene: TileScene) -> list[str]:
    ragged = f", ragged along {' and '.join(scene.ragged)}: a full tile has {format_count(scene.full_elements)}"
    lines = [f"{number_of(scene.elements, 'element')}{ragged if scene.ragged else ''}."]
    if scene.others:
        lines.append(f"Along the other axes: {', '.join(scene.others)}.")
    if max(scene.rows.count, scene.columns.count) > MAX_SIDE:
        lines.append(f"{scene.rows.count:,} x {scene.columns.count:,} tiles are too many: a sample is drawn.")
    return lines


def _draw_legend(canvas: Canvas, scene: TileScene, y: float) -> None:
    swatch = theme.engine_swatch(scene.engine)
    entries = (
        (swatch.pale, "", theme.RULE, "done"),
        (swatch.fill, "", theme.ATTENTION, f"this tile, {swatch.label}"),
        (theme.GROUND, "", theme.RULE, "to come"),
        (theme.GROUND, "diagonal", theme.RULE, "ragged: zero-padded to full size"),
        (theme.FREE, "back", theme.MUTED, "halo: neighbours read it too"),
    )
    x = 12.0
    for fill, hatch, stroke, label in entries:
        canvas.rect(x, y - 10, 18, 12, fill=fill, stroke=stroke, hatch=hatch)
        canvas.text(x + 24, y, label, size=theme.SIZE_SMALL)
        x += 24 + text_width(label, theme.SIZE_SMALL) + 16


def _description(scene: TileScene) -> str:
    needs = [
        f"{operand.name}{operand.index}, {number_of(operand.elements, 'element')} from {operand.tier}"
        for operand in scene.operands
    ]
    return " ".join([*_sentences(scene), f"It needs {'; '.join(needs)}."])
