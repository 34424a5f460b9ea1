"""Proves that a broker can read the messages of a backlog that it does not deliver.

A broker that cannot read its bookies delivers nothing, and tells its consumers nothing. It tries again after
``dispatcherReadFailureBackoffInitialTimeInMs``, 15 s, and up to 60 s later each time:
https://pulsar.apache.org/reference/#/4.0.x/config/reference-configuration-broker
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable

from babelgate.brokers.bounded import within
from babelgate.brokers.pulsar.consumer import TopicConsumer
from babelgate.brokers.pulsar.consumers import QueueConsumers
from babelgate.brokers.pulsar.errors import ConnectionEnded, PulsarError, error_reason, translate
from babelgate.brokers.pulsar.wire import EntryId
from babelgate.errors import BrokerRejected, BrokerUnavailable

_BELIEVED_SECONDS = 1.0
"""How long a topic counts as readable after it was read, because others may hold its messages through many receives."""

_QUIET_SECONDS, _DELIVERED_SECONDS = 0.02, 3.0
"""How long to wait for what the broker delivers after it was asked once more; the second, if it could not read before.
"""

_NUMBERS = 1 << 64
"""How many numbers a field of the protocol can have."""


class ReadableBacklogs:
    """What was proven of the topics of one queue."""

    def __init__(self, consumers: QueueConsumers) -> None:
        self._consumers = consumers
        self._until: dict[str, float] = {}
        self._failed: set[str] = set()
        """Topics that could not be read when they were last asked for."""

    async def prove(self, listeners: Iterable[TopicConsumer]) -> None:
        """Read messages of the backlog of each listener: the last one, the first one, and the one behind that which
        has arrived last. Then wait for what the broker delivers, which is asked once more.

        Raises BrokerUnavailable where the broker cannot read one of them, or not within half of ``timeout_seconds``;
        PulsarError and ConnectionEnded if a consumer ends.
        """
        loop = asyncio.get_running_loop()
        asked = [each for each in listeners if self._until.get(each.topic, 0.0) <= loop.time()]
        if not asked:
            return
        came_back = await asyncio.gather(*(self._proven(each) for each in asked))
        await self._consumers.wait(loop.time() + (_DELIVERED_SECONDS if any(came_back) else _QUIET_SECONDS))

    async def _proven(self, listener: TopicConsumer) -> bool:
        """Prove one; whether it could not be read before."""
        client, topic = self._consumers.client, listener.topic
        try:
            await within(client.timeout_seconds / 2, client.broker, self._read(listener), _unreadable)
        except BrokerUnavailable:
            self._failed.add(topic)
            raise
        self._until[topic] = asyncio.get_running_loop().time() + _BELIEVED_SECONDS
        came_back = topic in self._failed
        self._failed.discard(topic)
        return came_back

    async def _read(self, listener: TopicConsumer) -> None:
        broker = self._consumers.client.broker
        try:
            acked, last = await listener.extent()
        except PulsarError as error:
            if not listener.is_open:
                raise
            raise _unreadable(broker, error_reason(error)) from error
        # After a read that failed the broker waits, also when its bookies have come back.
        await self._consumers.ask_again(listener)
        if acked is None:
            return
        for place in {acked, self._consumers.latest.get(listener.topic, acked)}:
            if _order(place) < _order(last):
                try:
                    await self._read_after(listener, place)
                except PulsarError as error:
                    # A limit on subscriptions, or on their names, may refuse the reader. It says nothing of messages.
                    if not isinstance(translate(error, broker, written=False), BrokerRejected):
                        raise _unreadable(broker, error_reason(error)) from error

    @staticmethod
    async def _read_after(consumer: TopicConsumer, place: EntryId) -> None:
        """Read the entry behind ``place``, as nobody: a reader shows what is held, delayed or acknowledged, too."""
        woken = asyncio.Event()
        reader = TopicConsumer(consumer.connection, consumer.topic, 0, lambda _: woken.set(), lambda _: woken.set())
        await reader.open_reader(f"babelgate-{secrets.token_hex(8)}", EntryId(place.ledger, place.entry + 1))
        try:
            reader.flow(1)
            await woken.wait()
            if not reader.is_open:
                raise ConnectionEnded("the broker has closed the reader")
        finally:
            await reader.close()


def _unreadable(broker: str, reason: str) -> BrokerUnavailable:
    return BrokerUnavailable(broker, f"it has messages that it does not deliver, and may not be able to read: {reason}")


def _order(place: EntryId) -> tuple[int, int]:
    """The place in the topic. -1, which comes before the first number, is read as the largest one."""
    return (place.ledger + 1) % _NUMBERS, (place.entry + 1) % _NUMBERS
