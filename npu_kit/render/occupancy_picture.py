"""How full each on-chip tier is, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from npu_kit.errors import RenderError
from npu_kit.hw.spec import MemoryTier
from npu_kit.plan.ir import Plan
from npu_kit.render import theme
from npu_kit.render.format import format_bytes, format_share, number_of
from npu_kit.render.names import spill_sentence, step_titles
from npu_kit.render.picture import Picture
from npu_kit.render.svg import Canvas
from npu_kit.render.text import text_width
from npu_kit.render.wanted import shows

_WIDTH, _LEFT, _RIGHT, _TOP, _PANEL, _HEIGHT = 900, 130, 70, 44, 112, 78
_READABLE = 110  # pixels in which a title says something even when it is cut


@dataclass(frozen=True)
class Level:
    """One tier over the steps of a plan."""

    tier: MemoryTier
    used_bytes: tuple[int, ...]  # during each step

    @property
    def peak_bytes(self) -> int:
        """The largest use; 0 for a plan without steps."""
        return max(self.used_bytes, default=0)


def levels_of(plan: Plan) -> tuple[Level, ...]:
    """Bytes that buffers and slots take in each tier during each step."""
    # What becomes live in a step, less what was live last in the step before: summed up, the bytes in use.
    changes = {tier.name: [0] * (len(plan.steps) + 1) for tier in plan.spec.tiers}
    for buffer in plan.buffers:
        changes[buffer.tier][min(buffer.first_step, len(plan.steps))] += buffer.nbytes
        changes[buffer.tier][min(buffer.last_step + 1, len(plan.steps))] -= buffer.nbytes
    for step in plan.steps:
        for slot in step.slots:
            changes[slot.tier][step.index] += slot.nbytes
            changes[slot.tier][step.index + 1] -= slot.nbytes
    return tuple(Level(tier, tuple(accumulate(changes[tier.name][:-1]))) for tier in plan.spec.tiers)


@shows(Plan)
def occupancy(plan: Plan, *, step: int | None = None, title: str = "Memory in use, step by step") -> Picture:
    """Draw a step chart per on-chip tier with its capacity as a line; L3 is a sentence, it has room for everything.

    Args:
        plan: the plan.
        step: index of a step to mark, None for none.
        title: the heading.

    Raises:
        RenderError: the plan has no such step.
    """
    if step is not None and not 0 <= step < len(plan.steps):
        raise RenderError(f"no step {step}", f"the plan has {number_of(len(plan.steps), 'step')}, counted from 0")
    levels = levels_of(plan)
    near, far = levels[:-1], levels[-1]
    bottom = _TOP + _PANEL * len(near)
    spilled = spill_sentence(plan, range(len(plan.steps)))
    said = "; ".join(map(_sentence, levels))
    canvas = Canvas(_WIDTH, bottom + (82 if spilled else 64), title, f"{said}. {spilled}" if spilled else said)
    canvas.text(12, 24, title, size=theme.SIZE_TITLE, bold=True, width=_WIDTH - 24)
    width = (_WIDTH - _LEFT - _RIGHT) / max(1, len(plan.steps))
    if step is not None:
        canvas.rect(
            _LEFT + step * width,
            _TOP - 8,
            width,
            bottom - _TOP + 22,
            fill="#FFF3E8",
            stroke=theme.ATTENTION,
            dash="4 3",
        )
    titles = step_titles(plan)
    for number, level in enumerate(near):
        _draw_level(canvas, level, _TOP + number * _PANEL, width, titles)
    _draw_steps(canvas, titles, bottom - 8, width)
    canvas.text(12, bottom + 50, f"{_sentence(far)}.", size=theme.SIZE_SMALL)
    if spilled:
        canvas.text(12, bottom + 68, spilled, size=theme.SIZE_SMALL, width=_WIDTH - 24)
    return canvas.picture()


def _sentence(level: Level) -> str:
    share = format_share(level.peak_bytes, level.tier.capacity_bytes)
    return f"{level.tier}: peak {format_bytes(level.peak_bytes)} of {format_bytes(level.tier.capacity_bytes)}, {share}"


def _draw_level(canvas: Canvas, level: Level, top: float, width: float, titles: Sequence[str]) -> None:
    capacity, swatch = level.tier.capacity_bytes, theme.tier_swatch(level.tier.name)
    base, right = top + _HEIGHT, _LEFT + width * max(1, len(level.used_bytes))
    canvas.rect(12, top + 2, 10, _HEIGHT - 4, fill=swatch.fill)
    canvas.text(28, top + 14, str(level.tier), bold=True, width=_LEFT - 34)
    canvas.text(28, top + 30, f"peak {format_bytes(level.peak_bytes)}", size=theme.SIZE_SMALL)
    canvas.text(28, top + 44, f"of {format_bytes(capacity)}", size=theme.SIZE_SMALL)
    for index, used in enumerate(level.used_bytes):
        height = min(1.0, used / capacity) * _HEIGHT
        filled = f"{format_bytes(used)} of {format_bytes(capacity)}, {format_share(used, capacity)}"
        tip = f"step {index}, {titles[index]}: {filled}"
        with canvas.group(tip, step=index):
            canvas.rect(_LEFT + index * width, top, width, _HEIGHT, fill=theme.GROUND if used == 0 else "none")
            canvas.rect(_LEFT + index * width, base - height, width, height, fill=swatch.fill)
            share = format_share(used, capacity)
            if used and text_width(share, theme.SIZE_SMALL) < width - 4:
                inside = height > 18
                y, ink = (base - height + 13, swatch.ink) if inside else (base - height - 4, theme.TEXT)
                canvas.text(_LEFT + (index + 0.5) * width, y, share, size=theme.SIZE_SMALL, anchor="middle", fill=ink)
    canvas.line([(_LEFT, top), (right, top)], stroke=theme.ATTENTION, stroke_width=1.5, dash="6 3")
    canvas.text(right + 6, top + 4, "capacity", size=theme.SIZE_SMALL, fill=theme.ATTENTION_INK)
    canvas.line([(_LEFT, base), (right, base)])


def _draw_steps(canvas: Canvas, titles: Sequence[str], top: float, width: float) -> None:
    """Numbers under the panels, with the titles where there is room; every n-th number where there is little."""
    every = max(1, round(26 / width + 0.5))
    for index in range(0, len(titles), every):
        center, title = _LEFT + (index + 0.5) * width, titles[index]
        number = f"step {index}" if width > 46 else str(index)
        canvas.text(center, top, number, anchor="middle", size=theme.SIZE_SMALL)
        if text_width(title, theme.SIZE_SMALL) < width - 6 or width > _READABLE:
            canvas.text(center, top + 15, title, anchor="middle", size=theme.SIZE_SMALL, width=width - 6)
