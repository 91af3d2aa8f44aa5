"""Diagram to DOT.

Labels are HTML-like DOT labels built as elements, node names are synthetic (``n0``, ``cluster_0``), and nothing is ever
a link: text from a model can only become text. Tooltips do not go through DOT at all, see ``picture``.
"""

from __future__ import annotations

import textwrap
from xml.etree import ElementTree

import graphviz

from npu_kit.render import theme
from npu_kit.render.diagram.model import Arrow, Box, Diagram, Group, verify_diagram
from npu_kit.render.format import clean, shorten
from npu_kit.render.text import text_width

_SIZE = 12
_TITLE_CHARACTERS = 36
_ROW_CHARACTERS = 46
_NOTE_LINES = 3
_Element = ElementTree.Element
_Inside = dict[str, tuple[list[Box], list[Group]]]  # by key of the group around them, "" for none


def to_dot(diagram: Diagram) -> str:
    """The diagram in the DOT language: boxes in order, groups as clusters.

    Raises:
        RenderError: the diagram refers to something that is not there.
    """
    verify_diagram(diagram)
    dot = graphviz.Digraph(name="diagram")
    dot.attr(bgcolor="white", fontname=theme.DOT_FONT, fontsize=str(_SIZE), nodesep="0.2", ranksep="0.3", pad="0.1")
    dot.attr(
        "node", shape="box", fontname=theme.DOT_FONT, fontsize=str(_SIZE), margin="0.06,0.04", height="0.2", width="0.2"
    )
    dot.attr("edge", fontname=theme.DOT_FONT, fontsize="10", color=theme.MUTED, fontcolor=theme.MUTED, arrowsize="0.7")
    names = {box.key: f"n{i}" for i, box in enumerate(diagram.boxes)}
    clusters = {group.key: f"cluster_{i}" for i, group in enumerate(diagram.groups)}
    inside: _Inside = {}
    for box in diagram.boxes:
        inside.setdefault(box.group, ([], []))[0].append(box)
    for group in diagram.groups:
        inside.setdefault(group.parent, ([], []))[1].append(group)
    _fill(dot, "", inside, names, clusters)
    for i, arrow in enumerate(diagram.arrows):
        dot.edge(names[arrow.source], names[arrow.target], id=f"e{i}", **_edge_label(arrow))
    return str(dot.source)


def _fill(dot: graphviz.Digraph, key: str, inside: _Inside, names: dict[str, str], clusters: dict[str, str]) -> None:
    boxes, groups = inside.get(key, ([], []))
    for box in boxes:
        dot.node(names[box.key], label=_html(_box_label(box)), **_box_style(box))
    for group in groups:
        with dot.subgraph(name=clusters[group.key]) as inner:
            inner.attr(label=_html(_group_label(group)), **_group_style(group))
            _fill(inner, group.key, inside, names, clusters)


def _group_style(group: Group) -> dict[str, str]:
    looks = {"region": (theme.NPU, "filled,rounded"), "composite": (theme.COMPOSITE, "filled,rounded,dashed")}
    swatch, style = looks.get(group.kind, (theme.HOST, "filled"))
    common = {"labelloc": "t", "labeljust": "l", "margin": "8"}
    return {"style": style, "fillcolor": swatch.pale, "color": swatch.fill, **common}


def _group_label(group: Group) -> _Element:
    is_inner = group.kind == "composite"
    return _line(group.title, 60, bold=not is_inner, size=10 if is_inner else _SIZE)


def _box_style(box: Box) -> dict[str, str]:
    swatch = swatch_of(box)
    style = {"style": "filled,rounded", "fillcolor": swatch.pale, "color": swatch.fill}
    if box.kind in ("input", "output"):
        style |= {"penwidth": "1.5"}
    elif box.kind in ("constant", "view", "join"):
        style |= {"style": "filled"}
    elif box.place == "host":
        style |= {"style": "filled,dashed"}
    if box.kind == "group":
        style |= {"peripheries": "2"}
    if box.is_highlighted:
        style |= {"penwidth": "4", "color": theme.ATTENTION}
    return style


def swatch_of(box: Box) -> theme.Swatch:
    """The colours of a box: those of its engine, else of its place, else of what it holds."""
    if box.kind in ("input", "output"):
        return theme.DATA
    if box.kind == "constant":
        return theme.CONSTANT
    if box.kind in ("view", "join"):
        return theme.VIEW
    if box.engine:
        return theme.engine_swatch(box.engine)
    return theme.NPU if box.place == "npu" else theme.HOST


def _box_label(box: Box) -> _Element:
    """A table: the title beside a chip that names the engine or place in words, then one small line per row."""
    table = _Element("TABLE", BORDER="0", CELLSPACING="0")
    head = ElementTree.SubElement(table, "TR")
    head.append(_line(box.title, _TITLE_CHARACTERS, bold=box.kind != "constant"))
    swatch, chip = swatch_of(box), box.engine or box.place or box.kind
    ElementTree.SubElement(head, "TD", WIDTH="4")
    cell = ElementTree.SubElement(head, "TD", BGCOLOR=swatch.fill, STYLE="rounded")
    ElementTree.SubElement(cell, "FONT", {"COLOR": swatch.ink, "POINT-SIZE": "9"}).text = f" {shorten(chip, 16)} "
    lines = [(row, "") for row in box.rows]
    lines += [(line, theme.ATTENTION_INK) for line in _wrap(box.note)]
    for line, color in lines:
        row = ElementTree.SubElement(table, "TR")
        row.append(_line(line, _ROW_CHARACTERS, size=10, color=color, columns=3))
    return table


def _wrap(note: str) -> list[str]:
    lines = textwrap.wrap(clean(note), _ROW_CHARACTERS)
    if len(lines) > _NOTE_LINES:
        lines = [*lines[: _NOTE_LINES - 1], f"{lines[_NOTE_LINES - 1][: _ROW_CHARACTERS - 4]} ..."]
    return lines


def _line(
    text: str, limit: int, *, bold: bool = False, size: int = _SIZE, color: str = "", columns: int = 1
) -> _Element:
    """A cell with one line of text, at least as wide as the text: graphviz-pure takes non-ASCII letters for spaces."""
    shown = shorten(text, limit).strip() or "(unnamed)"
    cell = _Element("TD", ALIGN="LEFT")
    if columns > 1:
        cell.set("COLSPAN", str(columns))
    if not shown.isascii():
        cell.set("WIDTH", f"{text_width(shown, size, bold):.0f}")
    attributes = ({"POINT-SIZE": str(size)} if size != _SIZE else {}) | ({"COLOR": color} if color else {})
    inner = ElementTree.SubElement(cell, "FONT", attributes) if attributes else cell
    (ElementTree.SubElement(inner, "B") if bold else inner).text = shown
    return cell


def _edge_label(arrow: Arrow) -> dict[str, str]:
    label = shorten(arrow.label, _ROW_CHARACTERS)
    return {"label": graphviz.escape(f" {label} ")} if label else {}


def _html(element: _Element) -> str:
    """The element as an HTML-like label; a lone cell becomes its own table."""
    if element.tag == "TD":
        table = _Element("TABLE", BORDER="0", CELLSPACING="0")
        ElementTree.SubElement(table, "TR").append(element)
        element = table
    return f"<{ElementTree.tostring(element, encoding='unicode', short_empty_elements=False)}>"
