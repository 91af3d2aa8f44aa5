"""What sits where in every tier during one step: buffers and slots by offset, and what is free."""

from __future__ import annotations

from dataclasses import dataclass

from npu_kit.errors import RenderError
from npu_kit.hw.spec import MemoryTier
from npu_kit.plan.ir import Buffer, Plan
from npu_kit.plan.storage import JOIN, VIEW
from npu_kit.render import theme
from npu_kit.render.format import format_bytes, format_count, format_share, number_of
from npu_kit.render.names import operand_roles, spill_sentence, step_title, tensor_name
from npu_kit.render.picture import Picture
from npu_kit.render.svg import Canvas
from npu_kit.render.text import text_width
from npu_kit.render.wanted import shows

_WIDTH, _LEFT, _RIGHT, _TOP, _BAR = 900, 16, 16, 52, 40
_COLUMNS = (3, 2)  # of the list under a bar: the most in which every line fits
_LINE = 16


@dataclass(frozen=True)
class Piece:
    """One buffer or slot in a tier."""

    name: str
    title: str  # shorter, or plainer
    offset_bytes: int
    nbytes: int
    parts: int
    what: str  # "slot" or a buffer's role
    copies: int = 1  # 2: double buffering


def pieces_of(plan: Plan, step: int, tier: str) -> tuple[Piece, ...]:
    """What sits in ``tier`` during ``step``, by offset.

    Raises:
        RenderError: the plan has no such step.
    """
    if not 0 <= step < len(plan.steps):
        raise RenderError(f"no step {step}", f"the plan has {number_of(len(plan.steps), 'step')}, counted from 0")
    roles = operand_roles(plan, plan.steps[step])
    buffers = [
        Piece(b.name, _buffer_title(plan, b), b.offset_bytes, b.nbytes, 1, b.role)
        for b in plan.buffers
        if b.tier == tier and b.first_step <= step <= b.last_step
    ]
    slots = [
        Piece(s.name, roles.get(s.name, s.name), s.offset_bytes, s.nbytes, s.parts, "slot", s.copies)
        for s in plan.steps[step].slots
        if s.tier == tier
    ]
    return tuple(sorted(buffers + slots, key=lambda piece: (piece.offset_bytes, piece.nbytes, piece.name)))


def _buffer_title(plan: Plan, buffer: Buffer) -> str:
    """A constant or an input by its short name; a result by the planner's name, without the backend's before it."""
    node = plan.graph.nodes[buffer.entry.node]
    if node.kind in ("input", "const", VIEW):
        return tensor_name(plan.graph, buffer.entry)
    composite = plan.graph.nodes[node.inputs[0].node].composite if node.kind == JOIN else node.composite
    return buffer.name.replace(composite, composite.rpartition(".")[2]) if composite else buffer.name


