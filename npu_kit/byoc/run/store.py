"""What compiled modules need while they live: planned regions and their constants, and who keeps them.

A region can be planned again from the text that its module carries, so it is kept while a model of the kit that runs it
is alive, and besides only as one of the last ``RECENT``. Constants cannot come again: they are kept until everything
that may read them is gone. Whatever reads them holds them: a module that was compiled here, through the arrays of the
kit that TVM's tensors stand on; a library, through its RunnableModel. Where a library was loaded with TVM alone there
is nobody to hold them, and its constants stay, once for each content, until the process ends.

Nothing here runs code when an object dies: a Ctrl-C that came during a long call of TVM would be raised in that code,
where Python drops it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from numpy.typing import NDArray

from npu_kit.byoc.run.region_text import Package, key_of
from npu_kit.plan.ir import Plan
from npu_kit.plan.planner import make_plan
from npu_kit.runtime.fast import FastPlan

Array = NDArray[Any]

RECENT = 64  # regions that are kept though no model of the kit holds them: those of plain virtual machines


Kept = TypeVar("Kept")


@dataclass(eq=False)
class PlannedRegion:
    """One region, ready to run."""

    key: str
    package: Package
    plan: Plan
    prepared: FastPlan | None = None  # of a region without constants, from its first run in fast mode on


@dataclass(eq=False)
class HeldConstants:
    """The constants of one region."""

    arrays: tuple[Array, ...]
    is_verified: bool = False  # they are those that the package names
    prepared: FastPlan | None = None  # of the region with them, from its first run in fast mode on


class Owner(Protocol):
    """What may read constants, and holds them, by the keys of their regions."""

    constants: dict[str, HeldConstants]


class Keeper:
    """What one model keeps alive: the regions that it ran, and constants that came while its module was loaded."""

    def __init__(self) -> None:
        self.regions: dict[str, PlannedRegion] = {}
        self.constants: dict[str, HeldConstants] = {}


class Living(Generic[Kept]):
    """Objects by key, each as long as somebody else holds it."""

    def __init__(self) -> None:
        self._references: dict[str, weakref.ref[Kept]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter([key for key, reference in list(self._references.items()) if reference() is not None])

    def get(self, key: str) -> Kept | None:
        """The object of this key, None if there is none, or not any more."""
        reference = self._references.get(key)
        return None if reference is None else reference()

    def add(self, key: str, value: Kept) -> None:
        """Find ``value`` under ``key`` from now on. To be called by one thread at a time."""
        for dead in self._references.keys() - set(self):
            self._references.pop(dead, None)
        self._references[key] = weakref.ref(value)


# All of it survives importlib.reload: modules compiled before go on to work.
_alive: Living[PlannedRegion] = globals().get("_alive", Living())
_recent: OrderedDict[str, PlannedRegion] = globals().get("_recent", OrderedDict())
_constants: Living[HeldConstants] = globals().get("_constants", Living())
_forever: dict[str, HeldConstants] = globals().get("_forever", {})
# What a signal's handler runs may come back to them in the same thread.
_changing = globals().get("_changing", threading.RLock())
_planning = globals().get("_planning", threading.RLock())
_of_thread = globals().get("_of_thread", threading.local())


def _free_locks() -> None:
    """In a forked process: a thread that held them is not there any more, and would never let go."""
    global _changing, _planning
    _changing, _planning = threading.RLock(), threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_locks)


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
            _alive.add(key, region)
    _keep(region)
    return region


def take(key: str, arrays: tuple[Array, ...], owner: Owner | None = None) -> None:
    """Keep the constants of a region, unless they are there: while ``owner`` is alive, for ever if there is none.

    Without an owner, the model that is running in this thread is one.
    """
    if owner is None:
        owner = getattr(_of_thread, "keeper", None)
    with _changing:
        held = _constants.get(key)
        if held is None:
            held = HeldConstants(arrays)
            _constants.add(key, held)
        (_forever if owner is None else owner.constants)[key] = held


def constants_of(key: str) -> HeldConstants | None:
    """The constants of a region, None if they never came."""
    return _constants.get(key)


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
