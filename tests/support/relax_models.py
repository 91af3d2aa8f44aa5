"""Draws valid Relax models: every operation of the kit with every attribute, alone and combined.

A new operation of the kit is one entry of OPERATIONS, which draws it, and one of ``float64_reference.RULES``, which
says what it computes. Shapes and dtypes are worked out here, from the definitions, and ``Model.module`` asserts that
Relax infers the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from axis_operations import ALONG_AXES
from contraction_operations import CONTRACTIONS
from drafts import FLOATS, SMALL_INTEGERS, Apply, Draft, fresh, image, sequence
from elementwise_operations import ELEMENTWISE
from movement_operations import MOVEMENTS
from sample_model import Leaf, Model, Value

OPERATIONS: Mapping[str, Apply] = {**CONTRACTIONS, **ELEMENTWISE, **ALONG_AXES, **MOVEMENTS}
ACTIVATIONS = (
    *("relu", "clip", "sigmoid", "tanh", "gelu", "gelu_tanh", "silu", "leaky_relu"),
    *("exp", "erf", "negative", "abs", "square", "round"),
)


def single_operation(d: Draft, op: str = "") -> Model:
    """One operation, ``op`` or any, on operands made for it, which are not all constants: those are folded."""
    name = op or d.choose(sorted(OPERATIONS))
    if name == "reshape":
        return _between_relus(d, name)
    while (value := OPERATIONS[name](d, None)) is None or all(leaf.is_const for leaf in d.leaves):
        d.leaves.clear()
        d.steps.clear()
    return d.model([value])


def _between_relus(d: Draft, op: str) -> Model:
    """What the NPU takes only between operations of its own."""
    relu = OPERATIONS["relu"]
    while (value := OPERATIONS[op](d, relu(d, None))) is None:
        d.leaves.clear()
        d.steps.clear()
    return d.model([relu(d, value)])


def chain(d: Draft) -> Model:
    """Two to six operations, each on the result of the one before."""
    value = _apply_any(d, None)
    for _ in range(d.integer(1, 5)):
        value = _apply_any(d, value)
    return d.model([value])


def graph(d: Draft) -> Model:
    """Values with several readers, diamonds, operations on the host between, tuples; one to four results."""
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


def _on_host(d: Draft, x: Value) -> Value | None:
    """What no pattern of the kit names: the operations around it fall into several regions."""
    shape, dtype = d.type_of(x)
    if dtype == "float32" and d.chance(30):
        return d.step("sin", (x,), shape, dtype)
    return d.step("flip", (x,), shape, dtype, axis=d.axis(len(shape))) if shape and 0 not in shape else None


def _through_a_tuple(d: Draft, x: Value) -> Value:
    shape, dtype = d.type_of(x)
    other = d.integer(-len(d.leaves), len(d.steps) - 1)
    return d.step("tuple", (other, x), shape, dtype, item=1)


def _apply_any(d: Draft, x: Value | None) -> Value:
    """Some operation on ``x``; relu fits every value."""
    for _ in range(4):
        leaves, steps = len(d.leaves), len(d.steps)
        value = OPERATIONS[d.choose(sorted(OPERATIONS))](d, x)
        if value is not None:
            return value
        del d.leaves[leaves:], d.steps[steps:]
    x = fresh(d, "float32") if x is None else x
    return d.step("relu", (x,), *d.type_of(x))


def block(d: Draft) -> Model:
    """A convolution or matmul with what networks put behind it: bias, batch norm, residual, activation, pool."""
    anchor = d.choose(("conv2d", "conv2d", "conv1d", "conv2d_transpose", "matmul"))
    value = OPERATIONS[anchor](d, None)
    if value is None or d.type_of(value)[1] not in FLOATS:
        return d.model([_apply_any(d, value)])
    conv = value
    is_matmul = anchor == "matmul"
    axis = -1 if is_matmul else str(d.steps[conv].attrs.get("data_layout", "NCHW")).index("C")
    extra = []
    if d.chance(60):
        shape, dtype = d.type_of(value)
        bias = d.leaf([size if i == axis % len(shape) else 1 for i, size in enumerate(shape)] if shape else (), dtype)
        value = d.step("add", (value, bias) if d.chance(50) else (bias, value), shape, dtype)
    if d.chance(50) and (normed := OPERATIONS["batch_norm"](d, value)) is not None:
        value = normed
    if d.chance(40):
        shape, dtype = d.type_of(value)
        is_own = d.chance(20) and d.type_of(conv) == (shape, dtype)  # not behind an item of batch norm
        residual = conv if is_own else d.leaf(shape, dtype)
        if d.chance(30):  # a residual that waits for the block itself, by way of the host
            residual = _on_host(d, residual) or residual
        value = d.step("add", (value, residual) if d.chance(50) else (residual, value), shape, dtype)
    if d.chance(70):
        value = _fitting(d, d.choose(ACTIVATIONS), value)
    if d.chance(30):
        extra.append(d.integer(0, len(d.steps) - 1))  # something inside is a result too
    behind = d.choose(("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "mean", "max", "concat", "permute_dims"))
    if d.chance(40) and (pooled := OPERATIONS[behind](d, value)) is not None:
        value = pooled
    return d.model([value, *extra])


def quantized_block(d: Draft) -> Model:
    """dequantize, an operation, maybe bias and activation, quantize: what an integer kernel computes in one go."""
    anchor = d.choose(("conv2d", "conv1d", "matmul", "add", "multiply", "max_pool2d", "avg_pool2d"))
    operand = {"conv1d": sequence, "conv2d": image, "max_pool2d": image, "avg_pool2d": image}.get(anchor, fresh)
    x = operand(d, d.choose(SMALL_INTEGERS))
    value = OPERATIONS[anchor](d, _dequantized(d, x))
    if value is None:
        return d.model([_apply_any(d, x)])
    # The operands that the operation drew are floats: dequantized ones take their place, in front of it.
    step = d.steps.pop()
    others = [_dequantized_leaf(d, arg) if arg < 0 else arg for arg in step.args]
    value = d.step(step.op, others, step.shape, step.dtype, **step.attrs)
    if d.chance(50):
        value = _fitting(d, d.choose(("relu", "clip", "sigmoid", "silu", "leaky_relu")), value)
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


def batched_model(d: Draft) -> Model:
    """Operations that leave the first axis alone and take no operand that has it: the batch may be a symbol."""
    sizes = d.choose(([d.size(30)], [d.size(6), d.size(12), d.size(12)]))
    d.leaves.append(Leaf((1, *sizes), "float32", "batch"))
    value = _bias(d, ~0)  # the batch is 1 here, so one operation on the data keeps Relax from taking it for a constant
    for _ in range(d.integer(1, 3)):
        value = _batched_step(d, value)
    return d.model([value])


def _batched_step(d: Draft, x: Value) -> Value:
    shape, dtype = d.type_of(x)
    kind = d.choose(("activation", "bias", "rows", "norm", "reduction", "weights", "pool"))
    if kind == "weights" and len(shape) == 2:
        columns = d.size(30)
        return d.step("matmul", (x, d.leaf((shape[-1], columns), dtype)), (shape[0], columns), dtype)
    if kind in ("weights", "pool") and len(shape) == 4:
        value = OPERATIONS["conv2d" if kind == "weights" else d.choose(("max_pool2d", "avg_pool2d"))](d, x)
        return _bias(d, x) if value is None else value
    if kind == "rows":
        return d.step(d.choose(("softmax", "log_softmax")), (x,), shape, dtype, axis=-1)
    if kind == "norm":
        parameters = [d.leaf(shape[-1:], dtype) for _ in range(2)]
        return d.step("layer_norm", (x, *parameters), shape, dtype, axis=-1, epsilon=1e-3, center=True, scale=True)
    if kind == "reduction":
        out = (*shape[:-1], 1)
        return d.step(d.choose(("sum", "mean", "max", "min")), (x,), out, dtype, axis=-1, keepdims=True)
    return _bias(d, x) if kind == "bias" else _fitting(d, d.choose(ACTIVATIONS), x)


def _bias(d: Draft, x: Value) -> Value:
    shape, dtype = d.type_of(x)
    return d.step("add", (x, d.leaf(shape[-1:], dtype)), shape, dtype)


KINDS: Mapping[Callable[[Draft], Model], int] = {  # with how many of 100 models are of the kind
    single_operation: 35,
    chain: 15,
    graph: 20,
    block: 20,
    quantized_block: 10,
}


def draw_model(source: random.Random) -> Model:
    """A model of any kind, for fixed shapes."""
    (kind,) = source.choices(list(KINDS), list(KINDS.values()))
    return kind(Draft(source))
