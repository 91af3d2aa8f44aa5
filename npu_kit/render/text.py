"""How wide a text is, and how much of it fits, without a font engine.

The widths are those of DejaVu Sans; Verdana, the second face of the theme, differs by a few percent.
"""

from __future__ import annotations

from npu_kit.render.format import clean

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


def wrap(text: str, width: float, size: float) -> list[str]:
    """``text`` cleaned and broken at spaces into lines of at most ``width`` pixels; a longer word is cut."""
    lines: list[str] = []
    for word in clean(text).split():
        piece = fit(word, width, size)
        if lines and text_width(f"{lines[-1]} {piece}", size) <= width:
            lines[-1] += f" {piece}"
        else:
            lines.append(piece)
    return lines


def _keep(text: str, count: int) -> str:
    head = (count + 1) // 2
    return f"{text[:head]}..{text[len(text) - (count - head) :]}"
