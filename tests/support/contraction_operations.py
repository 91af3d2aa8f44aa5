"""Draws operations that look at windows or sum products. See ``drafts.Apply``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from drafts import FLOATS, INTEGERS, MAX_ELEMENTS, Apply, Draft, broadcast, image, sequence
from sample_model import Shape, Value

MAX_MACS = 4_000_000


def _matmul(d: Draft, x: Value | None) -> Value | None:
    x = d.leaf(_matrix(d), d.dtype()) if x is None else x
    shape, dtype = d.type_of(x)
    if not shape:
        return None
    batch = [size if d.chance(50) else 1 for size in shape[:-2]] if d.chance(50) else []
    if d.chance(10) and len(shape) <= 3:
        batch = [d.integer(1, 3), *([1] * len(shape[:-2]))]
    batches = broadcast(shape[:-2], tuple(batch))
    free = () if d.chance(15) and not batch else (0 if d.chance(2) else d.size(70),)
    is_left = len(shape) == 1 or d.chance(75)
    depth = shape[-1] if is_left else shape[-2]
    other_shape = (*batch, depth, *free) if is_left else (*batch, *free, depth)
    rows, columns = (shape[-2:-1], free) if is_left else (free, shape[-1:])
    if batches is None or math.prod(out := (*batches, *rows, *columns)) > min(MAX_ELEMENTS, MAX_MACS // max(1, depth)):
        return None
    other_dtype, out_dtype = _product_dtypes(d, dtype)
    other = d.leaf(other_shape, other_dtype)
    return d.step("matmul", (x, other) if is_left else (other, x), out, out_dtype)


def _matrix(d: Draft) -> Shape:
    """1-D to 4-D; sometimes with nothing to sum, or with several chunks of it."""
    rank = d.choose((1, 2, 2, 2, 3, 4))
    depth = d.size(70) if d.chance(80) else d.choose((0, 300, 600))
    rows = 0 if d.chance(2) else d.size(70)
    return (*(d.integer(1, 3) for _ in range(rank - 2)), *([rows] * (rank > 1)), depth)


def _product_dtypes(d: Draft, dtype: str) -> tuple[str, str]:
    """Dtypes of the other operand and of the result: integers may differ, and mostly give int32."""
    if dtype in FLOATS:
        return dtype, d.choose(FLOATS) if d.chance(10) else dtype
    other = dtype if d.chance(60) else d.choose(INTEGERS)
    return other, dtype if other == dtype and d.chance(20) else "int32"


def _divisors(number: int) -> list[int]:
    return [1, *(k for k in range(1, number + 1) if number % k == 0), number]


def _window(d: Draft, size: int, most_padding: int) -> tuple[int, int, int, int, int]:
    """Taps, dilation, padding on both sides and stride along one axis of ``size`` elements; a window always fits.

    Padding is at most the taps and ``most_padding``: -1 where a window must never see padding alone.
    """
    taps = d.size(6)
    before, after = (d.integer(0, max(0, taps + most_padding)) if d.chance(50) else 0 for _ in range(2))
    dilation = d.integer(1, 3) if d.chance(30) else 1
    while dilation > 1 and dilation * (taps - 1) + 1 > size + before + after:
        dilation -= 1
    if taps > size + before + after:
        return size, 1, 0, 0, d.integer(1, 3)
    return taps, dilation, before, after, d.integer(1, 4 if d.chance(20) else 2)


def _count(size: int, window: tuple[int, int, int, int, int], ceil_mode: bool = False) -> int:
    taps, dilation, before, after, stride = window
    room = size + before + after - (dilation * (taps - 1) + 1)
    count = (math.ceil(room / stride) if ceil_mode else room // stride) + 1
    is_behind = ceil_mode and (count - 1) * stride >= size + before  # a window that starts behind the data is dropped
    return count - is_behind


def _convolution(letters: str) -> Apply:
    """conv1d for "W", conv2d for "HW"."""
    axes = len(letters)
    data_layouts = (f"NC{letters}", f"N{letters}C")
    kernel_layouts = (f"OI{letters}", f"{letters}IO", f"O{letters}I", *(("HWOI",) if axes == 2 else ()))

    def apply(d: Draft, x: Value | None) -> Value | None:
        if x is None:
            x = (image if axes == 2 else sequence)(d, d.dtype())
        shape, dtype = d.type_of(x)
        if len(shape) != axes + 2 or 0 in shape[1:]:
            return None
        layout, kernel_layout = d.choose(data_layouts), d.choose(kernel_layouts)
        size = dict(zip(layout, shape, strict=True))
        groups = d.choose(_divisors(size["C"])) if d.chance(50) else 1
        filters = groups * (d.size(max(1, 24 // groups)) if d.chance(80) else 1)
        windows = {letter: _window(d, size[letter], 1 if d.chance(10) else -1) for letter in letters}
        kernel = {"O": filters, "I": size["C"] // groups, **{letter: w[0] for letter, w in windows.items()}}
        out = {"N": size["N"], "C": filters, **{letter: _count(size[letter], w) for letter, w in windows.items()}}
        if math.prod(out.values()) * math.prod(kernel.values()) > MAX_MACS * filters:
            return None
        weight_dtype, out_dtype = _product_dtypes(d, dtype)
        weight = d.leaf([kernel[letter] for letter in kernel_layout], weight_dtype)
        return d.step(
            f"conv{axes}d",
            (x, weight),
            [out[letter] for letter in layout],
            out_dtype,
            strides=tuple(w[4] for w in windows.values()),
            padding=(*(w[2] for w in windows.values()), *(w[3] for w in windows.values())),
            dilation=tuple(w[1] for w in windows.values()),
            groups=groups,
            data_layout=layout,
            kernel_layout=kernel_layout,
        )

    return apply


def _transposed(d: Draft, x: Value | None) -> Value | None:
    """conv2d_transpose, NCHW and IOHW; padding takes away from the result, and may be more than the window."""
    x = image(d, d.dtype()) if x is None else x
    shape, dtype = d.type_of(x)
    if len(shape) != 4 or 0 in shape[1:]:
        return None
    groups = d.choose(_divisors(shape[1])) if d.chance(50) else 1
    per_group = d.size(max(1, 24 // groups))
    axes = [_spread(d, size) for size in shape[2:]]
    out = (shape[0], per_group * groups, *(axis[-1] for axis in axes))
    taps = [axis[0] for axis in axes]
    if math.prod(out) > MAX_ELEMENTS or math.prod(out) * math.prod(taps) * shape[1] // groups > MAX_MACS:
        return None
    weight_dtype, out_dtype = _product_dtypes(d, dtype)
    weight = d.leaf((shape[1], per_group, *taps), weight_dtype)
    return d.step(
        "conv2d_transpose",
        (x, weight),
        out,
        out_dtype,
        strides=tuple(axis[1] for axis in axes),
        padding=(*(axis[2] for axis in axes), *(axis[3] for axis in axes)),
        output_padding=tuple(axis[4] for axis in axes),
        dilation=tuple(axis[5] for axis in axes),
        groups=groups,
    )


def _spread(d: Draft, size: int) -> tuple[int, int, int, int, int, int, int]:
    """Taps, stride, padding on both sides, output padding, dilation of a transposed axis, and the size it gets."""
    taps, stride = d.size(5), d.integer(1, 3)
    dilation = d.integer(1, 3) if d.chance(10) else 1
    extra = d.integer(0, stride - 1) if d.chance(30) else 0
    whole = (size - 1) * stride + dilation * (taps - 1) + 1 + extra
    before = d.integer(0, min(taps, whole - 1)) if d.chance(50) else 0
    after = d.integer(0, min(taps, whole - 1 - before)) if d.chance(50) else 0
    return taps, stride, before, after, extra, dilation, whole - before - after


def _adaptive_pool(d: Draft, x: Value | None) -> Value | None:
    """The size of the result divides that of the data; Relax takes one number for both axes, and none for the same."""
    x = image(d, d.dtype(FLOATS)) if x is None else x
    shape, dtype = d.type_of(x)
    if len(shape) != 4 or 0 in shape or dtype not in FLOATS:
        return None
    layout = d.choose(("NCHW", "NHWC"))
    size = dict(zip(layout, shape, strict=True))
    output: int | tuple[int, ...] | None = tuple(d.choose(_divisors(size[letter])) for letter in "HW")
    if d.chance(20):
        output = d.choose(_divisors(math.gcd(size["H"], size["W"]))) if d.chance(70) else None
    counts = (size["H"], size["W"]) if output is None else (output, output) if isinstance(output, int) else output
    out = size | dict(zip("HW", counts, strict=True))
    attrs = {"output_size": output, "layout": layout}
    return d.step("adaptive_avg_pool2d", (x,), [out[letter] for letter in layout], dtype, **attrs)


def _pool(op: str, dtypes: Sequence[str]) -> Apply:
    def apply(d: Draft, x: Value | None) -> Value | None:
        x = image(d, d.dtype(dtypes)) if x is None else x
        shape, dtype = d.type_of(x)
        if len(shape) != 4 or 0 in shape or dtype not in dtypes:
            return None
        layout, ceil_mode = d.choose(("NCHW", "NHWC")), d.chance(50)
        size = dict(zip(layout, shape, strict=True))
        windows = {letter: _window(d, size[letter], -1) for letter in "HW"}
        out = size | {letter: _count(size[letter], w, ceil_mode) for letter, w in windows.items()}
        return d.step(
            op,
            (x,),
            [out[letter] for letter in layout],
            dtype,
            pool_size=tuple(w[0] for w in windows.values()),
            strides=tuple(w[4] for w in windows.values()),
            padding=(*(w[2] for w in windows.values()), *(w[3] for w in windows.values())),
            dilation=tuple(w[1] for w in windows.values()),
            ceil_mode=ceil_mode,
            count_include_pad=d.chance(50),
            layout=layout,
        )

    return apply


CONTRACTIONS: Mapping[str, Apply] = {
    "matmul": _matmul,
    "conv1d": _convolution("W"),
    "conv2d": _convolution("HW"),
    "conv2d_transpose": _transposed,
    "max_pool2d": _pool("max_pool2d", (*FLOATS, *INTEGERS)),
    "avg_pool2d": _pool("avg_pool2d", FLOATS),
    "adaptive_avg_pool2d": _adaptive_pool,
}
