"""Models whose batch is a symbol: what the NPU refuses for that runs on the host, and is right for every batch."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

pytest.importorskip("tvm")

from drafts import Draft
from float64_reference import LLVM, evaluate
from hypothesis import given, settings
from hypothesis import strategies as st
from relax_models import ACTIVATIONS, OPERATIONS
from sample_model import Leaf, Model, Value

import npu_kit

BATCHES = (1, 4)


@st.composite
def batched_models(draw: st.DrawFn) -> Model:
    """Operations that leave the first axis alone and take no operand that has it."""
    d = Draft(draw)
    sizes = d.choose(([d.integer(1, 30)], [d.integer(1, 6), d.integer(1, 12), d.integer(1, 12)]))
    d.leaves.append(Leaf((BATCHES[0], *sizes), "float32"))
    value = _bias(d, ~0)  # the batch is 1 here, so one operation on the data keeps Relax from taking it for a constant
    for _ in range(d.integer(1, 3)):
        value = _step(d, value)
    return d.model([value])


def _step(d: Draft, x: Value) -> Value:
    shape, dtype = d.type_of(x)
    kind = d.choose(("activation", "bias", "softmax", "weights", "pool"))
    if kind == "weights" and len(shape) == 2:
        columns = d.integer(1, 30)
        return d.step("matmul", (x, d.leaf((shape[-1], columns), dtype)), (shape[0], columns), dtype)
    if kind in ("weights", "pool") and len(shape) == 4:
        value = OPERATIONS["conv2d" if kind == "weights" else "max_pool2d"](d, x)
        return _bias(d, x) if value is None else value
    if kind == "softmax":
        return d.step("softmax", (x,), shape, dtype, axis=-1)
    return _bias(d, x) if kind == "bias" else OPERATIONS[d.choose(ACTIVATIONS)](d, x)


def _bias(d: Draft, x: Value) -> Value:
    shape, dtype = d.type_of(x)
    return d.step("add", (x, d.leaf(shape[-1:], dtype)), shape, dtype)


@given(batched_models())
@settings(max_examples=12)
def test_a_symbolic_batch(model):
    compiled = npu_kit.compile(model.module(has_symbolic_batch=True))
    for call in compiled.partition.report.on_host:
        assert "sizes that are numbers" in call.reason, call
    for batch in BATCHES:
        fixed = with_batch(model, batch)
        (expected,) = evaluate(fixed, LLVM)
        found = compiled.run(*fixed.inputs)
        assert found.shape == (batch, *model.steps[-1].shape[1:])
        assert (np.abs(found - expected.value) <= expected.error).all()


def with_batch(model: Model, batch: int) -> Model:
    """The same model for a batch of another size."""
    leaves = (dataclasses.replace(model.leaves[0], shape=(batch, *model.leaves[0].shape[1:])), *model.leaves[1:])
    steps = tuple(dataclasses.replace(step, shape=(batch, *step.shape[1:])) for step in model.steps)
    return dataclasses.replace(model, leaves=leaves, steps=steps)
