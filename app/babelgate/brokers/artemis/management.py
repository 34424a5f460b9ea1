"""Asks the broker about itself and its queues at its management address, where it is permitted.

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
from babelgate.brokers.artemis.links import LARGE_BYTES, Arrived, ReceiverLink, SenderLink
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

_FULL = {
    "addressFullMessagePolicy": "address-full-policy",
    "pageFullMessagePolicy": "page-full-policy",
    "diskFullMessagePolicy": "disk-full-policy",
}
"""What becomes of a message for which there is no room, by the name in the API and in broker.xml."""

_EXPIRY = {
    "expiryDelay": "expiry-delay",
    "maxExpiryDelay": "max-expiry-delay",
    "minExpiryDelay": "min-expiry-delay",
}
"""The delays in milliseconds, of which the first one that is set holds for messages without an expiry:
https://activemq.apache.org/components/artemis/documentation/latest/message-expiry.html"""

_WHOLE_DISK = 100
"""``max-disk-usage`` in percent; -1 is no limit, either.
https://activemq.apache.org/components/artemis/documentation/latest/paging.html#max-disk-usage"""

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
        found = await asyncio.gather(*(self._attribute(f"queue.{queue}", name, 0) for name in names))
        if any(each is None for each in found):
            return None
        total, leased, delayed = found
        return max(0, total - leased - delayed), leased, delayed

    async def purge(self, queue: str) -> int | None:
        """Remove the ready and delayed messages of ``queue``; their number."""
        reply = await self._call(f"queue.{queue}", "[]", writes=True, _AMQ_OperationName="removeAllMessages")
        return None if reply is None else int(reply[1]) if reply[0] else 0

    async def queues(self) -> list[str]:
        """The anycast queues that are not temporary; none where it is not permitted."""
        options = json.dumps({"field": "", "operation": "", "value": "", "sortField": "name", "sortOrder": "asc"})
        found = await self._operation("listQueues", options, 1, 10_000)
        return [
            each["name"]
            for each in (found["data"] if found else ())
            if each.get("routingType") == "ANYCAST" and str(each.get("durable")).lower() == "true"
        ]

    async def delivery_limit(self, queue: str) -> DeliveryLimit | None:
        """The limit of deliveries in the settings of the address ``queue``; also None without a limit."""
        settings = await self._settings(queue)
        if settings is None:
            return None
        deliveries = settings.get("maxDeliveryAttempts", _DEFAULT_DELIVERIES)
        return DeliveryLimit(deliveries, settings.get("deadLetterAddress") or _NOWHERE) if deliveries > 0 else None

    async def broker_warnings(self) -> list[str]:
        """Of settings with which the broker loses or stops taking messages, or does not count their attempts; empty
        where it may not be asked."""
        is_persistent, usage, acceptors = await asyncio.gather(
            self._attribute("broker", "persistenceEnabled"),
            self._attribute("broker", "maxDiskUsage"),
            self._operation("getAcceptorsAsJSON"),
        )
        # A negative size is that of an acceptor for which no message is large.
        sizes = [_set(each["extraProps"] or {}).get("amqpMinLargeMessageSize", -1) for each in acceptors or ()]
        smallest = min((int(size) for size in sizes if int(size) >= 0), default=LARGE_BYTES)
        the_broker = f"The broker {self._client.broker!r}"
        found = []
        if is_persistent is False:
            found.append(f"{the_broker} has persistence-enabled false: messages are lost when it stops.")
        if usage is not None and not 0 <= usage < _WHOLE_DISK:
            found.append(
                f"{the_broker} takes messages until its disk is full (max-disk-usage {usage}), and then stops."
            )
        if smallest < LARGE_BYTES:
            found.append(
                f"{the_broker} does not count the failed attempts of messages of {smallest} bytes and more "
                f"(amqpMinLargeMessageSize of an acceptor). Below {LARGE_BYTES} bytes they never reach max_attempts: "
                f"set amqpMinLargeMessageSize to at least {LARGE_BYTES}."
            )
        return found

    async def queue_warnings(self, queue: str) -> list[str]:
        """Of settings with which ``queue`` or its address drops what it has accepted; empty where the broker may not be
        asked."""
        settings, ring, last_value, purges = await asyncio.gather(
            self._settings(queue),
            *(self._attribute(f"queue.{queue}", name) for name in ("ringSize", "lastValue", "purgeOnNoConsumers")),
        )
        if settings is None:
            return []
        found = _address_warnings(queue, settings)
        # A queue that does not exist yet will have the defaults of its address.
        ring = settings.get("defaultRingSize", -1) if ring is None else ring
        if ring >= 0:
            found.append(f"The queue {queue} drops its oldest messages beyond {ring} (ring-size).")
        if settings.get("defaultLastValueQueue") if last_value is None else last_value:
            found.append(f"The queue {queue} keeps only the last message of each last-value key.")
        if settings.get("defaultPurgeOnNoConsumers") if purges is None else purges:
            found.append(f"The queue {queue} drops its messages when no consumer is connected (purge-on-no-consumers).")
        return found

    async def _settings(self, queue: str) -> Mapping[str, Any] | None:
        """The settings of the address ``queue``, by their names in the broker's API."""
        found: Mapping[str, Any] | None = await self._operation("getAddressSettingsAsJSON", queue)
        return None if found is None else _set(found)

    async def _operation(self, name: str, *arguments: Any) -> Any:
        """The JSON that an operation of the broker returns; None where it fails."""
        reply = await self._call("broker", json.dumps(arguments), _AMQ_OperationName=name)
        return json.loads(reply[1]) if reply is not None and reply[0] else None

    async def _attribute(self, resource: str, name: str, missing: Any = None) -> Any:
        """An attribute of ``resource``; ``missing`` where that does not exist."""
        reply = await self._call(resource, "[]", _AMQ_Attribute=name)
        return None if reply is None else reply[1] if reply[0] else missing

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


def _set(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings that are not null."""
    return {name: value for name, value in settings.items() if value is not None}


def _address_warnings(queue: str, settings: Mapping[str, Any]) -> list[str]:
    found = [
        f"The address {queue} drops new messages when it is full, and confirms them ({name} DROP)."
        for key, name in _FULL.items()
        if settings.get(key) == "DROP"
    ]
    delays = ((name, settings.get(key, -1)) for key, name in _EXPIRY.items())
    expiry = next(((name, delay) for name, delay in delays if delay >= 0), None)
    if expiry is not None and not settings.get("noExpiry"):
        target = settings.get("expiryAddress")
        fate = f"moves to {target}" if target else "drops"
        found.append(f"The address {queue} {fate} messages that are older than {expiry[1] / 1000:g} s ({expiry[0]}).")
    return found
