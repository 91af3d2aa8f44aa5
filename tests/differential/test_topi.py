"""Generated single operations against TVM's own NumPy references, ``tvm.topi.testing``, where it has one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")

from drafts import Draft
from float64_reference import KIT, evaluate
from relax_models import single_operation
from sample_model import Array, Model
from tvm.topi import testing

import npu_kit


def draw(op: str, count: int, is_known: Callable[[dict[str, Any]], bool] = lambda attrs: True) -> list[Model]:
    """So many float32 models of one operation, with attributes that topi's reference knows."""
    source = random.Random(op)
    found: list[Model] = []
    while len(found) < count:
        model = single_operation(Draft(source, "float32"), op)
        if is_known(attributes(model)) and all(model.type_of(value)[1] == "float32" for value in model.results):
            found.append(model)
    return found


def run(model: Model) -> Array:
    return npu_kit.compile(model.module()).run(*model.inputs)


def assert_close(model: Model, found: Array, wanted: Array) -> None:
    """Within twice the error that the dtypes explain: both sides round."""
    (approximate,) = evaluate(model, KIT)
    assert found.shape == wanted.shape
    assert (np.abs(found.astype(np.float64) - wanted) <= 2 * approximate.error).all()


def in_layout(array: Array, source: str, target: str) -> Array:
    return array.transpose([source.index(letter) for letter in target])


def attributes(model: Model) -> dict[str, Any]:
    (step,) = model.steps
    return dict(step.attrs)


@pytest.mark.parametrize("model", draw("conv2d", 12, lambda attrs: set(attrs["dilation"]) == {1}))
def test_conv2d(model):
    attrs = attributes(model)
    layout = attrs["data_layout"]
    x = in_layout(model.arrays[0], layout, "NCHW")
    w = in_layout(model.arrays[1], attrs["kernel_layout"], "OIHW")
    wanted = testing.conv2d_nchw_python(x, w, attrs["strides"], attrs["padding"], attrs["groups"])
    assert_close(model, run(model), in_layout(wanted, "NCHW", layout))


@pytest.mark.parametrize("model", draw("conv1d", 8))
def test_conv1d(model):
    attrs = attributes(model)
    layout = attrs["data_layout"]
    x = in_layout(model.arrays[0], layout, "NCW")
    w = in_layout(model.arrays[1], attrs["kernel_layout"], "OIW")
    wanted = testing.group_conv1d_ncw_python(
        x, w, attrs["strides"][0], attrs["padding"], attrs["dilation"][0], attrs["groups"]
    )
    assert_close(model, run(model), in_layout(wanted, "NCW", layout))


def has_no_ceil_mode(attrs: dict[str, Any]) -> bool:
    """topi's reference keeps a window that starts behind the data."""
    return not attrs["ceil_mode"]


POOLS = [*draw("max_pool2d", 8, has_no_ceil_mode), *draw("avg_pool2d", 8, has_no_ceil_mode)]


@pytest.mark.parametrize("model", POOLS)
def test_pool(model):
    attrs, op = attributes(model), model.steps[0].op
    layout = attrs["layout"]
    wanted = testing.poolnd_python(
        in_layout(model.arrays[0], layout, "NCHW"),
        attrs["pool_size"],
        attrs["strides"],
        attrs["dilation"],
        attrs["padding"][:2],
        attrs["padding"][2:],
        op[:3],
        attrs["count_include_pad"] and op == "avg_pool2d",  # for "max" the flag would pad with 0
    )
    assert_close(model, run(model), in_layout(wanted, "NCHW", layout))


@pytest.mark.parametrize("model", draw("softmax", 8))
def test_softmax(model):
    axis = attributes(model)["axis"]
    x = np.moveaxis(model.arrays[0], axis, -1)
    wanted = testing.softmax_python(x.reshape(-1, x.shape[-1])).reshape(x.shape)
    assert_close(model, run(model), np.moveaxis(wanted, -1, axis))


@pytest.mark.parametrize("model", draw("batch_norm", 8))
def test_batch_norm(model):
    attrs = attributes(model)
    item, axis = attrs.pop("item"), attrs.pop("axis") % len(model.leaves[0].shape)
    arrays = [model.arrays[~i] for i in model.steps[0].args]
    wanted = testing.batch_norm(*arrays, axis=axis, training=False, momentum=0.1, **attrs)
    assert_close(model, run(model), wanted[item])
