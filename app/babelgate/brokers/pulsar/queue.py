"""One queue as this process receives from it and settles its deliveries; it rests when no call uses it.

What was not attempted is given back by the end of its consumer, which does not count, or, where the consumer has other
deliveries, by a copy and an acknowledgement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from babelgate.brokers.binding import Delivery, Outcome, Outgoing
from babelgate.brokers.bounded import within
from babelgate.brokers.errors import failure_for_each, for_each, translating
from babelgate.brokers.pulsar.client import PulsarClient
from babelgate.brokers.pulsar.consumer import Handle, Taken, TopicConsumer
from babelgate.brokers.pulsar.consumers import QueueConsumers
from babelgate.brokers.pulsar.errors import translate
from babelgate.brokers.pulsar.message import ATTEMPTS, PulsarParts, ReadMessage
from babelgate.brokers.pulsar.receive import PermitReceiver, delivery_of
from babelgate.brokers.pulsar.url import PulsarQueue
from babelgate.brokers.pulsar.wire import EntryId
from babelgate.errors import BabelgateError, BrokerUnavailable, LeaseLost, OutcomeUnknown
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger
from babelgate.runtime.background import BackgroundTasks

_Result = TypeVar("_Result")

_LINGER_SECONDS = 0.25
"""How long consumers are kept when no receive waits and nothing is leased, because most clients wait again."""

Publish = Callable[[str, Sequence[Outgoing]], Awaitable[Sequence[Outcome]]]
"""Publishes to a topic; see :meth:`babelgate.brokers.pulsar.publish.PulsarPublisher.publish`."""

_throttled = LogThrottle(get_logger(__name__))


class ReceivingQueue:
    """One queue. When no receive waits any more, untaken messages are given back, and idle consumers end."""

    def __init__(self, client: PulsarClient, queue: PulsarQueue, publish: Publish) -> None:
        self._client = client
        self._publish = publish
        self._consumers = QueueConsumers(client, queue, self._rest_later)
        self._receiver = PermitReceiver(self._consumers)
        self._timer: asyncio.TimerHandle | None = None
        self._background: BackgroundTasks[None] = BackgroundTasks()

    @property
    def is_idle(self) -> bool:
        """Whether it has no consumers and no waiting receive."""
        return not self._consumers.by_number and not self._consumers.waiting

    async def reserve(self, limit: int, wait_seconds: float) -> list[Delivery]:
        """See :meth:`babelgate.brokers.pulsar.receive.PermitReceiver.reserve`."""
        try:
            return await self._receiver.reserve(limit, wait_seconds)
        finally:
            self._rest_later()

    def holds(self, text: str) -> bool:
        """Whether a consumer of this process still holds the delivery ``text``."""
        return self._consumers.found(Handle.read(text)) is not None

    async def ack(self, texts: Sequence[str]) -> list[Outcome]:
        """Acknowledge, also deliveries of other processes: one outcome each. A message of a batch is acknowledged with
        the last one of the batch."""
        outcomes: list[Outcome] = [None] * len(texts)
        by_topic: dict[str, dict[EntryId, list[tuple[int, Handle]]]] = {}
        for index, handle in enumerate(map(Handle.read, texts)):
            if handle is None or not self._may_ack(handle):
                outcomes[index] = LeaseLost()
                continue
            taken = self._consumers.found(handle)
            if taken is not None:
                taken.entry.left.discard(taken.position)
                if taken.entry.left:
                    continue
            topic = self._consumers.topic(handle)
            by_topic.setdefault(topic, {}).setdefault(handle.place, []).append((index, handle))
            if handle.process != self._consumers.process:
                self._consumers.acknowledging(topic, handle.place)
        try:
            answers = await asyncio.gather(*(self._acked(topic, list(places)) for topic, places in by_topic.items()))
        finally:
            self._rest_later()
        for (topic, places), error in zip(by_topic.items(), answers, strict=True):
            for place, several in places.items():
                for index, handle in several:
                    outcomes[index] = error
                    self._settle(handle, done=error is None)
                if any(handle.process != self._consumers.process for _, handle in several):
                    self._consumers.acknowledged(topic, place, done=error is None)
        return outcomes

    async def give_back(self, texts: Sequence[str]) -> list[Outcome]:
        """Make the messages available at once, uncounted: one outcome each."""
        outcomes: list[Outcome] = [LeaseLost()] * len(texts)
        by_consumer: dict[TopicConsumer, dict[int, Taken]] = {}
        for index, text in enumerate(texts):
            if (taken := self._consumers.found(Handle.read(text))) is not None:
                by_consumer.setdefault(taken.entry.consumer, {})[index] = taken
        try:
            for consumer, found in by_consumer.items():
                for index, outcome in zip(found, await self._returned(consumer, list(found.values())), strict=True):
                    outcomes[index] = outcome
        finally:
            self._rest_later()
        return outcomes

    async def proofs(self, texts: Sequence[str], *, acked: bool = True) -> list[Outcome]:
        """None for each delivery whose consumer the broker says to be open, LeaseLost where it is not.

        With ``acked`` false also LeaseLost for those that another process may have acknowledged. The broker counts what
        a consumer holds. Where the count is not that of this process, each delivery is given back by itself, which the
        broker does, counted, only if it is not acknowledged.
        """
        found = [self._consumers.found(Handle.read(text)) for text in texts]
        outcomes: list[Outcome] = [LeaseLost() if each is None else None for each in found]
        for consumer in {each.entry.consumer for each in found if each is not None}:
            mine = [(index, each.entry) for index, each in enumerate(found) if each and each.entry.consumer is consumer]
            try:
                counts = await self._bounded(consumer.counts())
                if acked or counts.unacked >= sum(entry.size for entry in consumer.entries.values()):
                    continue
                for index, entry in mine:
                    if not entry.is_batch:
                        consumer.redeliver(entry.place)
                        consumer.entries.pop(entry.place, None)
                        outcomes[index] = LeaseLost()
            except BabelgateError as error:
                for index, _ in mine:
                    outcomes[index] = error.without_frames()
        return outcomes

    async def backlog(self) -> int:
        """How many entries are not acknowledged, of all consumers. Raises BabelgateError."""
        with translating(translate, self._client.broker):
            await self._consumers.listen()
            return sum(counts.backlog for _, counts in await self._consumers.counts())

    @property
    def held(self) -> int:
        """How many entries the consumers here hold."""
        return sum(len(consumer.entries) for consumer in self._consumers.by_number.values())

    async def close(self) -> None:
        """End all consumers: what they hold is delivered again, uncounted. Waiting reserves end."""
        if self._timer is not None:
            self._timer.cancel()
        self._consumers.closed = True
        try:
            await self._background.cancel()
        finally:
            await self._consumers.close()

    # Settling

    def _may_ack(self, handle: Handle) -> bool:
        """Whether an acknowledgement of ``handle`` can be meant: a message of a batch, and any of a consumer of this
        process, belongs to its consumer."""
        if handle.process != self._consumers.process:
            # A message redelivered to a consumer of this process belongs to that consumer.
            topic = self._consumers.topic(handle)
            consumers = (each for each in self._consumers.by_number.values() if each.topic == topic)
            again = any(handle.place in each.entries for each in consumers)
            return handle.position is None and not self._consumers.queue.key_shared and not again
        consumer = self._consumers.by_number.get(handle.consumer)
        if consumer is None or not consumer.is_open:
            return False
        return self._consumers.found(handle) is not None or consumer.has_acked(handle.number)

    async def _acked(self, topic: str, places: Sequence[EntryId]) -> BabelgateError | None:
        """Acknowledge entries of ``topic``, on any consumer of it; the error, if there is one."""
        try:
            consumers = (each for each in self._consumers.by_number.values() if each.topic == topic and each.is_open)
            consumer = next(consumers, None)
            if consumer is None:
                consumer = await self._bounded(self._consumers.listener(topic))
            await self._bounded(consumer.ack(places), written=True)
        except BabelgateError as error:
            return error.without_frames()
        return None

    def _settle(self, handle: Handle, *, done: bool) -> None:
        entry = self._consumers.entry(handle)
        if entry is None:
            return
        if done:
            entry.consumer.settled(entry.place)
        else:
            entry.left.add(handle.position or 0)

    async def _returned(self, consumer: TopicConsumer, several: Sequence[Taken]) -> list[Outcome]:
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
        read = {each: message for each in several if (message := each.entry.messages()[each.position]) is not None}
        copies = [_copy(message, each.entry.redeliveries) for each, message in read.items()]
        outcomes = dict(zip(read, await self._publish(consumer.topic, copies) if copies else (), strict=True))
        confirmed = [each for each in read if outcomes[each] is None]
        acks = await self.ack([delivery_of(self._consumers, each, read[each]).handle for each in confirmed])
        outcomes |= zip(confirmed, acks, strict=True)
        return [outcomes.get(each) for each in several]

    async def _bounded(self, call: Awaitable[_Result], *, written: bool = False) -> _Result:
        late = OutcomeUnknown if written else BrokerUnavailable
        with translating(translate, self._client.broker, written=written):
            return await within(self._client.timeout_seconds, self._client.broker, call, late)

    # Resting

    def _rest_later(self) -> None:
        consumers = self._consumers
        if self._timer is None and not consumers.waiting and consumers.by_number and not consumers.closed:
            self._timer = asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._rest)

    def _rest(self) -> None:
        self._timer = None
        if self._consumers.waiting or self._consumers.closed:
            return
        ready = list(self._consumers.ready)
        for consumer in list(self._consumers.by_number.values()):
            mine = [each for each in ready if each.entry.consumer is consumer and each.is_held]
            if mine or not consumer.entries:
                # At once: until the task begins, a reserve could hand them out.
                for each in mine:
                    self._consumers.ready.remove(each)
                self._background.start(self._rested(consumer, mine))

    async def _rested(self, consumer: TopicConsumer, several: Sequence[Taken]) -> None:
        """Give back messages that arrived with no receive waiting, and end a consumer that holds nothing.

        What a lost consumer held is delivered again without this. An outage is logged for the calls that fail by it.
        """
        outcomes = await for_each(self._returned(consumer, several), len(several))
        held = {
            each: error for each, error in zip(several, outcomes, strict=True) if error is not None and each.is_held
        }
        if held:
            refused = [each for each in held.values() if not isinstance(each, BrokerUnavailable | OutcomeUnknown)]
            if refused:
                _throttled.warning("messages were not given back", broker=self._client.broker, error=refused[0])
            self._consumers.ready.extend(held)
            self._rest_later()


def _copy(message: ReadMessage, redeliveries: int) -> Outgoing:
    """The message once more, as it is, with the deliveries that failed before."""
    carried = message.carried
    if redeliveries > (message.attempts or 0):
        kept = carried or PulsarParts(None, False, None, 0, {})
        carried = replace(kept, contract={**kept.contract, ATTEMPTS: str(redeliveries)})
    return Outgoing(message.body, message.headers, carried=carried, is_envelope=False)
