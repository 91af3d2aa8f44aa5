"""Models that users of other BYOC backends, and of delegates like them, have reported as going wrong.

Each says where: apache/tvm and microsoft/onnxruntime are the repositories meant by tvm# and onnxruntime#.
"""

from __future__ import annotations

from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T


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