@shows(Plan)
def memory_map(plan: Plan, step: int, *, title: str = "") -> Picture:
    """Draw one bar per tier, as long as its capacity, with everything that sits in it during ``step``.

    L3 is drawn only as far as it is used, and says so: at its real length nothing in it could be seen.

    Raises:
        RenderError: the plan has no such step.
    """
    held = [(tier, pieces_of(plan, step, tier.name)) for tier in plan.spec.tiers]
    heights = [_BAR + 40 + _LINE * -(-len(pieces) // _columns(pieces)) for _, pieces in held]
    heading = title or f"Memory during step {step}: {step_title(plan, plan.steps[step])}"
    spilled = spill_sentence(plan, (step,))
    said = "; ".join(_sentence(*item) for item in held)
    height = _TOP + sum(heights) + (4 + _LINE if spilled else 4)
    canvas = Canvas(_WIDTH, height, heading, f"{said}. {spilled}" if spilled else said)
    canvas.text(_LEFT, 24, heading, size=theme.SIZE_TITLE, bold=True, width=_WIDTH - 300)
    _draw_legend(canvas)
    top = float(_TOP)
    for (tier, pieces), height in zip(held, heights, strict=True):
        _draw_tier(canvas, tier, pieces, top)
        top += height
    if spilled:
        canvas.text(_LEFT, top, spilled, width=_WIDTH - _LEFT - _RIGHT)
    return canvas.picture()


def _draw_legend(canvas: Canvas) -> None:
    x = _WIDTH - 262.0
    for fill, hatch, label in (
        (theme.RULE, "", "slot"),
        (theme.RULE, "dots", "whole tensor"),
        (theme.FREE, "", "free"),
    ):
        canvas.rect(x, 12, 20, 12, fill=fill, stroke=theme.MUTED, hatch=hatch, hatch_color=theme.TEXT)
        canvas.text(x + 26, 22, label, size=theme.SIZE_SMALL)
        x += 26 + text_width(label, theme.SIZE_SMALL) + 18


def _draw_tier(canvas: Canvas, tier: MemoryTier, pieces: tuple[Piece, ...], top: float) -> None:
    used = sum(piece.nbytes for piece in pieces)
    end = max((piece.offset_bytes + piece.nbytes for piece in pieces), default=0)
    is_to_scale = tier.name != "L3"
    shown = tier.capacity_bytes if is_to_scale else max(end, 1)
    scale = (_WIDTH - _LEFT - _RIGHT) / shown
    swatch = theme.tier_swatch(tier.name)
    canvas.text(_LEFT, top, _sentence(tier, pieces), bold=True)
    y: float = top + 8
    canvas.rect(_LEFT, y, _WIDTH - _LEFT - _RIGHT, _BAR, fill=theme.FREE, stroke=theme.MUTED)
    for number, piece in enumerate(pieces, 1):
        x, width = _LEFT + piece.offset_bytes * scale, max(1.0, piece.nbytes * scale)
        full = f", {piece.name}" if piece.name != piece.title else ""
        tip = f"{_entry(number, piece)}, {piece.what}{full}, bytes {format_count(piece.offset_bytes)} to "
        with canvas.group(tip + format_count(piece.offset_bytes + piece.nbytes), piece=piece.name):
            canvas.rect(
                x,
                y,
                width,
                _BAR,
                fill=swatch.fill,
                stroke=theme.GROUND if width > 4 else "",
                hatch=_hatch(piece),
                hatch_color=swatch.ink,
            )
            pieces_side_by_side = piece.parts * piece.copies
            for part in range(1, pieces_side_by_side if width / pieces_side_by_side > 4 else 1):
                at = x + part * width / pieces_side_by_side
                for edge in (y, y + _BAR - 5):
                    canvas.line([(at, edge), (at, edge + 5)], stroke=swatch.ink)
            _label(canvas, number, piece, x, y, width, swatch)
    if not is_to_scale:
        right = _WIDTH - _RIGHT
        canvas.text(right, top, "drawn as far as it is used", size=theme.SIZE_SMALL, anchor="end", fill=theme.MUTED)
    columns = _columns(pieces)
    column = (_WIDTH - _LEFT - _RIGHT) / columns
    for number, piece in enumerate(pieces, 1):
        row, place = divmod(number - 1, columns)
        line, full = _line(number, piece), piece.name if piece.name != piece.title else ""
        canvas.text(
            _LEFT + place * column,
            y + _BAR + 16 + row * _LINE,
            line,
            tooltip=full,
            size=theme.SIZE_SMALL,
            width=column - 10,
        )
    if used and is_to_scale and tier.capacity_bytes - used > 0:
        free = f"{format_bytes(tier.capacity_bytes - used)} free"
        room = (tier.capacity_bytes - end) * scale
        if text_width(free, theme.SIZE_SMALL) < room - 8:
            canvas.text(_WIDTH - _RIGHT - 6, y + 24, free, size=theme.SIZE_SMALL, anchor="end", fill=theme.MUTED)


def _label(canvas: Canvas, number: int, piece: Piece, x: float, y: float, width: float, swatch: theme.Swatch) -> None:
    """The piece's number, and its name and size where they fit."""
    mark = str(number)
    if text_width(mark, theme.SIZE_SMALL, True) > width - 4:
        return
    whole = f"{number} {piece.title}"
    fits = text_width(whole, theme.SIZE_SMALL, True) < width - 8
    center = x + width / 2
    canvas.text(
        center, y + 17, whole if fits else mark, size=theme.SIZE_SMALL, anchor="middle", bold=True, fill=swatch.ink
    )
    size = format_bytes(piece.nbytes)
    if text_width(size, theme.SIZE_SMALL) < width - 6:
        canvas.text(center, y + 32, size, size=theme.SIZE_SMALL, anchor="middle", fill=swatch.ink)


def _entry(number: int, piece: Piece) -> str:
    split = [f"{piece.copies} copies"] * (piece.copies > 1) + [number_of(piece.parts, "part")] * (piece.parts > 1)
    inside = f" ({' of '.join(split)})" if split else ""
    return f"{number} {piece.title}{inside}: {format_bytes(piece.nbytes)}"


def _line(number: int, piece: Piece) -> str:
    return f"{_entry(number, piece)} at {format_count(piece.offset_bytes)}"


def _columns(pieces: tuple[Piece, ...]) -> int:
    """How many columns the list of ``pieces`` has."""
    longest = max((text_width(_line(*item), theme.SIZE_SMALL) for item in enumerate(pieces, 1)), default=0.0)
    room = _WIDTH - _LEFT - _RIGHT
    return next((count for count in _COLUMNS if longest <= room / count - 10), _COLUMNS[-1])


def _sentence(tier: MemoryTier, pieces: tuple[Piece, ...]) -> str:
    used = sum(piece.nbytes for piece in pieces)
    share = format_share(used, tier.capacity_bytes)
    return f"{tier}: {format_bytes(used)} of {format_bytes(tier.capacity_bytes)} in use, {share}"


def _hatch(piece: Piece) -> str:
    return "" if piece.what == "slot" else "dots"
