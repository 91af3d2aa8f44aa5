"""Colours must be readable, stay apart for colour-blind readers, and never stand alone."""

from __future__ import annotations

from itertools import combinations

import pytest

from npu_kit.hw.spec import ENGINE_NAMES, TIER_NAMES
from npu_kit.render import theme
from npu_kit.render.theme import Swatch

OTHERS = (theme.NPU, theme.HOST, theme.DATA, theme.CONSTANT, theme.VIEW)
SWATCHES = [*theme.ENGINES.values(), *theme.TIERS.values(), *OTHERS]

# Linear RGB seen by a dichromat: H. Brettel's projection as simplified by F. Vienot et al., 1999.
SIGHT = {
    "full": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanope": ((0.1124, 0.8876, 0.0), (0.1124, 0.8876, 0.0), (0.004, -0.004, 1.0)),
    "deuteranope": ((0.2929, 0.7071, 0.0), (0.2929, 0.7071, 0.0), (-0.0223, 0.0223, 1.0)),
}


def linear(color: str) -> tuple[float, ...]:
    """Linear RGB of ``#rrggbb`` (sRGB transfer function, IEC 61966-2-1)."""
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return tuple(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)


def luminance(color: str) -> float:
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear(color), strict=True))


def contrast(one: str, other: str) -> float:
    """Contrast ratio of WCAG 2.1."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("swatch", SWATCHES, ids=lambda swatch: swatch.name)
def test_text_is_readable_on_every_fill(swatch: Swatch) -> None:
    assert contrast(swatch.ink, swatch.fill) >= 4.5
    assert contrast(theme.TEXT, swatch.pale) >= 7
    assert contrast(theme.ATTENTION_INK, swatch.pale) >= 4.5


def test_other_text_is_readable() -> None:
    for ink in (theme.TEXT, theme.MUTED, theme.ATTENTION_INK):
        assert contrast(ink, theme.GROUND) >= 4.5
        assert contrast(ink, theme.FREE) >= 4.5


def test_every_engine_and_tier_has_its_own_colour_and_label() -> None:
    assert set(theme.ENGINES) == set(ENGINE_NAMES)
    assert set(theme.TIERS) == set(TIER_NAMES)
    assert len({swatch.fill for swatch in SWATCHES}) >= len(SWATCHES) - 1  # the NPU has the matrix engine's blue
    assert len({swatch.label for swatch in SWATCHES}) == len(SWATCHES)
    assert all(swatch.label for swatch in SWATCHES)


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("family", [theme.ENGINES, theme.TIERS], ids=["engines", "tiers"])
def test_colours_of_a_family_stay_apart(sight: str, family: dict[str, Swatch]) -> None:
    def seen(color: str) -> list[float]:
        return [
            max(0.0, sum(w * c for w, c in zip(row, linear(color), strict=True))) ** (1 / 2.2) for row in SIGHT[sight]
        ]

    for one, other in combinations(family.values(), 2):
        distance = sum((a - b) ** 2 for a, b in zip(seen(one.fill), seen(other.fill), strict=True)) ** 0.5
        assert distance > 0.1, (one.name, other.name)


def test_tiers_get_darker_with_distance() -> None:
    lightness = [luminance(theme.TIERS[name].fill) for name in TIER_NAMES]
    assert lightness == sorted(lightness, reverse=True)


def test_an_unknown_engine_or_tier_is_drawn_as_such() -> None:
    assert theme.engine_swatch("quantum") == theme.UNKNOWN
    assert theme.tier_swatch("L9") == theme.UNKNOWN
    assert theme.engine_swatch("conv") is theme.ENGINES["conv"]
