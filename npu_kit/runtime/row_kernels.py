"""The passes of softmax and the norms: each works on one tile (M, K), or on a stack of tiles with the same bits.

Letters: M rows, K columns. Statistics are one float32 per row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.plan.geometry import Rows

Array = NDArray[Any]

STARTS = {"maximum": -np.inf, "sum": 0.0, "squares": 0.0}  # what a statistic is before the first tile


def gather(stage: str, statistics: Sequence[Array], x: Array, real: int, problem: Rows) -> None:
    """One tile of a pass before the last: add it to the pass's statistic.

    Args:
        stage: the name of the statistic.
        statistics: all of the problem, (M,) each, in order.
        x: the tile (M, K), in the tensor's dtype.
        real: columns of it that hold data.
        problem: what is computed.
    """
    own = statistics[problem.stages.index(stage)]
    with np.errstate(all="ignore"):
        wide = x.astype(np.float32)
        if stage == "maximum":
            np.maximum(own, wide.max(axis=-1), out=own)
        elif stage == "squares":
            centred = wide
            if problem.operation == "layer_norm":
                centred = wide - _mean(statistics, problem)[:, None]
                centred[:, real:] = 0  # a column without data is no distance from the mean
            own += (centred * centred).sum(axis=-1)
        elif problem.fill == 0:
            own += wide.sum(axis=-1)
        else:
            own += powers(wide, statistics[0]).sum(axis=-1)


def normalise(
    x: Array, statistics: Sequence[Array], parameters: Sequence[Array], problem: Rows, attrs: Mapping[str, Any]
) -> Array:
    """One tile of the last pass, in float32.

    Args:
        x: the tile (M, K), in the tensor's dtype.
        statistics: all of the problem, (M,) each.
        parameters: the parameters of a norm, (1, K) each, in their tensor's dtype.
        problem, attrs: what is computed.
    """
    with np.errstate(all="ignore"):
        wide = x.astype(np.float32)
        if problem.operation == "softmax":
            return np.asarray(powers(wide, statistics[0]) / statistics[1][:, None])
        if problem.operation == "log_softmax":
            # The logarithm of a run: NumPy computes it in another way where elements lie apart.
            return np.asarray((wide - statistics[0][:, None]) - np.log(np.ascontiguousarray(statistics[1]))[:, None])
        squares = statistics[-1] / np.float32(problem.extents["k"]) + np.float32(attrs["epsilon"])
        if problem.operation == "layer_norm":
            wide = wide - _mean(statistics, problem)[:, None]
        wide = wide / np.sqrt(squares)[:, None]
        gamma, *beta = (one.astype(np.float32) for one in parameters)
        if attrs.get("scale", True):
            wide = wide * gamma
        if attrs.get("center", True) and beta:
            wide = wide + beta[0]
        return np.asarray(wide)


def powers(x: Array, maximum: Array) -> Array:
    """``exp(x - maximum)`` of float32 x (M, K)."""
    return np.asarray(np.exp(x - maximum[:, None]))


def _mean(statistics: Sequence[Array], problem: Rows) -> Array:
    return np.asarray(statistics[0] / np.float32(problem.extents["k"]))
