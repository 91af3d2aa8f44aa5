"""Round tick positions for an axis."""

from __future__ import annotations

import math


def ticks(start: int, stop: int, at_most: int = 10) -> list[int]:
    """Multiples of 1, 2 or 5 times a power of ten in ``[start, stop]``, at most ``at_most`` of them."""
    extent = max(1, stop - start)
    rough = max(1.0, extent / max(1, at_most - 1))
    power = 10 ** math.floor(math.log10(rough))
    step = int(next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough))
    first = -(-start // step) * step
    return list(range(first, stop + 1, step))
