"""A small writer of SVG: elements, never strings, so that no name can become markup.

Coordinates are pixels, y grows downwards, numbers are rounded to two decimals, and the same calls give the same text.
Text is measured with the widths of DejaVu Sans, so a label can be cut before it leaves its box.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from xml.etree import ElementTree

from npu_kit.render import theme
from npu_kit.render.format import clean
from npu_kit.render.picture import Picture

# Advance widths of ASCII 32..126 in DejaVu Sans, in 1/1000 em (from the font's hmtx table).
_WIDTHS = (
    318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337, 636, 636, 636, 636, 636, 636, 636,
    636, 636, 636, 337, 337, 838, 838, 838, 531, 1000, 684, 686, 698, 770, 632, 575, 775, 752, 295, 295, 656, 557, 863,
    748, 787, 603, 787, 695, 635, 611, 732, 684, 989, 685, 611, 685, 390, 337, 390, 838, 500, 500, 613, 635, 550, 635,
    615, 352, 635, 634, 278, 278, 579, 278, 974, 634, 612, 635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636,
    337, 636, 838,
)  # fmt: skip
_WIDEST = 1000  # a character outside ASCII: one em, as wide as CJK
_BOLD = 1.14  # DejaVu Sans Bold against DejaVu Sans, for words

HATCHES = ("diagonal", "back", "cross", "dots", "dashed")


def text_width(text: str, size: float, bold: bool = False) -> float:
    """Width of ``text`` in pixels at font size ``size``."""
    units = sum(_WIDTHS[ord(char) - 32] if 32 <= ord(char) < 127 else _WIDEST for char in text)
    return units / 1000 * size * (_BOLD if bold else 1.0)


def fit(text: str, width: float, size: float, bold: bool = False) -> str:
    """``text`` cleaned and cut in the middle until it is at most ``width`` pixels wide; "" if not one letter fits."""
    cleaned = clean(text)
    if text_width(cleaned, size, bold) <= width:
        return cleaned
    low, high = 0, len(cleaned) - 1  # kept characters: `low` fit, more than `high` do not
    while low < high:
        middle = (low + high + 1) // 2
        if text_width(_keep(cleaned, middle), size, bold) <= width:
            low = middle
        else:
            high = middle - 1
    return _keep(cleaned, low) if low else ""


def _keep(text: str, count: int) -> str:
    head = (count + 1) // 2
    return f"{text[:head]}..{text[len(text) - (count - head) :]}"


class Canvas:
    """A picture under construction: draw on it, then take its ``picture``."""

    def __init__(self, width: float, height: float, title: str, description: str = "") -> None:
        """Start an empty picture on a white ground.

        Args:
            width: pixels.
            height: pixels.
            title: one line for screen readers.
            description: what the picture says, for readers who do not see it.
        """
        self.width, self.height, self.title = width, height, clean(title)
        self._root = ElementTree.Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg",
                "width": _number(width),
                "height": _number(height),
                "viewBox": f"0 0 {_number(width)} {_number(height)}",
                "role": "img",
                "aria-label": self.title,
                "font-family": theme.FONT_FAMILY,
                "style": "max-width:100%;height:auto",
            },
        )
        ElementTree.SubElement(self._root, "title").text = self.title
        if description:
            ElementTree.SubElement(self._root, "desc").text = clean(description)
        self._parent = self._root
        self.rect(0, 0, width, height, fill=theme.GROUND)

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str = "none",
        stroke: str = "",
        stroke_width: float = 1.0,
        dash: str = "",
        radius: float = 0.0,
        hatch: str = "",
        hatch_color: str = theme.MUTED,
        tooltip: str = "",
    ) -> None:
        """Draw a rectangle, with an optional hatch (one of HATCHES) over its fill and a tooltip."""
        attributes = {"x": x, "y": y, "width": width, "height": height, "fill": fill}
        if radius:
            attributes["rx"] = radius
        element = self._element("rect", attributes, stroke, stroke_width, dash)
        if tooltip:
            ElementTree.SubElement(element, "title").text = clean(tooltip)
        if hatch:
            self._hatch(x, y, width, height, hatch, hatch_color)

    def line(
        self,
        points: Sequence[tuple[float, float]],
        *,
        stroke: str = theme.TEXT,
        stroke_width: float = 1.0,
        dash: str = "",
        fill: str = "none",
        tooltip: str = "",
    ) -> None:
        """Draw a line through ``points``; with ``fill``, the area that it closes."""
        path = " ".join(f"{'M' if i == 0 else 'L'}{_number(x)} {_number(y)}" for i, (x, y) in enumerate(points))
        element = self._element("path", {"d": path, "fill": fill}, stroke, stroke_width, dash)
        if tooltip:
            ElementTree.SubElement(element, "title").text = clean(tooltip)

    def arrow(self, start: tuple[float, float], end: tuple[float, float], *, stroke: str = theme.MUTED) -> None:
        """Draw a straight line with a head at ``end``, along one axis."""
        (x1, y1), (x2, y2) = start, end
        length = max(abs(x2 - x1), abs(y2 - y1), 1e-9)
        ux, uy = (x2 - x1) / length, (y2 - y1) / length
        back = (x2 - 8 * ux, y2 - 8 * uy)
        self.line([start, back], stroke=stroke, stroke_width=1.5)
        head = [end, (back[0] - 4 * uy, back[1] + 4 * ux), (back[0] + 4 * uy, back[1] - 4 * ux), end]
        self.line(head, stroke=stroke, fill=stroke)

    def text(
        self,
        x: float,
        y: float,
        content: str,
        *,
        size: float = theme.SIZE_TEXT,
        anchor: str = "start",
        bold: bool = False,
        fill: str = theme.TEXT,
        width: float | None = None,
        tooltip: str = "",
    ) -> None:
        """Write one line with its baseline at ``y``, cut to ``width`` pixels; a cut line keeps its full text as tooltip."""
        whole = clean(content)
        shown = whole if width is None else fit(whole, width, size, bold)
        if not shown:
            return
        attributes = {"x": x, "y": y, "font-size": size, "fill": fill}
        if anchor != "start":
            attributes["text-anchor"] = anchor
        if bold:
            attributes["font-weight"] = "bold"
        element = self._element("text", attributes)
        element.text = shown
        if tooltip or shown != whole:
            ElementTree.SubElement(element, "title").text = clean(tooltip) or whole

    @contextmanager
    def group(self, tooltip: str = "", **data: str | int) -> Iterator[None]:
        """Put what is drawn inside into one ``<g>``, with a tooltip and ``data-`` attributes for a widget to find."""
        element = self._element("g", {f"data-{key}": str(value) for key, value in data.items()})
        if tooltip:
            ElementTree.SubElement(element, "title").text = clean(tooltip)
        outer, self._parent = self._parent, element
        try:
            yield
        finally:
            self._parent = outer

    def picture(self) -> Picture:
        """The finished SVG text."""
        return Picture(ElementTree.tostring(self._root, encoding="unicode"), self.title)

    def _element(
        self, tag: str, attributes: dict[str, str | float], stroke: str = "", stroke_width: float = 1.0, dash: str = ""
    ) -> ElementTree.Element:
        if stroke:
            attributes["stroke"] = stroke
            if stroke_width != 1.0:
                attributes["stroke-width"] = stroke_width
        if dash:
            attributes["stroke-dasharray"] = dash
        written = {key: clean(value) if isinstance(value, str) else _number(value) for key, value in attributes.items()}
        return ElementTree.SubElement(self._parent, tag, written)

    def _hatch(self, x: float, y: float, width: float, height: float, kind: str, color: str) -> None:
        # Real lines instead of a <pattern>: a pattern needs an id, and ids of several pictures in one page collide.
        if kind == "dashed":
            self.rect(x, y, width, height, stroke=color, dash="4 3")
            return
        parts = []
        if kind in ("diagonal", "cross"):
            parts += list(_diagonals(x, y, width, height))
        if kind in ("back", "cross"):
            mirrored = _diagonals(x, y, width, height)
            parts += [(2 * x + width - x1, y1, 2 * x + width - x2, y2) for x1, y1, x2, y2 in mirrored]
        if kind == "dots":
            parts = [
                (x + dx, y + dy, x + dx + 1, y + dy)
                for dy in range(4, int(height), 6)
                for dx in range(4, int(width) - 1, 6)
            ]
        path = "".join(f"M{_number(a)} {_number(b)}L{_number(c)} {_number(d)}" for a, b, c, d in parts)
        if path:
            self._element("path", {"d": path, "fill": "none", "opacity": 0.6}, color)


def _diagonals(x: float, y: float, width: float, height: float, step: float = 7) -> Iterator[tuple[float, ...]]:
    """Lines from lower left to upper right, clipped to the rectangle."""
    offset = step
    while offset < width + height:
        start = (x + max(0.0, offset - height), y + min(offset, height))
        end = (x + min(offset, width), y + max(0.0, offset - width))
        yield (*start, *end)
        offset += step


def _number(value: float) -> str:
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
