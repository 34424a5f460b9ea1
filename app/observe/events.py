"""Events and broker calls that the gateway reports, and their delivery to observers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from app.observe.log_throttle import LogThrottle
from app.observe.logs import get_logger

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

Operation = Literal["send", "receive", "ack", "nack", "reject", "extend"]


class Facts(Struct, frozen=True, array_like=True, gc=False):
    """What is known of one message; ack tokens carry it, so that whoever settles knows it too.

    ``attempts`` as handed out. ``created_at`` is Unix ms, ``size`` the bytes of the body. ``traceparent``: the W3C
    context the message travelled with.
    """

    attempts: int | None = None
    message_id: str | None = None
    trace_id: str | None = None
    job: str | None = None
    created_at: int | None = None
    lang: str | None = None
    size: int | None = None
    traceparent: str | None = None


class Event(Struct, frozen=True):
    """``count`` messages of ``queue`` made the transition ``kind``.

    ``reason``: why a message was dead-lettered, the code of a poison one, or what became of a forwarded settle
    (``settled``, ``lease_lost``, ``unreachable``, ``unknown``, ``failed``). Where only the receiver can settle, tokens
    are counted as ``settled_here`` or ``forwarded`` by the process that was asked, besides what their owner tells.
    ``messages`` holds the facts of each, where they are known; ``bodies`` their bodies in the same order, where they
    are at hand. ``lease_seconds`` of a delivery; ``to_queue`` of what was redriven.
    """

    kind: EventKind
    queue: str
    broker: str
    count: int = 1
    reason: str | None = None
    messages: Sequence[Facts] = ()
    bodies: Sequence[bytes] = ()
    lease_seconds: float | None = None
    to_queue: str | None = None


class Call(Struct, frozen=True):
    """One call to a broker took ``seconds``, for ``count`` messages: sent, received (0: none was there) or settled.

    ``error``: the class of what it raised, in snake case. ``coalesced``: concurrent calls of clients made it up.
    """

    operation: Operation
    queue: str
    broker: str
    count: int
    seconds: float
    error: str | None = None
    coalesced: bool = False


Observe = Callable[[Event | Call], None]
"""Takes each event and each call as it happens; must not block, and must not raise."""


_throttled = LogThrottle(get_logger("babelgate.observe"))


def fan_out(observers: Sequence[Observe]) -> Observe:
    """One observer that tells all of ``observers``; what one of them raises is logged, because what was reported has
    happened, and its caller is to be told that."""

    def observe(reported: Event | Call) -> None:
        for each in observers:
            try:
                each(reported)
            except Exception:
                _throttled.warning("not all was observed", queue=reported.queue, exc_info=True)

    return observe
