"""The Amazon SQS binding: standard and FIFO queues, as the BabelQueue SDKs use them.

SQS keeps the leases, as visibility timeouts, so any process settles a message by its receipt handle. It shows no body
by a handle: the process that received a message dead-letters it, by a copy. Amazon counts every receive; this
process takes off those that it gave back. https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from babelgate.brokers.binding import DeadRecord, Delivery, DeliveryLimit, NativeQueue, Outcome, Outgoing, QueueStats
from babelgate.brokers.bounded import WARNINGS_SECONDS, within
from babelgate.brokers.capabilities import REPORTS, BrokerCapabilities
from babelgate.brokers.options import timeout_of
from babelgate.brokers.projection import NativeHeader, NativeWrite
from babelgate.brokers.sqs.client import SqsClient
from babelgate.brokers.sqs.dead_letters import SqsDeadLetters
from babelgate.brokers.sqs.message import MAX_HEADERS, NativeParts, dead_entry, entry
from babelgate.brokers.sqs.publish import publish
from babelgate.brokers.sqs.queue import SqsQueue, dead_name, queue_of
from babelgate.brokers.sqs.receive import SqsReceiver
from babelgate.brokers.sqs.settle import MAX_LEASE_SECONDS, SqsSettler
from babelgate.brokers.sqs.url import SqsSettings, settings_of
from babelgate.clock import Clock
from babelgate.errors import BabelgateError, BrokerRejected, ConfigError
from babelgate.jsontext import digits
from babelgate.runtime import turns

_MAX_DELAY_SECONDS = 900
"""https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-timers.html. A FIFO queue has
a delay for all its messages, and none for a single one."""

_ATTRIBUTES_BYTES = 4_096
"""Of the largest message, left for the attributes. A message with larger ones may still be refused when it is sent."""

_MAX_BATCH = 500
"""Of one call of a method; it is split into native batches."""

_COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
_MAX_LISTED = 10_000

_MAX_RETENTION_SECONDS = 1_209_600
"""https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SetQueueAttributes.html"""


def connect(name: str, url: str, options: Mapping[str, Any], clock: Clock) -> SqsBinding:
    """The binding of the broker ``name``; no I/O. Raises ConfigError, ``key`` "url" or the option's name."""
    timeout_seconds, others = timeout_of(options)
    return SqsBinding(name, settings_of(url, others), clock, timeout_seconds)


def _queue(queue: NativeQueue) -> SqsQueue:
    return queue.options_as(SqsQueue)


