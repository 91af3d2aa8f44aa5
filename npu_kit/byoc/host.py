"""TVM's own build of a model for the host: what the NPU's values are compared with."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from npu_kit.byoc.callback import call_through
from npu_kit.byoc.guard import verify_depth, verify_host
from npu_kit.byoc.running import RunnableModel, parameters_of


def build_for_host(mod: Any, entry: str = "main") -> RunnableModel:
    """Build all of ``mod`` with TVM's LLVM backend; nothing of it goes through the kit.

    Raises:
        UnsupportedError: a parameter is not an array of known rank, or the model would crash TVM.
    """
    verify_depth(mod)
    verify_host(mod)
    executable = call_through(relax.build, mod, tvm.target.Target("llvm"))
    return RunnableModel(executable.mod, entry, parameters_of(mod[entry]))
