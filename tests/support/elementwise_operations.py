"""Draws operations that work element by element. See ``drafts.Apply``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from drafts import DATA, FLOATS, INTEGERS, SMALL_INTEGERS, Apply, Draft, any_shape, broadcast, fresh, image
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


def _on_positive(op: str) -> Apply:
    """A function that has values above 0 only: mostly of what lies there, sometimes of anything."""

    def apply(d: Draft, x: Value | None) -> Value | None:
        x = _positive(d, x)
        return None if x is None else d.step(op, (x,), *d.type_of(x))

    return apply


def _positive(d: Draft, x: Value | None) -> Value | None:
    """Floats that are above 0 but for some cases: ``x``, made positive by two more operations, or a leaf."""
    if x is None:
        return d.leaf(any_shape(d), d.dtype(FLOATS), "any" if d.chance(10) else "positive", DATA)
    shape, dtype = d.type_of(x)
    if dtype not in FLOATS:
        return None
    if d.chance(10):
        return x
    least = d.leaf((), dtype, "positive")
    return d.step(d.choose(("maximum", "add")), (d.step("abs", (x,), shape, dtype), least), shape, dtype)


def _power(d: Draft, x: Value | None) -> Value | None:
    """Anything to the power of small whole numbers, what is positive to the power of anything."""
    is_whole = d.chance(40)
    x = fresh(d, d.dtype(FLOATS)) if is_whole and x is None else x if is_whole else _positive(d, x)
    if x is None or d.type_of(x)[1] not in FLOATS:
        return None
    shape, dtype = d.type_of(x)
    other = d.leaf(_broadcastable(d, shape), dtype, "exponent") if is_whole else _other(d, x)
    out = broadcast(shape, d.type_of(other)[0])
    return None if out is None else d.step("power", (x, other), out, dtype)


def _leaky_relu(d: Draft, x: Value | None) -> Value | None:
    x = fresh(d, d.dtype(FLOATS)) if x is None else x
    shape, dtype = d.type_of(x)
    alpha = {"alpha": d.choose((0.2, 0.5, 0.0, 1.75, -0.3))} if d.chance(80) else {"alpha": 0.01}
    return d.step("leaky_relu", (x,), shape, dtype, **alpha) if dtype in FLOATS else None


def _prelu(d: Draft, x: Value | None) -> Value | None:
    x = (image if d.chance(60) else fresh)(d, d.dtype(FLOATS)) if x is None else x
    shape, dtype = d.type_of(x)
    if not shape or dtype not in FLOATS:
        return None
    axis = d.axis(len(shape))
    return d.step("prelu", (x, d.leaf((shape[axis],), dtype)), shape, dtype, axis=axis)


def _clip(d: Draft, x: Value | None) -> Value | None:
    x = fresh(d, d.dtype()) if x is None else x
    shape, dtype = d.type_of(x)
    low = 0 if dtype.startswith("u") else d.choose((0, 0, -1, -3))
    high = low + d.choose((6, 6, 0, 1, 100))
    if dtype.startswith("float") and d.chance(30):
        low, high = low - 0.3, high + 0.7
    return d.step("clip", (x,), shape, dtype, min=low, max=high)


def _affine(op: str, dtypes: Sequence[str], out_dtypes: Sequence[str]) -> Apply:
    def apply(d: Draft, x: Value | None) -> Value | None:
        x = fresh(d, d.dtype(dtypes)) if x is None else x
        shape, dtype = d.type_of(x)
        if dtype not in dtypes:
            return None
        out_dtype = d.choose(out_dtypes)
        axis = d.axis(len(shape)) if shape else -1
        per_axis = (shape[axis],) if shape and d.chance(50) else ()
        quantized = out_dtype if op == "quantize" else dtype
        scale = d.leaf(per_axis, d.choose(("float32", "float32", "float16")), "scale")
        same = quantized if quantized in SMALL_INTEGERS else "int32"
        zero_point = d.leaf(per_axis, same if d.chance(80) else d.choose(INTEGERS), "zero_point")
        return d.step(op, (x, scale, zero_point), shape, out_dtype, axis=axis)

    return apply


SIGNED_TOO = (*FLOATS, *(dtype for dtype in INTEGERS if not dtype.startswith("u")))

ELEMENTWISE: Mapping[str, Apply] = {
    **{op: _binary(op) for op in ("add", "subtract", "multiply", "divide", "maximum", "minimum")},
    **{op: _unary(op, (*FLOATS, *INTEGERS)) for op in ("relu", "square")},
    **{op: _unary(op, SIGNED_TOO) for op in ("negative", "abs")},
    **{op: _unary(op, FLOATS) for op in ("sigmoid", "tanh", "gelu", "gelu_tanh", "silu", "erf", "exp")},
    **{op: _unary(op, FLOATS) for op in ("floor", "ceil", "round")},
    **{op: _on_positive(op) for op in ("log", "sqrt", "rsqrt")},
    "power": _power,
    "clip": _clip,
    "leaky_relu": _leaky_relu,
    "prelu": _prelu,
    "quantize": _affine("quantize", FLOATS, SMALL_INTEGERS),
    "dequantize": _affine("dequantize", INTEGERS, ("float32", "float32", "float16")),
}
