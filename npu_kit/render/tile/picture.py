"""The tiles of one step: where the current one stands in the output, and the boxes of the operands it needs."""

from __future__ import annotations

from collections.abc import Sequence

from npu_kit.plan.ir import Plan
from npu_kit.render import theme
from npu_kit.render.format import format_count, number_of
from npu_kit.render.picture import Picture
from npu_kit.render.svg import Canvas
from npu_kit.render.text import text_width
from npu_kit.render.tile.grid import MAX_SIDE, draw_grid, grid_bottom
from npu_kit.render.tile.operand_picture import draw_operand, operand_height
from npu_kit.render.tile.operands import OperandBox
from npu_kit.render.tile.scene import TileScene, tile_scene
from npu_kit.render.wanted import shows

_WIDTH = 940
_LEFT, _RIGHT = 12.0, 530.0
_OPERANDS_TOP = 58.0
_LINE = 17
_PADDED = "ragged: zero-padded to full size"


@shows(Plan)
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
    sentences = _sentences(scene)
    below = grid_bottom(scene) + 5 + _LINE * (len(sentences) + 1)
    places, bottom = _places(scene.operands, below)
    height = bottom + 30
    canvas = Canvas(_WIDTH, height, scene.title, _description(scene))
    canvas.text(12, 22, scene.title, size=theme.SIZE_TITLE, bold=True, width=_WIDTH - 24)
    draw_grid(canvas, scene)
    for number, line in enumerate(sentences, 1):
        canvas.text(12, grid_bottom(scene) + 5 + _LINE * number, line, size=theme.SIZE_SMALL, width=_RIGHT - 30)
    canvas.text(_RIGHT, 46, _heading(scene), bold=True)
    for operand, (left, top) in zip(scene.operands, places, strict=True):
        draw_operand(canvas, operand, left, top)
    _draw_legend(canvas, scene, height - 12)
    return canvas.picture()


def _places(operands: Sequence[OperandBox], below: float) -> tuple[list[tuple[float, float]], float]:
    """Left and top of each operand, and where the lowest part of the picture ends.

    The first ones stand on the right, the others below the grid: as many as make the picture lowest.
    """
    heights = [operand_height(operand) for operand in operands]

    def end(on_right: int) -> float:
        return max(_OPERANDS_TOP + sum(heights[:on_right]), below + sum(heights[on_right:]))

    on_right = min(range(len(operands), 0, -1), key=end, default=0)
    right = [(_RIGHT, _OPERANDS_TOP + sum(heights[:i])) for i in range(on_right)]
    left = [(_LEFT, below + sum(heights[on_right:i])) for i in range(on_right, len(operands))]
    return right + left, end(on_right)


def _heading(scene: TileScene) -> str:
    if scene.chunk is not None:
        return f"Chunk {scene.chunk} of {scene.chunks} (counted from 0) needs"
    return "The tile needs" if scene.chunks == 1 else f"The tile needs, in {scene.chunks} chunks"


def _sentences(scene: TileScene) -> list[str]:
    ragged = f", ragged along {' and '.join(scene.ragged)}: a full tile has {format_count(scene.full_elements)}"
    padding = f", {format_count(scene.padding)} of them padding" if scene.padding else ""
    lines = [f"{number_of(scene.elements, 'element')}{padding}{ragged if scene.ragged else ''}."]
    if scene.passes:
        lines.append(
            f"Rows are read in {len(scene.passes)} passes: {', '.join(scene.passes)}. The last makes the tiles."
        )
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
        (theme.GROUND, "diagonal", theme.RULE, "ragged: a smaller copy" if scene.engine == "dma" else _PADDED),
        (theme.FREE, "back", theme.MUTED, "halo: neighbours read it too"),
    )
    x = 12.0
    for fill, hatch, stroke, label in entries:
        canvas.rect(x, y - 10, 18, 12, fill=fill, stroke=stroke, hatch=hatch)
        canvas.text(x + 24, y, label, size=theme.SIZE_SMALL)
        x += 24 + text_width(label, theme.SIZE_SMALL) + 16


def _description(scene: TileScene) -> str:
    needs = [
        f"{operand.title}{operand.index}, {number_of(operand.elements, 'element')} from {operand.tier}"
        if operand.elements
        else f"nothing of {operand.title}"
        for operand in scene.operands
    ]
    return " ".join([*_sentences(scene), f"It needs {'; '.join(needs)}."])
