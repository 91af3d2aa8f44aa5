"""A systolic array simulated cycle by cycle: elements enter at its edges and move one cell a cycle.

Independent of the kit's formulas: it knows how cells are wired, counts what enters and what leaves, and its product is
the check that the wiring is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass
class Counts:
    """Elements of x and w that entered, sums that left, and the product that they make."""

    product: Array
    x: int = 0
    w: int = 0
    sums: int = 0


def simulate(x: Array, w: Array, rows: int, columns: int, dataflow: str) -> Counts:
    """Multiply ``x`` (M, K) by ``w`` (K, N) on a ``rows x columns`` array."""
    if dataflow == "input_stationary":  # the inputs stay: the transposed product, with weights and inputs exchanged
        other = simulate(w.T, x.T, rows, columns, "weight_stationary")
        return Counts(other.product.T, other.w, other.x, other.sums)
    counts = Counts(np.zeros((x.shape[0], w.shape[1])))
    if dataflow == "output_stationary":
        for i in range(0, x.shape[0], rows):
            for j in range(0, w.shape[1], columns):
                here = slice(i, i + rows), slice(j, j + columns)
                counts.product[here] = _outputs_stay(counts, x[here[0]], w[:, here[1]])
    else:
        for c in range(0, x.shape[1], rows):
            for j in range(0, w.shape[1], columns):
                depth, here = slice(c, c + rows), slice(j, j + columns)
                counts.product[:, here] += _weights_stay(counts, x[:, depth], w[depth, here])
    return counts


def _outputs_stay(counts: Counts, x: Array, w: Array) -> Array:
    """Each cell adds up one output; x moves right, w moves down."""
    (m, k), n = x.shape, w.shape[1]
    sums, right, down = np.zeros((m, n)), np.zeros((m, n)), np.zeros((m, n))
    for cycle in range(k + m + n - 2):
        right[:, 1:], down[1:] = right[:, :-1].copy(), down[:-1].copy()
        right[:, 0], down[0] = 0, 0
        for i in range(m):  # row i is i cycles behind row 0
            if 0 <= cycle - i < k:
                right[i, 0] = x[i, cycle - i]
                counts.x += 1
        for j in range(n):
            if 0 <= cycle - j < k:
                down[0, j] = w[cycle - j, j]
                counts.w += 1
        sums += right * down
    counts.sums += sums.size
    return sums


def _weights_stay(counts: Counts, x: Array, w: Array) -> Array:
    """Each cell holds one weight; x moves right, sums move down and leave at the bottom."""
    (m, k), n = x.shape, w.shape[1]
    counts.w += w.size
    right, down, out = np.zeros((k, n)), np.zeros((k, n)), np.zeros((m, n))
    for cycle in range(m + k + n - 2):
        right[:, 1:] = right[:, :-1].copy()
        right[:, 0] = 0
        for c in range(k):
            if 0 <= cycle - c < m:
                right[c, 0] = x[cycle - c, c]
                counts.x += 1
        above = np.vstack([np.zeros((1, n)), down[:-1]])
        down = above + right * w
        for j in range(n):
            if 0 <= cycle - (k - 1) - j < m:
                out[cycle - (k - 1) - j, j] = down[-1, j]
                counts.sums += 1
    return out
