"""How many messages one call to a broker reads."""

from __future__ import annotations

PAGE_BYTES = 16_777_216
"""Most bytes of the messages that one call reads together, unless a single message has more."""
_FIRST = 8


def affordable(count: int, size: int, capacity: int = PAGE_BYTES) -> int:
    """The number of messages that fit ``capacity`` bytes, if they are as large as the ``count`` messages of ``size``
    bytes that were read before; a few if none were read."""
    return max(capacity * count // max(size, 1), 1) if count else _FIRST
