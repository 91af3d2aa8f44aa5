"""Registers the kit with TVM, under the names of upstream's example backend.

``import npu_kit`` does this once. TVM is imported inside the functions: where it is missing or broken, the rest of the
kit goes on to work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from npu_kit.byoc import BACKEND
from npu_kit.doctor import FIX_TVM
from npu_kit.errors import ToolError

CODEGEN = f"relax.ext.{BACKEND}"
RUNTIME = "runtime.ExampleNPUJSONRuntimeCreate"

_problem: Exception | None = None  # why TVM could not be imported
_registered: dict[str, Any] = globals().get("_registered", {})  # survives importlib.reload, as the registration does


def register() -> None:
    """Register codegen, runtime and the functions that compiled modules call; doing it again changes nothing.

    Codegen and runtime are replaced as a pair: in a TVM that was built with the example backend in C++, the graphs of
    its codegen carry no operator attributes, and this runtime could not run them right.
    """
    import tvm

    from npu_kit.byoc.codegen import generate
    from npu_kit.byoc.model.indices import CHECK
    from npu_kit.byoc.run import regions
    from npu_kit.byoc.run.callback import guarded
    from npu_kit.byoc.run.indices import checked_indices

    callbacks: dict[str, Callable[..., Any]] = {
        **regions.CALLBACKS,
        CHECK: checked_indices,
        CODEGEN: generate.codegen,
        RUNTIME: generate.create_runtime,
    }
    for name, function in callbacks.items():
        tvm.register_global_func(name, guarded(function), override=True)
        _registered[name] = tvm.get_global_func(name)


def register_where_possible() -> None:
    """``register`` where TVM can be imported; where it cannot, the reason is kept for ``unavailable``."""
    global _problem
    try:
        import tvm  # noqa: F401
    except Exception as error:  # a broken installation can raise anything
        _problem = error
    else:
        _problem = None
        register()


def is_tvm_there() -> bool:
    """Whether TVM could be imported."""
    return _problem is None


def unavailable(name: str) -> Callable[..., NoReturn]:
    """A stand-in for a function that needs TVM: it raises ToolError when it is called, not when it is looked up."""

    def needs_tvm(*arguments: Any, **options: Any) -> NoReturn:
        raise ToolError(
            f"npu_kit.{name} needs TVM",
            f"import tvm raised {type(_problem).__name__}: {_problem}",
            f"{FIX_TVM}.",
        ) from _problem

    needs_tvm.__name__ = needs_tvm.__qualname__ = name
    return needs_tvm


def require_registered() -> None:
    """Raise ToolError if another function has taken the place of the kit's codegen since the import."""
    import tvm

    for name in (CODEGEN, RUNTIME):
        current = tvm.get_global_func(name, allow_missing=True)
        if name not in _registered or current is None or not current.same_as(_registered[name]):
            raise ToolError(
                "the kit cannot compile",
                f"{name} is not the kit's function any more: another one was registered under this name",
                "npu_kit.byoc.codegen.registration.register(), which puts the kit's own back.",
            )
