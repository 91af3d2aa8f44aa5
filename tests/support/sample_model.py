"""A Relax model as plain data: leaves, steps, results. Readable when a test fails, and buildable as often as wanted."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.ir import IRModule

from npu_kit.graph.ops import OPS

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
Value = int  # step i of a model is i, leaf i is ~i

SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 6.0, 100.0)


@dataclass(frozen=True)
class Leaf:
    """A parameter or a constant of a model."""

    shape: Shape
    dtype: str
    # "any", "batch" (its first axis may be a symbol), "positive" (a divisor), "exponent", "scale", "zero_point"
    kind: str = "any"
    is_const: bool = False
    number: int | None = None  # what its values are drawn from, besides the model's seed; None for its place


@dataclass(frozen=True)
class Step:
    """One binding."""

    op: str  # a name of OPS, or one of HOST_OPS, or "tuple"
    args: tuple[Value, ...]
    shape: Shape
    dtype: str
    attrs: Mapping[str, Any] = field(default_factory=dict)  # Relax's own; "item" is taken of what returns a tuple


@dataclass(frozen=True)
class Model:
    """A model, as drawn or written down in a test."""

    leaves: tuple[Leaf, ...]
    steps: tuple[Step, ...]
    results: tuple[Value, ...]  # one: the model returns it; several: a tuple
    seed: int = 0
    run: int = 0  # inputs differ from run to run, constants do not

    def type_of(self, value: Value) -> tuple[Shape, str]:
        """Shape and dtype of a value."""
        holder = self.leaves[~value] if value < 0 else self.steps[value]
        return holder.shape, holder.dtype

    @property
    def ops(self) -> tuple[str, ...]:
        return tuple(step.op for step in self.steps)

    @functools.cached_property
    def arrays(self) -> tuple[Array, ...]:
        """One seeded array per leaf, which does not depend on the other leaves."""
        seeds = [
            (self.seed, i if leaf.number is None else leaf.number, 0 if leaf.is_const else self.run)
            for i, leaf in enumerate(self.leaves)
        ]
        return tuple(_array(leaf, np.random.default_rng(seed)) for leaf, seed in zip(self.leaves, seeds, strict=True))

    @property
    def inputs(self) -> list[Array]:
        """What the built model is run with: the arrays of the leaves that are not constants."""
        return [array for leaf, array in zip(self.leaves, self.arrays, strict=True) if not leaf.is_const]

    def module(self, *, has_symbolic_batch: bool = False) -> IRModule:
        """The model in Relax; AssertionError where Relax infers another type than the model says.

        With ``has_symbolic_batch`` the first axis of leaf 0, and so that of every step, has the extent ``n``.
        """
        builder = relax.BlockBuilder()
        known = slice(1 if has_symbolic_batch else 0, None)
        values: dict[Value, Any] = {}
        for number, (leaf, array) in enumerate(zip(self.leaves, self.arrays, strict=True)):
            is_batched = has_symbolic_batch and number == 0
            type_ = relax.TensorType(
                (tirx.Var("n", "int64"), *leaf.shape[1:]) if is_batched else leaf.shape, leaf.dtype
            )
            values[~number] = relax.const(array, leaf.dtype) if leaf.is_const else relax.Var(f"leaf{number}", type_)
        parameters = [values[~i] for i, leaf in enumerate(self.leaves) if not leaf.is_const]
        with builder.function("main", parameters):
            with builder.dataflow():
                for number, step in enumerate(self.steps):
                    value = builder.emit(_expression(step, [values[i] for i in step.args]))
                    if "item" in step.attrs:
                        value = builder.emit(relax.TupleGetItem(value, step.attrs["item"]))
                    assert [int(size) for size in value.ty.shape.values[known]] == list(step.shape[known]), (
                        step,
                        value.ty,
                    )
                    assert str(value.ty.dtype) == step.dtype, (step, value.ty)
                    values[number] = value
                results = [values[i] for i in self.results]
                whole = builder.emit_output(results[0] if len(results) == 1 else relax.Tuple(results))
            builder.emit_func_output(whole)
        return builder.get()


def _array(leaf: Leaf, rng: np.random.Generator) -> Array:
    array: Array
    if leaf.kind == "scale":
        array = rng.uniform(0.01, 0.3, leaf.shape)
    elif leaf.kind == "exponent":
        array = rng.choice([-1, 0, 1, 2, 2, 3], leaf.shape)
    elif leaf.dtype.startswith("float"):
        array = rng.standard_normal(leaf.shape) * rng.choice([0.3, 1, 3])
        array = np.where(rng.random(leaf.shape) < 0.05, rng.choice(SPECIAL, leaf.shape), array)
        array = np.abs(array) + 0.25 if leaf.kind == "positive" else array
    elif leaf.kind == "zero_point":
        array = rng.integers(0, 100, leaf.shape)
    else:
        limits = np.iinfo(leaf.dtype)
        # All of the small dtypes; of int32 what products of a few hundred terms leave room for.
        low, high = (limits.min, limits.max) if limits.bits < 32 else (-1000, 1000)
        array = rng.integers(1 if leaf.kind == "positive" else low, high, leaf.shape, endpoint=True)
    return np.asarray(array).astype(leaf.dtype)


# Operations that no pattern of the kit names: what they stand between falls into several regions.
HOST_OPS: Mapping[str, Callable[..., Any]] = {"sin": relax.op.sin, "flip": relax.op.flip}
_WITH_OUT_DTYPE = ("matmul", "conv1d", "conv2d", "conv2d_transpose", "quantize", "dequantize")
_WITH_SHAPE = ("reshape", "broadcast_to")  # Relax takes it as an argument


def _expression(step: Step, args: list[Any]) -> Any:
    attrs = {key: value for key, value in step.attrs.items() if key != "item"}
    if step.op == "tuple":
        return relax.Tuple(args)
    if step.op in HOST_OPS:
        return HOST_OPS[step.op](*args, **attrs)
    if step.op in _WITH_OUT_DTYPE:
        attrs.setdefault("out_dtype", step.dtype)
    if step.op in _WITH_SHAPE:
        args = [*args, step.shape]
    if step.op == "batch_norm":
        attrs["training"] = False
    if step.op == "clip":
        args = [*args, attrs.pop("min"), attrs.pop("max")]
    if step.op == "concat":
        args = [relax.Tuple(args)]
    definition = OPS[step.op]
    function = functools.reduce(getattr, definition.relax_name.split(".")[1:], relax.op)
    return function(*args, **{definition.renamed.get(key, key): value for key, value in attrs.items()})
