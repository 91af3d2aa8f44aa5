"""Runs regions for compiled modules: finds a region by its content key, checks what TVM hands over, executes its plan.

A compiled module holds a region's text and key, and calls the functions of ``CALLBACKS`` by name. TVM checks nothing
about the tensors it passes: their number is checked here, shapes and dtypes in ``execute``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.byoc.run import store
from npu_kit.byoc.run.region_text import digest_constants, key_of, package_from_json
from npu_kit.byoc.run.store import HeldConstants, PlannedRegion
from npu_kit.errors import ExecutionError, GraphError, InputError
from npu_kit.runtime.execute import execute
from npu_kit.runtime.fast import FastPlan

Array = NDArray[Any]

# The names by which compiled modules call the kit. TVM's message for a module that is loaded without the kit is "cannot
# find function npu_kit.run": the name itself says what to import.
RUN = "npu_kit.run"
HAS = "npu_kit.has"
LOAD = "npu_kit.load"
RUN_LOADED = "npu_kit.run_loaded"
SET_CONSTANTS = "npu_kit.set_constants"
WRONG_COUNT = "npu_kit.wrong_argument_count"


_of_thread = threading.local()  # the region that a module has just asked for, so that it is there when it runs


def has(key: str) -> int:
    """1 if a region of this key is planned."""
    _of_thread.region = store.find(key)
    return int(_of_thread.region is not None)


def load(key: str, text: str) -> None:
    """Read and plan the region of a module that was loaded from a file."""
    _of_thread.region = _load(key, text)


def set_constants(key: str, tensors: Iterable[Any]) -> int:
    """Take the constants of a region; TVM calls this once per loaded module, before the first run."""
    given = tuple(_view(tensor, writable=False) for tensor in tensors)
    held = store.constants_of(key)
    if held is not None:
        if _are_one_memory(held.arrays, given):
            return 0  # of a module that was compiled in this process: they are held for it already
        if digest_constants(held.arrays) != digest_constants(given):
            # Only a bare JSON graph can get here: a package's key covers its constants.
            raise ExecutionError(
                "the constants of a region cannot be taken",
                f"the same graph is in use with other constants (key {key})",
                "naming constants after their content, as lower does.",
            )
    store.take(key, given)
    return 0


def run(key: str, text: str, *arguments: Any) -> None:
    """Run a region that the call itself describes."""
    _run(store.find(key) or _load(key, text), arguments)


def run_loaded(key: str, *arguments: Any) -> None:
    """Run a region: ``arguments`` are its inputs and then its outputs, as TVM's tensors, the outputs to be written."""
    last: PlannedRegion | None = getattr(_of_thread, "region", None)
    region = last if last is not None and last.key == key else store.find(key)
    if region is None:
        raise ExecutionError("a region cannot run", f"nothing was loaded under the key {key}")
    _of_thread.region = None
    _run(region, arguments)


def _run(region: PlannedRegion, arguments: Iterable[Any]) -> None:
    graph, settings = region.package.graph, region.package.settings
    tensors = list(_flatten(arguments))
    count = len(graph.inputs)
    if len(tensors) != count + len(graph.heads):
        expected = f"{count} inputs and {len(graph.heads)} outputs"
        raise InputError(f"region {_short(graph.symbol)} got {len(tensors)} tensors", f"it takes {expected}")
    inputs = [_view(tensor, writable=False) for tensor in tensors[:count]]
    outputs = [_view(tensor, writable=True) for tensor in tensors[count:]]
    held = _constants_of(region)
    constants = () if held is None else held.arrays
    if settings.mode != "fast":
        execute(region.plan, [*inputs, *constants], outputs, mode=settings.mode)
        return
    holder = held or region
    prepared = holder.prepared
    if prepared is None or prepared.plan is not region.plan:  # the region may have been planned again meanwhile
        prepared = holder.prepared = FastPlan(region.plan, constants)
    execute(region.plan, inputs, outputs, mode=settings.mode, prepared=prepared)


def wrong_count(symbol: str, expected: int, got: int) -> None:
    """Called where a module's function is called with the wrong number of arguments."""
    raise InputError(f"region {_short(symbol)} got {got} arguments", f"it takes {expected}, outputs included")


CALLBACKS: dict[str, Callable[..., Any]] = {
    RUN: run,
    HAS: has,
    LOAD: load,
    RUN_LOADED: run_loaded,
    SET_CONSTANTS: set_constants,
    WRONG_COUNT: wrong_count,
}


def _load(key: str, text: str) -> PlannedRegion:
    if key_of(text) != key:
        raise GraphError("a region is damaged", f"its text has sha256 {key_of(text)} and its key is {key}")
    return store.plan(key, package_from_json(text))


def _constants_of(region: PlannedRegion) -> HeldConstants | None:
    """Its constants, checked; None if it has none."""
    graph = region.package.graph
    if not graph.constants:
        return None
    held = store.constants_of(region.key)
    if held is None:
        raise ExecutionError(
            f"region {_short(graph.symbol)} cannot run",
            f"its {len(graph.constants)} constants were never handed to the kit",
            "a const_loader that imports its module, as RunCodegen makes it.",
        )
    if not held.is_verified:
        if region.package.constants_sha256 not in ("", digest_constants(held.arrays)):
            symbol = _short(graph.symbol)
            raise ExecutionError(f"region {symbol} cannot run", "its constants are not those it was compiled with")
        held.is_verified = True
    return held


def _are_one_memory(some: Iterable[Array], others: Iterable[Array]) -> bool:
    return [_place(array) for array in some] == [_place(array) for array in others]


def _place(array: Array) -> tuple[int, tuple[int, ...], str]:
    return array.ctypes.data, array.shape, array.dtype.str


def _flatten(arguments: Iterable[Any]) -> Iterator[Any]:
    """The tensors among ``arguments``: TVM passes a tuple parameter as one array of tensors."""
    for argument in arguments:
        if hasattr(argument, "__dlpack__"):
            yield argument
        else:
            yield from _flatten(argument)


def _view(tensor: Any, *, writable: bool) -> Array:
    view: Array = np.from_dlpack(tensor)
    if not writable:
        # TVM passes the caller's own memory: a kernel that wrote an input would change the caller's array.
        view.flags.writeable = False
    return view


def _short(symbol: str) -> str:
    return symbol if len(symbol) <= 80 else f"{symbol[:77]}..."
