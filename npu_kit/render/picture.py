"""The type that every renderer returns: SVG text that a notebook shows."""

from __future__ import annotations

import base64
import html


class Picture(str):
    """SVG text, and the words that stand for it.

    It is a plain ``str`` for whoever saves or embeds it. As the last value of a notebook cell it is shown as an image
    inside HTML, which JupyterLab and code hosts show also where they hide inline SVG: in an untrusted or exported
    notebook.
    """

    alt: str

    def __new__(cls, svg: str, alt: str) -> Picture:
        """Wrap ``svg``; ``alt`` is what a screen reader says."""
        picture = super().__new__(cls, svg)
        picture.alt = alt
        return picture

    def __repr__(self) -> str:
        return f"Picture({self.alt!r}, {len(self):,} characters of SVG)"

    def _repr_html_(self) -> str:
        source = f"data:image/svg+xml;base64,{base64.b64encode(self.encode()).decode()}"
        return f'<img alt="{html.escape(self.alt, quote=True)}" style="max-width:100%" src="{source}">'
