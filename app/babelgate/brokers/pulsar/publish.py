"""Publishes messages: one producer for each topic, each message by itself, and all of a call in flight together."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from babelgate.brokers.batching import Batch
from babelgate.brokers.binding import Outcome, Outgoing
from babelgate.brokers.bounded import answering
from babelgate.brokers.connect import SharedConnect
from babelgate.brokers.errors import too_large
from babelgate.brokers.pulsar import wire
from babelgate.brokers.pulsar.client import PulsarClient
from babelgate.brokers.pulsar.connection import PulsarConnection
from babelgate.brokers.pulsar.errors import ConnectionEnded, PulsarError, translate
from babelgate.brokers.pulsar.message import native, partition_of
from babelgate.clock import Clock
from babelgate.errors import BabelgateError, BrokerRejected, OutcomeUnknown
from babelgate.runtime import turns
from babelgate.runtime.cache import Recent

SUBSCRIPTION = "babelqueue"
"""The subscription of the SDKs of BabelQueue."""

_FRAME_BYTES = 64
"""Of a frame beside metadata and payload, with room to spare."""

_MAX_PRODUCERS = 10_000
"""Topics whose producers stay open; beyond that the one that was used least recently ends."""

_Window = Batch[Outcome | BaseException]

_UNCONFIRMED = OutcomeUnknown("", "no confirm")


class TopicProducer:
    """A producer of one topic on one connection. Its sequence numbers begin with each producer, whose name the broker
    makes, so that a broker which finds duplicates finds none."""

    def __init__(self, connection: PulsarConnection, topic: str) -> None:
        self.connection = connection
        self.topic = topic
        self._number = connection.number()
        self._name = b""
        self._sequences = itertools.count()
        self._pending: dict[int, tuple[_Window, int]] = {}
        self._is_retired = False

    @property
    def is_open(self) -> bool:
        """Whether it can send."""
        return self.connection.producers.get(self._number) is self

    async def open(self) -> None:
        """Create the topic and the subscription of the SDKs, where they are missing and the broker may create them.

        A message that no subscription keeps would be removed. Raises PulsarError and ConnectionEnded.
        """
        connection = self.connection
        connection.producers[self._number] = self
        fields = {"topic": self.topic, "producer_id": self._number, "initial_subscription_name": SUBSCRIPTION}
        try:
            answer = await connection.request("producer", **fields)
        except BaseException:
            # The broker may create it after all.
            self._close()
            raise
        self._name = answer.producer_name

    def retire(self) -> None:
        """End it as soon as the broker has answered all that it has sent."""
        self._is_retired = True
        if not self._pending:
            self._close()

    def _close(self) -> None:
        self.connection.producers.pop(self._number, None)
        with suppress(ConnectionEnded):
            number = self.connection.number()
            self.connection.write(wire.command("close_producer", producer_id=self._number, request_id=number))

    def send(self, window: _Window, several: Sequence[tuple[int, Any, bytes]]) -> None:
        """Write messages: the position of each in ``window``, its metadata and its payload. Raises ConnectionEnded
        where nothing is written."""
        if not self.is_open:
            # The broker would close the connection, which others use.
            raise ConnectionEnded("the producer was closed")
        frames = []
        for position, metadata, payload in several:
            sequence = next(self._sequences)
            metadata.producer_name, metadata.sequence_id = self._name, sequence
            self._pending[sequence] = window, position
            frames.append(wire.send(self._number, sequence, metadata.SerializeToString(), payload))
        self.connection.write(b"".join(frames))

    def received(self, kind: str, fields: Any, rest: bytes) -> None:
        found = self._pending.pop(fields.sequence_id, None)
        if found is None:
            return
        window, position = found
        error = None
        if kind == "send_error":
            error = PulsarError(fields.error, fields.message.decode("utf-8", "replace"))
        window.settle(position, error)
        if self._is_retired and not self._pending:
            self._close()

    def lost(self, error: ConnectionEnded) -> None:
        pending, self._pending = self._pending, {}
        for window, position in pending.values():
            window.settle(position, error)


class PulsarPublisher:
    """The producers of one binding."""

    def __init__(self, client: PulsarClient, clock: Clock, max_producers: int = _MAX_PRODUCERS) -> None:
        self._client = client
        self._clock = clock
        self._producers: Recent[str, TopicProducer] = Recent(max_producers, end=TopicProducer.retire)
        self._opening: dict[str, SharedConnect[TopicProducer]] = {}

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> list[Outcome]:
        """One outcome per message, in order. Raises BrokerUnavailable where nothing was written."""
        client = self._client
        loop = asyncio.get_running_loop()
        until = loop.time() + client.timeout_seconds
        now = self._clock()
        metadata = await turns.mapped(lambda message: native(message, now), messages, size=_size)
        window = _Window(len(messages), _UNCONFIRMED)
        late = f"no producer within {client.timeout_seconds:g} s"
        async with answering(until - loop.time(), translate, client.broker, reason=late):
            shares = await self._shares(topic, metadata)
        written = []
        for producer, positions in shares:
            limit = producer.connection.max_message_bytes
            fitting = []
            for position in positions:
                size = len(messages[position].body) + metadata[position].ByteSize() + _FRAME_BYTES
                if size > limit:
                    window.settle(position, too_large(messages[position], size - limit, client.broker))
                else:
                    fitting.append((position, metadata[position], messages[position].body))
            if not fitting:
                continue
            try:
                producer.send(window, fitting)
                written.append(producer)
            except ConnectionEnded as error:
                unavailable = translate(error, client.broker, written=False)
                for position, _, _ in fitting:
                    window.settle(position, unavailable)
        if not await window.wait(until):
            # What the broker confirms later was not published for anybody, so its connections are not used again.
            for producer in written:
                producer.connection.drop(f"no answer to a publish within {client.timeout_seconds:g} s")
        return [self._outcome(each) for each in window.results]

    async def close(self) -> None:
        """Forget the producers; they end with their connections."""
        self._producers.clear()

    def _outcome(self, outcome: Outcome | BaseException) -> Outcome:
        if outcome is None or isinstance(outcome, BabelgateError):
            return outcome
        return translate(outcome, self._client.broker, written=True).without_frames()

    async def _shares(self, topic: str, metadata: Sequence[Any]) -> list[tuple[TopicProducer, list[int]]]:
        """The producers, and the positions of the messages of each: by key, else any one partition for the call."""
        topics = await self._client.partitions(topic, create=True)
        if len(topics) == 1:
            return [(await self._producer(topics[0]), list(range(len(metadata))))]
        anywhere = random.randrange(len(topics))
        positions: dict[int, list[int]] = {}
        for position, each in enumerate(metadata):
            is_keyed = each.HasField("partition_key")
            partition = partition_of(each.partition_key.decode(), len(topics)) if is_keyed else anywhere
            positions.setdefault(partition, []).append(position)
        return [(await self._producer(topics[partition]), those) for partition, those in positions.items()]

    async def _producer(self, topic: str) -> TopicProducer:
        producer = self._producers.get(topic)
        if producer is not None and producer.is_open:
            self._producers.move_to_end(topic)
            return producer
        opening = self._opening.get(topic)
        if opening is None:
            opening = self._opening[topic] = SharedConnect(self._client.broker, lambda: self._open(topic))
        return await opening.connected()

    async def _open(self, topic: str) -> TopicProducer:
        client = self._client
        try:
            connection = await client.owner(topic)
            producer = TopicProducer(connection, topic)
            try:
                await producer.open()
            except Exception as error:
                client.forget(topic)
                raise _refusal(error, client.broker) from error
        finally:
            del self._opening[topic]
        self._producers[topic] = producer
        self._producers.move_to_end(topic)
        return producer


def _refusal(error: Exception, broker: str) -> BabelgateError:
    translated = translate(error, broker, written=False)
    if isinstance(error, PulsarError) and isinstance(translated, BrokerRejected):
        reason = (
            f"{translated.reason}; the topic and its subscription {SUBSCRIPTION} must exist, or the broker create them"
        )
        return BrokerRejected(broker, reason)
    return translated


def _size(message: Outgoing) -> int:
    return len(message.body)
