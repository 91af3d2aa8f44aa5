"""What users of other BYOC backends, and of delegates like them, have reported as wrong: here it is right.

One model for each report, with where it was made: apache/tvm and microsoft/onnxruntime are the repositories meant where
only a name is given. Each runs with constants bound and not, merged and not, twice on different inputs, and gives what
TVM's own LLVM build gives.
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import npu_kit
from npu_kit.errors import PartitionError, UnsupportedError

F = "float32"


@I.ir_module
class CallTir:
    """tvm#17120, tvm#16191: MergeCompositeFunctions ended the process where a call_tir stood in the module."""

    @T.prim_func(private=True, s_tir=True)
    def double(x: T.Buffer((4, 6), "float32"), y: T.Buffer((4, 6), "float32")):
        for i, j in T.grid(4, 6):
            with T.sblock("double"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = x[vi, vj] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4, 6), "float32")):
        cls = CallTir
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.call_tir(cls.double, (a,), out_ty=R.Tensor((4, 6), "float32"))
            c = R.nn.gelu(b)
            d = R.add(c, a)
            R.output(d)
        return d


@I.ir_module
class TupleArgument:
    """tvm#7565: a region that gets, and returns, a tuple."""

    @R.function
    def main(xy: R.Tuple(R.Tensor((4, 6), "float32"), R.Tensor((4, 6), "float32"))):
        with R.dataflow():
            x = xy[0]
            y = xy[1]
            a = R.add(x, y)
            b = R.multiply(x, y)
            pair = (b, a)
            R.output(pair)
        return pair


@I.ir_module
class ReadThreeTimes:
    """tvm#5320, mxnet#16108: a result that three others read came out of its region three times."""

    @R.function
    def main(x: R.Tensor((4, 6), "float32")):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.exp(a)
            c = R.sin(a)
            d = R.cos(a)
            result = (b, c, d)
            R.output(result)
        return result


@I.ir_module
class OutputTwice:
    """tvm#7581: an output that is marked several times, and an input that is an output."""

    @R.function
    def main(x: R.Tensor((4, 6), "float32"), y: R.Tensor((4, 6), "float32")):
        with R.dataflow():
            a = R.add(x, y)
            result = (a, x, a, y, x)
            R.output(result)
        return result


@I.ir_module
class SameInputTwice:
    """tvm#14097: of add(x, x) a function of one parameter is made."""

    @R.function
    def main(x: R.Tensor((6, 6), "float32")):
        with R.dataflow():
            a = R.add(x, x)
            b = R.matmul(a, a)
            c = R.matmul(b, x)
            d = R.subtract(c, R.matmul(c, c))
            R.output(d)
        return d


@I.ir_module
class SplitInside:
    """tvm#14525, tvm#19887: an operator that returns a tuple between two regions; items must keep their places."""

    @R.function
    def main(x: R.Tensor((4, 6), "float32")):
        with R.dataflow():
            a = R.nn.relu(x)
            parts = R.split(a, indices_or_sections=3, axis=1)
            first = parts[0]
            last = parts[2]
            b = R.subtract(last, first)
            c = R.tanh(b)
            result = (c, first)
            R.output(result)
        return result


@I.ir_module
class NearlyTheDiamond:
    """tvm#5552: a diamond with one more operator on one side was taken for the pattern without it."""

    @R.function
    def main(x: R.Tensor((4, 6), "float32"), y: R.Tensor((4, 6), "float32")):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.add(a, y)
            c = R.clip(b, 0, 6)
            d = R.multiply(a, c)
            R.output(d)
        return d


@I.ir_module
class SeveralOutputs:
    """tvm#9036: a region with two outputs, of which the host reads both."""

    @R.function
    def main(x: R.Tensor((4, 6), "float32"), w0: R.Tensor((4, 6), "float32"), w1: R.Tensor((4, 6), "float32")):
        with R.dataflow():
            z0 = R.add(x, w0)
            z1 = R.add(z0, w1)
            z2 = R.power(R.exp(z0), z1)
            R.output(z2)
        return z2


