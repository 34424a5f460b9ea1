"""What the gateway reports of its work: one event per transition, for metrics and whoever else listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

EventKind = Literal[
    "accepted",
    "delivered",
    "acked",
    "nacked",
    "rejected",
    "extended",
    "lease_lost",
    "lease_expired",
    "dead_lettered",
    "poison",
    "redriven",
    "settled_here",
    "forwarded",
]


class Event(Struct, frozen=True):
    """``count`` messages of ``queue`` made the transition ``kind``.

    ``reason``: why a message was dead-lettered, the code of a poison one, or what became of a forwarded settle
    (``settled``, ``lease_lost``, ``unreachable``, ``unknown``, ``failed``). Where only the receiver can settle, tokens
    are counted as ``settled_here`` or ``forwarded`` by the process that was asked, besides what their owner tells.
    The facts of a message are given where ``count`` is 1 and they are known.
    """

    kind: EventKind
    queue: str
    broker: str
    count: int = 1
    reason: str | None = None
    job: str | None = None
    message_id: str | None = None
    trace_id: str | None = None
    attempts: int | None = None


Observe = Callable[[Event], None]
"""Takes each event as it happens; must not block."""
