"""TVM's own LLVM code on the same work: its default build, which nobody tuned, and a matmul scheduled by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax, s_tir, te

UNTUNED = (
    "TVM's default build is untuned: plain loops, no tiles, no vectors. The ten-line schedule beside it in the matmul "
    "shows what TVM does where somebody asks for more."
)
DEFAULT = "llvm"  # a processor of the family's first generation, as nobody says which
THIS_PROCESSOR = tvm.target.Target({"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu()})


def default_model(module: Any, *arrays: np.ndarray) -> Callable[[], Any]:
    """``main`` of a Relax module, by TVM's default build."""
    machine = relax.VirtualMachine(relax.build(module, target=DEFAULT).mod, tvm.cpu())
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    return lambda: machine["main"](*tensors)


def matmul_function(size: int) -> Any:
    """A matmul of two (size, size) float32 matrices as a TensorIR function."""
    a, b = (te.placeholder((size, size), name=name) for name in ("a", "b"))
    k = te.reduce_axis((0, size), name="k")
    return te.create_prim_func([a, b, te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], k), name="c")])


def scheduled(function: Any, rows: int = 4, columns: int = 64) -> Any:
    """The ten lines: tiles of the output in registers, a packed panel of the right operand, vectors."""
    schedule = s_tir.Schedule(function)
    block = schedule.get_sblock("c")
    i, j, k = schedule.get_loops(block)
    (i_outer, i_inner), (j_outer, j_inner) = schedule.split(i, [None, rows]), schedule.split(j, [None, columns])
    schedule.reorder(j_outer, i_outer, k, i_inner, j_inner)
    registers, panel = schedule.cache_write(block, 0, "local"), schedule.cache_read(block, 1, "global")
    schedule.reverse_compute_at(registers, i_outer)
    schedule.compute_at(panel, j_outer)
    for vector in (j_inner, schedule.get_loops(panel)[-1], schedule.get_loops(registers)[-1]):
        schedule.vectorize(vector)
    schedule.unroll(i_inner)
    schedule.decompose_reduction(block, k)
    return schedule.mod


def compiled(function: Any, a: np.ndarray, b: np.ndarray, target: Any) -> Callable[[], Any]:
    """A TensorIR matmul, compiled for ``target``, on two matrices."""
    library = tvm.compile(function, target=target)
    tensors = [tvm.runtime.tensor(array) for array in (a, b, np.zeros((a.shape[0], b.shape[1]), a.dtype))]
    return lambda: library["main"](*tensors)
