"""Draws operations that move or reshape data. See ``drafts.Apply``."""

from __future__ import annotations

import math
from collections.abc import Mapping

from drafts import MAX_ELEMENTS, Apply, Draft, fresh, image
from sample_model import Value

MOST_AXES = 6


def _fresh(d: Draft, x: Value | None) -> Value:
    return fresh(d, d.dtype()) if x is None else x


def _permute_dims(d: Draft, x: Value | None) -> Value | None:
    x = image(d, d.dtype()) if x is None and d.chance(70) else _fresh(d, x)
    shape, dtype = d.type_of(x)
    axes = None if d.chance(20) else d.order(len(shape))
    out = shape[::-1] if axes is None else [shape[axis] for axis in axes]
    if axes is not None and d.chance(20):
        axes = tuple(axis - len(shape) for axis in axes)
    return d.step("permute_dims", (x,), out, dtype, axes=axes)


def _broadcast_to(d: Draft, x: Value | None) -> Value | None:
    x = _fresh(d, x)
    shape, dtype = d.type_of(x)
    wider = [d.integer(0 if d.chance(2) else 1, 4) if size == 1 else size for size in shape]
    out = (*([d.integer(1, 3)] if len(shape) < MOST_AXES and (1 not in shape or d.chance(50)) else []), *wider)
    return d.step("broadcast_to", (x,), out, dtype) if math.prod(out) <= MAX_ELEMENTS else None


def _strided_slice(d: Draft, x: Value | None) -> Value | None:
    """Some axes or all; positions counted from the end, or beyond it, as in Python."""
    x = _fresh(d, x)
    shape, dtype = d.type_of(x)
    if not shape:
        return None
    axes = sorted(d.order(len(shape))[: d.integer(1, len(shape))])
    out, begins, ends, strides = list(shape), [], [], []
    for axis in axes:
        size = shape[axis]
        first = d.integer(0, size if d.chance(3) else max(0, size - 1))
        stop = d.integer(min(first + 1, size), size) if d.chance(97) else first
        stride = d.integer(1, 4) if d.chance(40) else 1
        out[axis] = len(range(first, stop, stride))
        begins.append(first - size if first < size and d.chance(20) else first)
        beyond = size + 3 if stop == size else stop - size
        ends.append(beyond if d.chance(20) else stop)
        strides.append(stride)
    named = tuple(axis - len(shape) if d.chance(20) else axis for axis in axes)
    return d.step(
        "strided_slice", (x,), out, dtype, axes=named, begin=tuple(begins), end=tuple(ends), strides=tuple(strides)
    )


def _pad(d: Draft, x: Value | None) -> Value | None:
    x = _fresh(d, x)
    shape, dtype = d.type_of(x)
    widths = [d.integer(0, 4) if d.chance(50) else 0 for _ in range(2 * len(shape))]
    out = [size + sum(widths[2 * i : 2 * i + 2]) for i, size in enumerate(shape)]
    if not shape or math.prod(out) > MAX_ELEMENTS:
        return None
    value = float(d.choose((0, 0, 1, 7) if dtype.startswith("u") else (0, 0, 1, -2)))
    if dtype.startswith("float") and d.chance(30):
        value = d.choose((0.5, -2.75, 100.0))
    return d.step("pad", (x,), out, dtype, pad_width=tuple(widths), pad_value=value)


def _concat(d: Draft, x: Value | None) -> Value | None:
    """One to four tensors: leaves, what is there already, or the same one twice."""
    x = _fresh(d, x)
    shape, dtype = d.type_of(x)
    if not shape:
        return None
    axis = d.axis(len(shape))
    place = axis % len(shape)
    args = [x]
    for _ in range(d.integer(0, 3) if d.chance(30) else 1):
        there = [v for v in range(-len(d.leaves), len(d.steps)) if d.type_of(v)[1] == dtype]
        fitting = [v for v in there if _others(d.type_of(v)[0], place) == _others(shape, place)]
        size = 0 if d.chance(1) else d.size(20)
        args.append(d.choose(fitting) if d.chance(40) else d.leaf((*shape[:place], size, *shape[place + 1 :]), dtype))
    args = [args[i] for i in d.order(len(args))]
    out = (*shape[:place], sum(d.type_of(arg)[0][place] for arg in args), *shape[place + 1 :])
    return d.step("concat", args, out, dtype, axis=axis) if math.prod(out) <= MAX_ELEMENTS else None


def _others(shape: tuple[int, ...], axis: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes before and behind ``axis``; of another rank they are never those of this one."""
    return shape[:axis], shape[axis + 1 :] if len(shape) > axis else (-1,)


def _reshape(d: Draft, x: Value | None) -> Value | None:
    """Axes joined, split, put in and taken out: squeeze, expand_dims and flatten are that too."""
    x = _fresh(d, x)
    shape, dtype = d.type_of(x)
    if 0 in shape:  # in Relax a 0 of the new shape stands for the old size
        return None
    out = list(shape)
    for _ in range(d.integer(1, 3)):
        place = d.integer(0, len(out))
        if d.chance(30) and len(out) < MOST_AXES:
            out.insert(place, 1)
        elif d.chance(50) and place + 1 < len(out):
            out[place : place + 2] = [out[place] * out[place + 1]]
        elif place < len(out) < MOST_AXES:
            factor = d.choose([k for k in range(1, out[place] + 1) if out[place] % k == 0])
            out[place : place + 1] = [factor, out[place] // factor] if d.chance(50) else [out[place] // factor, factor]
    return d.step("reshape", (x,), out, dtype)


MOVEMENTS: Mapping[str, Apply] = {
    "permute_dims": _permute_dims,
    "broadcast_to": _broadcast_to,
    "strided_slice": _strided_slice,
    "pad": _pad,
    "concat": _concat,
    "reshape": _reshape,
}
