"""A mapping that does not change, so that a frozen spec can hold one and be a key of a dict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

Value = TypeVar("Value")


class FrozenMapping(Mapping[str, Value]):
    """A read-only copy of a mapping, equal to any mapping with the same items, hashable where its values are.

    ``types.MappingProxyType`` is a view, has no hash before Python 3.12 and cannot be copied or pickled.

    >>> FrozenMapping({"int8": 0.3})["int8"]
    0.3
    """

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, Value]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: str) -> Value:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)
