"""The error that a negative confirm (``basic.nack``) stands for.

RabbitMQ gives no reason with it. It refuses what is beyond the limit of a queue with ``x-overflow: reject-publish``
(https://www.rabbitmq.com/docs/maxlength#overflow-behaviour), and what it was unable to handle
(https://www.rabbitmq.com/docs/confirms#server-sent-nacks). Whether the message was stored differs:

- A quorum queue that is full, or has no leader that answers in time, was never sent the message: ``enqueue`` in
  rabbit_fifo_client.erl of RabbitMQ 3.10 to 4.1.
- A classic queue whose process or node failed may have stored it: ``handle_event`` of ``down`` in
  rabbit_classic_queue.erl rejects everything that was not confirmed until then.
"""

from __future__ import annotations

import asyncio

from app.brokers.rabbitmq.management import Counts, Management
from app.brokers.rabbitmq.profile import Addressed, Topology
from app.brokers.rabbitmq.topology import Declare
from app.errors import BrokerError, BrokerUnavailable, OutcomeUnknown, StorageFull

_REMEMBERED_SECONDS = 5.0
"""How long an answer of the management API is used: a full queue refuses every message."""
_REMEMBERED_QUEUES = 1_000

_FULL = "the queue {queue!r} is at its length limit and takes no more (x-overflow: reject-publish)"
_NOT_TAKEN = "the quorum queue {queue!r} did not take the message (basic.nack): no leader answered, or it is full"
_UNKNOWN = "the {where} did not take the message (basic.nack): it is full (x-overflow: reject-publish), or it failed"


class Nacks:
    """Tells them apart by what is known of the queue: how it was declared, and what the management API says of it."""

    def __init__(self, broker: str, management: Management | None = None) -> None:
        self._broker = broker
        self._management = management
        self._asked: dict[str, tuple[float, asyncio.Task[Counts | None]]] = {}

    async def error(self, message: Addressed, topology: Topology, mode: Declare) -> BrokerError:
        """Why ``message`` was refused; asks the management API, where there is one, for at most 2 s.

        StorageFull where the queue is known to reject what is beyond its limit. BrokerUnavailable where it is known to
        be a quorum queue. In both cases nothing was written. Otherwise OutcomeUnknown; also for a message to another
        exchange than the default one, because of several queues one may have taken it.
        """
        queue = message.routing_key
        if message.exchange != "":
            return OutcomeUnknown(self._broker, _UNKNOWN.format(where=f"queue behind {message.exchange!r}"))
        counts = await self._counts(queue)
        if counts is not None and counts.rejects_beyond_limit:
            return StorageFull(self._broker, _FULL.format(queue=queue))
        if (counts is not None and counts.type == "quorum") or _is_declared_quorum(queue, topology, mode):
            return BrokerUnavailable(self._broker, _NOT_TAKEN.format(queue=queue))
        return OutcomeUnknown(self._broker, _UNKNOWN.format(where=f"queue {queue!r}"))

    async def _counts(self, queue: str) -> Counts | None:
        if self._management is None:
            return None
        loop = asyncio.get_running_loop()
        until, asking = self._asked.get(queue, (0.0, None))
        if asking is None or until <= loop.time():
            if len(self._asked) >= _REMEMBERED_QUEUES:
                self._asked.clear()
            asking = loop.create_task(self._management.counts(queue))
            self._asked[queue] = (loop.time() + _REMEMBERED_SECONDS, asking)
        # Others wait for the same answer.
        return await asyncio.shield(asking)


def _is_declared_quorum(queue: str, topology: Topology, mode: Declare) -> bool:
    """Whether the gateway declared it as a quorum queue: RabbitMQ refuses to declare one of another type so."""
    return mode == "active" and any(
        each.name == queue and each.arguments.get("x-queue-type") == "quorum" and not each.or_else
        for each in topology.queues
    )
