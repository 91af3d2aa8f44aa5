"""Leaving detail out of a diagram: constants bundled or hidden, groups collapsed, everything as an indented list.

Each function returns a new diagram; what no longer shows is said in a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from npu_kit.render.diagram.model import Arrow, Box, Diagram, Group
from npu_kit.render.format import clean, number_of, shorten
from npu_kit.render.wanted import shows

_LABEL_CHARACTERS = 120  # of one box in the list


@shows(Diagram)
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


def bundle_constants(diagram: Diagram, at_least: int = 3) -> Diagram:
    """Draw the constants that only one operation reads as one box, where it reads ``at_least`` of them."""
    readers: dict[str, set[str]] = {}
    for arrow in diagram.arrows:
        readers.setdefault(arrow.source, set()).add(arrow.target)
    bundles: dict[tuple[str, str], list[Box]] = {}
    for box in diagram.boxes:
        if box.kind == "constant" and len(readers.get(box.key, ())) == 1:
            bundles.setdefault((min(readers[box.key]), box.group), []).append(box)
    first: dict[str, Box] = {}
    gone: set[str] = set()
    for members in bundles.values():
        if len(members) >= at_least:
            first[members[0].key] = _bundle_box(members)
            gone.update(box.key for box in members[1:])
    return replace(
        diagram,
        boxes=tuple(first.get(box.key, box) for box in diagram.boxes if box.key not in gone),
        arrows=tuple(arrow for arrow in diagram.arrows if arrow.source not in gone),
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
    members: dict[str, list[Box]] = {}
    for box in diagram.boxes:
        members.setdefault(moved[box.key], []).append(box)
    boxes: list[Box] = []
    for box in diagram.boxes:
        key = moved[box.key]
        if key == box.key:
            boxes.append(box)
        elif key in outer:
            boxes.append(_group_box(outer.pop(key), members[key]))
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
        common = (i for i, (a, b) in enumerate(zip(around, shown, strict=False)) if a != b)
        shared = next(common, min(len(around), len(shown)))
        lines += [
            f"{'  ' * (shared + i)}{shorten(parents[key].title, _LABEL_CHARACTERS)}"
            for i, key in enumerate(around[shared:])
        ]
        shown = around
        tags = ", ".join(filter(None, (box.kind if box.kind != "op" else "", box.engine, box.place, *box.rows[:1])))
        label = f"{'  ' * len(around)}- {shorten(box.title, _LABEL_CHARACTERS)}"
        lines.append(f"{label}  [{shorten(tags, _LABEL_CHARACTERS)}]" if tags else label)
    return "\n".join((*lines, *map(clean, diagram.notes)))


def _bundle_box(members: list[Box]) -> Box:
    kinds: dict[str, int] = {}
    for box in members:
        words = ", ".join((box.title, *box.rows))
        kinds[words] = kinds.get(words, 0) + 1
    rows = tuple(f"{count} of {words}" if count > 1 else words for words, count in kinds.items())
    title, tooltip = number_of(len(members), "constant"), "; ".join(box.tooltip or box.title for box in members)
    return replace(members[0], title=title, rows=rows, tooltip=tooltip)


def _group_box(group: Group, members: list[Box]) -> Box:
    ops = [box for box in members if box.kind in ("op", "group")]
    engines = dict.fromkeys(box.engine for box in ops if box.engine)
    return Box(
        key=group.key,
        kind="group",
        title=group.title,
        rows=(number_of(len(ops), "operation"), *((", ".join(engines),) if engines else ())),
        engine=next(iter(engines)) if len(engines) == 1 else "",
        place=next((box.place for box in ops), ""),
        tooltip=group.tooltip or ", ".join(box.title for box in ops),
        group=group.parent,
        is_highlighted=any(box.is_highlighted for box in members),
    )


def _ancestors(key: str, groups: dict[str, Group]) -> Iterator[str]:
    while key:
        yield key
        key = groups[key].parent
