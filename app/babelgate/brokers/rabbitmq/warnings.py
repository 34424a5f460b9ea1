"""Warns about the set-up of a server, and about queues whose settings lose messages or move them away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiormq.exceptions import AMQPError

from babelgate.brokers.rabbitmq.connection import AmqpConnection
from babelgate.brokers.rabbitmq.delays import LOST
from babelgate.brokers.rabbitmq.management import LENGTH_LIMITS, ManagementClient, QueueCounts
from babelgate.brokers.rabbitmq.profile import DELIVERY_LIMIT
from babelgate.errors import BabelgateError

LIMITED_BY_DEFAULT = (4, 0)
"""From this version on a quorum queue has DELIVERY_LIMIT:
https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling"""

CONFIRMED_HOPS = (3, 10)
"""Dead-lettering at least once: https://www.rabbitmq.com/docs/quorum-queues#dead-lettering"""

_WARNINGS_SECONDS = 1.8


async def warnings_of(connection: AmqpConnection) -> list[str]:
    """Warnings about the server, as sentences; at most 2 s, then without the rest."""
    found: list[str] = []
    if (reason := connection.blocked) is not None:
        found.append(f"The server blocks publishers: {reason}.")
    try:
        async with asyncio.timeout(_WARNINGS_SECONDS):
            found += await _on_delays(connection)
    except (TimeoutError, BabelgateError):
        # Other checks report a server that does not answer.
        pass
    return found


async def queue_warnings(management: ManagementClient, names: Sequence[str], version: tuple[int, ...]) -> list[str]:
    """Warnings about the settings of the queues ``names``, by their arguments and policies. A missing queue has none.

    ``version`` of the server, as of the connection: newer ones have a delivery limit without any setting.
    """
    found = await asyncio.gather(*map(management.counts, names))
    return [text for each in found if each is not None for text in _on_queue(each, version)]


def _on_queue(queue: QueueCounts, version: tuple[int, ...]) -> list[str]:
    found, start = [], f"The queue {queue.name}"
    # Its messages go to the dead-letter exchange, if it has one.
    fate = "moves to its dead-letter exchange" if queue.has_dead_letter_exchange else "drops"
    if not queue.durable:
        found.append(f"{start} is not durable: its messages are lost when the server restarts.")
    if queue.auto_delete:
        found.append(f"{start} is deleted with its messages when its last consumer has gone (auto_delete).")
    if (expires := queue.number("expires")) is not None:
        found.append(f"{start} is deleted with its messages when it was not used for {expires / 1000:g} s (expires).")
    if (ttl := queue.number("message-ttl")) is not None:
        found.append(f"{start} {fate} messages that are older than {ttl / 1000:g} s (message-ttl).")
    limits = {limit: queue.number(limit) for limit in LENGTH_LIMITS}
    given = " and ".join(f"{limit} {value}" for limit, value in limits.items() if value is not None)
    if given and queue.overflow == "drop-head":
        found.append(
            f"{start} {fate} its oldest messages beyond its limit ({given}, overflow drop-head); reject-publish "
            "refuses new ones instead."
        )
    if queue.type == "quorum" and not queue.has_dead_letter_exchange:
        limit = queue.number("delivery-limit")
        if limit is None and version >= LIMITED_BY_DEFAULT:
            limit = DELIVERY_LIMIT
        if limit is not None and limit >= 0:
            found.append(
                f"The quorum queue {queue.name} has no dead-letter exchange: it drops a message after its delivery "
                f"limit (delivery-limit {limit})."
            )
    return found


async def _on_delays(connection: AmqpConnection) -> list[str]:
    await connection.connected()
    version = connection.server_version
    found = []
    if version < CONFIRMED_HOPS:
        found.append(
            f"RabbitMQ {'.'.join(map(str, version))} moves delayed messages between queues without confirms, so that a "
            "crash can lose one. 3.10 and newer use confirms."
        )
    channel = await connection.channel()
    try:
        if count := await channel.ready(LOST):
            found.append(
                f"{count} delayed messages are in the queue {LOST}: when they were due, their queue was no longer "
                "bound to the exchange babelgate.delay.done."
            )
    except AMQPError:
        # The queue is missing: no message was ever delayed here.
        pass
    finally:
        await channel.close()
    return found
