"""Diagram to a picture: Graphviz lays it out, then names, tooltips and keys are put in.

Each box carries ``data-key``, so a widget finds out which one was clicked. Whatever could be a link is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from xml.etree import ElementTree

from npu_kit.render import theme
from npu_kit.render.diagram.dot_text import swatch_of, to_dot
from npu_kit.render.diagram.edit import outline, simplify
from npu_kit.render.diagram.model import Diagram, verify_diagram
from npu_kit.render.dot import DotTimeout, render_dot
from npu_kit.render.format import clean, number_of
from npu_kit.render.picture import Picture
from npu_kit.render.svg import Canvas
from npu_kit.render.text import text_width, wrap
from npu_kit.render.wanted import shows

MAX_BOXES = 300  # above, dot takes too long and nobody can read the result
MAX_OUTLINE_LINES = 120

_MIN_WIDTH = 480.0
_MARGIN = 12.0
_SVG = "{http://www.w3.org/2000/svg}"


@shows(Diagram)
def draw(diagram: Diagram) -> Picture:
    """The diagram as SVG.

    A diagram of more than MAX_BOXES boxes is simplified first (constants hidden, then composites, then regions drawn as
    one box each); one that is still too large, or on which Graphviz runs out of time, is drawn as an indented list.

    Raises:
        RenderError: the diagram refers to something that is not there.
        ToolError: no Graphviz on this machine.
    """
    verify_diagram(diagram)
    smaller = simplify(diagram, MAX_BOXES)
    if len(smaller.boxes) > MAX_BOXES:
        return _draw_outline(diagram, f"{len(smaller.boxes):,} boxes are too many to draw")
    try:
        svg = render_dot(to_dot(smaller))
    except DotTimeout as error:
        return _draw_outline(diagram, str(error.why))
    return _frame(svg, smaller)


def _frame(svg: str, diagram: Diagram) -> Picture:
    """Put the laid out graph on a canvas, with a legend of what is used and the notes below it."""
    root = ElementTree.fromstring(svg)
    _annotate(root, diagram)
    _raise_group_labels(root)
    graph_width, graph_height = (float(root.get(side, "0").removesuffix("pt")) for side in ("width", "height"))
    width = max(graph_width, _MIN_WIDTH)
    swatches = list({swatch.name: swatch for swatch in map(swatch_of, diagram.boxes)}.values())
    rows = _legend_rows(swatches, width)
    notes = [line for note in diagram.notes for line in wrap(note, width - 2 * _MARGIN, theme.SIZE_SMALL)]
    description = outline(replace(diagram, notes=()))[:2000]
    height = graph_height + 20 * len(rows) + 17 * len(notes) + 12
    canvas = Canvas(width, height, diagram.title, description)
    # Points become pixels here, so text has the same size as in the other pictures.
    canvas.embed([child for child in root if child.tag == "g"], (width - graph_width) / 2, 0)
    y = graph_height + 14
    for row in rows:
        for x, swatch in row:
            canvas.rect(x, y - 10, 14, 12, fill=swatch.fill)
            canvas.text(x + 19, y, swatch.label, size=theme.SIZE_SMALL)
        y += 20
    for line in notes:
        canvas.text(_MARGIN, y, line, size=theme.SIZE_SMALL)
        y += 17
    return canvas.picture()


def _legend_rows(swatches: Sequence[theme.Swatch], width: float) -> list[list[tuple[float, theme.Swatch]]]:
    """Where each entry stands, as many to a row as fit."""
    rows: list[list[tuple[float, theme.Swatch]]] = []
    x = width
    for swatch in swatches:
        needed = 19 + text_width(swatch.label, theme.SIZE_SMALL) + 16
        if x + needed > width:
            rows.append([])
            x = _MARGIN
        rows[-1].append((x, swatch))
        x += needed
    return rows


def _annotate(root: ElementTree.Element, diagram: Diagram) -> None:
    """Replace synthetic names by tooltips and keys, and drop links and ids: ids of two pictures in one page collide."""
    boxes = {f"n{i}": box for i, box in enumerate(diagram.boxes)}
    groups = {f"cluster_{i}": group for i, group in enumerate(diagram.groups)}
    arrows = {f"e{i}": arrow for i, arrow in enumerate(diagram.arrows)}
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        name = element.find(f"{_SVG}title")
        if name is not None:
            if box := boxes.get(name.text or ""):
                element.set("data-key", clean(box.key))
                name.text = clean(box.tooltip) or "; ".join(filter(None, map(clean, (box.title, *box.rows, box.note))))
            elif group := groups.get(name.text or ""):
                element.set("data-key", clean(group.key))
                name.text = clean(group.tooltip) or clean(group.title)
            elif arrow := arrows.get(element.get("id", "")):
                name.text = clean(arrow.tooltip) or clean(arrow.label)
            else:
                name.text = clean(diagram.title).strip() or "Picture"
        for key in [key for key in element.attrib if key.endswith(("href", "}title")) or key == "id"]:
            del element.attrib[key]
        if "font-family" in element.attrib:
            element.set("font-family", theme.FONT_FAMILY)


def _raise_group_labels(root: ElementTree.Element) -> None:
    """Draw the names of frames last, with a white rim, so that an arrow that crosses one does not cut it."""
    for parent in [element for element in root.iter("g") if element.get("class") == "graph"]:
        for group in [child for child in parent if child.get("class") == "cluster"]:
            for text in group.findall("text"):
                group.remove(text)
                text.attrib.update({"stroke": theme.GROUND, "stroke-width": "3", "paint-order": "stroke"})
                parent.append(text)


def _draw_outline(diagram: Diagram, why: str) -> Picture:
    lines = [f"{diagram.title}: as a list, because {why}.", "", *outline(diagram).splitlines()]
    if len(lines) > MAX_OUTLINE_LINES:
        cut = len(lines) - MAX_OUTLINE_LINES
        lines = [*lines[:MAX_OUTLINE_LINES], f"... and {number_of(cut, 'more line')}"]
    canvas = Canvas(860, 18 * len(lines) + 24, diagram.title, why)
    for number, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        canvas.text(12 + 9 * indent, 24 + 18 * number, line.strip(), width=836 - 9 * indent, bold=number == 0)
    return canvas.picture()
