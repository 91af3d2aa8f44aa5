"""Upstream's flows for its example NPU, on the stock wheel: after ``import npu_kit`` they run, and give NumPy's values.

The flows are those of upstream's own tests and tutorial: with its patterns, with and without annotate_codegen, then
MergeCompositeFunctions, RunCodegen, relax.build and a plain VirtualMachine.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import tvm
import tvm.relax.backend.contrib.example_npu
from tvm import relax
from tvm.relax.backend.pattern_registry import get_patterns_with_prefix
from tvm.relax.transform import FuseOpsByPattern, MergeCompositeFunctions, RunCodegen

import npu_kit

LLVM = tvm.target.Target("llvm")


def model(op, *shapes, dtype="float32"):
    """main(p0, p1, ...) = op(builder, p0, p1, ...)"""
    builder = relax.BlockBuilder()
    parameters = [relax.Var(f"p{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(shapes)]
    with builder.function("main", parameters):
        with builder.dataflow():
            result = builder.emit_output(op(builder, *parameters))
        builder.emit_func_output(result)
    return builder.get()


def matmul_relu(builder, x, w):
    return relax.op.nn.relu(builder.emit(relax.op.matmul(x, w)))


def conv2d_relu(builder, x, w):
    return relax.op.nn.relu(builder.emit(relax.op.nn.conv2d(x, w)))


def relu_pool_relu(builder, x):
    pooled = relax.op.nn.max_pool2d(builder.emit(relax.op.nn.relu(x)), pool_size=(2, 2), strides=(2, 2))
    return relax.op.nn.relu(builder.emit(pooled))


def softmax(_builder, x):
    return relax.op.nn.softmax(x)


def numpy_conv2d_relu(x, w):
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    return np.maximum(np.einsum("nchwij,ocij->nohw", windows, w), 0)


def numpy_relu_pool_relu(x):
    n, c, h, w = x.shape
    return np.maximum(x, 0).reshape(n, c, h // 2, 2, w // 2, 2).max(axis=(3, 5))


def numpy_softmax(x):
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


FLOWS = {
    "matmul_relu": (matmul_relu, [(2, 4), (4, 8)], lambda x, w: np.maximum(x @ w, 0)),
    "conv2d_relu": (conv2d_relu, [(1, 3, 32, 32), (16, 3, 3, 3)], numpy_conv2d_relu),
    "multiple_ops": (relu_pool_relu, [(1, 16, 32, 32)], numpy_relu_pool_relu),
    "softmax": (softmax, [(2, 8)], numpy_softmax),
}


def partition(mod, annotate):
    patterns = get_patterns_with_prefix("example_npu")
    mod = FuseOpsByPattern(patterns, bind_constants=False, annotate_codegen=annotate)(mod)
    return MergeCompositeFunctions()(mod)


def names_of_composites(mod):
    found = []

    def visit(expr):
        if isinstance(expr, relax.Function) and expr.attrs and "Composite" in expr.attrs:
            found.append(str(expr.attrs["Composite"]))

    for function in mod.functions.values():
        relax.analysis.post_order_visit(function, visit)
    return sorted(found)


def test_both_names_are_registered():
    for name in ("relax.ext.example_npu", "runtime.ExampleNPUJSONRuntimeCreate"):
        assert tvm.get_global_func(name, allow_missing=True) is not None


def test_the_patterns_of_the_wheel_are_there():
    names = {pattern.name for pattern in get_patterns_with_prefix("example_npu")}
    assert {f"example_npu.{op}" for op in ("dense", "matmul", "conv1d", "conv2d", "max_pool2d", "relu")} <= names


@pytest.mark.parametrize(
    ("flow", "composites"),
    [
        ("matmul_relu", ["example_npu.matmul_relu_fused"]),
        ("conv2d_relu", ["example_npu.conv2d_relu_fused"]),
        ("multiple_ops", ["example_npu.max_pool2d", "example_npu.relu", "example_npu.relu"]),
        ("softmax", ["example_npu.softmax"]),
    ],
)
@pytest.mark.parametrize("annotate", [False, True])
def test_partitioning(flow, composites, annotate):
    op, shapes, _ = FLOWS[flow]
    assert names_of_composites(partition(model(op, *shapes), annotate)) == composites


@pytest.mark.parametrize("annotate", [False, True])
def test_codegen_replaces_every_composite(annotate):
    generated = RunCodegen()(partition(model(matmul_relu, (2, 4), (4, 8)), annotate))
    assert names_of_composites(generated) == []
    assert "R.call_dps_packed" in generated["main"].script()


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("annotate", [False, True])
def test_a_plain_virtual_machine_gives_numpys_values(flow, annotate):
    op, shapes, reference = FLOWS[flow]
    rng = np.random.default_rng(42)
    arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    with tvm.transform.PassContext(opt_level=3):
        executable = relax.build(RunCodegen()(partition(model(op, *shapes), annotate)), LLVM)
    machine = relax.VirtualMachine(executable.mod, tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(array, tvm.cpu()) for array in arrays)).numpy()
    expected = reference(*arrays)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def operator_cases():
    """Every pattern that the wheel registers, with attributes that upstream's own codegen drops."""
    conv = {"strides": (2, 1), "padding": (1, 0, 2, 1), "dilation": (1, 2)}
    image = (2, 4, 9, 10)
    vector = (3, 5)
    return {
        "dense": (lambda b, x, w: relax.op.matmul(x, w), [(2, 3, 4), (4, 5)]),
        "conv1d": (lambda b, x, w: relax.op.nn.conv1d(x, w, strides=2, padding=(1, 2)), [(2, 4, 9), (6, 4, 3)]),
        "conv2d": (lambda b, x, w: relax.op.nn.conv2d(x, w, **conv), [image, (6, 4, 3, 3)]),
        "conv2d_nhwc": (
            lambda b, x, w: relax.op.nn.conv2d(x, w, padding=1, data_layout="NHWC", kernel_layout="HWIO"),
            [(1, 8, 7, 4), (3, 3, 4, 6)],
        ),
        "depthwise_conv2d": (lambda b, x, w: relax.op.nn.conv2d(x, w, groups=4, padding=1), [image, (8, 1, 3, 3)]),
        "max_pool2d": (
            lambda b, x: relax.op.nn.max_pool2d(x, (3, 2), strides=(2, 2), padding=(1, 0, 1, 1), ceil_mode=True),
            [image],
        ),
        "avg_pool2d": (
            lambda b, x: relax.op.nn.avg_pool2d(x, (3, 2), strides=(2, 1), padding=(1, 0), count_include_pad=True),
            [image],
        ),
        "softmax": (lambda b, x: relax.op.nn.softmax(x, axis=1), [(2, 5, 3)]),
        "gelu": (lambda b, x: relax.op.nn.gelu(x), [vector]),
        "relu": (lambda b, x: relax.op.nn.relu(x), [vector]),
        "add": (lambda b, x, y: relax.op.add(x, y), [vector, (5,)]),
        "subtract": (lambda b, x, y: relax.op.subtract(x, y), [(1, 5), (3, 1)]),
        "multiply": (lambda b, x, y: relax.op.multiply(x, y), [vector, ()]),
        "divide": (lambda b, x, y: relax.op.divide(x, y), [vector, vector]),
    }


