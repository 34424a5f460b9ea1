"""Settles the deliveries of one queue by the entries that hold them.

What was not attempted is given back by the end of its consumer, which does not count, or, where the consumer has other
deliveries, by a copy and an acknowledgement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from babelgate.brokers.binding import Outcome, Outgoing
from babelgate.brokers.bounded import within
from babelgate.brokers.errors import failure_for_each, translating
from babelgate.brokers.pulsar.consumer import Handle, Taken, TopicConsumer
from babelgate.brokers.pulsar.consumers import QueueConsumers
from babelgate.brokers.pulsar.errors import translate
from babelgate.brokers.pulsar.message import ATTEMPTS, PulsarParts, ReadMessage
from babelgate.brokers.pulsar.receive import delivery_of
from babelgate.brokers.pulsar.wire import EntryId
from babelgate.errors import BabelgateError, BrokerUnavailable, LeaseLost, OutcomeUnknown

_Result = TypeVar("_Result")

Publish = Callable[[str, Sequence[Outgoing]], Awaitable[Sequence[Outcome]]]
"""Publishes to a topic; see :meth:`babelgate.brokers.pulsar.publish.PulsarPublisher.publish`."""


class QueueSettler:
    """Settles the deliveries of ``consumers``, and acknowledges those of other processes."""

    def __init__(self, consumers: QueueConsumers, publish: Publish) -> None:
        self._consumers = consumers
        self._publish = publish

    async def ack(self, texts: Sequence[str]) -> list[Outcome]:
        """Acknowledge: one outcome each. A message of a batch is acknowledged with the last one of the batch."""
        outcomes: list[Outcome] = [None] * len(texts)
        by_topic: dict[str, dict[EntryId, list[int]]] = {}
        handles = [Handle.read(text) for text in texts]
        for index, handle in enumerate(handles):
            if handle is None or not self._may_ack(handle):
                outcomes[index] = LeaseLost()
                continue
            taken = self._consumers.found(handle)
            if taken is not None:
                taken.entry.left.discard(taken.position)
                if taken.entry.left:
                    continue
            topic = self._consumers.topic(handle)
            by_topic.setdefault(topic, {}).setdefault(handle.place, []).append(index)
            if handle.process != self._consumers.process:
                self._consumers.acknowledging(topic, handle.place)
        if by_topic:
            topics = list(by_topic)
            answers = await asyncio.gather(*(self._acked(topic, list(by_topic[topic])) for topic in topics))
            for topic, error in zip(topics, answers, strict=True):
                for place, indexes in by_topic[topic].items():
                    several = [handles[index] for index in indexes]
                    self._settle(place, several, done=error is None)
                    if any(each is not None and each.process != self._consumers.process for each in several):
                        self._consumers.acknowledged(topic, place, done=error is None)
                    for index in indexes:
                        outcomes[index] = error
        return outcomes

    async def give_back(self, texts: Sequence[str]) -> list[Outcome]:
        """Make the messages available at once, uncounted: one outcome each."""
        found = [self._consumers.found(Handle.read(text)) for text in texts]
        outcomes: dict[int, Outcome] = {index: LeaseLost() for index, each in enumerate(found) if each is None}
        by_consumer: dict[int, list[int]] = {}
        for index, each in enumerate(found):
            if each is not None:
                by_consumer.setdefault(each.entry.consumer.number, []).append(index)
        for indexes in by_consumer.values():
            several = [each for index in indexes if (each := found[index]) is not None]
            results = await self.returned(several[0].entry.consumer, several)
            outcomes |= zip(indexes, results, strict=True)
        return [outcomes[index] for index in range(len(texts))]

    async def proofs(self, texts: Sequence[str], *, acked: bool) -> list[Outcome]:
        """None for each delivery whose consumer the broker says to be open, LeaseLost where it is not.

        With ``acked`` false also LeaseLost for those that another process may have acknowledged. The broker counts what
        a consumer holds. Where the count is not that of this process, each delivery is given back by itself, which the
        broker does, counted, only if it is not acknowledged.
        """
        found = [self._consumers.found(Handle.read(text)) for text in texts]
        outcomes: list[Outcome] = [LeaseLost() if each is None else None for each in found]
        for number in {each.entry.consumer.number for each in found if each is not None}:
            consumer = self._consumers.by_number.get(number)
            if consumer is None:
                continue
            try:
                counts = await self._bounded(consumer.counts())
                if acked or counts.unacked >= sum(entry.size for entry in consumer.entries.values()):
                    continue
                for index, each in enumerate(found):
                    if each is not None and each.entry.consumer is consumer and not each.entry.is_batch:
                        consumer.redeliver(each.entry.place)
                        consumer.entries.pop(each.entry.place, None)
                        outcomes[index] = LeaseLost()
            except BabelgateError as error:
                for index, each in enumerate(found):
                    if each is not None and each.entry.consumer is consumer:
                        outcomes[index] = error.without_frames()
        return outcomes

    async def returned(self, consumer: TopicConsumer, several: Sequence[Taken]) -> list[Outcome]:
        """Give back messages of one consumer."""
        returned = {(each.entry.place, each.position) for each in several}
        returned |= {
            (each.entry.place, each.position) for each in self._consumers.ready if each.entry.consumer is consumer
        }
        whole = all(
            len(entry.left) == entry.size and {(place, position) for position in entry.left} <= returned
            for place, entry in consumer.entries.items()
        )
        if whole:
            self._consumers.forget(consumer)
            await consumer.close()
            return [None] * len(several)
        return await self._copied(consumer, several)

    async def _copied(self, consumer: TopicConsumer, several: Sequence[Taken]) -> list[Outcome]:
        try:
            # A broker that does not answer may confirm a copy too late to be heard.
            await self._bounded(consumer.counts())
        except BabelgateError as error:
            return failure_for_each(error, len(several))
        copies, kept = [], []
        for each in several:
            message = each.entry.messages()[each.position]
            if message is not None:
                copies.append(_copy(message, each.entry.redeliveries))
                kept.append(each)
        outcomes = dict(zip(kept, await self._publish(consumer.topic, copies) if copies else (), strict=True))
        handles = {
            each: delivery_of(self._consumers, each, message).handle
            for each in kept
            if (message := each.entry.messages()[each.position])
        }
        confirmed = [each for each in kept if outcomes[each] is None]
        if confirmed:
            outcomes |= zip(confirmed, await self.ack([handles[each] for each in confirmed]), strict=True)
        return [outcomes.get(each) for each in several]

    def _may_ack(self, handle: Handle) -> bool:
        """Whether an acknowledgement of ``handle`` can be meant: a message of a batch, and any of a consumer of this
        process, belongs to its consumer."""
        if handle.process != self._consumers.process:
            # A message redelivered to a consumer of this process belongs to that consumer.
            topic = self._consumers.topic(handle)
            again = any(
                handle.place in each.entries for each in self._consumers.by_number.values() if each.topic == topic
            )
            return handle.position is None and not self._consumers.queue.key_shared and not again
        consumer = self._consumers.by_number.get(handle.consumer)
        if consumer is None or not consumer.is_open:
            return False
        return self._consumers.found(handle) is not None or consumer.has_acked(handle.number)

    async def _acked(self, topic: str, places: Sequence[EntryId]) -> BabelgateError | None:
        """Acknowledge entries of ``topic``, on any consumer of it; the error, if there is one."""
        try:
            open_ones = [each for each in self._consumers.by_number.values() if each.topic == topic and each.is_open]
            consumer = open_ones[0] if open_ones else await self._bounded(self._consumers.listener(topic))
        except BabelgateError as error:
            return error.without_frames()
        try:
            await self._bounded(consumer.ack(places), written=True)
        except BabelgateError as error:
            return error.without_frames()
        return None

    def _settle(self, place: EntryId, handles: Sequence[Handle | None], *, done: bool) -> None:
        for handle in handles:
            consumer = (
                None
                if handle is None or handle.process != self._consumers.process
                else self._consumers.by_number.get(handle.consumer)
            )
            entry = None if consumer is None else consumer.entries.get(place)
            if entry is None or consumer is None or handle is None or entry.number != handle.number:
                continue
            if done:
                consumer.settled(place)
            else:
                entry.left.add(handle.position or 0)

    async def _bounded(self, call: Awaitable[_Result], *, written: bool = False) -> _Result:
        async def run() -> _Result:
            return await call

        client = self._consumers.client
        late = OutcomeUnknown if written else BrokerUnavailable
        with translating(translate, client.broker, written=written):
            return await within(client.timeout_seconds, client.broker, run(), late)


def _copy(message: ReadMessage, redeliveries: int) -> Outgoing:
    """The message once more, as it is, with the deliveries that failed before."""
    carried = message.carried
    if redeliveries > (message.attempts or 0):
        kept = carried or PulsarParts(None, False, None, 0, {})
        carried = replace(kept, contract={**kept.contract, ATTEMPTS: str(redeliveries)})
    return Outgoing(message.body, message.headers, carried=carried, is_envelope=False)
