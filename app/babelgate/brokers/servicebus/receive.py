"""Receives the messages of queues without sessions: one receive of a queue at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from weakref import WeakValueDictionary

from babelgate.brokers.binding import Delivery
from babelgate.brokers.bounded import GRACE_SECONDS, answering
from babelgate.brokers.connect import CONNECT_SECONDS
from babelgate.brokers.servicebus.client import Handler, ServiceBusConnections
from babelgate.brokers.servicebus.errors import translate
from babelgate.brokers.servicebus.link import LockedMessage, ReceiveLink
from babelgate.brokers.servicebus.locks import QueueLocks
from babelgate.errors import BrokerUnavailable

MAX_RECEIVED = 100
"""Messages of one receive. More credit takes more messages from other replicas at once."""


class _Pump:
    """The receives of one queue. ``polls``: receives that do not wait, and wait for their turn."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.polls = 0


class ServiceBusReceiver:
    """Receives for one broker. A receive that waits ends early when one that does not wait comes: it can show, too,
    that the queue is empty. The time that a receive may take does not include that of connecting, which over TLS and
    with a token takes many round trips."""

    def __init__(self, connections: ServiceBusConnections, locks: Callable[[str], QueueLocks]) -> None:
        self._connections = connections
        self._locks = locks
        self._pumps: WeakValueDictionary[str, _Pump] = WeakValueDictionary()
        """Each lasts as long as a receive uses it."""
        self._closed = False

    async def reserve(self, entity: str, limit: int, wait_seconds: float) -> Sequence[Delivery]:
        """At most ``limit`` messages of the queue ``entity``. Raises BrokerError."""
        pump = self._pumps.setdefault(entity, _Pump())
        broker = self._connections.broker
        async with answering(CONNECT_SECONDS, translate, broker, reason=f"no connection within {CONNECT_SECONDS:g} s"):
            handler = await self._connections.taken("receive", entity)
        until = asyncio.get_running_loop().time() + wait_seconds + self._connections.timeout_seconds - GRACE_SECONDS
        is_poll = wait_seconds <= 0
        pump.polls += is_poll
        try:
            async with asyncio.timeout_at(until), pump.turn:
                pump.polls -= is_poll
                is_poll = False
                return await self._receive(handler, pump, entity, min(limit, MAX_RECEIVED), wait_seconds, until)
        except TimeoutError:
            raise BrokerUnavailable(self._connections.broker, "no answer in time") from None
        finally:
            pump.polls -= is_poll
            self._connections.leave(handler)

    def close(self) -> None:
        """End the waits of receives."""
        self._closed = True

    def open(self) -> None:
        """Let receives wait again."""
        self._closed = False

    async def _receive(
        self, handler: Handler, pump: _Pump, entity: str, limit: int, wait_seconds: float, until: float
    ) -> Sequence[Delivery]:
        try:
            async with handler.lock:
                if handler.closed:
                    raise BrokerUnavailable(self._connections.broker, "the connection was closed")
                link = ReceiveLink(handler.client)
                received = await link.receive(limit, wait_seconds, until, lambda: not (pump.polls or self._closed))
        except BaseException as error:
            # Its credit may still be with the service, which would lock messages without a receive.
            self._connections.discard(handler)
            if isinstance(error, TimeoutError) or not isinstance(error, Exception):
                raise
            raise translate(error, self._connections.broker, written=False) from error
        self._locks(entity).hold(handler, link, received)
        return [delivery_of(each) for each in received]


def delivery_of(received: LockedMessage) -> Delivery:
    """The delivery of a message. The gateway keeps its lease."""
    found = received.message
    return Delivery(
        found.body,
        received.token.hex,
        0,
        found.headers,
        found.count,
        found.count > 0,
        found.carried,
        unsupported_version=found.version,
        properties={**found.properties, "LockToken": str(received.token)},
        ordering_key=found.properties.get("SessionId"),
    )
