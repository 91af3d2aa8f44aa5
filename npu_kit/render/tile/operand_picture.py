"""One operand of a tile, drawn: the tensor as a rectangle, the box that the tile needs, its halo hatched."""

from __future__ import annotations

from npu_kit.render import theme
from npu_kit.render.format import format_bytes, number_of
from npu_kit.render.svg import Canvas
from npu_kit.render.tile.operands import OperandBox, Side

WIDTH = 398

_MARGIN = 72.0  # on both sides, for "axis 1 1000"
_TENSOR_WIDTH, _TENSOR_HEIGHT = WIDTH - 2 * _MARGIN, 92.0
NOTHING = "nothing of it is needed"
_HEAD, _FOOT = 22.0, 44.0  # for the name above, for two lines below
_ZOOM = 78.0  # pixels of the longer side of an enlarged box
_SMALL = 22.0  # a box with a halo and a side below this many pixels is drawn a second time, enlarged

Place = tuple[float, float]  # start and length in pixels


def draw_operand(canvas: Canvas, operand: OperandBox, left: float, top: float) -> float:
    """Draw one operand and return where it ends."""
    title, full = f"{operand.title} = {operand.tensor}", f"slot {operand.name}, tensor {operand.tensor_name}"
    canvas.text(left, top + 12, title, width=WIDTH, bold=True, tooltip=full)
    x, y = left + _MARGIN, top + _HEAD
    width, height = _tensor_size(operand)
    canvas.rect(x, y, width, height, fill=theme.FREE, stroke=theme.MUTED)
    if operand.elements:
        across, down = (
            _place(operand.columns, operand.columns.span, x, width),
            _place(operand.rows, operand.rows.span, y, height),
        )
        _draw_box(canvas, operand, across, down)
        if _has_halo(operand) and min(across[1], down[1]) < _SMALL and width < 180:
            _draw_zoom(canvas, operand, (across, down), x + width + 60, y)
    for side, at, anchor in (
        (operand.rows, (x - 6, y + 10), "end"),
        (operand.columns, (x + width + 6, y + height), "start"),
    ):
        if side.label:
            text = f"{side.label} {side.extent}"
            canvas.text(*at, text, size=theme.SIZE_SMALL, anchor=anchor, fill=theme.MUTED, width=_MARGIN - 6)
    bottom = y + height
    kept = "; kept in L1 for the tiles that follow" if operand.is_panel else ""
    lines = (operand.index, f"{_moved(operand)}{kept}") if operand.elements else (NOTHING,)
    for number, line in enumerate(lines):
        canvas.text(left, bottom + 16 + 15 * number, line, size=theme.SIZE_SMALL, width=WIDTH)
    return bottom + _FOOT


def operand_height(operand: OperandBox) -> float:
    """Pixels that ``draw_operand`` takes: they depend on the tensor, not on the tile."""
    return _HEAD + _tensor_size(operand)[1] + _FOOT


def _tensor_size(operand: OperandBox) -> tuple[float, float]:
    """Width and height of the tensor as it is drawn."""
    scale = min(_TENSOR_WIDTH / max(1, operand.columns.extent), _TENSOR_HEIGHT / max(1, operand.rows.extent))
    return max(20.0, operand.columns.extent * scale), max(14.0, operand.rows.extent * scale)


def _draw_zoom(canvas: Canvas, operand: OperandBox, box: tuple[Place, Place], x: float, y: float) -> None:
    """The box once more, enlarged, with lines from its corners."""
    lengths = tuple(side.span[1] - side.span[0] for side in (operand.columns, operand.rows))
    unit = _ZOOM / max(lengths)
    (left, across), (top, down) = box
    width, height = lengths[0] * unit, lengths[1] * unit
    for corner, target in (((left + across, top), (x, y)), ((left + across, top + down), (x, y + height))):
        canvas.line([corner, target], stroke=theme.ATTENTION, stroke_width=0.7)
    canvas.rect(x, y, width, height, fill=theme.GROUND)
    _draw_box(canvas, operand, (x, width), (y, height), is_enlarged=True)


def _draw_box(canvas: Canvas, operand: OperandBox, across: Place, down: Place, is_enlarged: bool = False) -> None:
    swatch = theme.tier_swatch(operand.tier)
    tip = f"{operand.title}{operand.index}: {_moved(operand)}"
    (x, width), (y, height) = across, down
    if _has_halo(operand):
        own_across, own_down = (
            _inner(side, place) for side, place in ((operand.columns, across), (operand.rows, down))
        )
        canvas.rect(x, y, width, height, fill=swatch.pale, hatch="back", tooltip=tip)
        canvas.rect(own_across[0], own_down[0], own_across[1], own_down[1], fill=swatch.fill, tooltip=tip)
    else:
        canvas.rect(x, y, width, height, fill=swatch.fill, tooltip=tip)
    canvas.rect(x, y, width, height, stroke=theme.ATTENTION, stroke_width=2 if is_enlarged else 1.5)


def _moved(operand: OperandBox) -> str:
    return f"{number_of(operand.elements, 'element')}, {format_bytes(operand.nbytes)} from {operand.tier}"


def _has_halo(operand: OperandBox) -> bool:
    return (operand.rows.own, operand.columns.own) != (operand.rows.span, operand.columns.span)


def _place(side: Side, span: tuple[int, int], start: float, length: float) -> Place:
    """Start and length in pixels of a span of the whole side, at least two pixels long."""
    scale = length / max(1, side.extent)
    size = max(2.0, (span[1] - span[0]) * scale)
    return min(start + span[0] * scale, start + length - size), size


def _inner(side: Side, place: Place) -> Place:
    """Where the part without halo stands in the drawn box."""
    scale = place[1] / max(1, side.span[1] - side.span[0])
    return place[0] + (side.own[0] - side.span[0]) * scale, (side.own[1] - side.own[0]) * scale
