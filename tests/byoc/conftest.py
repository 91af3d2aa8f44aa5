"""Small Relax models, and TVM's own LLVM build of them as the oracle."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from npu_kit.byoc.patterns.watch import ROOT_ATTRIBUTE
from npu_kit.byoc.run.host import build_executable


@pytest.fixture(scope="session")
def make_model():
    """``make_model(body, x=((2, 3), "float32"))``: a module whose ``main`` emits what ``body(builder, x)`` returns."""

    def make(body, name="main", *, private=False, dataflow=True, **inputs):
        builder = relax.BlockBuilder()
        variables = [
            relax.Var(key, relax.TensorType(*given) if isinstance(given, tuple) else given)
            for key, given in inputs.items()
        ]
        with builder.function(name, variables, private=private):
            if dataflow:
                with builder.dataflow():
                    result = builder.emit_output(body(builder, *variables))
            else:
                result = builder.emit(body(builder, *variables))
            builder.emit_func_output(result)
        return builder.get()

    return make


@pytest.fixture(scope="session")
def emit_chain():
    """``emit_chain(builder, x, f, g)``: g(f(x)), each bound to a variable of its own but the last."""

    def emit(builder, value, *steps):
        for step in steps[:-1]:
            value = builder.emit(step(value))
        return steps[-1](value)

    return emit


@mutator
class _WithoutBackend(PyExprMutator):
    """Region and composite functions become plain functions, which TVM can build."""

    def visit_function_(self, function):
        function = super().visit_function_(function)
        for key in ("Composite", "Primitive", ROOT_ATTRIBUTE):
            if function.attrs and key in function.attrs:
                function = function.without_attr(key)
        return function


@pytest.fixture(scope="session")
def run_on_host():
    """``run_on_host(mod, *arrays)``: TVM's LLVM build of a module, its regions, if it has any, as functions."""

    def plain(mod):
        copy = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
        for var, function in mod.functions.items():
            if isinstance(function, relax.Function):
                function = _WithoutBackend(copy).visit_expr(function)
                copy[var] = function.without_attr("Codegen") if "Codegen" in (function.attrs or {}) else function
        return relax.transform.LambdaLift()(copy)

    def run(mod, *arrays, entry="main"):
        executable = build_executable(plain(mod))
        machine = relax.VirtualMachine(executable, tvm.cpu())
        return _to_numpy(machine[entry](*(tvm.runtime.tensor(np.array(array, order="C")) for array in arrays)))

    return run


def _to_numpy(value):
    return value.numpy() if isinstance(value, tvm.runtime.Tensor) else tuple(_to_numpy(item) for item in value)
