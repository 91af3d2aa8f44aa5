"""Models on which TVM's own build would end the process, or return memory it never wrote, are refused."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import IRModule, relax
from tvm.script import ir as I
from tvm.script import relax as R

import npu_kit
from npu_kit.byoc.guard import verify_depth, verify_host
from npu_kit.errors import UnsupportedError


@I.ir_module
class IfAndReshape:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
        if c:
            s = R.sin(x)
            y = R.negative(s)
        else:
            y = R.cos(x)
        z = R.reshape(y, (2, 2))
        return z


@I.ir_module
class IfAlone:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
        if c:
            s = R.sin(x)
            y = R.negative(s)
        else:
            y = R.cos(x)
        return y


def module(op, *types):
    builder = relax.BlockBuilder()
    parameters = [relax.Var(f"p{i}", relax.TensorType(*type_)) for i, type_ in enumerate(types)]
    with builder.function("main", parameters):
        with builder.dataflow():
            y = builder.emit_output(op(*parameters))
        builder.emit_func_output(y)
    return builder.get()


INT64 = ((4,), "int64")


@pytest.mark.parametrize(
    "op", [relax.op.divide, relax.op.floor_divide, relax.op.mod, relax.op.floor_mod], ids=lambda op: op.__name__
)
def test_an_integer_division_on_the_host_would_end_the_process(op):
    with pytest.raises(UnsupportedError, match=r"on the host: dividing int64 by 0, .* the divisor is not a constant"):
        npu_kit.compile(module(op, INT64, INT64))


@pytest.mark.parametrize(("divisor", "is_refused"), [(2, False), (-1, True)])
def test_a_constant_divisor_is_looked_at(divisor, is_refused):
    mod = module(lambda a: relax.op.floor_divide(a, relax.const(divisor, "int64")), INT64)
    if is_refused:
        with pytest.raises(UnsupportedError, match="the divisor is a constant that holds one"):
            npu_kit.compile(mod)
    else:
        assert npu_kit.compile(mod).run(np.array([-7, -1, 0, 7])).tolist() == [-4, -1, 0, 3]


def test_a_division_of_floats_is_fine():
    types = (((2,), "float64"), ((2,), "float64"))
    result = npu_kit.compile(module(relax.op.divide, *types)).run(np.array([1.0, 0.0]), np.array([4.0, 8.0]))
    assert result.tolist() == [0.25, 0.0]


def test_if_with_reshape():
    with pytest.raises(UnsupportedError, match="an If and a reshape"):
        npu_kit.compile(IfAndReshape)


def test_if_alone_runs():
    compiled = npu_kit.compile(IfAlone)
    x = np.arange(4, dtype="float32")
    np.testing.assert_allclose(compiled.run(np.array(True), x), -np.sin(x), atol=1e-6)
    np.testing.assert_allclose(compiled.run(np.array(False), x), np.cos(x), atol=1e-6)


def test_a_convolution_without_input_channels():
    mod = module(relax.op.nn.conv2d, ((1, 0, 4, 4), "float32"), ((2, 0, 3, 3), "float32"))
    with pytest.raises(UnsupportedError, match="0 input channels unwritten"):
        verify_host(mod)


@pytest.mark.parametrize("sizes", [{"pool_size": (0, 0)}, {"pool_size": (2, 2), "strides": (0, 0)}], ids=str)
def test_a_pool_without_window_or_stride(sizes):
    def pool(x):
        return relax.op.nn.max_pool2d(x, **sizes)

    x = relax.Var("x", relax.TensorType((1, 1, 4, 4), "float32"))
    binding = relax.VarBinding(relax.Var("y", relax.TensorType(ndim=4, dtype="float32")), pool(x))
    body = relax.SeqExpr([relax.BindingBlock([binding])], binding.var)
    function = relax.Function([x], body, relax.TensorType(ndim=4, dtype="float32"))
    with pytest.raises(UnsupportedError, match="a window or stride of 0"):
        verify_host(IRModule({"main": function}))


def test_a_deep_expression():
    def nested(depth):
        x = relax.Var("x", relax.TensorType((4,), "float32"))
        body = x
        for _ in range(depth):
            body = relax.op.nn.relu(body)
        return IRModule({"main": relax.Function([x], relax.SeqExpr([], body), x.ty)})

    verify_depth(nested(900))
    with pytest.raises(UnsupportedError, match="nested more than 1,000 deep"):
        verify_depth(nested(1_100))
