"""Arguments that make no sense, and models and machines beyond every measure: refused, or computed within bounds."""

from __future__ import annotations

import resource
import subprocess
import sys
import warnings

import numpy as np
import pytest
from small_models import module_of, on_npu
from tvm import relax

import npu_kit
from npu_kit.byoc.explain import NarrowSumWarning
from npu_kit.errors import ExecutionError, PartitionError, SpecError

op = relax.op
X = np.arange(64, dtype="float32").reshape(8, 8) - 32


def relu(x):
    return op.nn.relu(x)


@pytest.mark.parametrize("tile", [np.int64(8), [8, 16], (np.int32(8), np.int8(16))])
def test_a_tile_is_of_whole_numbers_of_any_kind(tile):
    np.testing.assert_array_equal(on_npu(relu, X, tile=tile), np.maximum(X, 0))


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"tile": (8, 8, 8)}, SpecError, "it must be one whole number, or two"),
        ({"tile": 8.0}, SpecError, "a tile of 8.0: it must be one whole number"),
        ({"tile": "8"}, SpecError, "it must be one whole number"),
        ({"tile": True}, SpecError, "it must be one whole number"),
        ({"bind_constants": None}, PartitionError, "bind_constants=None: it is True or False"),
        ({"merge": "maybe"}, PartitionError, "merge='maybe': it is one of 'safe', 'always', 'never'"),
        ({"mode": "quick"}, ExecutionError, "no mode 'quick': there are fast and step"),
        ({"power_mode": "turbo"}, SpecError, "no power mode 'turbo'.*low_power"),
        ({"mode": "\n" * 10_000}, ExecutionError, "no mode"),
        ({"merge": ["safe"]}, PartitionError, "merge="),
    ],
)
def test_an_argument_that_makes_no_sense_is_named(options, error, told):
    with pytest.raises(error, match=told) as caught:
        npu_kit.compile(module_of(relu, X), **options)
    assert len(str(caught.value)) < 300


def test_a_private_main_is_the_model():
    x = relax.Var("x", relax.TensorType(X.shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x], private=True):
        builder.emit_func_output(builder.emit(op.nn.relu(x)))
    mod = builder.get()
    assert mod["main"].attrs is None or "global_symbol" not in mod["main"].attrs
    np.testing.assert_array_equal(npu_kit.compile(mod).run(X), np.maximum(X, 0))
    assert mod["main"].attrs is None or "global_symbol" not in mod["main"].attrs


def test_a_merged_region_that_does_not_fit_dram_becomes_two():
    """Each product alone reads a weight of 4 MB, and the machine has 6."""
    spec = npu_kit.load_spec().replace(capacity_bytes={"L3": 6 << 20})
    random = np.random.default_rng(0)
    x, v, w = (random.standard_normal(shape, "float32") for shape in ((8, 1024), (1024, 1024), (1024, 1024)))

    def model(x, v, w):
        return op.matmul(op.matmul(x, v), w)

    compiled = npu_kit.compile(module_of(model, x, v, w), spec)
    assert len(compiled.plans) == 2
    assert "does not fit L3 DRAM" in compiled.partition.merge_reason
    np.testing.assert_allclose(compiled.run(x, v, w), x @ v @ w, rtol=1e-3, atol=0.05)
    with pytest.raises(PartitionError, match="does not fit L3 DRAM"):
        npu_kit.compile(module_of(model, x, v, w), spec, merge="always")


@pytest.mark.parametrize("mode", ["fast", "step"])
def test_a_petabyte_of_l1_takes_no_memory(mode):
    spec = npu_kit.load_spec().replace(capacity_bytes={"L1": 10**15, "L2": 10**15, "L3": 10**15})
    np.testing.assert_allclose(on_npu(op.matmul, X, X, spec=spec, mode=mode), X @ X, rtol=1e-5)


def test_a_window_that_reaches_far_takes_the_memory_of_the_machine():
    """Padded, these 8x8 pixels would take 800 MB; the values need four of the windows' taps."""
    x = X.reshape(1, 1, 8, 8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = on_npu(lambda x: op.nn.max_pool2d(x, (2, 2), dilation=(14_000, 14_000), padding=(7_000,) * 4), x)
    assert (found == np.finfo("float32").min).all()
    found = on_npu(lambda x: op.nn.max_pool2d(x, (2, 2), dilation=(14_000, 14_000), padding=(14_000, 14_000, 0, 0)), x)
    np.testing.assert_array_equal(found, x)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 300e6


def test_a_window_of_a_billion_taps_stays_on_the_host():
    x = np.ones((1, 1, 8, 8), "float32")
    mod = module_of(lambda x: op.nn.max_pool2d(x, (30_000, 30_000), padding=(15_000,) * 4), x)
    (call,) = npu_kit.partition(mod).report.on_host
    assert "a window of 900,000,000 taps: the kit computes windows of at most 65,536" in call.reason


DEEP = """
import sys
import tvm, npu_kit
from tvm import relax
x = relax.Var("x", relax.TensorType((4,), "float32"))
condition = relax.Var("c", relax.TensorType((), "bool"))
value = relax.op.nn.relu(x)
for _ in range(int(sys.argv[1])):
    value = relax.If(condition, relax.SeqExpr([], value), relax.SeqExpr([], relax.op.nn.relu(x)))
type_ = relax.TensorType((4,), "float32")
function = relax.Function([x, condition], relax.SeqExpr([], value), ret_ty=type_)
mod = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
try:
    print(npu_kit.partition(mod).report.counts["npu"], flush=True)
except npu_kit.errors.UnsupportedError as error:
    print(error, flush=True)
import os
os._exit(0)  # without freeing what is nested too deep
"""


@pytest.mark.parametrize(
    ("depth", "told"), [(60, "61"), (4000, "an If in main: it is nested 4,000 deep"), (101, "nested 101 deep")]
)
def test_branches_nested_too_deep_are_refused_before_tvm_walks_them(depth, told):
    done = subprocess.run([sys.executable, "-c", DEEP, str(depth)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-500:]
    assert told in done.stdout


def test_small_integers_whose_sums_wrap_are_warned_of_once():
    a, b = np.full((2, 64), 100, "int8"), np.full((64, 2), 100, "int8")
    with pytest.warns(
        NarrowSumWarning, match=r"relax.matmul \w+ keeps sums .* in int8, .*int32.*So do 1 more"
    ) as caught:
        found = npu_kit.compile(module_of(lambda a, b: op.matmul(op.matmul(a, b), a), a, b)).run(a, b)
    assert len([one for one in caught if one.category is NarrowSumWarning]) == 1
    np.testing.assert_array_equal(found, (a @ b) @ a)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NarrowSumWarning)
        found = on_npu(lambda a, b: op.matmul(a, b, out_dtype="int32"), a, b)
    assert (found == 640_000).all()
