"""Runs regions for compiled modules: finds a region by its content key, checks what TVM hands over, executes its plan.

A compiled module holds a region's text and key, and calls the functions of ``CALLBACKS`` by name. TVM checks nothing
about the tensors it passes: their number is checked here, shapes and dtypes in ``execute``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.byoc.run.region_text import Package, digest_constants, key_of, package_from_json
from npu_kit.errors import ExecutionError, GraphError, InputError
from npu_kit.plan.ir import Plan
from npu_kit.plan.planner import make_plan
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


@dataclass(frozen=True)
class _Region:
    package: Package
    plan: Plan


# Both survive importlib.reload: modules compiled before go on to work. They grow with every new model of a process:
# TVM does not say when a module is gone.
_regions: dict[str, _Region] = globals().get("_regions", {})
_constants: dict[str, tuple[Array, ...]] = globals().get("_constants", {})
_prepared: dict[str, FastPlan] = {}  # plans with their constants, from their first run on
_verified: set[str] = set()  # keys whose constants are those that the package names
_planning = threading.Lock()


def add(package: Package) -> tuple[str, str, Plan]:
    """Plan ``package`` unless that is done; returns its key, its text and its plan. Raises PlanError."""
    text = package.to_json()
    key = key_of(text)
    return key, text, _add(key, package).plan


def has(key: str) -> int:
    """1 if a region of this key is planned."""
    return int(key in _regions)


def load(key: str, text: str) -> None:
    """Read and plan the region of a module that was loaded from a file."""
    if key_of(text) != key:
        raise GraphError("a region is damaged", f"its text has sha256 {key_of(text)} and its key is {key}")
    _add(key, package_from_json(text))


def set_constants(key: str, tensors: Iterable[Any]) -> int:
    """Take the constants of a region; TVM calls this once per loaded module, before the first run."""
    given = tuple(_view(tensor, writable=False) for tensor in tensors)
    known = _constants.setdefault(key, given)
    if known is not given and digest_constants(known) != digest_constants(given):
        # Only a bare JSON graph can get here: a package's key covers its constants.
        raise ExecutionError(
            "the constants of a region cannot be taken",
            f"the same graph is in use with other constants (key {key})",
            "naming constants after their content, as lower does.",
        )
    return 0


def run(key: str, text: str, *arguments: Any) -> None:
    """Run a region that the call itself describes."""
    if key not in _regions:
        load(key, text)
    run_loaded(key, *arguments)


def run_loaded(key: str, *arguments: Any) -> None:
    """Run a region: ``arguments`` are its inputs and then its outputs, as TVM's tensors, the outputs to be written."""
    region = _regions[key]
    graph, settings = region.package.graph, region.package.settings
    tensors = list(_flatten(arguments))
    count = len(graph.inputs)
    if len(tensors) != count + len(graph.heads):
        expected = f"{count} inputs and {len(graph.heads)} outputs"
        raise InputError(f"region {_short(graph.symbol)} got {len(tensors)} tensors", f"it takes {expected}")
    inputs = [_view(tensor, writable=False) for tensor in tensors[:count]]
    outputs = [_view(tensor, writable=True) for tensor in tensors[count:]]
    constants = _constants_of(key, region.package)
    if settings.mode != "fast":
        execute(region.plan, [*inputs, *constants], outputs, mode=settings.mode)
        return
    if key not in _prepared:
        _prepared[key] = FastPlan(region.plan, constants)
    execute(region.plan, inputs, outputs, mode=settings.mode, prepared=_prepared[key])


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


def _add(key: str, package: Package) -> _Region:
    with _planning:
        if key not in _regions:
            settings = package.settings
            plan = make_plan(package.graph, settings.spec, power_mode=settings.power_mode)
            _regions[key] = _Region(package, plan)
        return _regions[key]


def _constants_of(key: str, package: Package) -> tuple[Array, ...]:
    graph = package.graph
    if not graph.constants:
        return ()
    constants = _constants.get(key)
    if constants is None:
        raise ExecutionError(
            f"region {_short(graph.symbol)} cannot run",
            f"its {len(graph.constants)} constants were never handed to the kit",
            "a const_loader that imports its module, as RunCodegen makes it.",
        )
    if key not in _verified:
        if package.constants_sha256 not in ("", digest_constants(constants)):
            symbol = _short(graph.symbol)
            raise ExecutionError(f"region {symbol} cannot run", "its constants are not those it was compiled with")
        _verified.add(key)
    return constants


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
