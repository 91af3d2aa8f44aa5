"""Models and files on which TVM 0.27 itself ends the process, each handed to the kit.

Run as a program it tries them all, one line of JSON each: the name, and the class and text of the error that the kit
raised, or what came out. A crash ends the list.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from small_models import module_of
from tvm import IRModule, relax
from tvm.relax import op
from tvm.relax.frontend.onnx import from_onnx
from tvm.script import ir as I
from tvm.script import relax as R

import npu_kit
from npu_kit.byoc.run.host import build_for_host
from npu_kit.graph.serialize import from_json, to_json

INT32, INT64 = np.ones(4, "int32"), np.ones(4, "int64")
KEPT: list[Any] = []  # what is so deep that freeing it would recurse, too


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


def divide_by_0_on_the_npu() -> Any:
    return npu_kit.compile(module_of(op.divide, INT32, INT32)).run(INT32, 0 * INT32)


def divide_the_lowest_by_minus_1_on_the_npu() -> Any:
    lowest = np.full(4, -(2**31), "int32")
    return npu_kit.compile(module_of(op.divide, INT32, INT32)).run(lowest, -INT32).tolist()


def divide_on_the_host() -> Any:
    return npu_kit.compile(module_of(op.divide, INT64, INT64)).run(INT64, 0 * INT64)


def floor_divide_on_the_host() -> Any:
    return npu_kit.compile(module_of(op.floor_divide, INT32, INT32)).run(INT32, 0 * INT32)


def mod_on_the_host() -> Any:
    return npu_kit.compile(module_of(op.mod, INT32, INT32)).run(INT32, 0 * INT32)


def divide_in_the_oracle() -> Any:
    return build_for_host(module_of(op.divide, INT32, INT32)).run(INT32, 0 * INT32)


def divide_from_onnx() -> Any:
    info = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT32, [4]) for name in "xyz"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Div", ["x", "y"], ["z"])], "g", info[:2], info[2:])
    return npu_kit.compile(from_onnx(onnx.helper.make_model(graph))).run(INT32, 0 * INT32)


def divide_by_a_constant_0() -> Any:
    return npu_kit.compile(module_of(lambda x: op.divide(x, relax.const(0 * INT32)), INT32))


def if_and_reshape() -> Any:
    model, x = npu_kit.compile(IfAndReshape), np.zeros(4, "float32")
    return [model.run(np.array(condition), x).tolist() for condition in (True, False)]


def nested_5000_deep() -> Any:
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    body = x
    for _ in range(5_000):
        body = op.nn.relu(body)
    module = IRModule({"main": relax.Function([x], relax.SeqExpr([], body), x.ty)})
    KEPT.append((module, body))
    return npu_kit.compile(module)


def a_chain_of_1500_bindings() -> Any:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value: Any = x
            for _ in range(1_500):
                value = builder.emit(op.negative(value))
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    return len(npu_kit.partition(builder.get()).report)


def a_convolution_of_no_channels() -> Any:
    x, w = np.ones((1, 0, 4, 4), "float32"), np.ones((2, 0, 3, 3), "float32")
    return npu_kit.compile(module_of(op.nn.conv2d, x, w)).run(x, w).ravel().tolist()


def a_convolution_of_no_channels_on_the_host() -> Any:
    x, w = np.ones((1, 0, 4, 4, 4), "float32"), np.ones((2, 0, 3, 3, 3), "float32")
    return npu_kit.compile(module_of(op.nn.conv3d, x, w))


def a_pool_without_a_window() -> Any:
    return npu_kit.compile(module_of(lambda x: op.nn.avg_pool2d(x, pool_size=(0, 0)), np.ones((1, 1, 4, 4), "float32")))


def a_convolution_to_another_layout() -> Any:
    x, w = np.ones((1, 3, 4, 4), "float32"), np.ones((2, 3, 3, 3), "float32")
    return npu_kit.compile(module_of(lambda *args: op.nn.conv2d(*args, out_layout="NHWC"), x, w))


def a_convolution_in_a_packed_layout() -> Any:
    x, w = np.ones((1, 2, 5, 5, 4), "float32"), np.ones((1, 2, 3, 3, 4, 4), "float32")
    layouts = {"data_layout": "NCHW4c", "kernel_layout": "OIHW4i4o"}
    return npu_kit.compile(module_of(lambda *args: op.nn.conv2d(*args, **layouts), x, w))


def a_pool_to_another_layout() -> Any:
    x = np.ones((1, 3, 4, 4), "float32")
    return npu_kit.compile(module_of(lambda a: op.nn.max_pool2d(a, pool_size=(2, 2), out_layout="NHWC"), x))


def a_library_cut_short() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = npu_kit.compile(module_of(op.nn.relu, INT32)).export(Path(folder) / "model.so")
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        return npu_kit.load(path, trust=True)


def a_damaged_graph() -> Any:
    """Each of 600 texts with one character changed, or cut short, is read, or refused with an error of the kit."""
    text = to_json(npu_kit.compile(module_of(lambda x, y: op.nn.relu(op.add(x, y)), INT32, INT32)).graphs[0])
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        at = int(rng.integers(len(text)))
        for damaged in (text[:at], text[:at] + chr(int(rng.integers(32, 127))) + text[at + 1 :]):
            try:
                from_json(damaged)
            except npu_kit.errors.NpuKitError:
                refused += 1
    return refused


def threads_that_share_a_model() -> Any:
    x = np.arange(-32, 32, dtype="float32")
    model = npu_kit.compile(module_of(lambda a: op.nn.relu(op.sin(op.nn.relu(a))), x))
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            right = np.maximum(np.sin(np.maximum(x / (number + 1), 0)), 0)
            if not np.allclose(model.run(x / (number + 1)), right, rtol=1e-4, atol=1e-6):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


ATTEMPTS: dict[str, Callable[[], Any]] = {
    function.__name__: function
    for function in (
        divide_by_0_on_the_npu,
        divide_the_lowest_by_minus_1_on_the_npu,
        divide_on_the_host,
        floor_divide_on_the_host,
        mod_on_the_host,
        divide_in_the_oracle,
        divide_from_onnx,
        divide_by_a_constant_0,
        if_and_reshape,
        a_chain_of_1500_bindings,
        a_convolution_of_no_channels,
        a_convolution_of_no_channels_on_the_host,
        a_pool_without_a_window,
        a_convolution_to_another_layout,
        a_convolution_in_a_packed_layout,
        a_pool_to_another_layout,
        a_library_cut_short,
        a_damaged_graph,
        threads_that_share_a_model,
        nested_5000_deep,
    )
}


def main() -> None:
    for name, attempt in ATTEMPTS.items():
        try:
            result = {"name": name, "error": "", "result": attempt()}
        except Exception as error:
            result = {"name": name, "error": type(error).__name__, "result": str(error)}
        print(json.dumps(result, default=repr), flush=True)
    os._exit(0)  # without freeing what is nested too deep


if __name__ == "__main__":
    main()
