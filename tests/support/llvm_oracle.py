"""Runs sample models on TVM's own LLVM build: many in one module, since a build costs far more than a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from sample_model import Array, Model
from tvm import ir, relax
from tvm.ir import IRModule


def run_on_llvm(models: Sequence[Model], opt_level: int = 3) -> list[tuple[Array, ...]]:
    """The results of each model. An integer division by 0 would end the process.

    With ``opt_level`` 0 LLVM leaves TVM's loops as they are, and the build takes less than half the time. The checks of
    arguments are left out, which halves it again: a model's own arrays fit it.
    """
    functions = {}
    for number, model in enumerate(models):
        name = f"main{number}"
        functions[ir.GlobalVar(name)] = model.module()["main"].with_attr("global_symbol", name)
    target = tvm.target.Target({"kind": "llvm", "opt-level": opt_level})
    with tvm.transform.PassContext(opt_level=3, config={"tirx.disable_assert": True}):
        machine = relax.VirtualMachine(relax.build(IRModule(functions), target).mod, tvm.cpu())
    return [
        _to_arrays(machine[f"main{number}"](*map(tvm.runtime.tensor, model.inputs)))
        for number, model in enumerate(models)
    ]


def _to_arrays(value: Any) -> tuple[Array, ...]:
    return (value.numpy(),) if isinstance(value, tvm.runtime.Tensor) else tuple(item.numpy() for item in value)
