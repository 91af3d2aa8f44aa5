"""Draws operations along axes: softmax, norms, reductions. See ``drafts.Apply``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from drafts import FLOATS, INTEGERS, Apply, Draft, fresh, image
from sample_model import Value

EPSILONS = (1e-5, 1e-3, 0.1)


def _softmax(op: str) -> Apply:
    def apply(d: Draft, x: Value | None) -> Value | None:
        x = fresh(d, d.dtype(FLOATS)) if x is None else x
        shape, dtype = d.type_of(x)
        if not shape or 0 in shape or dtype not in FLOATS:
            return None
        return d.step(op, (x,), shape, dtype, axis=d.axis(len(shape)))

    return apply


def _norm(op: str, parameters: int) -> Apply:
    """layer_norm and rms_norm; Relax takes one axis as a number or as a list of one."""

    def apply(d: Draft, x: Value | None) -> Value | None:
        x = fresh(d, d.dtype(FLOATS)) if x is None else x
        shape, dtype = d.type_of(x)
        if not shape or 0 in shape or dtype not in FLOATS:
            return None
        axis = -1 if d.chance(50) else d.axis(len(shape))
        args = (x, *(d.leaf((shape[axis],), dtype) for _ in range(parameters)))
        attrs: dict[str, Any] = {"axis": axis, "epsilon": d.choose(EPSILONS)}
        if parameters > 1:
            attrs |= {"center": d.chance(85), "scale": d.chance(85)}
        return d.step(op, args, shape, dtype, **attrs)

    return apply


def _reduction(op: str, dtypes: Sequence[str]) -> Apply:
    def apply(d: Draft, x: Value | None) -> Value | None:
        x = (image if d.chance(40) else fresh)(d, d.dtype(dtypes)) if x is None else x
        shape, dtype = d.type_of(x)
        if 0 in shape or dtype not in dtypes:
            return None
        rank = len(shape)
        axis: int | tuple[int, ...] | None = None
        if rank and d.chance(80):
            some = d.order(rank)[: d.integer(1, rank)]
            axis = d.axis(rank) if d.chance(40) else tuple(one - rank if d.chance(30) else one for one in some)
        named = range(rank) if axis is None else [axis] if isinstance(axis, int) else axis
        gone, keepdims = {one % rank for one in named}, d.chance(50)
        out = [1 if i in gone else size for i, size in enumerate(shape) if keepdims or i not in gone]
        return d.step(op, (x,), out, dtype, axis=axis, keepdims=keepdims)

    return apply


def _batch_norm(d: Draft, x: Value | None) -> Value | None:
    x = (image if d.chance(60) else fresh)(d, d.dtype(FLOATS)) if x is None else x
    shape, dtype = d.type_of(x)
    if not shape or dtype not in FLOATS:
        return None
    axis = d.axis(len(shape))
    size = (shape[axis],)
    parameters = [d.leaf(size, dtype) for _ in range(3)]
    args = (x, *parameters, d.leaf(size, dtype, "positive"))
    item = d.choose((1, 2)) if d.chance(5) else 0  # results 1 and 2 are the running mean and variance, as they came
    return d.step(
        "batch_norm",
        args,
        size if item else shape,
        dtype,
        axis=axis,
        epsilon=d.choose(EPSILONS),
        center=d.chance(70),
        scale=d.chance(70),
        item=item,
    )


ALONG_AXES: Mapping[str, Apply] = {
    "softmax": _softmax("softmax"),
    "log_softmax": _softmax("log_softmax"),
    "batch_norm": _batch_norm,
    "layer_norm": _norm("layer_norm", 2),
    "rms_norm": _norm("rms_norm", 1),
    **{op: _reduction(op, (*FLOATS, *INTEGERS)) for op in ("sum", "max", "min")},
    "mean": _reduction("mean", FLOATS),
}
