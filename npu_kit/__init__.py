"""Learn how a compiler backend for an NPU is made, by making one: TVM's BYOC, on the stock wheel, with real numbers.

``import npu_kit`` registers the backend ``example_npu`` with TVM, where TVM is installed, and does nothing else.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from npu_kit.byoc.codegen import registration as _registration

if TYPE_CHECKING:
    from npu_kit.byoc.compile import compile as compile
    from npu_kit.byoc.partition import partition as partition
    from npu_kit.byoc.run.artefact import load as load
    from npu_kit.hw.presets import load_spec as load_spec
    from npu_kit.runtime.record import record as record

__version__ = "0.1.0"
__all__ = ["__version__", "compile", "load", "load_spec", "partition", "record"]

_HOMES = {
    "compile": "npu_kit.byoc.compile",
    "load": "npu_kit.byoc.run.artefact",
    "load_spec": "npu_kit.hw.presets",
    "partition": "npu_kit.byoc.partition",
    "record": "npu_kit.runtime.record",
}
_NEEDS_TVM = ("compile", "load", "partition")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _NEEDS_TVM and not _registration.is_tvm_there():
        return _registration.unavailable(name)
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_registration.register_where_possible()
