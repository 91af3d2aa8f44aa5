"""Which operators a dataflow pattern names."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from tvm import ir
from tvm.relax.dpl import pattern as dpl

# Walking the kit's whole table takes longer than matching it, and a pattern, once made, never changes.
_remembered = functools.lru_cache(maxsize=4096)


@_remembered
def named_operators(pattern: Any) -> frozenset[str]:
    """Every operator that occurs in ``pattern``: ``relax.add`` and so on."""
    return _collect(pattern, frozenset.union, {})


@_remembered
def required_operators(pattern: Any) -> frozenset[str]:
    """The operators without which ``pattern`` cannot match: of alternatives, what they have in common."""
    return _collect(pattern, frozenset.intersection, {})


def _collect(pattern: Any, join: Any, known: dict[Any, frozenset[str]]) -> frozenset[str]:
    """``known`` holds what was collected already: alternatives share the pattern before them."""
    if pattern not in known:
        known[pattern] = _of(pattern, join, known)
    return known[pattern]


def _of(pattern: Any, join: Any, known: dict[Any, frozenset[str]]) -> frozenset[str]:
    if isinstance(pattern, dpl.ExprPattern):
        return frozenset([str(pattern.expr.name)]) if isinstance(pattern.expr, ir.Op) else frozenset()
    if isinstance(pattern, dpl.OrPattern):
        left, right = (_collect(side, join, known) for side in (pattern.left, pattern.right))
        alternatives: frozenset[str] = join(left, right)
        return alternatives
    return frozenset().union(*(_collect(part, join, known) for part in _parts(pattern)))


def _parts(pattern: Any) -> Iterable[Any]:
    if isinstance(pattern, dpl.CallPattern):
        return (pattern.op, *(pattern.args or ()))
    if isinstance(pattern, dpl.AndPattern):
        return (pattern.left, pattern.right)
    if isinstance(pattern, dpl.TupleGetItemPattern):
        return (pattern.tuple,)
    if isinstance(pattern, dpl.TuplePattern | dpl.UnorderedTuplePattern):
        return tuple(pattern.fields)
    # A type, shape, dtype or attribute constraint wraps one pattern; a negation requires nothing.
    inner = getattr(pattern, "pattern", None)
    return () if inner is None else (inner,)
