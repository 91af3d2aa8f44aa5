"""Hypothesis strategies for valid Relax models: every operation of the kit with every attribute, alone and combined.

``models()`` draws one operation on operands made for it, a chain, a graph in which values are used several times and
several are returned, or one of the blocks that networks are made of. Shapes and dtypes are worked out here, from the
definitions, and ``Model.module`` asserts that Relax infers the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from contraction_operations import CONTRACTIONS
from drafts import FLOATS, SMALL_INTEGERS, Apply, Draft, fresh, image
from elementwise_operations import ELEMENTWISE
from hypothesis import reject
from hypothesis import strategies as st
from sample_model import Model, Value

OPERATIONS: Mapping[str, Apply] = {**CONTRACTIONS, **ELEMENTWISE}
ACTIVATIONS = ("relu", "clip", "sigmoid", "tanh", "gelu", "gelu_tanh")


@st.composite
def single_operations(draw: st.DrawFn, op: str = "", dtype: str = "") -> Model:
    """One operation, ``op`` or any, on operands made for it, of dtype ``dtype`` or any that it takes."""
    d = Draft(draw, dtype)
    name = op or d.choose(sorted(OPERATIONS))
    for _ in range(4):
        value = OPERATIONS[name](d, None)
        if value is not None:
            return d.model([value])
        d.leaves.clear()
    reject()


@st.composite
def chains(draw: st.DrawFn) -> Model:
    """Two to six operations, each on the result of the one before."""
    d = Draft(draw)
    value = _apply_any(d, None)
    for _ in range(d.integer(1, 5)):
        value = _apply_any(d, value)
    return d.model([value])


def _on_host(d: Draft, x: Value) -> Value | None:
    """A sine, which no pattern names, so that what is around it falls into several regions; or a small step."""
    shape, dtype = d.type_of(x)
    op = d.choose(("sin", "sin", "negative", "abs", "permute_dims", "reshape"))
    if op == "sin":
        return d.step(op, (x,), shape, dtype) if dtype in FLOATS else None
    if op in ("negative", "abs"):
        return None if dtype.startswith("u") else d.step(op, (x,), shape, dtype)
    if not shape or 0 in shape:
        return None
    if op == "permute_dims":
        axes = tuple(d.draw(st.permutations(range(len(shape)))))
        return d.step(op, (x,), [shape[axis] for axis in axes], dtype, axes=axes)
    out = (math.prod(shape[:2]), *shape[2:]) if len(shape) > 1 and d.chance(50) else (*shape, 1)
    return d.step(op, (x,), out, dtype) if len(out) <= 6 else None


def _through_a_tuple(d: Draft, x: Value) -> Value:
    shape, dtype = d.type_of(x)
    other = d.integer(-len(d.leaves), len(d.steps) - 1)
    return d.step("tuple", (other, x), shape, dtype, item=1)


@st.composite
def graphs(draw: st.DrawFn) -> Model:
    """Values with several readers, diamonds, operations on the host between, tuples; one to four results."""
    d = Draft(draw)
    _apply_any(d, None)
    for _ in range(d.integer(2, 8)):
        x = d.integer(max(0, len(d.steps) - 3), len(d.steps) - 1)
        if d.chance(15):
            (_on_host if d.chance(70) else _through_a_tuple)(d, x)
        else:
            _apply_any(d, x)
    last = len(d.steps) - 1
    results = [last, *(d.integer(0, last) for _ in range(d.integer(0, 3)))]
    inputs = [~i for i, leaf in enumerate(d.leaves) if not leaf.is_const]
    if inputs and d.chance(10):
        results.append(inputs[0])
    return d.model(results)


def _apply_any(d: Draft, x: Value | None) -> Value:
    """Some operation on ``x``; relu fits every value."""
    for _ in range(4):
        leaves = len(d.leaves)
        value = OPERATIONS[d.choose(sorted(OPERATIONS))](d, x)
        if value is not None:
            return value
        del d.leaves[leaves:]
    x = fresh(d, "float32") if x is None else x
    return d.step("relu", (x,), *d.type_of(x))


@st.composite
def blocks(draw: st.DrawFn) -> Model:
    """A convolution or matmul with what networks put behind it: bias, batch norm, residual, activation, pool."""
    d = Draft(draw)
    anchor = d.choose(("conv2d", "conv2d", "conv1d", "matmul"))
    value = OPERATIONS[anchor](d, None)
    if value is None or d.type_of(value)[1] not in FLOATS:
        return d.model([_apply_any(d, value)])
    conv = value
    axis = str(d.steps[conv].attrs.get("data_layout", "")).find("C")  # -1 for a matmul: its last axis
    extra = []
    if d.chance(60):
        shape, dtype = d.type_of(value)
        bias = d.leaf([size if i == axis % len(shape) else 1 for i, size in enumerate(shape)] if shape else (), dtype)
        value = d.step("add", (value, bias) if d.chance(50) else (bias, value), shape, dtype)
    if d.chance(50) and (normed := OPERATIONS["batch_norm"](d, value)) is not None:
        value = normed
    if d.chance(40):
        shape, dtype = d.type_of(value)
        residual = conv if d.chance(20) else d.leaf(shape, dtype)
        if d.chance(30):  # a residual that waits for the block itself, by way of the host
            residual = d.step("abs", (residual,), shape, dtype)
        value = d.step("add", (value, residual) if d.chance(50) else (residual, value), shape, dtype)
    if d.chance(70):
        value = _fitting(d, d.choose(ACTIVATIONS), value)
    if d.chance(30):
        extra.append(d.integer(0, len(d.steps) - 1))  # something inside is a result too
    if d.chance(40) and (pooled := OPERATIONS[d.choose(("max_pool2d", "avg_pool2d"))](d, value)) is not None:
        value = pooled
    return d.model([value, *extra])


@st.composite
def quantized_blocks(draw: st.DrawFn) -> Model:
    """dequantize, an operation, maybe bias and activation, quantize: what an integer kernel computes in one go."""
    d = Draft(draw)
    anchor = d.choose(("conv2d", "matmul", "add", "multiply", "max_pool2d", "avg_pool2d"))
    x = (image if anchor in ("conv2d", "max_pool2d", "avg_pool2d") else fresh)(d, d.choose(SMALL_INTEGERS))
    value = OPERATIONS[anchor](d, _dequantized(d, x))
    if value is None:
        return d.model([_apply_any(d, x)])
    # The operands that the operation drew are floats: dequantized ones take their place, in front of it.
    step = d.steps.pop()
    others = [_dequantized_leaf(d, arg) if arg < 0 else arg for arg in step.args]
    value = d.step(step.op, others, step.shape, step.dtype, **step.attrs)
    if d.chance(50):
        value = _fitting(d, d.choose(("relu", "clip", "sigmoid")), value)
    return d.model([_fitting(d, "quantize", value), *([value] if d.chance(10) else [])])


def _fitting(d: Draft, op: str, x: Value) -> Value:
    value = OPERATIONS[op](d, x)
    assert value is not None, f"{op} fits every float"
    return value


def _dequantized(d: Draft, x: Value) -> Value:
    shape, dtype = d.type_of(x)
    args = (x, d.leaf((), "float32", "scale"), d.leaf((), dtype))
    return d.step("dequantize", args, shape, "float32", axis=-1)


def _dequantized_leaf(d: Draft, leaf: Value) -> Value:
    shape, _ = d.type_of(leaf)
    return _dequantized(d, d.leaf(shape, "int8"))


def models() -> st.SearchStrategy[Model]:
    """Any of the above."""
    return st.one_of(single_operations(), chains(), graphs(), blocks(), quantized_blocks())
