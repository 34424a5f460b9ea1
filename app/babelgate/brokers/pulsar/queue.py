"""One queue as this process receives from it and settles its deliveries; it rests when no call uses it.

What was not attempted is given back by the end of its consumer, which does not count, or, where the consumer has other
deliveries, by a copy and an acknowledgement. An entry that cannot be read is never copied: the broker delivers it
again, counted.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from msgspec.structs import replace

from babelgate.brokers.binding import Delivery, Outcome, Outgoing
from babelgate.brokers.bounded import within
from babelgate.brokers.errors import failure_for_each, for_each, translating
from babelgate.brokers.pulsar.client import PulsarClient
from babelgate.brokers.pulsar.consumer import Entry, Handle, Taken, TopicConsumer, read_messages
from babelgate.brokers.pulsar.consumers import QueueConsumers
from babelgate.brokers.pulsar.errors import ConnectionEnded, translate
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
        return not self._consumers.all() and not self._consumers.waiting

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
        consumers = self._consumers
        outcomes: list[Outcome] = [None] * len(texts)
        by_topic: dict[str, dict[EntryId, list[tuple[int, Taken | None]]]] = {}
        for index, handle in enumerate(map(Handle.read, texts)):
            taken = consumers.found(handle)
            if handle is None or not (taken or self._is_of_another(handle)):
                outcomes[index] = LeaseLost()
                continue
            topic = consumers.topic(handle)
            if taken is None:
                consumers.acknowledging(topic, handle.place)
            else:
                taken.entry.left.discard(taken.position)
                if taken.entry.left:
                    continue
            by_topic.setdefault(topic, {}).setdefault(handle.place, []).append((index, taken))
        try:
            answers = await asyncio.gather(*(self._acked(topic, list(places)) for topic, places in by_topic.items()))
        finally:
            self._rest_later()
        for (topic, places), error in zip(by_topic.items(), answers, strict=True):
            for place, several in places.items():
                for index, taken in several:
                    outcomes[index] = error
                    if taken is None:
                        consumers.acknowledged(topic, place, done=error is None)
                    elif error is None:
                        taken.entry.consumer.settled(place)
                    else:
                        taken.entry.left.add(taken.position)
        return outcomes

    async def give_back(self, texts: Sequence[str]) -> list[Outcome]:
        """Make the messages available at once, uncounted: one outcome each."""
        outcomes: list[Outcome] = [LeaseLost()] * len(texts)
        try:
            for consumer, found in self._by_consumer(texts).items():
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
        outcomes: list[Outcome] = [LeaseLost()] * len(texts)
        for consumer, found in self._by_consumer(texts).items():
            try:
                counts = await self._bounded(consumer.counts())
                are_all_held = counts.unackedMessages >= sum(entry.permits for entry in consumer.entries.values())
                for index, (entry, _) in found.items():
                    if acked or are_all_held or entry.is_batch:
                        outcomes[index] = None
                    elif entry.place in consumer.entries:
                        consumer.redeliver(entry.place)
            except BabelgateError as error:
                outcomes = [error.without_frames() if index in found else each for index, each in enumerate(outcomes)]
        return outcomes

    async def undelivered(self) -> int:
        """How many entries of the backlog are not held here. Raises BabelgateError."""
        with translating(translate, self._client.broker):
            return sum(count for _, count in await self._consumers.undelivered())

    async def close(self) -> None:
        """End all consumers: what they hold is delivered again, uncounted. Reserves that wait raise
        BrokerUnavailable."""
        if self._timer is not None:
            self._timer.cancel()
        self._consumers.closed = True
        try:
            await self._background.cancel()
        finally:
            await self._consumers.close()

    # Settling

    def _by_consumer(self, texts: Sequence[str]) -> dict[TopicConsumer, dict[int, Taken]]:
        """The messages among ``texts`` that consumers here hold, by their positions."""
        found: dict[TopicConsumer, dict[int, Taken]] = {}
        for index, text in enumerate(texts):
            if (taken := self._consumers.found(Handle.read(text))) is not None:
                found.setdefault(taken.entry.consumer, {})[index] = taken
        return found

    def _is_of_another(self, handle: Handle) -> bool:
        """Whether another process received the message, and any may acknowledge it. One of a batch belongs to its
        consumer, and one that was redelivered to a consumer here to that."""
        consumers = self._consumers
        is_free = handle.position is None and not consumers.queue.key_shared
        is_here = consumers.entry(consumers.topic(handle), handle.place) is not None
        return handle.process != consumers.process and is_free and not is_here

    async def _acked(self, topic: str, places: Sequence[EntryId]) -> BabelgateError | None:
        """Acknowledge entries of ``topic``; the error, if there is one."""
        try:
            consumer = next((each for each in self._consumers.all() if each.topic == topic), None)
            if consumer is None:
                (consumer,) = await self._bounded(self._consumers.open([topic]))
            await self._bounded(consumer.ack(places), written=True)
        except BabelgateError as error:
            return error.without_frames()
        return None

    async def _returned(self, consumer: TopicConsumer, several: Sequence[Taken]) -> list[Outcome]:
        """Give back messages of one consumer: it ends, if it has no others."""
        if self._is_unused(consumer, several):
            self._consumers.forget(consumer)
            self._consumers.withdraw(consumer)
            await consumer.close()
            return [None] * len(several)
        return await self._copied(consumer, several)

    def _is_unused(self, consumer: TopicConsumer, several: Sequence[Taken] = ()) -> bool:
        """Whether all that ``consumer`` holds is ready or among ``several``, and nothing of a batch is settled."""
        given: defaultdict[Entry, set[int]] = defaultdict(set)
        for each in several:
            given[each.entry].add(each.position)
        for entry in self._consumers.ready:
            given[entry].update(entry.untaken)
        return all(entry.is_whole and entry.left <= given[entry] for entry in consumer.entries.values())

    async def _copied(self, consumer: TopicConsumer, several: Sequence[Taken]) -> list[Outcome]:
        await read_messages(several)
        try:
            # A broker that does not answer may confirm a copy too late to be heard.
            await self._bounded(consumer.counts())
        except BabelgateError as error:
            return failure_for_each(error, len(several))
        read = {each: message for each in several if (message := each.entry.message(each.position)) is not None}
        for raw in [each for each, message in read.items() if message.is_raw]:
            # A copy would lose the keys of its encryption, its place among chunks, or its compression. Without its
            # connection, the consumer has given it back.
            with suppress(ConnectionEnded):
                consumer.redeliver(raw.entry.place)
            del read[raw]
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
        if self._timer is None and not consumers.waiting and consumers.all() and not consumers.closed:
            self._timer = asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._rest)

    def _rest(self) -> None:
        self._timer = None
        if self._consumers.waiting or self._consumers.closed:
            return
        for consumer in self._consumers.all():
            if self._is_unused(consumer):
                self._background.start(self._rested(consumer, ()))
                continue
            # At once: until the task begins, a reserve could hand them out.
            entries = self._consumers.withdraw(consumer)
            mine = [Taken(entry, position) for entry in entries for position in entry.untaken if position in entry.left]
            for entry in entries:
                entry.untaken.clear()
            if mine:
                self._background.start(self._rested(consumer, mine))

    async def _rested(self, consumer: TopicConsumer, several: Sequence[Taken]) -> None:
        """Give back messages that arrived with no receive waiting, or end a consumer of which no message is taken.

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
            self._consumers.put_back(list(held))
            self._rest_later()


def _copy(message: ReadMessage, redeliveries: int) -> Outgoing:
    """The message once more, as it is, with the deliveries that failed before."""
    carried = message.carried
    if redeliveries > (message.attempts or 0):
        kept = carried or PulsarParts(None, False, None, 0, {})
        carried = replace(kept, contract={**kept.contract, ATTEMPTS: str(redeliveries)})
    return Outgoing(message.body, message.headers, carried=carried, is_envelope=False)
