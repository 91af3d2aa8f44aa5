"""Draws operations that work element by element, or along one axis. See ``drafts.Apply``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from drafts import FLOATS, INTEGERS, SMALL_INTEGERS, Apply, Draft, broadcast, fresh, image
from sample_model import Shape, Value


def _binary(op: str) -> Apply:
    def apply(d: Draft, x: Value | None) -> Value | None:
        x = fresh(d, d.dtype()) if x is None else x
        shape, dtype = d.type_of(x)
        other = d.leaf(_broadcastable(d, shape), dtype, "positive") if op == "divide" else _other(d, x)
        out = broadcast(shape, d.type_of(other)[0])
        if out is None:
            return None
        args = (x, other) if op == "divide" or d.chance(50) else (other, x)
        return d.step(op, args, out, dtype)

    return apply


def _other(d: Draft, x: Value) -> Value:
    """A second operand: a value that is there already, or a leaf that broadcasts."""
    shape, dtype = d.type_of(x)
    there = [v for v in range(-len(d.leaves), len(d.steps)) if d.type_of(v)[1] == dtype]
    fitting = [v for v in there if broadcast(shape, d.type_of(v)[0]) is not None]
    if d.chance(40):
        return int(d.choose(fitting))  # x itself is always among them
    return d.leaf(_broadcastable(d, shape), dtype)


def _broadcastable(d: Draft, shape: Shape) -> Shape:
    """A shape that broadcasts with ``shape``: fewer axes or more, ones in place of sizes and sizes in place of ones."""
    if d.chance(50):
        return shape
    cut = shape[d.integer(0, len(shape)) :]
    sizes = [1 if d.chance(40) else d.integer(1, 4) if size == 1 and d.chance(30) else size for size in cut]
    if len(sizes) == len(shape) < 6 and d.chance(10):
        sizes = [d.integer(1, 2), *sizes]
    return tuple(sizes)


def _unary(op: str, dtypes: Sequence[str]) -> Apply:
    def apply(d: Draft, x: Value | None) -> Value | None:
        x = fresh(d, d.dtype(dtypes)) if x is None else x
        shape, dtype = d.type_of(x)
        return d.step(op, (x,), shape, dtype) if dtype in dtypes else None

    return apply


def _clip(d: Draft, x: Value | None) -> Value | None:
    x = fresh(d, d.dtype()) if x is None else x
    shape, dtype = d.type_of(x)
    low = 0 if dtype.startswith("u") else d.choose((0, 0, -1, -3))
    high = low + d.choose((6, 6, 0, 1, 100))
    if dtype.startswith("float") and d.chance(30):
        low, high = low - 0.3, high + 0.7
    return d.step("clip", (x,), shape, dtype, min=low, max=high)


def _axis(d: Draft, rank: int) -> int:
    axis = d.integer(0, rank - 1)
    return axis - rank if d.chance(30) else axis


def _softmax(d: Draft, x: Value | None) -> Value | None:
    x = fresh(d, d.dtype(FLOATS)) if x is None else x
    shape, dtype = d.type_of(x)
    if not shape or 0 in shape or dtype not in FLOATS:
        return None
    return d.step("softmax", (x,), shape, dtype, axis=_axis(d, len(shape)))


def _batch_norm(d: Draft, x: Value | None) -> Value | None:
    x = (image if d.chance(60) else fresh)(d, d.dtype(FLOATS)) if x is None else x
    shape, dtype = d.type_of(x)
    if not shape or dtype not in FLOATS:
        return None
    axis = _axis(d, len(shape))
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
        epsilon=d.choose((1e-5, 1e-3, 0.1)),
        center=d.chance(70),
        scale=d.chance(70),
        item=item,
    )


def _affine(op: str, dtypes: Sequence[str], out_dtypes: Sequence[str]) -> Apply:
    def apply(d: Draft, x: Value | None) -> Value | None:
        x = fresh(d, d.dtype(dtypes)) if x is None else x
        shape, dtype = d.type_of(x)
        if dtype not in dtypes:
            return None
        out_dtype = d.choose(out_dtypes)
        axis = _axis(d, len(shape)) if shape else -1
        per_axis = (shape[axis],) if shape and d.chance(50) else ()
        quantized = out_dtype if op == "quantize" else dtype
        scale = d.leaf(per_axis, d.choose(("float32", "float32", "float16")), "scale")
        same = quantized if quantized in SMALL_INTEGERS else "int32"
        zero_point = d.leaf(per_axis, same if d.chance(80) else d.choose(INTEGERS), "zero_point")
        return d.step(op, (x, scale, zero_point), shape, out_dtype, axis=axis)

    return apply


ELEMENTWISE: Mapping[str, Apply] = {
    **{op: _binary(op) for op in ("add", "subtract", "multiply", "divide", "maximum", "minimum")},
    "relu": _unary("relu", (*FLOATS, *INTEGERS)),
    "clip": _clip,
    **{op: _unary(op, FLOATS) for op in ("sigmoid", "tanh", "gelu", "gelu_tanh")},
    "batch_norm": _batch_norm,
    "quantize": _affine("quantize", FLOATS, SMALL_INTEGERS),
    "dequantize": _affine("dequantize", INTEGERS, ("float32", "float32", "float16")),
    "softmax": _softmax,
}