@I.ir_module
class ReadInsideAndReturned:
    """onnxruntime#26444: what is a result of the model and read in its region as well was no output of the region."""

    @R.function
    def main(x: R.Tensor((4, 6), "float32"), w: R.Tensor((6, 5), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            c = R.tanh(b)
            result = (a, c, b)
            R.output(result)
        return result


@I.ir_module
class UnreadOutputs:
    """onnxruntime#26132: outputs of an operator that nobody reads became outputs of the region."""

    @R.function
    def main(
        x: R.Tensor((2, 3, 4, 4), "float32"),
        gamma: R.Tensor((3,), "float32"),
        beta: R.Tensor((3,), "float32"),
        mean: R.Tensor((3,), "float32"),
    ):
        with R.dataflow():
            variance = R.add(R.multiply(mean, mean), R.const(1.0, "float32"))
            normal = R.nn.batch_norm(x, gamma, beta, mean, variance, axis=1, training=False)
            a = normal[0]
            kept = normal[2]
            b = R.nn.relu(a)
            result = (b, kept)
            R.output(result)
        return result


@I.ir_module
class ReadByABranchOnly:
    """onnxruntime#32131: a parameter that only a branch reads was dropped."""

    @R.function
    def main(x: R.Tensor((4, 6), "float32"), c: R.Tensor((), "bool"), w: R.Tensor((6, 5), "float32")):
        a = R.nn.relu(x)
        if c:
            b = R.matmul(a, w)
            y = R.tanh(b)
        else:
            d = R.matmul(x, R.multiply(w, R.const(2.0, "float32")))
            y = R.nn.relu(d)
        return y


@I.ir_module
class WideIntegers:
    """onnxruntime#1837: elementwise operators on integers were taken though the device has no such integers."""

    @R.function
    def main(x: R.Tensor((4, 6), "int64"), y: R.Tensor((4, 6), "int32")):
        with R.dataflow():
            a = R.add(x, x)
            b = R.multiply(y, y)
            c = R.astype(b, "int64")
            d = R.subtract(a, c)
            R.output(d)
        return d


@I.ir_module
class ReadByAnother:
    """tlc-pack/relax#366: conv2d -> relu must not swallow a conv2d that something else reads."""

    @R.function
    def main(x: R.Tensor((1, 3, 6, 6), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
        with R.dataflow():
            a = R.nn.conv2d(x, w)
            b = R.nn.relu(a)
            c = R.nn.gelu(a)
            d = R.add(b, c)
            R.output(d)
        return d


@I.ir_module
class WaitsForItself:
    """tvm#19887: two supported operators around an unsupported one must not become one region."""

    @R.function
    def main(x: R.Tensor((4, 6), "float32")):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.erf(a)
            c = R.add(a, b)
            d = R.erf(c)
            e = R.multiply(R.add(d, a), c)
            R.output(e)
        return e


@I.ir_module
class AsymmetricWindows:
    """tt-xla#928, caffe#4773, TorchSharp#496: (top, left, bottom, right), ceil mode, (1, 7) taps padded by (0, 3)."""

    @R.function
    def main(x: R.Tensor((1, 3, 9, 10), "float32"), w: R.Tensor((4, 3, 1, 7), "float32")):
        with R.dataflow():
            a = R.nn.conv2d(x, w, padding=(0, 3, 0, 3))
            b = R.nn.max_pool2d(a, pool_size=(3, 3), strides=(2, 2), padding=(1, 0, 2, 1), ceil_mode=True)
            c = R.nn.avg_pool2d(b, pool_size=(2, 3), strides=(2, 1), padding=(0, 2, 1, 0), ceil_mode=True)
            R.output(c)
        return c


@I.ir_module
class NestedItems:
    """tvm#20194: items of nested tuples broke the fusion of what is left on the host."""

    @R.function
    def main(x: R.Tensor((4, 6), "float32"), y: R.Tensor((4, 6), "float32")):
        with R.dataflow():
            a = R.add(x, y)
            nested = ((a, x), (y, R.sin(a)))
            inner = nested[1]
            b = inner[1]
            outer = nested[0]
            c = R.multiply(b, outer[0])
            R.output(c)
        return c


@I.ir_module
class NoDataflow:
    """tvm#16587: patterns look at dataflow blocks only, and a function without one stayed as it was."""

    @R.function
    def main(x: R.Tensor((4, 6), "float32"), w: R.Tensor((6, 5), "float32")):
        a = R.matmul(x, w)
        b = R.nn.relu(a)
        return b


@I.ir_module
class CalledTwice:
    """tvm#17606: one function of the model, called twice, gives two regions of one backend."""

    @R.function(private=True)
    def layer(x: R.Tensor((4, 6), "float32"), w: R.Tensor((6, 6), "float32")) -> R.Tensor((4, 6), "float32"):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            R.output(b)
        return b

    @R.function
    def main(x: R.Tensor((4, 6), "float32"), w: R.Tensor((6, 6), "float32"), v: R.Tensor((6, 6), "float32")):
        cls = CalledTwice
        with R.dataflow():
            a = cls.layer(x, w)
            b = R.sin(a)
            c = cls.layer(b, v)
            R.output(c)
        return c


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
    for options in ({}, {"bind_constants": True}, {"merge": "never"}, {"mode": "step"}):
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


@I.ir_module
class ShapeFromATensor:
    """tvm#17175: a shape that a tensor holds, between operators for the device."""

    @R.function
    def main(x: R.Tensor((4, 6), "float32"), sizes: R.Tensor((2,), "int64")):
        n, m = T.int64(), T.int64()
        a = R.nn.relu(x)
        shape = R.tensor_to_shape(sizes)
        _ = R.match_cast(shape, R.Shape((n, m)))
        b = R.reshape(a, R.shape([n, m]))
        c = R.tanh(b)
        return c


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


@I.ir_module
class NamesOfRegions:
    """tvm#15534: the names that fusing and merging give to their functions are taken by the model's own."""

    @R.function
    def fused_relax_nn_relu(x: R.Tensor((4, 6), "float32")):
        with R.dataflow():
            a = R.tanh(x)
            R.output(a)
        return a

    @R.function
    def fused_relax_nn_relu_example_npu(x: R.Tensor((4, 6), "float32")):
        with R.dataflow():
            a = R.sigmoid(x)
            R.output(a)
        return a

    @R.function
    def main(x: R.Tensor((4, 6), "float32")):
        cls = NamesOfRegions
        with R.dataflow():
            a = R.nn.relu(x)
            b = cls.fused_relax_nn_relu(a)
            c = cls.fused_relax_nn_relu_example_npu(b)
            R.output(c)
        return c


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
