"""One expression as a model: on the NPU, on TVM's LLVM build, and one ONNX operator on ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import tvm
from tvm import relax
from tvm.ir import IRModule

import npu_kit
from npu_kit.byoc.compile import Compiled

Array = np.ndarray[Any, Any]
Expression = Callable[..., Any]  # of one variable per array; calls inside calls are bound by the builder


def module_of(expression: Expression, *arrays: Array) -> IRModule:
    """main(x0, x1, ...) = expression(x0, x1, ...), for arrays like these."""
    builder = relax.BlockBuilder()
    variables = [relax.Var(f"x{i}", relax.TensorType(x.shape, x.dtype.name)) for i, x in enumerate(arrays)]
    with builder.function("main", variables):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(expression(*variables)))
        builder.emit_func_output(result)
    return builder.get()


def compiled(expression: Expression, *arrays: Array, is_on_host: bool = False, **options: Any) -> Compiled:
    """The compiled model; AssertionError if a call of it is not where it should be."""
    model = npu_kit.compile(module_of(expression, *arrays), **options)
    report = model.partition.report
    assert len(report.on_npu if is_on_host else report.on_host) == 0, str(report)
    return model


def on_npu(expression: Expression, *arrays: Array, **options: Any) -> Any:
    """What the NPU computes; every call is there."""
    return compiled(expression, *arrays, **options).run(*arrays)


def on_llvm(expression: Expression, *arrays: Array) -> Any:
    """What TVM's LLVM build computes. An integer division by 0 would end the process."""
    executable = relax.build(module_of(expression, *arrays), tvm.target.Target("llvm"))
    machine = relax.VirtualMachine(executable.mod, tvm.cpu())
    return machine["main"](*map(tvm.runtime.tensor, arrays)).numpy()


def on_onnxruntime(op: str, *arrays: Array, opset: int = 21, **attributes: Any) -> Any:
    """What ONNX Runtime computes for one operator."""
    names = [f"x{i}" for i in range(len(arrays))]
    node = onnx.helper.make_node(op, names, ["y"], **attributes)
    to_type = onnx.helper.np_dtype_to_tensor_dtype
    inputs = [
        onnx.helper.make_tensor_value_info(name, to_type(x.dtype), x.shape)
        for name, x in zip(names, arrays, strict=True)
    ]
    output = onnx.helper.make_empty_tensor_value_info("y")
    graph = onnx.helper.make_graph([node], op, inputs, [output])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip(names, arrays, strict=True)))[0]
