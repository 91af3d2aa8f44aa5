"""Models on which TVM's own build would end the process, or return memory it never wrote, are refused."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import IRModule, ir, relax
from tvm.script import ir as I
from tvm.script import relax as R

import npu_kit
from npu_kit.byoc.model.guard import verify_depth, verify_host
from npu_kit.byoc.run.host import build_for_host
from npu_kit.errors import PartitionError, UnsupportedError


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


@I.ir_module
class BranchesThatReshape:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((2, 6), "float32")):
        r = R.nn.relu(x)
        if c:
            a = R.reshape(r, (3, 4))
            b = R.exp(a)
            y = R.add(b, b)
        else:
            d = R.reshape(x, (3, 4))
            e = R.tanh(d)
            y = R.multiply(e, e)
        flat = R.reshape(y, (12,))
        z = R.reshape(flat, (3, 4))
        return z


BRANCHES = {
    IfAndReshape: {True: lambda x: -np.sin(x).reshape(2, 2), False: lambda x: np.cos(x).reshape(2, 2)},
    BranchesThatReshape: {
        True: lambda x: 2 * np.exp(np.maximum(x, 0)).reshape(3, 4),
        False: lambda x: np.tanh(x).reshape(3, 4) ** 2,
    },
}


def module(op, *types):
    builder = relax.BlockBuilder()
    parameters = [relax.Var(f"p{i}", relax.TensorType(*type_)) for i, type_ in enumerate(types)]
    with builder.function("main", parameters):
        with builder.dataflow():
            y = builder.emit_output(op(*parameters))
        builder.emit_func_output(y)
    return builder.get()


@I.ir_module
class Countdown:
    @R.function
    def countdown(x: R.Tensor((2, 4), "float32"), n: R.Tensor((), "int32")) -> R.Tensor((2, 4), "float32"):
        cls = Countdown
        c = R.greater(n, R.const(0, "int32"))
        if c:
            y = R.multiply(x, x)
            m = R.subtract(n, R.const(1, "int32"))
            z = cls.countdown(y, m)
        else:
            z = R.negative(x)
        return z

    @R.function
    def main(x: R.Tensor((2, 4), "float32"), n: R.Tensor((), "int32")) -> R.Tensor((2, 4), "float32"):
        cls = Countdown
        z = cls.countdown(x, n)
        return z


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


@pytest.mark.parametrize("model", [IfAndReshape, BranchesThatReshape], ids=["after", "inside"])
def test_an_if_with_reshapes_runs(model):
    """TVM's default pipeline plans both branches into one memory: the process ends there."""
    compiled, host = npu_kit.compile(model), build_for_host(model)
    shape = [int(extent) for extent in model["main"].params[1].ty.shape.values]
    x = np.linspace(-1, 1, int(np.prod(shape)), dtype="float32").reshape(shape)
    for branch in (True, False):
        wanted = BRANCHES[model][branch](x)
        for _ in range(5):
            np.testing.assert_allclose(compiled.run(np.array(branch), x), wanted, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(host.run(np.array(branch), x), wanted, rtol=1e-5, atol=1e-6)


def test_if_alone_runs():
    compiled = npu_kit.compile(IfAlone)
    x = np.arange(4, dtype="float32")
    np.testing.assert_allclose(compiled.run(np.array(True), x), -np.sin(x), atol=1e-6)
    np.testing.assert_allclose(compiled.run(np.array(False), x), np.cos(x), atol=1e-6)


def test_a_function_that_calls_itself():
    with pytest.raises(UnsupportedError, match="function countdown of the model: it calls itself"):
        npu_kit.compile(Countdown)


@pytest.mark.parametrize(
    ("op", "data", "weight", "why"),
    [
        ("conv2d", (1, 0, 4, 4), (2, 0, 3, 3), "0 input channels"),
        ("conv1d_transpose", (1, 0, 4), (0, 2, 3), "0 input channels"),
        ("conv2d_transpose", (1, 0, 4, 4), (0, 2, 3, 3), "0 input channels"),
        ("conv3d_transpose", (1, 0, 4, 4, 4), (0, 2, 3, 3, 3), "0 input channels"),
        ("conv1d", (1, 2, 4), (2, 2, 0), "a kernel of size 0"),
    ],
)
def test_a_convolution_that_adds_nothing_up(op, data, weight, why):
    mod = module(getattr(relax.op.nn, op), (data, "float32"), (weight, "float32"))
    with pytest.raises(UnsupportedError, match=f"the result of {why} unwritten"):
        verify_host(mod)


@pytest.mark.parametrize("op", [relax.op.max, relax.op.min], ids=lambda op: op.__name__)
def test_an_extremum_of_no_elements(op):
    with pytest.raises(UnsupportedError, match="no elements to choose from"):
        npu_kit.compile(module(lambda x: op(x, 1), ((3, 0), "float32")))
    empty = module(lambda x: op(x, 0), ((3, 0), "float32"))
    assert npu_kit.compile(empty).run(np.zeros((3, 0), "float32")).shape == (0,)


@pytest.mark.parametrize("op", [relax.op.mean, relax.op.variance, relax.op.std], ids=lambda op: op.__name__)
def test_a_mean_of_integers_on_the_host_has_another_dtype_than_declared(op):
    mod = module(lambda x: relax.op.nn.relu(op(x, 1)), ((4, 2), "int8"))
    returned = "float32" if op is relax.op.std else "int64"
    with pytest.raises(UnsupportedError, match=f"relax.{op.__name__} .* TVM returns {returned} where int8 is declared"):
        npu_kit.compile(mod)
    on_tvm = relax.VirtualMachine(relax.build(mod, "llvm").mod, tvm.cpu())["main"]
    assert str(on_tvm(tvm.runtime.tensor(np.ones((4, 2), "int8"))).dtype) == returned


def test_a_mean_of_int64_is_what_it_says():
    mod = module(lambda x: relax.op.mean(x, 1), ((2, 2), "int64"))
    assert npu_kit.compile(mod).run(np.array([[1, 3], [-5, -3]])).tolist() == [2, -4]


@pytest.mark.parametrize(
    ("op", "size"),
    [
        (lambda x: relax.op.nn.max_pool2d(x, (20, 20)), -13),
        (lambda x: relax.op.nn.conv2d_transpose(x, relax.const(np.ones((4, 1, 3, 3), "float32")), padding=5), -2),
        (lambda x: relax.op.nn.adaptive_avg_pool2d(x, -1), -1),
        (lambda x: relax.TupleGetItem(relax.op.split(x, 5, 2), 0), -2),
    ],
)
def test_a_result_of_a_negative_size(op, size):
    """TVM builds these, and fails when they run: ``std::bad_alloc``, or NumPy that wants no negative dimensions."""
    with pytest.raises(UnsupportedError, match=f"its result would have a size of {size}"):
        npu_kit.compile(module(op, ((1, 4, 6, 7), "float32")))


@pytest.mark.parametrize(
    ("at", "is_refused"), [([9], True), ([3, 1], True), ([-1], True), ([2, 2], False), ([0], False)]
)
def test_a_split_at_indices_that_are_none(at, is_refused):
    """TVM infers sizes for all of them: of those refused 5 and 0, 3, 0 and 4, 0 and 5."""
    mod = module(lambda x: relax.op.exp(relax.TupleGetItem(relax.op.split(x, at, 0), 1)), ((5, 1), "float32"))
    if is_refused:
        with pytest.raises(UnsupportedError, match=f"it is split at {', '.join(map(str, at))} of 5"):
            npu_kit.compile(mod)
    else:
        part = np.split(np.zeros((5, 1), "float32"), at)[1]
        assert npu_kit.compile(mod).run(np.zeros((5, 1), "float32")).tolist() == np.exp(part).tolist()


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


@pytest.mark.parametrize("op", ["max_pool2d", "conv2d"])
def test_a_negative_dilation_on_the_host_reads_beside_the_tensor(op):
    weight = relax.const(np.ones((1, 1, 2, 2), "float32"))
    call = {
        "max_pool2d": lambda x: relax.op.nn.max_pool2d(x, (2, 2), dilation=(1, -1)),
        "conv2d": lambda x: relax.op.nn.conv2d(x, weight, dilation=(1, -1)),
    }[op]
    with pytest.raises(UnsupportedError, match="reads memory beside the tensor for a dilation of -1"):
        npu_kit.compile(module(call, ((1, 1, 4, 4), "float32")))


def test_a_window_that_32_bits_do_not_count():
    """TVM infers a size of 5 here, and the build ends the process."""
    pool = relax.op.nn.max_pool2d
    mod = module(lambda x: pool(x, (2**31 - 1, 1), (3, 1), (2, 0, 3, 0), (2, 1)), ((1, 1, 4, 4), "float32"))
    with pytest.raises(UnsupportedError, match="4,294,967,294 elements that a window reaches over in 32 bits"):
        npu_kit.compile(mod)


@pytest.mark.parametrize(
    ("mode", "shape", "width", "is_refused"),
    [
        ("reflect", (4,), (3, 3), False),
        ("reflect", (4,), (0, 4), True),
        ("reflect", (0,), (1, 0), True),
        ("replicate", (2,), (5, 5), False),
        ("replicate", (0,), (0, 1), True),
        ("circular", (2,), (5, 5), False),
        ("circular", (0,), (1, 1), True),
    ],
    ids=str,
)
def test_a_pad_with_elements_that_are_not_there(mode, shape, width, is_refused):
    """TVM reads beside the tensor."""
    mod = module(lambda x: relax.op.nn.pad(x, width, mode), (shape, "float32"))
    if is_refused:
        with pytest.raises(UnsupportedError, match=f"reads memory beside the tensor for . elements by {mode}"):
            npu_kit.compile(mod)
    else:
        x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
        named = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
        assert npu_kit.compile(mod).run(x).tolist() == np.pad(x, width, named).tolist()


def test_a_pool_over_one_axis_with_a_negative_stride():
    """Its result has a negative size, so it cannot be written as a reshape."""
    mod = module(lambda x: relax.op.nn.max_pool1d(x, 1, -3), ((1, 2, 12), "float32"))
    with pytest.raises(UnsupportedError, match="its result would have a size of -3"):
        npu_kit.compile(mod)


def test_a_deep_expression():
    def nested(depth):
        x = relax.Var("x", relax.TensorType((4,), "float32"))
        body = x
        for _ in range(depth):
            body = relax.op.nn.relu(body)
        return IRModule({"main": relax.Function([x], relax.SeqExpr([], body), x.ty)})

    verify_depth(nested(900))
    with pytest.raises(UnsupportedError, match="nested 1,100 deep"):
        verify_depth(nested(1_100))


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
def test_a_constant_scale_that_is_none(scale):
    def quantize(x):
        return relax.op.quantize(x, relax.const(np.float32(scale)), relax.const(np.int8(0)), out_dtype="int8")

    with pytest.raises(UnsupportedError, match="a scale is"):
        npu_kit.compile(module(quantize, ((2, 3), "float32")))


def test_a_model_without_main_and_with_a_choice():
    functions = {}
    for name in ("prefill", "decode"):
        functions.update(module(relax.op.nn.relu, ((2, 3), "float32")).functions.items())
        ((var, function),) = [(v, f) for v, f in functions.items() if v.name_hint == "main"]
        del functions[var]
        functions[ir.GlobalVar(name)] = function.with_attr("global_symbol", name)
    with pytest.raises(PartitionError, match=r"no function main: it has decode, prefill"):
        npu_kit.compile(IRModule(functions))


@pytest.mark.parametrize(
    ("axes", "is_refused"), [([1, 2], False), (-1, False), ([0, 1], True), (0, True), ([0, 1, 2], True)], ids=str
)
def test_an_rms_norm_over_other_than_the_last_axes(axes, is_refused):
    """TVM builds it over the last ones only, and not over all."""

    def norm(x, weight):
        return relax.op.nn.rms_norm(x, weight, axes=axes)

    sizes = [(2, 3, 4)[axis] for axis in (axes if isinstance(axes, list) else [axes])]
    mod = module(norm, ((2, 3, 4), "float32"), (sizes, "float32"))
    if is_refused:
        with pytest.raises(UnsupportedError, match="only over the last axes"):
            npu_kit.compile(mod, patterns=[])
        with pytest.raises(Exception, match="Tensor dimension mismatch"):
            relax.build(mod, "llvm")
    else:
        x = np.arange(24, dtype="float32").reshape(2, 3, 4)
        found = npu_kit.compile(mod, patterns=[]).run(x, np.ones(sizes, "float32"))
        mean = (x * x).mean(tuple(axes) if isinstance(axes, list) else axes, keepdims=True)
        np.testing.assert_allclose(found, x / np.sqrt(mean + 1e-5), rtol=1e-5)


@pytest.mark.parametrize("flag", ["center", "scale"])
def test_a_layer_norm_without_center_or_scale_on_the_host(flag):
    """TVM's code has gamma and beta in it all the same."""

    def norm(x, gamma, beta):
        return relax.op.nn.layer_norm(x, gamma, beta, axes=-1, **{flag: False})

    mod = module(norm, ((2, 3), "float32"), ((3,), "float32"), ((3,), "float32"))
    with pytest.raises(UnsupportedError, match="whatever center and scale say"):
        npu_kit.compile(mod, patterns=[])
    x, gamma, beta = np.float32([[1, 2, 4], [0, 5, 9]]), np.float32([1, 2, 3]), np.float32([4, 5, 6])
    wanted = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    wanted = wanted * gamma if flag == "center" else wanted + beta
    np.testing.assert_allclose(npu_kit.compile(mod).run(x, gamma, beta), wanted, rtol=1e-5)
    on_tvm = relax.VirtualMachine(relax.build(mod, "llvm").mod, tvm.cpu())["main"]
    both = on_tvm(*map(tvm.runtime.tensor, (x, gamma, beta))).numpy()
    assert np.abs(both - wanted).max() > 0.5


@pytest.mark.parametrize(("dtype", "is_refused"), [("int32", True), ("float32", False)])
def test_a_legalised_integer_division(dtype, is_refused):
    legalised = relax.transform.LegalizeOps()(module(relax.op.divide, ((4,), dtype), ((4,), dtype)))
    if is_refused:
        with pytest.raises(UnsupportedError, match="divide integers by elements of a tensor"):
            npu_kit.compile(legalised)
    else:
        assert npu_kit.compile(legalised).run(np.ones(4, dtype), np.full(4, 2, dtype)).tolist() == [0.5] * 4
