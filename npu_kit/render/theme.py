"""Colours, hatches, fonts and sizes of every picture, in one place.

Engines take hues of the Okabe-Ito palette (Okabe and Ito, "Color Universal Design", 2008), which stay apart for
colour-blind readers. Tiers take one warm ramp whose lightness falls with the distance from the engines, so their order
shows in grey too. No colour stands alone: whoever draws a swatch writes its label beside or inside it. Pictures carry
their own white ground, so they look the same on JupyterLab's light and dark themes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FONT_FAMILY = "DejaVu Sans, Verdana, sans-serif"  # two faces with almost the same widths, see text.text_width
DOT_FONT = "DejaVu Sans"  # Graphviz wants one name; graphviz-pure carries the widths of this one

SIZE_TITLE = 15.0
SIZE_TEXT = 12.0
SIZE_SMALL = 10.5

GROUND = "#FFFFFF"
TEXT = "#1A1A1A"
MUTED = "#555555"
RULE = "#C8C8C8"
FREE = "#F2F2F2"  # memory that nobody uses
ATTENTION = "#D55E00"  # a cursor, a highlighted node, a capacity line
ATTENTION_INK = "#A63D00"  # the same as text: dark enough to read on white


@dataclass(frozen=True)
class Swatch:
    """How one thing is drawn: a fill, ink that reads on it, a paler ground for boxes, and a hatch."""

    name: str
    label: str  # always drawn with the colour
    fill: str
    ink: str
    pale: str
    hatch: str = ""  # a key of svg.HATCHES, "" for a plain fill


ENGINES: Mapping[str, Swatch] = {
    "matrix": Swatch("matrix", "matrix engine", "#0072B2", "#FFFFFF", "#E3F0F8"),
    "conv": Swatch("conv", "conv engine", "#56B4E9", TEXT, "#E9F5FC"),
    "vector": Swatch("vector", "vector engine", "#009E73", TEXT, "#E2F4EE"),
    "pooling": Swatch("pooling", "pooling engine", "#CC79A7", TEXT, "#F9EDF4"),
    "activation": Swatch("activation", "activation engine", "#F0E442", TEXT, "#FDFBE0"),
    "dma": Swatch("dma", "dma engine", "#ABABAB", TEXT, "#F0F0F0"),
}

TIERS: Mapping[str, Swatch] = {
    "L0": Swatch("L0", "L0", "#FCE0AE", TEXT, "#FEF6E7"),
    "L1": Swatch("L1", "L1", "#E69F00", TEXT, "#FCF1D9"),
    "L2": Swatch("L2", "L2", "#C65102", "#FFFFFF", "#FBE6D8"),
    "L3": Swatch("L3", "L3", "#6B2D00", "#FFFFFF", "#EFE2DA"),
}

NPU = Swatch("npu", "NPU", "#0072B2", "#FFFFFF", "#F0F7FC")
COMPOSITE = Swatch("composite", "composite", "#7A7A7A", "#FFFFFF", "#FFFFFF")
HOST = Swatch("host", "host", "#8A8A8A", TEXT, "#FFFFFF", "dashed")
DATA = Swatch("data", "input, output", "#444444", "#FFFFFF", "#FFFFFF")
CONSTANT = Swatch("constant", "constant", "#D9D9D9", TEXT, "#F6F6F6")
VIEW = Swatch("view", "view or join of rows, moves nothing", "#C9BFE8", TEXT, "#F5F2FC")
UNKNOWN = Swatch("unknown", "other", "#DDDDDD", TEXT, "#F5F5F5", "dots")


def engine_swatch(name: str) -> Swatch:
    """The swatch of an engine; a plain dotted one for an engine this theme does not know."""
    return ENGINES.get(name, UNKNOWN)


def tier_swatch(name: str) -> Swatch:
    """The swatch of a memory tier; a plain dotted one for a tier this theme does not know."""
    return TIERS.get(name, UNKNOWN)
