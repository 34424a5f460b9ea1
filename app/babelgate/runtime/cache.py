"""What a process remembers, bounded in bytes, and what it has in use, bounded in number."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sized
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Sized)
Value = TypeVar("Value")
Name = TypeVar("Name")

_LOOKED_AT = 8
"""Values of :class:`Recent` that a new one looks at: it costs the same however many there are, and their number falls
back to the bound after a time in which more were busy."""

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


class Recent(OrderedDict[Name, Value]):
    """What is in use, by name: at most ``most``, and those that are busy.

    Before another name is added, the oldest of those that are not busy are taken out, and ``end`` is called with each.
    One that is busy becomes the newest. A name that is set again keeps its age; see :meth:`obtain`.
    """

    def __init__(
        self,
        most: int,
        is_busy: Callable[[Value], object] = lambda _: False,
        end: Callable[[Value], object] = lambda _: None,
    ) -> None:
        super().__init__()
        self._most = most
        self._is_busy = is_busy
        self._end = end

    def __setitem__(self, name: Name, value: Value) -> None:
        if name not in self:
            for _ in range(_LOOKED_AT):
                if len(self) < self._most:
                    break
                other, oldest = next(iter(self.items()))
                if self._is_busy(oldest):
                    self.move_to_end(other)
                else:
                    del self[other]
                    self._end(oldest)
        super().__setitem__(name, value)

    def obtain(self, name: Name, make: Callable[[], Value]) -> Value:
        """The value of ``name``, which becomes the newest; made if there is none."""
        found = self.get(name)
        if found is None:
            found = self[name] = make()
        else:
            self.move_to_end(name)
        return found
