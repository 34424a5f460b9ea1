"""Events and broker calls that the gateway reports, and their delivery to observers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger

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
    "dropped",
    "redriven",
    "settled_here",
    "forwarded",
    "schema_violation",
]

Operation = Literal["send", "receive", "ack", "nack", "reject", "extend"]


class Facts(Struct, frozen=True, array_like=True, gc=False):
    """The known facts of one message. Ack tokens carry them, so that every process that settles the message has them.

    ``attempts`` is the count at delivery, ``created_at`` is Unix ms, ``size`` is the body's length in bytes, and
    ``traceparent`` is the W3C context that travelled with the message.
    """

    attempts: int | None = None
    message_id: str | None = None
    trace_id: str | None = None
    job: str | None = None
    created_at: int | None = None
    lang: str | None = None
    size: int | None = None
    traceparent: str | None = None


class Carrier(Protocol):
    """What carried a message: its native headers, and the key that orders it, None without one."""

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def ordering_key(self) -> str | None: ...


class Event(Struct, frozen=True):
    """``count`` messages of ``queue`` made the transition ``kind``.

    ``reason`` is why a message was dead-lettered or dropped, the code of a poison message, how a redriven message
    differs from its dead letter (``edited``, ``forced``), or the result of a forwarded settle (``settled``,
    ``lease_lost``, ``unreachable``, ``unknown``, ``failed``), or what became of a message that violates
    the schema of its job (``refused``, ``warned``,
    ``dead_lettered``). If only the receiver can settle, the process that got the
    request also reports ``settled_here`` or ``forwarded``. ``messages`` has the known facts of each message, and
    ``bodies`` the available bodies in the same order; ``carriers`` has what carried each of these, or is empty.
    ``lease_seconds`` is set for deliveries, ``to_queue`` for redriven messages.
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
    carriers: Sequence[Carrier] = ()


class Call(Struct, frozen=True):
    """One call to a broker, of ``seconds`` duration, that sent, received or settled ``count`` messages.

    A receive with ``count`` 0 found no message. ``error`` is the class of the raised error, in snake case.
    ``coalesced`` is true if the call combines concurrent calls of clients.
    """

    operation: Operation
    queue: str
    broker: str
    count: int
    seconds: float
    error: str | None = None
    coalesced: bool = False


Observe = Callable[[Event | Call], None]
"""Receives each event and each call at once; must not block and must not raise."""


_throttled = LogThrottle(get_logger(__name__))


def fan_out(observers: Sequence[Observe]) -> Observe:
    """Return an observer that calls all ``observers``.

    An exception of one of them is logged and not raised, because the reported operation has already succeeded.
    """

    def observe(reported: Event | Call) -> None:
        for each in observers:
            try:
                each(reported)
            except Exception:
                _throttled.warning("an observer failed", queue=reported.queue, exc_info=True)

    return observe