class SqsBinding:
    """One account and region. Also Purges, PublishesDeadLetters, DeadStore, Lists, LimitsDeliveries, WarnsOfQueues,
    Projects and RestoresCarried."""

    lists_foreign = True
    carried_type = NativeParts

    def __init__(self, name: str, settings: SqsSettings, clock: Clock, timeout_seconds: float) -> None:
        self.name = name
        self.timeout_seconds = timeout_seconds
        self._settings = settings
        self._client = SqsClient(name, settings, timeout_seconds)
        self._settler = SqsSettler(self._client, clock)
        self._receiver = SqsReceiver(self._client, self._settler, clock, settings.long_poll_seconds)
        self._dead_letters = SqsDeadLetters(self._client)

    def native_queue(self, name: str, options: Mapping[str, Any]) -> NativeQueue:
        """See :func:`babelgate.brokers.sqs.queue.queue_of`."""
        queue = queue_of(name, options)
        region = self._settings.region
        if queue.region is not None and region is not None and queue.region != region:
            raise ConfigError(key="native_name", reason=f"the ARN is of the region {queue.region}, not of {region}")
        stored_as = {"queue_type": "fifo" if queue.fifo else "standard"}
        dead = dead_name(queue.name)
        return NativeQueue(queue.name, queue, dead, stored_as, lambda kind, handle: self._client.traced(queue))

    def capabilities(self, queue: NativeQueue) -> BrokerCapabilities:
        """A FIFO queue keeps the order by message group, and has no delay of a single message."""
        fifo = _queue(queue).fifo
        return BrokerCapabilities(
            max_delay_seconds=0 if fifo else _MAX_DELAY_SECONDS,
            max_retry_delay_seconds=MAX_LEASE_SECONDS,
            max_lease_seconds=MAX_LEASE_SECONDS,
            ack_scope="anywhere",
            ordering="key" if fifo else "none",
            native_release=True,
            delivery_count="one_based",
            max_body_bytes=self._settings.max_body_bytes - _ATTRIBUTES_BYTES,
            max_batch=_MAX_BATCH,
            headers=True,
            max_headers=MAX_HEADERS,
            purges=("depth", "in_flight", "delayed"),
            # A delayed nack prolongs the visibility timeout of the message.
            counted_as={"delayed": "in_flight"},
            reports=REPORTS - {"ended_leases", "oldest_age_seconds"},
        )

    async def open(self) -> None:
        """Raises BrokerUnavailable when the service does not answer, and ConfigError without a region."""
        await self._client.open()

    async def close(self) -> None:
        """Wait up to 4 s for the long polls in flight, show again what they returned, and disconnect. Leases stay."""
        await self._receiver.close()
        await self._settler.idle()
        await self._dead_letters.close()
        await self._client.close()

    async def ping(self) -> None:
        """``ListQueues``; also where it is denied, the service has answered."""
        await self._client.ping()

    async def warnings(self) -> Sequence[str]:
        """None: Amazon keeps every message in several data centres. See :meth:`queue_warnings`."""
        return ()

    async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        """``SendMessageBatch``, ten messages a call and several calls at once."""
        return await publish(self._client, _queue(queue), messages, entry, self._settings.max_body_bytes)

    async def publish_dead_letters(self, queue: NativeQueue, records: Sequence[Outgoing]) -> Sequence[Outcome]:
        """To ``<queue>-dlq``; otherwise like :meth:`publish`."""
        most = self._settings.max_body_bytes
        return await publish(self._client, _queue(queue).dead, records, partial(dead_entry, max_bytes=most), most)

    async def projection(self, queue: NativeQueue, message: Outgoing) -> Sequence[NativeWrite]:
        """The entry of :meth:`publish`, without its id."""
        target = _queue(queue)
        made = await turns.run(entry, target, message, size=len(message.body))
        body = made.pop("MessageBody").encode()
        attributes = made.pop("MessageAttributes", {})
        headers = {
            name: NativeHeader(each["DataType"], each.get("StringValue", each.get("BinaryValue")))
            for name, each in attributes.items()
        }
        assigned = ["MessageDeduplicationId"] if target.fifo and message.dedup_id is None else []
        return [NativeWrite("SendMessageBatch", {"queue": target.name}, made, headers, body, assigned)]

    async def reserve(
        self, queue: NativeQueue, limit: int, wait_seconds: float, lease_seconds: float
    ) -> Sequence[Delivery]:
        """Short polls, or the long poll of the queue. An empty result of a call with a wait says nothing of the queue:
        its long poll may still be in flight."""
        return await self._receiver.reserve(_queue(queue), limit, wait_seconds, lease_seconds)

    async def ack(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        """``DeleteMessageBatch``."""
        return await self._settler.ack(_queue(queue), handles)

    async def release(
        self, queue: NativeQueue, handles: Sequence[str], delay_seconds: float, failed: bool
    ) -> Sequence[Outcome]:
        """``ChangeMessageVisibilityBatch``. SQS counts receives; this process takes off those that it gave back."""
        return await self._settler.release(_queue(queue), handles, delay_seconds, failed)

    async def extend(
        self, queue: NativeQueue, handles: Sequence[str], lease_seconds: float
    ) -> Sequence[int | BabelgateError]:
        """``ChangeMessageVisibilityBatch``; the handles stay valid."""
        return await self._settler.extend(_queue(queue), handles, lease_seconds)

    async def queues(self) -> Sequence[str]:
        """The queues of the account and region, at most 10,000, without those of dead letters; none if denied."""
        found: list[str] = []
        page: Mapping[str, Any] = {}
        try:
            while not page or page.get("NextToken"):
                token = {"NextToken": page["NextToken"]} if page else {}
                page = await self._client.call("ListQueues", writes=False, MaxResults=1000, **token)
                found += [str(url).rpartition("/")[2] for url in page.get("QueueUrls", ())]
                if len(found) >= _MAX_LISTED or not page:
                    break
        except BrokerRejected:
            return ()
        dead = {dead_name(name) for name in found}
        return [name for name in found if name not in dead]

    async def stats(self, queue: NativeQueue) -> QueueStats:
        """``GetQueueAttributes`` of the queue and of its dead letters. Amazon's counts lag by up to a minute."""
        target = _queue(queue)
        (depth, in_flight, delayed), dead = await asyncio.gather(self._counts(target), self._counts(target.dead))
        return QueueStats(depth, in_flight, delayed, sum(dead[:2]))

    async def delivery_limit(self, queue: NativeQueue) -> DeliveryLimit | None:
        """That of the redrive policy of the queue."""
        return await within(WARNINGS_SECONDS, self.name, self._delivery_limit(_queue(queue)))

    async def queue_warnings(self, queue: NativeQueue, kept_seconds: float) -> Sequence[str]:
        """``MessageRetentionPeriod`` of the queue and of its dead letters, if it is below ``kept_seconds`` and can be
        longer."""
        target = _queue(queue)

        async def asked() -> Sequence[str]:
            found = await asyncio.gather(self._retention(target), self._retention(target.dead))
            return [
                f"Amazon SQS drops messages of the queue {each.name} after {seconds} s (MessageRetentionPeriod)."
                for each, seconds in zip((target, target.dead), found, strict=True)
                if seconds is not None and seconds < min(kept_seconds, _MAX_RETENTION_SECONDS)
            ]

        return await within(WARNINGS_SECONDS, self.name, asked())

    async def purge(self, queue: NativeQueue) -> int:
        """``PurgeQueue``; leased messages are removed, too. Raises PurgeInProgress within 60 s of the last one."""
        return await self._purge(_queue(queue))

    async def read_dead(
        self, queue: NativeQueue, cursor: str | None, limit: int
    ) -> tuple[Sequence[DeadRecord], str | None]:
        """A page; the cursor is a position. Between pages, other readers do not see the records that were read."""
        return await self._dead_letters.read(_queue(queue).dead, cursor, limit)

    async def remove_dead(
        self, queue: NativeQueue, records: Sequence[DeadRecord], cursor: str | None
    ) -> tuple[Sequence[bool], str | None]:
        """Remove each record once, also when it was shown again in between."""
        return await self._dead_letters.remove(_queue(queue).dead, records, cursor)

    async def purge_dead(self, queue: NativeQueue) -> int:
        """``PurgeQueue``."""
        dead = _queue(queue).dead
        await self._dead_letters.put_back(dead)
        return await self._purge(dead)

    async def _delivery_limit(self, queue: SqsQueue) -> DeliveryLimit | None:
        try:
            policy = json.loads((await self._attributes(queue, "RedrivePolicy"))["RedrivePolicy"])
            return DeliveryLimit(int(policy["maxReceiveCount"]), str(policy["deadLetterTargetArn"]).rpartition(":")[2])
        except (KeyError, ValueError):
            return None

    async def _retention(self, queue: SqsQueue) -> int | None:
        """Seconds for which Amazon keeps a message; None for a missing queue."""
        name = "MessageRetentionPeriod"
        return digits((await self._attributes(queue, name)).get(name, ""))

    async def _attributes(self, queue: SqsQueue, *names: str) -> Mapping[str, str]:
        """Attributes of the queue; empty for a missing one."""
        url = await self._client.existing_url(queue)
        if url is None:
            return {}
        answer = await self._client.call("GetQueueAttributes", writes=False, QueueUrl=url, AttributeNames=names)
        return dict(answer.get("Attributes", {}))

    async def _purge(self, queue: SqsQueue) -> int:
        url = await self._client.existing_url(queue)
        if url is None:
            return 0
        depth, _, delayed = await self._counts(queue)
        await self._client.call("PurgeQueue", QueueUrl=url)
        return depth + delayed

    async def _counts(self, queue: SqsQueue) -> tuple[int, int, int]:
        """Ready, in flight and delayed messages; zeros for a missing queue."""
        found = await self._attributes(queue, *_COUNTS)
        depth, in_flight, delayed = (int(found.get(name, 0)) for name in _COUNTS)
        return depth, in_flight, delayed
