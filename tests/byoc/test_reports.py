"""What users of other BYOC backends, and of delegates like them, have reported as wrong: here it is right.

Most are models of ``reported_models``, which says where each was reported. They run with constants bound and not,
merged and not, twice on different inputs, and give what TVM's own LLVM build gives.
"""

from __future__ import annotations

import numpy as np
import pytest
from reported_models import (
    AsymmetricWindows,
    CalledTwice,
    CallTir,
    NamesOfRegions,
    NearlyTheDiamond,
    NestedItems,
    NoDataflow,
    OutputTwice,
    ReadByABranchOnly,
    ReadByAnother,
    ReadInsideAndReturned,
    ReadThreeTimes,
    SameInputTwice,
    SeveralOutputs,
    ShapeFromATensor,
    SplitInside,
    TupleArgument,
    UnreadOutputs,
    WaitsForItself,
    WideIntegers,
)
from tvm import relax

import npu_kit
from npu_kit.errors import PartitionError, UnsupportedError

F = "float32"

SHAPED = [
    *(CallTir, ReadThreeTimes, OutputTwice, SameInputTwice, SplitInside, NearlyTheDiamond, SeveralOutputs),
    *(ReadInsideAndReturned, UnreadOutputs, ReadByABranchOnly, ReadByAnother, WaitsForItself, AsymmetricWindows),
    *(NestedItems, NoDataflow, CalledTwice),
]


def inputs_of(mod, rng):
    arrays = []
    for parameter in mod["main"].params:
        shape, dtype = [int(size) for size in parameter.ty.shape.values], str(parameter.ty.dtype)
        is_float = dtype.startswith("float")
        arrays.append(np.asarray(rng.standard_normal(shape) if is_float else rng.integers(0, 2, shape)).astype(dtype))
    return arrays


def assert_same(found, wanted):
    if isinstance(wanted, tuple):
        assert isinstance(found, tuple) and len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_same(one, other)
    else:
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mod", SHAPED, ids=lambda mod: str(mod.__name__))
def test_a_report_is_right(mod, run_on_host, rng):
    first, second = inputs_of(mod, rng), inputs_of(mod, rng)
    wanted = [run_on_host(mod, *arrays) for arrays in (first, second)]
    for options in ({}, {"bind_constants": True, "merge": "never"}, {"mode": "step"}):
        model = npu_kit.compile(mod, **options)
        assert model.partition.report.on_npu
        for arrays, expected in zip((first, second), wanted, strict=True):
            assert_same(model.run(*arrays), expected)


def test_a_model_that_takes_a_tuple_is_refused():
    with pytest.raises(UnsupportedError, match="parameter xy of the model: it is tuple of 2"):
        npu_kit.compile(TupleArgument)


def test_integers_that_the_npu_lacks_stay_on_the_host(rng):
    x, y = rng.integers(-9, 9, (4, 6)), rng.integers(-9, 9, (4, 6)).astype("int32")
    model = npu_kit.compile(WideIntegers)
    assert {call.op: call.is_on_npu for call in model.partition.report} == {
        "relax.add": False,
        "relax.multiply": True,
        "relax.astype": False,
        "relax.subtract": False,
    }
    assert_same(model.run(x, y), x + x - (y * y).astype("int64"))


def scaled(first, second):
    """main(x) = sin(x * first) * second: two regions with a constant each, and the host between them."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4, 6), F))
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(relax.op.multiply(x, relax.const(first)))
            b = builder.emit(relax.op.sin(a))
            c = builder.emit_output(relax.op.multiply(b, relax.const(second)))
        builder.emit_func_output(c)
    return builder.get()


@pytest.mark.parametrize("bind_constants", [False, True])
def test_constants_of_equal_regions_and_of_equal_models_stay_apart(rng, bind_constants):
    """tvm#11394, tvm#5094, tvm#9721: constants of one shape took each other's place, or did not reach the codegen."""
    x, constants = rng.standard_normal((4, 6)).astype(F), rng.standard_normal((4, 4, 6)).astype(F)
    pairs = [(constants[0], constants[1]), (constants[2], constants[3])]
    models = [npu_kit.compile(scaled(*pair), bind_constants=bind_constants) for pair in pairs]
    for model, (first, second) in [*zip(models, pairs, strict=True)] * 2:
        np.testing.assert_allclose(model.run(x), np.sin(x * first) * second, rtol=1e-4, atol=1e-6)


def test_a_module_that_is_partitioned_is_not_partitioned_again():
    """tvm#16567: functions that a backend had taken were matched, and generated, a second time."""
    with pytest.raises(PartitionError, match="partitioned already"):
        npu_kit.partition(npu_kit.partition(SameInputTwice).module)


def test_a_shape_that_is_known_when_it_runs(rng):
    x = rng.standard_normal((4, 6)).astype(F)
    model = npu_kit.compile(ShapeFromATensor)
    assert [call.op for call in model.partition.report.on_npu] == ["relax.nn.relu"]
    for sizes in ((3, 8), (24, 1)):
        expected = np.tanh(np.maximum(x, 0)).reshape(sizes)
        np.testing.assert_allclose(model.run(x, np.array(sizes)), expected, atol=1e-6)


def doubled_gelu(dtype, has_barrier):
    """main(x) = gelu(x + x), with a concat and a split between the two where ``has_barrier``."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((8, 6), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit(relax.op.add(x, x))
            if has_barrier:
                whole = builder.emit(relax.op.concat([value, value], axis=0))
                value = builder.emit(relax.TupleGetItem(builder.emit(relax.op.split(whole, 2, axis=0)), 1))
            result = builder.emit_output(relax.op.nn.gelu(value))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize("dtype", ["float16", F])
def test_values_do_not_depend_on_what_stands_between(rng, dtype):
    """tvm#18897, tvm#18900: gelu and add of float16 differed once concat and split stood between them."""
    x = rng.standard_normal((8, 6)).astype(dtype)
    plain, with_barrier = (npu_kit.compile(doubled_gelu(dtype, has_barrier)).run(x) for has_barrier in (False, True))
    np.testing.assert_array_equal(plain, with_barrier)
    wide = npu_kit.compile(doubled_gelu(F, False)).run((x + x).astype(F) / 2)
    np.testing.assert_array_equal(plain, wide.astype(dtype))


def test_names_that_tvm_would_give_to_regions_are_taken(run_on_host, rng):
    x = rng.standard_normal((4, 6)).astype(F)
    assert_same(npu_kit.compile(NamesOfRegions).run(x), run_on_host(NamesOfRegions, x))


def test_a_model_without_a_call_and_one_of_constants_only(rng):
    """tvm#7581: regions without an operator, or without an input."""
    x = rng.standard_normal((4, 6)).astype(F)
    builder, v = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4, 6), F))
    with builder.function("main", [v]):
        builder.emit_func_output(v)
    model = npu_kit.compile(builder.get())
    assert_same(model.run(x), x)
    for bind_constants in (False, True):
        builder = relax.BlockBuilder()
        with builder.function("main", []):
            with builder.dataflow():
                total = builder.emit(relax.op.add(relax.const(x), relax.const(x)))
                result = builder.emit_output(relax.op.nn.relu(total))
            builder.emit_func_output(result)
        assert_same(npu_kit.compile(builder.get(), bind_constants=bind_constants).run(), np.maximum(x + x, 0))
