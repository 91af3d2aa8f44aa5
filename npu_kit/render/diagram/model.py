"""What a graph picture shows, as data: boxes, arrows between them, and groups around them.

Extraction (from a Partition, from a JSON graph) makes a Diagram; ``picture`` draws one. Everything here is plain text
and can be stored. Keys tie the parts together and are never shown.
"""

from __future__ import annotations

from dataclasses import dataclass

from npu_kit.errors import RenderError

BOX_KINDS = ("input", "constant", "op", "output", "group", "view", "join")
GROUP_KINDS = ("function", "region", "composite")


@dataclass(frozen=True)
class Box:
    """One thing that computes or holds a tensor."""

    key: str  # unique among boxes and groups
    kind: str  # one of BOX_KINDS; "group" stands for a whole collapsed group, "view" and "join" compute nothing
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
    """A frame around boxes: a function of the model, a region, a composite inside it."""

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
        _require(
            not group.parent or group.parent in groups, f"group {group.key!r} stands before its parent {group.parent!r}"
        )
        groups.add(group.key)
    boxes: set[str] = set()
    around = groups | {""}
    for box in diagram.boxes:
        _require(box.key not in boxes and box.key not in groups, f"key {box.key!r} is used twice")
        _require(box.kind in BOX_KINDS, f"box {box.key!r} has kind {box.kind!r}, not one of {BOX_KINDS}")
        _require(box.group in around, f"box {box.key!r} is in group {box.group!r}, which is not there")
        boxes.add(box.key)
    for arrow in diagram.arrows:
        for end in (arrow.source, arrow.target):
            _require(end in boxes, f"an arrow ends at {end!r}, which is not there")


def _require(condition: bool, why: str) -> None:
    if not condition:
        raise RenderError("this diagram cannot be drawn", why)
