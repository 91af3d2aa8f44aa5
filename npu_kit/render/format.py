"""Numbers and names as short text: bytes, cycles, counts, shares.

Text is ASCII, so that it has the same width in every renderer. Bytes are binary: 1 KB is 1,024 bytes, as in the
capacities of the hardware description.
"""

from __future__ import annotations

import unicodedata

_BYTE_UNITS = ("B", "KB", "MB", "GB", "TB")
_UNDRAWABLE = ("Cc", "Cs", "Co", "Cn")  # control, surrogate, private use, unassigned: XML refuses some, fonts the rest
_DIRECTION = set(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)  # would reorder what follows


def format_bytes(count: int) -> str:
    """``512 B``, ``4 KB``, ``3.3 KB``, ``1 GB``: at most one decimal."""
    value, place = float(count), 0
    while abs(value) >= 1024 * 0.99995 and place < len(_BYTE_UNITS) - 1:  # "1024.0 KB" would be 1 MB
        value, place = value / 1024, place + 1
    return f"{f'{value:.1f}'.removesuffix('.0')} {_BYTE_UNITS[place]}"


def format_count(count: int) -> str:
    """Every digit, grouped: ``1,234,567``."""
    return f"{count:,}"


def format_rate(value: float) -> str:
    """``0.034``, ``7.5``, ``1,024``: three digits, and every digit before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def format_cycles(count: int) -> str:
    """``1 cycle``, ``12,345 cycles``."""
    return number_of(count, "cycle")


def number_of(count: int, noun: str) -> str:
    """``1 tile``, ``3 tiles``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_share(part: float, whole: float) -> str:
    """``part / whole`` in percent: ``0 %``, ``<1 %``, ``43 %``, ``>99 %``; ``-`` when ``whole`` is 0."""
    if not whole:
        return "-"
    percent = 100 * part / whole
    if 0 < percent < 1:
        return "<1 %"
    if 99 < percent < 100:
        return ">99 %"
    return f"{percent:.0f} %"


def format_value(value: object) -> str:
    """An attribute value as Python writes it, floats at most six digits: ``(1, 1)``, ``0.1``, ``"NCHW"``."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, (tuple, list)):
        inner = ", ".join(format_value(item) for item in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return str(value)


def clean(text: str) -> str:
    """``text`` on one line, without characters that cannot be drawn or that reorder their neighbours."""
    spaced = "".join(" " if char in "\t\n\v\f\r\x85\u2028\u2029" else char for char in text)
    return "".join(char for char in spaced if unicodedata.category(char) not in _UNDRAWABLE and char not in _DIRECTION)


def shorten(text: str, limit: int) -> str:
    """``text`` cleaned, and cut in the middle to ``limit`` characters: the end of a name tells more than its middle."""
    cleaned = clean(text)
    if len(cleaned) <= limit:
        return cleaned
    head = (limit - 3 + 1) // 2
    tail = limit - 3 - head
    return f"{cleaned[:head]}...{cleaned[len(cleaned) - tail :]}"
