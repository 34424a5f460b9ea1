"""Delays, kept by a fixed ladder of queues that all queues share. Pure.

Rung *n* is a topic exchange and a queue that holds a message for 100 ms × 2^n. A delay is written in binary, most
significant bit first, into the routing key, before the name of the queue it is for. The exchange of a rung looks at
one bit: 1 into the rung's queue, which dead-letters to the next exchange; 0 straight to the next exchange. A message
enters at its first 1.
"""

from __future__ import annotations

import math
from functools import lru_cache

from app.brokers.rabbitmq.profile import (
    UNLIMITED,
    BindingDeclaration,
    ExchangeDeclaration,
    QueueDeclaration,
    Topology,
    confirmed,
)

TICK_MS = 100
DELAY_QUEUES = 25
MAX_DELAY_SECONDS = ((1 << DELAY_QUEUES) - 1) * TICK_MS // 1000
"""All rungs: 38 days."""

ROUTING_KEY_BYTES = 255
"""A short string (AMQP 0-9-1, section 4.2.5.3)."""

MAX_QUEUE_BYTES = ROUTING_KEY_BYTES - 2 * DELAY_QUEUES
"""The longest name of a queue that fits behind the bits."""

_NAME = "babelgate.delay"
_DONE = f"{_NAME}.done"
LOST = f"{_NAME}.unroutable"
"""Where delayed messages rest whose queue was deleted meanwhile. In a rung they would hold up all others: its
dead-lettering goes on with a few unconfirmed messages only (https://www.rabbitmq.com/docs/quorum-queues)."""


def _delay_queue(number: int) -> str:
    return f"{_NAME}.{number:02d}"


def _arguments(number: int) -> dict[str, object]:
    # Never x-expires: publishing is no use of a queue, an idle rung would go with the messages in it.
    return {"x-message-ttl": TICK_MS << number, "x-dead-letter-exchange": _delay_queue(number - 1) if number else _DONE}


def _queue(number: int) -> QueueDeclaration:
    classic = _arguments(number)
    # Older brokers refuse the quorum queue, and a broker that once was older has the classic one.
    return QueueDeclaration(_delay_queue(number), confirmed(classic), or_else=(classic,))


def _bindings(number: int) -> tuple[BindingDeclaration, BindingDeclaration]:
    before = "*." * (DELAY_QUEUES - 1 - number)
    onwards = _delay_queue(number - 1) if number else _DONE
    return (
        BindingDeclaration(_delay_queue(number), _delay_queue(number), f"{before}1.#"),
        BindingDeclaration(_delay_queue(number), onwards, f"{before}0.#", to_exchange=True),
    )


DELAY_TOPOLOGY = Topology(
    exchanges=(
        ExchangeDeclaration(LOST, "fanout"),
        ExchangeDeclaration(_DONE, "topic", alternate=LOST),
        *(ExchangeDeclaration(_delay_queue(number), "topic") for number in range(DELAY_QUEUES)),
    ),
    queues=(
        QueueDeclaration(LOST, UNLIMITED, or_else=({},)),
        *(_queue(number) for number in range(DELAY_QUEUES)),
    ),
    bindings=(
        BindingDeclaration(LOST, LOST, ""),
        *(bound for number in range(DELAY_QUEUES) for bound in _bindings(number)),
    ),
)


@lru_cache(maxsize=4096)
def delayed_topology(queue: str) -> Topology:
    """The ladder, and its end bound to ``queue``, which must exist."""
    # One wildcard for each bit, not #: what is meant for a.b must not match b.
    end = BindingDeclaration(_DONE, queue, "*." * DELAY_QUEUES + queue)
    return Topology(DELAY_TOPOLOGY.exchanges, DELAY_TOPOLOGY.queues, (*DELAY_TOPOLOGY.bindings, end))


def delayed_route(queue: str, delay_seconds: float) -> tuple[str, str, Topology]:
    """Exchange, routing key and needed topology for a message to ``queue`` in ``delay_seconds``, rounded up to 100 ms.

    Raises ValueError for a delay that is not above 0, or above MAX_DELAY_SECONDS.
    """
    if not 0 < delay_seconds <= MAX_DELAY_SECONDS:
        raise ValueError(f"a delay is above 0 s and at most {MAX_DELAY_SECONDS} s")
    # 0.3 s are 300.00000000000006 ms: less than a microsecond is no reason for a tick more.
    ticks = math.ceil(round(delay_seconds * 1000, 3) / TICK_MS)
    bits = ".".join(f"{ticks:0{DELAY_QUEUES}b}")
    return _delay_queue(ticks.bit_length() - 1), f"{bits}.{queue}", delayed_topology(queue)
