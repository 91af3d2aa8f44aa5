"""Generated single operations against TVM's own NumPy references, ``tvm.topi.testing``, where it has one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")

from float64_reference import KIT, evaluate
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from relax_models import single_operations
from sample_model import Array, Model
from tvm.topi import testing

import npu_kit


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


@given(single_operations("conv2d", "float32"))
@settings(max_examples=12)
def test_conv2d(model):
    attrs = attributes(model)
    assume(set(attrs["dilation"]) == {1})
    layout = attrs["data_layout"]
    x = in_layout(model.arrays[0], layout, "NCHW")
    w = in_layout(model.arrays[1], attrs["kernel_layout"], "OIHW")
    wanted = testing.conv2d_nchw_python(x, w, attrs["strides"], attrs["padding"], attrs["groups"])
    assert_close(model, run(model), in_layout(wanted, "NCHW", layout))


@given(single_operations("conv1d", "float32"))
@settings(max_examples=8)
def test_conv1d(model):
    attrs = attributes(model)
    layout = attrs["data_layout"]
    x = in_layout(model.arrays[0], layout, "NCW")
    w = in_layout(model.arrays[1], attrs["kernel_layout"], "OIW")
    wanted = testing.group_conv1d_ncw_python(
        x, w, attrs["strides"][0], attrs["padding"], attrs["dilation"][0], attrs["groups"]
    )
    assert_close(model, run(model), in_layout(wanted, "NCW", layout))


@pytest.mark.parametrize("op", ["max_pool2d", "avg_pool2d"])
@given(data=st.data())
@settings(max_examples=10)
def test_pool(op, data):
    model = data.draw(single_operations(op, "float32"))
    attrs = attributes(model)
    assume(not attrs["ceil_mode"])  # topi's reference keeps a window that starts behind the data
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


@given(single_operations("softmax", "float32"))
@settings(max_examples=8)
def test_softmax(model):
    axis = attributes(model)["axis"]
    x = np.moveaxis(model.arrays[0], axis, -1)
    wanted = testing.softmax_python(x.reshape(-1, x.shape[-1])).reshape(x.shape)
    assert_close(model, run(model), np.moveaxis(wanted, -1, axis))


@given(single_operations("batch_norm", "float32"))
@settings(max_examples=8)
def test_batch_norm(model):
    attrs = attributes(model)
    item, axis = attrs.pop("item"), attrs.pop("axis") % len(model.leaves[0].shape)
    arrays = [model.arrays[~i] for i in model.steps[0].args]
    wanted = testing.batch_norm(*arrays, axis=axis, training=False, momentum=0.1, **attrs)
    assert_close(model, run(model), wanted[item])
