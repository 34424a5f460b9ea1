"""Delays messages by a fixed set of delay queues that all queues share. Pure.

Delay queue *n* belongs to a topic exchange and keeps each message for 100 ms × 2^n. The routing key of a delayed
message is its delay in binary, most significant bit first, followed by the name of its destination queue. Exchange *n*
checks one bit: 1 routes the message into delay queue *n*, which dead-letters to the next exchange; 0 routes it directly
to the next exchange. A message is published to the exchange of its first 1.
"""

from __future__ import annotations

import math
from functools import lru_cache

from babelgate.brokers.rabbitmq.profile import (
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
"""The sum of all delay queues: 38 days."""

ROUTING_KEY_BYTES = 255
"""A short string (AMQP 0-9-1, section 4.2.5.3)."""

MAX_QUEUE_BYTES = ROUTING_KEY_BYTES - 2 * DELAY_QUEUES
"""The longest name of a queue that fits into a routing key after the bits of the delay."""

_NAME = "babelgate.delay"
_DONE = f"{_NAME}.done"
LOST = f"{_NAME}.unroutable"
"""The queue for delayed messages whose destination was deleted. In a delay queue they would block all others, because
it has only a few unconfirmed messages in flight (https://www.rabbitmq.com/docs/quorum-queues)."""


def _delay_queue(number: int) -> str:
    return f"{_NAME}.{number:02d}"


def _arguments(number: int) -> dict[str, object]:
    # Never x-expires: it ignores publishing, so an idle delay queue would be deleted with its messages.
    return {"x-message-ttl": TICK_MS << number, "x-dead-letter-exchange": _delay_queue(number - 1) if number else _DONE}


def _queue(number: int) -> QueueDeclaration:
    classic = _arguments(number)
    # RabbitMQ before 3.10 refuses the quorum queue; a server that was upgraded may still have the classic one.
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
    """All delay queues, and the binding from the last exchange to ``queue``, which must exist."""
    # One wildcard for each bit instead of #: a message for the queue a.b must not match the queue b.
    end = BindingDeclaration(_DONE, queue, "*." * DELAY_QUEUES + queue)
    return Topology(DELAY_TOPOLOGY.exchanges, DELAY_TOPOLOGY.queues, (*DELAY_TOPOLOGY.bindings, end))


def delayed_route(queue: str, delay_seconds: float) -> tuple[str, str, Topology]:
    """Exchange, routing key and needed topology for a message to ``queue`` in ``delay_seconds``, rounded up to 100 ms.

    Raises ValueError for a delay that is not above 0, or above MAX_DELAY_SECONDS.
    """
    if not 0 < delay_seconds <= MAX_DELAY_SECONDS:
        raise ValueError(f"a delay is above 0 s and at most {MAX_DELAY_SECONDS} s")
    # 0.3 s are 300.00000000000006 ms as a float: rounding to a microsecond avoids an additional tick.
    ticks = math.ceil(round(delay_seconds * 1000, 3) / TICK_MS)
    bits = ".".join(f"{ticks:0{DELAY_QUEUES}b}")
    return _delay_queue(ticks.bit_length() - 1), f"{bits}.{queue}", delayed_topology(queue)
