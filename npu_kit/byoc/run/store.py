"""What compiled modules need while they live: planned regions and their constants, and who keeps them.

A region can be planned again from the text that its module carries, so it is kept while a model of the kit that runs it
is alive, and besides only as one of the last ``RECENT``. Constants cannot come again: they are kept until everything
that may read them is gone. Of a module that was compiled here that is known exactly, since TVM's tensors stand on
arrays of the kit, whose end Python tells; of a library, when its RunnableModel is gone. Where a library was loaded with
TVM alone nobody tells, and its constants stay, once for each content, until the process ends.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from npu_kit.byoc.run.region_text import Package, key_of
from npu_kit.plan.ir import Plan
from npu_kit.plan.planner import make_plan
from npu_kit.runtime.fast import FastPlan

Array = NDArray[Any]

RECENT = 64  # regions that are kept though no model of the kit holds them: those of plain virtual machines


@dataclass(eq=False)
class PlannedRegion:
    """One region, ready to run."""

    key: str
    package: Package
    plan: Plan
    prepared: FastPlan | None = None  # with its constants, from its first run in fast mode on


@dataclass(eq=False)
class HeldConstants:
    """The constants of one region."""

    arrays: tuple[Array, ...]
    owners: int = 0  # modules and models that may read them and whose end will be told
    is_forever: bool = False  # a module has them whose end nobody tells
    is_verified: bool = False  # they are those that the package names


class Keeper:
    """What one model keeps alive: the regions that it ran, and constants that came while its module was loaded."""

    def __init__(self) -> None:
        self.regions: dict[str, PlannedRegion] = {}


# All of it survives importlib.reload: modules compiled before go on to work.
_alive: weakref.WeakValueDictionary[str, PlannedRegion] = globals().get("_alive", weakref.WeakValueDictionary())
_recent: OrderedDict[str, PlannedRegion] = globals().get("_recent", OrderedDict())
_constants: dict[str, HeldConstants] = globals().get("_constants", {})
_changing = globals().get("_changing", threading.RLock())  # reentrant: a finalizer can run anywhere, also inside
_planning = globals().get("_planning", threading.Lock())
_of_thread = globals().get("_of_thread", threading.local())


@contextmanager
def kept_by(keeper: Keeper) -> Iterator[None]:
    """What this thread finds and takes meanwhile lives as long as ``keeper``."""
    before = getattr(_of_thread, "keeper", None)
    _of_thread.keeper = keeper
    try:
        yield
    finally:
        _of_thread.keeper = before


def add(package: Package) -> tuple[PlannedRegion, str]:
    """The region of ``package``, planned unless it is already, and its text. Raises PlanError."""
    text = package.to_json()
    key = key_of(text)
    return find(key) or plan(key, package), text


def find(key: str) -> PlannedRegion | None:
    """The region of this key, None if it is not planned, or not any more."""
    region = _alive.get(key)
    if region is not None:
        _keep(region)
    return region


def plan(key: str, package: Package) -> PlannedRegion:
    """Plan a region, once where several threads ask for it. Raises PlanError."""
    with _planning:
        region = _alive.get(key)
        if region is None:
            settings = package.settings
            region = PlannedRegion(
                key, package, make_plan(package.graph, settings.spec, power_mode=settings.power_mode)
            )
            _alive[key] = region
    _keep(region)
    return region


def hold(owner: Any, constants: Mapping[str, tuple[Array, ...]]) -> None:
    """Keep the constants of regions, by key, until ``owner`` is gone."""
    for key, arrays in constants.items():
        take(key, arrays, owner)


def take(key: str, arrays: tuple[Array, ...], owner: Any = None) -> None:
    """Keep the constants of a region, unless they are there: while ``owner`` is alive, for ever if there is none.

    Without an owner, the model that is running in this thread is one.
    """
    if owner is None:
        owner = getattr(_of_thread, "keeper", None)
    with _changing:
        held = _constants.setdefault(key, HeldConstants(arrays))
        held.owners += owner is not None
        held.is_forever |= owner is None
    if owner is not None:
        weakref.finalize(owner, _release, key).atexit = False


def constants_of(key: str) -> HeldConstants | None:
    """The constants of a region, None if they never came."""
    return _constants.get(key)


def _release(key: str) -> None:
    with _changing:
        held = _constants.get(key)
        if held is None:
            return
        held.owners -= 1
        if held.owners or held.is_forever:
            return
        del _constants[key]
        region = _recent.pop(key, None) or _alive.get(key)
    if region is not None:
        region.prepared = None  # it has the constants, too


def _keep(region: PlannedRegion) -> None:
    keeper: Keeper | None = getattr(_of_thread, "keeper", None)
    if keeper is not None:
        keeper.regions[region.key] = region
        return
    with _changing:
        _recent[region.key] = region
        _recent.move_to_end(region.key)
        gone = [_recent.popitem(last=False) for _ in range(len(_recent) - RECENT)]
    del gone  # outside of the lock
