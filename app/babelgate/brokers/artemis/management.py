"""Asks the broker about its queues at its management address, where it is permitted.

https://activemq.apache.org/components/artemis/documentation/latest/management.html#using-management-via-amqp
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from babelgate.brokers import amqp
from babelgate.brokers.artemis.client import ArtemisClient, attached
from babelgate.brokers.artemis.connection import ArtemisConnection
from babelgate.brokers.artemis.errors import ConnectionLost, Refused, translate
from babelgate.brokers.artemis.links import Arrived, ReceiverLink, SenderLink
from babelgate.brokers.artemis.message import read
from babelgate.brokers.binding import DeliveryLimit
from babelgate.brokers.bounded import answering

_ADDRESS = "activemq.management"
_CREDIT = 1_000
_ASK_AGAIN_SECONDS = 60.0
"""How long after a denial nothing is asked."""

_DEFAULT_DELIVERIES = 10
"""max-delivery-attempts where the settings of an address have none:
https://activemq.apache.org/components/artemis/documentation/latest/undelivered-messages.html"""

_NOWHERE = "nowhere, as it has no dead-letter-address: it drops it"

_Reply = tuple[bool, Any]
"""Whether the call succeeded, and what it returned."""


class _Channel:
    """The links of one connection to the management address."""

    def __init__(self, connection: ArtemisConnection) -> None:
        self.connection = connection
        self.sender: SenderLink = connection.sender(_ADDRESS)
        self.replies: ReceiverLink = connection.receiver(None)
        self.waiting: dict[str, asyncio.Future[_Reply]] = {}
        self._count = 0

    async def open(self) -> None:
        """Attach. Raises Refused or ConnectionLost."""
        await attached(self.replies)
        await attached(self.sender)
        self.replies.on_arrival = self._arrived
        self.replies.give(_CREDIT)

    def close(self) -> None:
        """Detach; idempotent."""
        self.sender.close()
        self.replies.close()

    async def call(self, resource: str, body: str, properties: Mapping[str, str]) -> _Reply:
        """One request and its reply. Raises Refused or ConnectionLost."""
        self._count += 1
        identity = str(self._count)
        waiting = self.waiting[identity] = asyncio.get_running_loop().create_future()
        named = {"_AMQ_ResourceName": resource, **properties}
        fields = [amqp.string(identity), *[amqp.NULL] * 3, amqp.string(self.replies.address)]
        texts = {amqp.string(name): amqp.string(value) for name, value in named.items()}
        sections = (
            amqp.described(amqp.PROPERTIES, amqp.sequence(fields)),
            amqp.described(amqp.APPLICATION, amqp.mapping(texts)),
            amqp.described(amqp.VALUE, amqp.string(body)),
        )
        try:
            (sent,) = self.sender.send([b"".join(sections)])
            await asyncio.shield(sent)
            await asyncio.wait((waiting, self.connection.ended), return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                raise self.connection.error or ConnectionLost("closed")
            reply: _Reply = waiting.result()
            return reply
        finally:
            del self.waiting[identity]

    def _arrived(self, arrived: Arrived) -> None:
        reply = read(arrived.raw)
        self.connection.accept([arrived.number])
        self.replies.give(1)
        waiting = self.waiting.get(amqp.text_of(amqp.decode(reply.carried.fields.get(5, amqp.NULL))) or "")
        if waiting is not None and not waiting.done():
            returned = json.loads(reply.body) if reply.body else [None]
            waiting.set_result((reply.headers.get("_AMQ_OperationSucceeded") == "true", returned[0]))


class ArtemisManagement:
    """Calls of the broker's management API. Each takes at most the broker's time-out; None: it is not permitted."""

    def __init__(self, client: ArtemisClient) -> None:
        self._client = client
        self._channel: _Channel | None = None
        self._opening = asyncio.Lock()
        self._denied_until = 0.0

    async def counts(self, queue: str) -> tuple[int, int, int] | None:
        """The messages of ``queue`` that are ready, leased and delayed; zeros for a queue that does not exist."""
        names = ("messageCount", "deliveringCount", "scheduledCount")
        found = await asyncio.gather(*(self._attribute(f"queue.{queue}", name) for name in names))
        if any(each is None for each in found):
            return None
        total, leased, delayed = (int(each or 0) for each in found)
        return max(0, total - leased - delayed), leased, delayed

    async def purge(self, queue: str) -> int | None:
        """Remove the ready and delayed messages of ``queue``; their number."""
        found = await self._call(f"queue.{queue}", "[]", writes=True, _AMQ_OperationName="removeAllMessages")
        return None if found is None else int(found[1]) if found[0] else 0

    async def queues(self) -> list[str] | None:
        """The anycast queues that are not temporary."""
        options = json.dumps({"field": "", "operation": "", "value": "", "sortField": "name", "sortOrder": "asc"})
        found = await self._call("broker", json.dumps([options, 1, 10_000]), _AMQ_OperationName="listQueues")
        if found is None or not found[0]:
            return None
        return [
            each["name"]
            for each in json.loads(found[1])["data"]
            if each.get("routingType") == "ANYCAST" and str(each.get("durable")).lower() == "true"
        ]

    async def delivery_limit(self, queue: str) -> DeliveryLimit | None:
        """The limit of deliveries in the settings of the address ``queue``; also None without a limit."""
        settings = await self.address_settings(queue)
        if settings is None:
            return None
        deliveries = settings.get("maxDeliveryAttempts", _DEFAULT_DELIVERIES)
        return DeliveryLimit(deliveries, settings.get("deadLetterAddress") or _NOWHERE) if deliveries > 0 else None

    async def address_settings(self, queue: str) -> Mapping[str, Any] | None:
        """The settings of the address ``queue``, by their names in the broker's API."""
        found = await self._call("broker", json.dumps([queue]), _AMQ_OperationName="getAddressSettingsAsJSON")
        return None if found is None or not found[0] else dict(json.loads(found[1]))

    async def attribute(self, queue: str, name: str) -> Any:
        """An attribute of ``queue``; also None where the queue does not exist."""
        found = await self._call(f"queue.{queue}", "[]", _AMQ_Attribute=name)
        return None if found is None or not found[0] else found[1]

    async def is_persistent(self) -> bool | None:
        """Whether the broker stores messages on its disk."""
        found = await self._call("broker", "[]", _AMQ_Attribute="persistenceEnabled")
        return None if found is None or not found[0] else bool(found[1])

    async def max_disk_usage(self) -> int | None:
        """The share of its disk, in percent, above which the broker takes no messages; -1 for no limit."""
        found = await self._call("broker", "[]", _AMQ_Attribute="maxDiskUsage")
        return None if found is None or not found[0] else int(found[1])

    async def smallest_large(self) -> int | None:
        """The lowest ``amqpMinLargeMessageSize`` that an acceptor has, in bytes; None where none has one, or a negative
        one, with which no message is large."""
        found = await self._call("broker", "[]", _AMQ_OperationName="getAcceptorsAsJSON")
        if found is None or not found[0]:
            return None
        sizes = (each["extraProps"].get("amqpMinLargeMessageSize") for each in json.loads(found[1]))
        return min((int(size) for size in sizes if size is not None and int(size) >= 0), default=None)

    async def _attribute(self, resource: str, name: str) -> int | None:
        found = await self._call(resource, "[]", _AMQ_Attribute=name)
        # A resource that does not exist has no attributes.
        return None if found is None else found[1] if found[0] else 0

    async def _call(self, resource: str, body: str, *, writes: bool = False, **properties: str) -> _Reply | None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._denied_until:
            return None
        seconds = self._client.timeout_seconds
        channel = None
        async with answering(seconds, translate, self._client.broker, written=writes):
            try:
                channel = await self._opened()
                return await channel.call(resource, body, properties)
            except Refused:
                self._channel = None
                self._denied_until = loop.time() + _ASK_AGAIN_SECONDS
                return None
            finally:
                # The last of the calls that were denied together.
                if channel is not None and channel is not self._channel and not channel.waiting:
                    channel.close()

    async def _opened(self) -> _Channel:
        async with self._opening:
            channel = self._channel
            if channel is None or channel.sender.ended is not None or channel.replies.ended is not None:
                channel = _Channel(await self._client.connected())
                try:
                    await channel.open()
                except BaseException:
                    channel.close()
                    raise
                self._channel = channel
            return channel
