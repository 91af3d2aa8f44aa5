"""Carries the reasons of a check past TVM, which asks for a bool only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from npu_kit.byoc.report import Refusal

_COLLECTED: ContextVar[list[Refusal] | None] = ContextVar("npu_kit_refusals", default=None)


def accept(refusals: Iterable[Refusal]) -> bool:
    """TVM's answer: True if there is no reason against the match. The reasons go to whoever collects them."""
    reasons = list(refusals)
    collected = _COLLECTED.get()
    if collected is not None:
        collected.extend(reasons)
    return not reasons


@contextmanager
def collect_refusals() -> Iterator[list[Refusal]]:
    """Gather what ``accept`` is given meanwhile, in the list that this yields."""
    collected: list[Refusal] = []
    token = _COLLECTED.set(collected)
    try:
        yield collected
    finally:
        _COLLECTED.reset(token)
