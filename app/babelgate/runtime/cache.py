"""What a process remembers, bounded in bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sized
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Sized)
Value = TypeVar("Value")
Name = TypeVar("Name")

_LOOKED_AT = 8
"""Values that :func:`make_room` looks at: a new one costs the same however many there are, and their number falls back
to the bound after a time in which more were busy."""

PLAIN_BYTES = 256
"""``entry_bytes`` of a text or bytes with a number or nothing: the places in the table, and the head of the key."""


class Cache(Generic[Key, Value]):
    """Values by key, at most ``max_bytes`` of them: the oldest are forgotten first.

    An entry counts ``entry_bytes`` and the length of its key. ``entry_bytes`` is the most that it takes beside the
    characters or bytes of its key, so that the number of entries is bounded, too. ``size``: the bytes counted now.
    """

    __slots__ = ("_entry_bytes", "_kept", "get", "max_bytes", "size")

    def __init__(self, max_bytes: int, entry_bytes: int = PLAIN_BYTES) -> None:
        self._kept: OrderedDict[Key, Value] = OrderedDict()
        self._entry_bytes = entry_bytes
        self.max_bytes = max_bytes
        self.size = 0
        # A look-up of each request: bound here, it is one call, and none of Python.
        self.get: Callable[[Key], Value | None] = self._kept.get

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def max_entries(self) -> int:
        """The most entries, if their keys are short."""
        return self.max_bytes // self._entry_bytes

    def __iter__(self) -> Iterator[Key]:
        """The keys, the oldest first."""
        return iter(self._kept)

    def __contains__(self, key: object) -> bool:
        return key in self._kept

    def keep(self, key: Key, value: Value) -> None:
        """Remember ``value``, unless the entry alone is larger than ``max_bytes``. It replaces one of the same key."""
        kept = self._kept
        if key not in kept:
            size = len(key) + self._entry_bytes
            if size > self.max_bytes:
                return
            self.size += size
            while self.size > self.max_bytes:
                oldest, _ = kept.popitem(last=False)
                self.size -= len(oldest) + self._entry_bytes
        kept[key] = value

    def forget(self, key: Key) -> None:
        """Forget the value of ``key``, if there is one."""
        if key in self._kept:
            del self._kept[key]
            self.size -= len(key) + self._entry_bytes

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self.size = 0


def make_room(
    kept: OrderedDict[Name, Value], most: int, is_busy: Callable[[Value], object], end: Callable[[Value], None]
) -> None:
    """Before one more is added to ``kept``: take out the oldest that are not busy, so that there will be ``most``.

    ``end`` is called with each of them. One that is busy stays, as the newest, also beyond ``most``.
    """
    for _ in range(_LOOKED_AT):
        if len(kept) < most:
            return
        name, oldest = next(iter(kept.items()))
        if is_busy(oldest):
            kept.move_to_end(name)
        else:
            del kept[name]
            end(oldest)
