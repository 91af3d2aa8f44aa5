"""Diagram to a picture: Graphviz lays it out, then names, tooltips and keys are put in.

Each box carries ``data-key``, so a widget finds out which one was clicked. Whatever could be a link is removed.
"""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from npu_kit.render import theme
from npu_kit.render.diagram import Diagram, outline, simplify, verify_diagram
from npu_kit.render.diagram_dot import to_dot
from npu_kit.render.dot import DotTimeout, render_dot
from npu_kit.render.format import clean, number_of
from npu_kit.render.picture import Picture
from npu_kit.render.svg import Canvas

MAX_BOXES = 300  # above, dot takes too long and nobody can read the result
MAX_OUTLINE_LINES = 120

_SVG = "{http://www.w3.org/2000/svg}"


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
        return _draw_outline(diagram, f"{number_of(len(smaller.boxes), 'box')[:-1]}es are too many to draw")
    try:
        svg = render_dot(to_dot(smaller))
    except DotTimeout as error:
        return _draw_outline(diagram, str(error.why))
    return _annotate(svg, smaller)


def _annotate(svg: str, diagram: Diagram) -> Picture:
    """Name the picture, replace synthetic names by tooltips and keys, and drop links and ids (ids of two pictures collide)."""
    root = ElementTree.fromstring(svg)
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
                name.text = clean(diagram.title)
        for key in [key for key in element.attrib if key.endswith(("href", "}title")) or key == "id"]:
            del element.attrib[key]
        if "font-family" in element.attrib:
            element.set("font-family", theme.FONT_FAMILY)
    title = clean(diagram.title)
    for side in ("width", "height"):  # points become pixels, so text has the same size as in the other pictures
        root.set(side, root.get(side, "0").removesuffix("pt"))
    root.attrib.update({"role": "img", "aria-label": title, "style": "max-width:100%;height:auto"})
    root.set("xmlns", "http://www.w3.org/2000/svg")
    for tag, text in (("desc", outline(replace(diagram, notes=()))[:2000]), ("title", title)):
        element = ElementTree.Element(tag)
        element.text = clean(text)
        root.insert(0, element)
    return Picture(ElementTree.tostring(root, encoding="unicode"), title)


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