@pytest.mark.parametrize("name", operator_cases())
def test_every_operator_with_its_attributes_agrees_with_llvm(name):
    op, shapes = operator_cases()[name]
    mod = model(op, *shapes)
    rng = np.random.default_rng(7)
    arrays = [tvm.runtime.tensor(rng.standard_normal(shape).astype("float32")) for shape in shapes]
    generated = RunCodegen()(partition(mod, annotate=True))
    assert "R.call_dps_packed" in generated["main"].script()
    on_npu, on_host = (
        relax.VirtualMachine(relax.build(each, LLVM).mod, tvm.cpu())["main"](*arrays).numpy()
        for each in (generated, mod)
    )
    np.testing.assert_allclose(on_npu, on_host, rtol=2e-5, atol=2e-5)


def test_a_leaking_composite_returns_both_its_tensors(rng):
    """The convolution has a second reader: upstream's conv2d_relu_fused then returns a tuple."""
    builder = relax.BlockBuilder()
    x, w = (relax.Var(n, relax.TensorType(s, "float32")) for n, s in (("x", (1, 3, 8, 8)), ("w", (4, 3, 3, 3))))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            conv = builder.emit(relax.op.nn.conv2d(x, w))
            relu = builder.emit_output(relax.op.nn.relu(conv))
            tanh = builder.emit_output(relax.op.tanh(conv))
        builder.emit_func_output(relax.Tuple([relu, tanh]))
    arrays = [rng.standard_normal(shape).astype("float32") for shape in ((1, 3, 8, 8), (4, 3, 3, 3))]
    for annotate in (False, True):
        executable = relax.build(RunCodegen()(partition(builder.get(), annotate)), LLVM)
        machine = relax.VirtualMachine(executable.mod, tvm.cpu())
        relu_value, tanh_value = (r.numpy() for r in machine["main"](*map(tvm.runtime.tensor, arrays)))
        windows = np.lib.stride_tricks.sliding_window_view(arrays[0], (3, 3), axis=(2, 3))
        convolved = np.einsum("nchwij,ocij->nohw", windows, arrays[1])
        np.testing.assert_allclose(relu_value, np.maximum(convolved, 0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(tanh_value, np.tanh(convolved), rtol=1e-4, atol=1e-5)


def test_a_recording_works_around_upstreams_flow():
    executable = relax.build(RunCodegen()(partition(model(matmul_relu, (2, 4), (4, 8)), True)), LLVM)
    machine = relax.VirtualMachine(executable.mod, tvm.cpu())
    with npu_kit.record() as trace:
        machine["main"](*(tvm.runtime.tensor(np.ones(shape, "float32")) for shape in ((2, 4), (4, 8))))
    (run,) = trace.runs
    assert run.plan.graph.nodes[run.plan.graph.kernels[0]].name == "matmul"


def test_without_the_kit_the_wheel_cannot_do_this():
    """What the kit fills in: the stock wheel has patterns, and neither codegen nor runtime."""
    code = (
        "import tvm\n"
        "names = ('relax.ext.example_npu', 'runtime.ExampleNPUJSONRuntimeCreate')\n"
        "print([tvm.get_global_func(name, allow_missing=True) for name in names])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[None, None]"
