"""TVM's own build of a model for the host: what the NPU's values are compared with."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.relax import backend, transform

from npu_kit.byoc.model.guard import verify_depth, verify_host
from npu_kit.byoc.model.indices import check_indices
from npu_kit.byoc.model.walk import has_branch
from npu_kit.byoc.run.callback import call_through
from npu_kit.byoc.run.model import RunnableModel, parameters_of

# TVM's default pipeline without StaticPlanBlockMemory: on the 0.27 wheel a module with an If that went through that
# pass can end the process with a segmentation fault when a branch runs.
BRANCH_SAFE_PIPELINE = tvm.transform.Sequential(
    [
        backend.DispatchSampling(),
        backend.DispatchSortScan(),
        transform.LegalizeOps(),
        transform.RewriteDataflowReshape(),
        transform.ToNonDataflow(),
        transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
        transform.LowerAllocTensor(),
        transform.KillAfterLastUse(),
        transform.LowerRuntimeBuiltin(),
        transform.ComputePrimValue(),
        transform.VMShapeLower(),
        transform.AttachGlobalSymbol(),
    ]
)


def build_executable(mod: Any) -> Any:
    """``relax.build`` for the host's processor, in a way that is safe for what ``mod`` holds."""
    mod = check_indices(mod)
    pipeline = BRANCH_SAFE_PIPELINE if has_branch(mod) else "default"
    return call_through(lambda: relax.build(mod, tvm.target.Target("llvm"), relax_pipeline=pipeline))


def build_for_host(mod: Any, entry: str = "main") -> RunnableModel:
    """Build all of ``mod`` with TVM's LLVM backend; nothing of it goes through the kit.

    Raises:
        UnsupportedError: a parameter is not an array of known rank, or the model would crash TVM.
    """
    verify_depth(mod)
    verify_host(mod)
    return RunnableModel(build_executable(mod).mod, entry, parameters_of(mod[entry]))
