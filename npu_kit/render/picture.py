"""The type that every view returns: SVG text that a notebook shows."""

from __future__ import annotations

import base64
import html


class Picture(str):
    """SVG text with a title.

    It is a plain ``str`` for whoever saves or embeds it. As the last value of a notebook cell it is shown as an image
    inside HTML, which JupyterLab and code hosts also show where they hide inline SVG (an untrusted or exported notebook).
    """

    title: str

    def __new__(cls, svg: str, title: str) -> Picture:
        """Wrap ``svg``; ``title`` is what a screen reader says."""
        picture = super().__new__(cls, svg)
        picture.title = title
        return picture

    def __repr__(self) -> str:
        return f"Picture({self.title!r}, {len(self):,} characters of SVG)"

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.encode()).decode()
        alt = html.escape(self.title, quote=True)
        return f'<img alt="{alt}" style="max-width:100%" src="data:image/svg+xml;base64,{data}">'
