"""What must hold for every picture: well-formed, described, harmless, inside its frame, nothing written over."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import NamedTuple
from xml.etree import ElementTree

from npu_kit.graph.ir import Graph
from npu_kit.render.text import text_width

SVG = "{http://www.w3.org/2000/svg}"
TAGS = {"svg", "title", "desc", "g", "rect", "path", "text", "polygon", "polyline", "ellipse"}

HOSTILE_NAMES = (
    'a"b',
    "a<b>&amp;</text><script>alert(1)</script>",
    "<b>bold</b>",
    "<",
    "trailing\\",
    '\\" URL="javascript:alert(1)" x="',
    "\\N\\G\\l",
    "javascript:alert(1)",
    "null\x00bell\x07escape\x1b[31m",
    "line\nbreak\r\ntab\t",
    "\u202egnp.exe",
    "lone \ud800 surrogate \uffff",
    "名前 é ½ 🙂",
    "]]><![CDATA[x",
    "n0; } digraph { evil",
    "",
    " ",
    "x" * 10_000,
)


class Area(NamedTuple):
    """A rectangle in pixels, and what it belongs to."""

    left: float
    top: float
    right: float
    bottom: float
    what: str


def parse(svg: str) -> ElementTree.Element:
    """The root of ``svg``, after the checks that need no layout."""
    root = ElementTree.fromstring(svg.encode("utf-8"))
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    title = root[0]
    assert title.tag == f"{SVG}title"
    assert title.text and root.get("aria-label") == title.text
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    for element in root.iter():
        assert element.tag.removeprefix(SVG) in TAGS, element.tag
        for name, value in element.attrib.items():
            assert not name.startswith("on"), name
            assert "href" not in name and name != "id", name
            # A key or a label may say anything; what a browser acts on may not.
            assert name.startswith(("data-", "aria-")) or "javascript" not in value, (name, value)
            assert name.startswith(("data-", "aria-")) or "url(" not in value, (name, value)
    return root


def check(svg: str) -> ElementTree.Element:
    """The root of a picture that the kit drew itself (not Graphviz), after all checks."""
    root = parse(svg)
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    areas = [*rects(root), *texts(root)]
    for area in areas:
        assert -0.5 <= area.left <= area.right <= width + 0.5, area
        assert -0.5 <= area.top <= area.bottom <= height + 0.5, area
    for one, other in combinations(texts(root), 2):
        overlap = min(one.right, other.right) - max(one.left, other.left) > 1
        assert not (overlap and min(one.bottom, other.bottom) - max(one.top, other.top) > 1), (one, other)
    return root


def rects(root: ElementTree.Element) -> list[Area]:
    """Every rectangle."""
    found = []
    for rect in root.iter(f"{SVG}rect"):
        x, y, width, height = (float(rect.get(key, "nan")) for key in ("x", "y", "width", "height"))
        found.append(Area(x, y, x + width, y + height, f"rect {rect.get('fill')}"))
    return found


def texts(root: ElementTree.Element) -> list[Area]:
    """Every line of text, by the widths of DejaVu Sans; capitals reach 0.73 em above the baseline."""
    found = []
    for text in root.iter(f"{SVG}text"):
        size, content = float(text.get("font-size", "nan")), text.text or ""
        width = text_width(content, size, text.get("font-weight") == "bold")
        x, y = float(text.get("x", "nan")), float(text.get("y", "nan"))
        left = x - {"middle": width / 2, "end": width}.get(text.get("text-anchor", "start"), 0.0)
        found.append(Area(left, y - 0.73 * size, left + width, y, content[:40]))
    return found


def words(root: ElementTree.Element) -> list[str]:
    """What is written in the picture, in order."""
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def tooltips(root: ElementTree.Element) -> list[str]:
    """The tooltips and titles, in order."""
    return [title.text or "" for title in root.iter(f"{SVG}title")]


def rename(graph: Graph, name: str) -> Graph:
    """``graph`` with every input, and the composites and the symbol, called ``name``."""
    nodes = tuple(
        replace(node, name=node.name if node.is_kernel else name, composite=name if node.composite else "")
        for node in graph.nodes
    )
    return replace(graph, symbol=name, nodes=nodes)
