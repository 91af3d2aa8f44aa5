"""What the generated models found, as small tests: one for each failure, after it was mended."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm")

from differential import Options, check
from sample_model import Leaf, Model, Step

MODES = [Options(), Options(mode="step")]


@pytest.mark.parametrize("options", MODES, ids=lambda options: options.mode)
@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize(
    ("x", "w", "out"),
    [
        ((0, 2, 4), (4, 5), (0, 2, 5)),
        ((2, 0, 2, 4), (4, 5), (2, 0, 2, 5)),
        ((2, 0, 2, 4), (1, 1, 4, 5), (2, 0, 2, 5)),
    ],
    ids=str,
)
def test_a_matmul_of_an_empty_batch(x, w, out, dtype, options):
    """It raised a bare ZeroDivisionError where the batch shares the weight."""
    out_dtype = dtype if dtype == "float32" else "int32"
    check(Model((Leaf(x, dtype), Leaf(w, dtype)), (Step("matmul", (~0, ~1), out, out_dtype),), (0,)), options)


@pytest.mark.parametrize("options", MODES, ids=lambda options: options.mode)
def test_a_convolution_of_an_empty_batch(options):
    attrs = {"strides": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
    layouts = {"data_layout": "NCHW", "kernel_layout": "OIHW"}
    step = Step("conv2d", (~0, ~1), (0, 4, 3, 3), "float32", attrs | layouts)
    check(Model((Leaf((0, 3, 5, 5), "float32"), Leaf((4, 3, 3, 3), "float32")), (step,), (0,)), options)


def test_products_of_int32_wrap():
    """float64 does not hold them, so the comparison itself was wrong."""
    leaves = (Leaf((48,), "int16"), Leaf((48,), "int16"))
    steps = (Step("matmul", (~0, ~1), (), "int32"), Step("multiply", (0, 0), (), "int32"))
    model = Model(leaves, steps, (1,), seed=1366122)
    check(model, Options())
    a, b = (array.astype(np.int64) for array in model.arrays)
    assert abs(int(a @ b) ** 2) > 2**53


@pytest.mark.parametrize("is_const", [False, True], ids=["parameters", "constants"])
@pytest.mark.parametrize("second", ["scale", "bias", "residual", "weight"])
def test_what_a_region_computes_is_read_anew_in_each_run(second, is_const):
    """The weight of a matmul was packed, and a bias repeated along its rows, in the first run for all later ones."""
    shapes = {"scale": (), "bias": (5,), "residual": (1, 5), "weight": (4, 5)}
    shape = shapes[second]
    second_leaf = Leaf(shape, "float32", is_const=is_const)
    leaves = (Leaf((1, 4), "float32"), Leaf((4, 5), "float32", is_const=True), second_leaf)
    steps = [Step("tanh", (~2,), shape, "float32")]
    if second == "weight":
        steps += [Step("relu", (~0,), (1, 4), "float32"), Step("matmul", (1, 0), (1, 5), "float32")]
    else:
        steps += [Step("matmul", (~0, ~1), (1, 5), "float32"), Step("add", (1, 0), (1, 5), "float32")]
    model = Model(leaves, tuple(steps), (2,))
    for bind_constants in (False, True):
        check(model, Options(bind_constants=bind_constants))


@pytest.mark.parametrize("options", MODES, ids=lambda options: options.mode)
@pytest.mark.parametrize("groups", [1, 4], ids=["dense", "depthwise"])
@pytest.mark.parametrize("padding", [(1, 5, 1, 0), (5, 0, 1, 1), (5, 5, 0, 0)], ids=str)
def test_windows_that_see_padding_alone(padding, groups, options):
    """A block of output columns whose windows see no data raised: an array of size 0 has no shape to be worked out."""
    attrs = {"strides": (2, 2), "padding": padding, "dilation": (1, 1), "groups": groups}
    layouts = {"data_layout": "NCHW", "kernel_layout": "OIHW"}
    top, left, bottom, right = padding
    size = [(1 + before + after - taps) // 2 + 1 for before, after, taps in ((top, bottom, 3), (left, right, 2))]
    leaves = (Leaf((1, 4, 1, 1), "float32"), Leaf((4, 4 // groups, 3, 2), "float32"))
    check(Model(leaves, (Step("conv2d", (~0, ~1), (1, 4, *size), "float32", attrs | layouts),), (0,)), options)


def test_a_copy_in_l2_does_not_reach_over_a_step_that_reads_the_original():
    """The first norm and the last read one vector more than once, the norm between them once, so from DRAM. The plan
    kept the first one's copy for the last, as if the one between had read it too, and the proof of plans refused it."""
    shape = (4, 2, 3, 4, 4, 2)
    vectors = [Leaf((2,), "float32", kind) for kind in ("any", "any", "positive", "any", "any", "positive", "any")]
    attrs = {"axis": 1, "epsilon": 1e-3, "center": True, "scale": True}
    steps = (
        Step("ceil", (~7,), shape, "float32"),
        Step("batch_norm", (0, ~0, ~1, ~1, ~2), shape, "float32", attrs | {"item": 0}),
        Step("batch_norm", (1, ~1, ~3, ~4, ~5), shape, "float32", attrs | {"item": 0}),
        Step("layer_norm", (2, ~1, ~6), shape, "float32", attrs | {"axis": -1}),
    )
    check(Model((*vectors, Leaf(shape, "float32")), steps, (3,)))
