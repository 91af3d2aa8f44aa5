"""Where you are: the four stages of the kit, and what passes between them."""

from __future__ import annotations

from dataclasses import dataclass

from npu_kit.errors import RenderError
from npu_kit.render import theme
from npu_kit.render.picture import Picture
from npu_kit.render.svg import Canvas


@dataclass(frozen=True)
class Stage:
    """One stage of the flow."""

    name: str
    question: str
    parts: tuple[str, ...]  # what happens inside, as verbs; each can be marked on its own
    result: tuple[str, ...]  # what it hands on, one line each


STAGES = (
    Stage("patterns", "What can the NPU do?", ("match", "check"), ("pattern", "table")),
    Stage("partition", "What goes where?", ("fuse", "merge"), ("regions",)),
    Stage("codegen", "How is it written?", ("lower", "build"), ("JSON", "graph")),
    Stage("runtime", "How does it run?", ("plan", "execute"), ("arrays,", "trace")),
)

_FIRST = ("Relax", "model")  # what enters
_BOX, _GAP, _TOP, _HEIGHT = 150, 62, 30, 84


def flow(here: str = "") -> Picture:
    """Draw the four stages, with one of them marked as the place where the reader is.

    Args:
        here: a stage ("patterns", "partition", "codegen", "runtime"), a part of one ("plan", "lower", ...), or "" for
            the plain picture.

    Raises:
        RenderError: no such stage or part.
    """
    known = [name for stage in STAGES for name in (stage.name, *stage.parts)]
    if here and here not in known:
        raise RenderError(f"no stage {here!r} in the flow", f"known are {', '.join(known)}")
    width = len(STAGES) * _BOX + (len(STAGES) + 1) * _GAP
    title = "The flow: " + ", ".join(stage.name for stage in STAGES) + (f"; you are at {here}" if here else "")
    canvas = Canvas(width, _TOP + _HEIGHT + 16, title, "; ".join(f"{s.name}: {s.question}" for s in STAGES))
    for number, result in enumerate((_FIRST, *(stage.result for stage in STAGES))):
        left = number * (_BOX + _GAP)
        middle = _TOP + _HEIGHT / 2
        canvas.arrow((left + 6, middle), (left + _GAP - 6, middle))
        for line, word in enumerate(result):
            canvas.text(left + _GAP / 2, middle + 17 + 13 * line, word, size=theme.SIZE_SMALL, anchor="middle")
    for number, stage in enumerate(STAGES):
        _draw_stage(canvas, stage, _GAP + number * (_BOX + _GAP), here)
    return canvas.picture()


def _draw_stage(canvas: Canvas, stage: Stage, left: float, here: str) -> None:
    is_here = here == stage.name or here in stage.parts
    swatch = theme.NPU
    center = left + _BOX / 2
    with canvas.group(stage=stage.name):
        if is_here:
            canvas.text(center, _TOP - 13, "you are here", size=theme.SIZE_SMALL, anchor="middle", bold=True)
            point = [(center - 6, _TOP - 9), (center + 6, _TOP - 9), (center, _TOP - 2), (center - 6, _TOP - 9)]
            canvas.line(point, stroke=theme.TEXT, fill=theme.TEXT)
        canvas.rect(
            left, _TOP, _BOX, _HEIGHT, fill=swatch.fill if is_here else swatch.pale, stroke=swatch.fill, radius=8,
            stroke_width=2,
        )  # fmt: skip
        ink = swatch.ink if is_here else theme.TEXT
        canvas.text(center, _TOP + 24, stage.name, size=theme.SIZE_TITLE, anchor="middle", bold=True, fill=ink)
        canvas.text(center, _TOP + 43, stage.question, size=theme.SIZE_SMALL, anchor="middle", fill=ink)
        width = (_BOX - 24) / len(stage.parts)
        for i, part in enumerate(stage.parts):
            x = left + 12 + i * width
            marked = part == here
            fill = "#FFFFFF" if marked or not is_here else "none"
            canvas.rect(x + 2, _TOP + 54, width - 4, 20, fill=fill, stroke=ink, radius=4)
            color = theme.TEXT if fill != "none" else ink
            canvas.text(x + width / 2, _TOP + 68, part, size=theme.SIZE_SMALL, anchor="middle", bold=marked, fill=color)
