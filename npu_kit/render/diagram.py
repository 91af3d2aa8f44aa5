"""What a graph picture shows, as data: boxes, arrows between them, and groups around them.

Extraction (from a Partition, from a JSON graph) makes a Diagram; ``diagram_dot`` draws one. Everything here is plain
text and can be stored. Keys tie the parts together and are never shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from npu_kit.errors import RenderError
from npu_kit.render.format import clean, number_of

BOX_KINDS = ("input", "constant", "op", "output", "group")
GROUP_KINDS = ("region", "composite")


@dataclass(frozen=True)
class Box:
    """One thing that computes or holds a tensor."""

    key: str  # unique among boxes and groups
    kind: str  # one of BOX_KINDS; "group" stands for a whole collapsed group
    title: str
    rows: tuple[str, ...] = ()  # small lines under the title: result type, attributes
    engine: str = ""  # the engine that computes it, "" on the host or for data
    place: str = ""  # "npu" or "host", "" for data
    note: str = ""  # why it is where it is, when that is worth a line in the picture
    tooltip: str = ""
    group: str = ""  # key of the group around it, "" for none
    is_highlighted: bool = False


@dataclass(frozen=True)
class Arrow:
    """One tensor that flows from one box to another."""

    source: str
    target: str
    label: str = ""  # its shape
    tooltip: str = ""


@dataclass(frozen=True)
class Group:
    """A frame around boxes: a region, or a composite inside it."""

    key: str
    kind: str  # one of GROUP_KINDS
    title: str
    parent: str = ""  # key of the group around it, "" for none
    tooltip: str = ""


@dataclass(frozen=True)
class Diagram:
    """A picture of a graph before it is drawn."""

    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    groups: tuple[Group, ...] = ()
    notes: tuple[str, ...] = ()  # sentences under the picture


def verify_diagram(diagram: Diagram) -> None:
    """Check that keys are unique, that every reference has a target, and that groups are listed after their parent.

    Raises:
        RenderError: names the key.
    """
    groups: set[str] = set()
    for group in diagram.groups:
        _require(group.key not in groups, f"group {group.key!r} is listed twice")
        _require(group.kind in GROUP_KINDS, f"group {group.key!r} has kind {group.kind!r}, not one of {GROUP_KINDS}")
        _require(group.parent in groups | {""}, f"group {group.key!r} stands before its parent {group.parent!r}")
        groups.add(group.key)
    boxes: set[str] = set()
    for box in diagram.boxes:
        _require(box.key not in boxes | groups, f"key {box.key!r} is used twice")
        _require(box.kind in BOX_KINDS, f"box {box.key!r} has kind {box.kind!r}, not one of {BOX_KINDS}")
        _require(box.group in groups | {""}, f"box {box.key!r} is in group {box.group!r}, which is not there")
        boxes.add(box.key)
    for arrow in diagram.arrows:
        for end in (arrow.source, arrow.target):
            _require(end in boxes, f"an arrow ends at {end!r}, which is not there")


def hide_constants(diagram: Diagram) -> Diagram:
    """Leave out the boxes of constants and their arrows, and say so in a note."""
    hidden = {box.key for box in diagram.boxes if box.kind == "constant"}
    if not hidden:
        return diagram
    return replace(
        diagram,
        boxes=tuple(box for box in diagram.boxes if box.key not in hidden),
        arrows=tuple(arrow for arrow in diagram.arrows if arrow.source not in hidden),
        notes=(*diagram.notes, f"{number_of(len(hidden), 'constant')} not drawn."),
    )


def collapse(diagram: Diagram, kind: str) -> Diagram:
    """Replace every group of ``kind`` ("composite" or "region"), with all it holds, by one box; say so in a note."""
    inside = {group.key: group.key for group in diagram.groups if group.kind == kind}
    if not inside:
        return diagram
    for group in diagram.groups:  # parents come first, so one pass reaches groups at any depth
        if group.parent in inside:
            inside[group.key] = inside[group.parent]
    moved = {box.key: inside.get(box.group, box.key) for box in diagram.boxes}
    outer = {group.key: group for group in diagram.groups if inside.get(group.key) == group.key}
    boxes: list[Box] = []
    for box in diagram.boxes:
        key = moved[box.key]
        if key == box.key:
            boxes.append(box)
        elif key in outer:
            boxes.append(_group_box(outer.pop(key), [b for b in diagram.boxes if moved[b.key] == key]))
    arrows: dict[tuple[str, str, str], Arrow] = {}
    for arrow in diagram.arrows:
        source, target = moved[arrow.source], moved[arrow.target]
        if source != target:
            arrows.setdefault((source, target, arrow.label), replace(arrow, source=source, target=target))
    return replace(
        diagram,
        boxes=tuple(boxes),
        arrows=tuple(arrows.values()),
        groups=tuple(group for group in diagram.groups if group.key not in inside),
        notes=(*diagram.notes, f"Each {kind} is drawn as one box."),
    )


def simplify(diagram: Diagram, limit: int) -> Diagram:
    """Leave out detail, least telling first, until at most ``limit`` boxes are left or nothing more can go."""
    steps: tuple[Callable[[Diagram], Diagram], ...] = (
        hide_constants,
        lambda d: collapse(d, "composite"),
        lambda d: collapse(d, "region"),
    )
    for step in steps:
        if len(diagram.boxes) <= limit:
            break
        diagram = step(diagram)
    return diagram


def outline(diagram: Diagram) -> str:
    """The boxes as indented text, groups around them: the picture for a graph that is too large to draw."""
    lines: list[str] = []
    shown: tuple[str, ...] = ()
    parents = {group.key: group for group in diagram.groups}
    for box in diagram.boxes:
        around = tuple(_ancestors(box.group, parents))[::-1]
        shared = next((i for i, (a, b) in enumerate(zip(around, shown, strict=False)) if a != b), min(len(around), len(shown)))
        lines += [f"{'  ' * (shared + i)}{clean(parents[key].title)}" for i, key in enumerate(around[shared:])]
        shown = around
        tags = ", ".join(filter(None, (box.kind if box.kind != "op" else "", box.engine, box.place, *box.rows[:1])))
        lines.append(f"{'  ' * len(around)}- {clean(box.title)}{f'  [{clean(tags)}]' if tags else ''}")
    return "\n".join((*lines, *diagram.notes))


def _group_box(group: Group, members: list[Box]) -> Box:
    ops = [box for box in members if box.kind in ("op", "group")]
    engines = dict.fromkeys(box.engine for box in ops if box.engine)
    return Box(
        key=group.key,
        kind="group",
        title=group.title,
        rows=(number_of(len(ops), "operation"), *((", ".join(engines),) if engines else ())),
        engine=next(iter(engines), ""),
        place=next((box.place for box in ops), ""),
        tooltip=group.tooltip or ", ".join(box.title for box in ops),
        group=group.parent,
        is_highlighted=any(box.is_highlighted for box in members),
    )


def _ancestors(key: str, groups: dict[str, Group]) -> Iterator[str]:
    while key:
        yield key
        key = groups[key].parent


def _require(condition: bool, why: str) -> None:
    if not condition:
        raise RenderError("this diagram cannot be drawn", why)
