"""A small writer of SVG: elements, never strings, so that no name can become markup.

Coordinates are pixels, y grows downwards, numbers are rounded to two decimals, and the same calls give the same text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from xml.etree import ElementTree

from npu_kit.render import theme
from npu_kit.render.format import clean
from npu_kit.render.picture import Picture
from npu_kit.render.text import fit

HATCHES = ("diagonal", "back", "cross", "dots", "dashed")


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
        # A title without a letter that can be drawn would leave a screen reader with nothing.
        self.width, self.height, self.title = width, height, clean(title).strip() or "Picture"
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
        attributes: dict[str, str | float] = {"x": x, "y": y, "width": width, "height": height, "fill": fill}
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
        """Write one line, its baseline at ``y``, cut to ``width`` pixels; what was cut can be read in its tooltip."""
        whole = clean(content)
        shown = whole if width is None else fit(whole, width, size, bold)
        if not shown:
            return
        attributes: dict[str, str | float] = {"x": x, "y": y, "font-size": size, "fill": fill}
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

    def embed(self, elements: Sequence[ElementTree.Element], x: float, y: float) -> None:
        """Put finished elements on the canvas, moved by (x, y)."""
        place = ElementTree.SubElement(self._parent, "g", {"transform": f"translate({_number(x)} {_number(y)})"})
        place.extend(elements)

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
