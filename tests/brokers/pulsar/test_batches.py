"""Batches of producers: those that cannot be read as such are one message, and each of them is acknowledged."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pulsar
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from babelgate.brokers.binding import Delivery, NativeQueue, Outgoing
from babelgate.brokers.pulsar import receive
from babelgate.brokers.pulsar.binding import PulsarBinding
from babelgate.brokers.pulsar.connection import PulsarConnection
from babelgate.brokers.pulsar.consumer import Entry, TopicConsumer, read_entries
from babelgate.brokers.pulsar.consumers import QueueConsumers
from babelgate.brokers.pulsar.message import MAX_MESSAGES
from babelgate.runtime import turns
from tests.brokers.pulsar.harness import client
from tests.brokers.pulsar.raw import BODY, ENCRYPTED, batched, field, metadata, received, send
from tests.brokers.pulsar.server import PulsarServer
from tests.harness.local import eventually
from tests.harness.world import until

THREE = batched(b"", b"", b"")
UNREADABLE = metadata(THREE, field(11, 3), ENCRYPTED)
REMOVED = field(4, 1)
"""A message that a compaction has removed, as SingleMessageMetadata say it."""

MOST = 2**31 - 1


async def is_settled(binding: PulsarBinding, queue: NativeQueue) -> None:
    """Wait until the queue has no message any more, and the process no consumer."""

    async def has_no_message() -> bool:
        stats = await binding.stats(queue)
        return (stats.depth, stats.in_flight) == (0, 0)

    await until(has_no_message)
    (receiving,) = binding._queues.values()
    await eventually(lambda: receiving.is_idle)


# Entries


@pytest.mark.parametrize("more", [(ENCRYPTED,), (field(8, 99),)], ids=["encrypted", "of an unknown compression"])
async def test_what_cannot_be_read_is_where_a_message_is_left(more: tuple[bytes, ...]) -> None:
    """Of a batch of which other consumers have acknowledged some messages by their indexes."""
    entry = await received(metadata(THREE, field(11, 3), *more), THREE, 0b110)
    assert (entry.left, entry.permits) == ({1, 2}, 2)
    message = entry.message(1)
    assert message is not None
    assert message.body == THREE
    assert entry.left == {1}
    assert entry.is_whole


@pytest.mark.parametrize("count", [MAX_MESSAGES + 1, MOST])
async def test_a_batch_with_too_many_messages_has_one_here_and_all_at_the_broker(count: int) -> None:
    entry = await received(metadata(THREE, field(11, count)), THREE)
    assert (entry.left, entry.size, entry.permits) == ({0}, count, count)
    assert entry.is_batch
    message = entry.message(0)
    assert message is not None
    assert message.body == THREE
    assert entry.is_whole


@pytest.mark.parametrize("more", [(), (field(9, 4 * MAX_MESSAGES),)], ids=["plain", "declared_as_large"])
async def test_a_batch_with_more_messages_than_its_bytes_can_hold_has_one_here(more: tuple[bytes, ...]) -> None:
    """Each has four bytes at least. The size that is declared counts only where the payload is compressed."""
    payload = b"junk"
    entry = await received(metadata(payload, field(11, MAX_MESSAGES), *more), payload)
    assert (entry.left, entry.permits) == ({0}, MAX_MESSAGES)
    assert [message.body for message in entry.messages() if message] == [payload]
    small = bytes(12)
    assert (await received(metadata(small, field(11, 3)), small)).left == {0, 1, 2}
    assert (await received(metadata(small, field(11, 4)), small)).left == {0}


async def test_an_ack_set_of_any_length_is_read_in_the_time_of_its_words() -> None:
    """A consumer may acknowledge by the indexes of more messages than the batch has. Added word by word, these
    took 12 s of CPU."""
    words = [1 << 63, 0b101, *[1] * 100_000]
    payload = batched(*[b""] * 70)
    before = time.process_time()
    entry = await received(metadata(payload, field(11, 70)), payload, *words)
    assert time.process_time() - before < 5
    assert entry.left == {63, 64, 66}
    assert entry.permits == 100_003


async def test_a_batch_with_the_most_messages_is_read() -> None:
    payload = batched(*[b""] * MAX_MESSAGES)
    entry = await received(metadata(payload, field(11, MAX_MESSAGES)), payload)
    last = entry.message(MAX_MESSAGES - 1)
    assert last is not None
    assert last.body == BODY
    assert entry.left == set(range(MAX_MESSAGES))


async def test_what_is_left_is_found_once() -> None:
    payload = batched(b"", REMOVED)
    entry = await received(metadata(payload, field(11, 2)), payload)
    assert entry.message(1) is None
    assert entry.left == {0}
    entry.left.add(1)
    assert entry.message(0) is not None
    assert entry.left == {0, 1}


_SLOT: Any = vars(Entry)["_read"]


class _Interrupted(Entry):
    """Another thread reads it between the steps of the one that began."""

    is_interrupted = True

    @property
    def _read(self) -> Any:
        found = _SLOT.__get__(self)
        if found is None and not self.is_interrupted:
            self.is_interrupted = True
            self.messages()
        return found

    @_read.setter
    def _read(self, value: Any) -> None:
        _SLOT.__set__(self, value)


async def test_two_threads_may_read_an_entry_at_the_same_time() -> None:
    plain = await received(metadata(THREE, field(11, 3)), THREE)
    entry = _Interrupted(plain.consumer, plain.place, 0, plain._metadata, THREE, None)
    entry.is_interrupted = False
    assert [message.body for message in entry.messages() if message] == [BODY] * 3
    assert entry.is_interrupted


async def test_the_size_of_a_compressed_batch_is_that_of_its_messages() -> None:
    """It is read in a thread where that is large."""
    payload = batched(*[b""] * 1000)
    compressed = zlib.compress(payload)
    entry = await received(metadata(payload, field(8, 2), field(11, 1000)), compressed)
    assert len(compressed) < turns.LARGE_BYTES < entry.bytes == len(payload)
    assert entry.message(999) is not None
    assert entry.bytes == 0


async def test_permits_are_given_in_parts_that_the_broker_takes() -> None:
    async def credentials() -> tuple[str, bytes]:
        return "", b""

    written: list[int] = []

    class Recorded(PulsarConnection):
        def write(self, data: bytes) -> None:
            written.append(len(data))

    consumer = TopicConsumer(Recorded(credentials), "t", lambda entry: None, lambda ended: None)
    consumer.permits = -MOST
    consumer.flow(1 - consumer.permits)
    assert consumer.permits == 1
    assert len(written) == 2


# The broker


@pytest.fixture
def native(one: PulsarBinding, queue: str) -> NativeQueue:
    """The queue."""
    return one.native_queue(queue, {})


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker has time to deliver what it has counted. A wait ends as soon as a message comes."""
    monkeypatch.setattr(receive, "_QUIET_SECONDS", 10.0)


@pytest.mark.pulsar
@pytest.mark.parametrize(
    "more",
    [(field(11, 3), ENCRYPTED), (field(11, MOST),), (field(11, 2_000),)],
    ids=["encrypted", "most", "2,000"],
)
async def test_a_batch_that_cannot_be_read_is_acknowledged_with_its_only_message(
    one: PulsarBinding, server: PulsarServer, queue: str, native: NativeQueue, more: tuple[bytes, ...]
) -> None:
    """Each receive takes one message, so that the others of the batch are not read when the first one is settled."""
    await send(server, queue, metadata(THREE, *more), THREE)
    assert await one.publish(native, [Outgoing(b"1")]) == [None]
    (delivery,) = await one.reserve(native, 1, 30, 30)
    assert delivery.body == THREE
    assert await one.ack(native, [delivery.handle]) == [None]
    (behind,) = await one.reserve(native, 1, 30, 30)
    assert behind.body == b"1"
    assert await one.ack(native, [behind.handle]) == [None]
    assert await one.reserve(native, 1, 0, 30) == []
    await is_settled(one, native)


@pytest.mark.pulsar
@pytest.mark.parametrize("count", [200_000, MOST])
async def test_what_is_behind_a_large_batch_is_read(
    one: PulsarBinding, server: PulsarServer, queue: str, native: NativeQueue, count: int
) -> None:
    """A purge reads the topic for what is delayed. More entries than a broker reads at once are behind the batch, whose
    messages take more permits than a reader has."""
    await send(server, queue, metadata(THREE, field(11, count)), THREE)
    for _ in range(3):
        assert await one.publish(native, [Outgoing(b"1", delay_seconds=3600)] * 100) == [None] * 100
    assert await one.purge(native) == 301


@pytest.mark.pulsar
async def test_a_batch_of_which_all_was_removed_is_acknowledged(
    one: PulsarBinding, server: PulsarServer, queue: str, native: NativeQueue
) -> None:
    payload = batched(REMOVED, REMOVED)
    await send(server, queue, metadata(payload, field(11, 2)), payload)
    assert await one.publish(native, [Outgoing(b"1")]) == [None]
    (delivery,) = await one.reserve(native, 1, 30, 30)
    assert delivery.body == b"1"
    assert await one.ack(native, [delivery.handle]) == [None]
    await is_settled(one, native)


@pytest.mark.pulsar
async def test_what_cannot_be_read_is_given_back_as_it_is(
    one: PulsarBinding, server: PulsarServer, queue: str, native: NativeQueue
) -> None:
    await send(server, queue, UNREADABLE, THREE)
    (delivery,) = await one.reserve(native, 1, 30, 30)
    assert await one.release(native, [delivery.handle], 0, False) == [None]
    (again,) = await one.reserve(native, 1, 30, 30)
    # The same entry: no copy of it.
    assert again.handle.split("-")[:3] == delivery.handle.split("-")[:3]
    assert await one.ack(native, [again.handle]) == [None]
    await is_settled(one, native)


@pytest.mark.pulsar
@pytest.mark.usefixtures("patient")
async def test_a_receive_whose_messages_are_gone_asks_the_broker(
    one: PulsarBinding, server: PulsarServer, queue: str, native: NativeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two receives have messages of a batch that none has read: there is one, which the first gets."""
    await send(server, queue, UNREADABLE, THREE)
    assert await one.publish(native, [Outgoing(b"1")]) == [None]
    mapped, goes_on, calls = turns.mapped, asyncio.Event(), 0

    async def first_waits(
        function: Callable[[Entry], Any], entries: Sequence[Entry], size: Callable[[Entry], int]
    ) -> list[Any]:
        nonlocal calls
        calls += 1
        if calls == 1:
            await goes_on.wait()
        return await mapped(function, entries, size)

    monkeypatch.setattr(turns, "mapped", first_waits)
    waiting = asyncio.create_task(one.reserve(native, 1, 30, 30))
    await eventually(lambda: calls)
    taken = list(await one.reserve(native, 1, 0, 30))
    goes_on.set()
    taken += await waiting
    assert [each.body for each in taken] == [b"1", THREE]
    assert await one.ack(native, [each.handle for each in taken]) == [None, None]


@pytest.mark.pulsar
@pytest.mark.usefixtures("patient")
async def test_a_receive_does_not_take_what_is_gone_for_an_answer(
    one: PulsarBinding, server: PulsarServer, queue: str, native: NativeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it asks the broker another one reads a batch, of which messages were ready that do not exist."""
    assert await one.reserve(native, 1, 0, 30) == []
    undelivered = QueueConsumers.undelivered
    taken: list[Delivery] = []

    async def after_the_first(consumers: QueueConsumers) -> list[tuple[TopicConsumer, int]]:
        monkeypatch.setattr(QueueConsumers, "undelivered", undelivered)
        waiting = asyncio.create_task(one.reserve(native, 1, 60, 30))
        await send(server, queue, UNREADABLE, THREE)
        assert await one.publish(native, [Outgoing(b"1")]) == [None]
        taken.extend(await waiting)
        return await undelivered(consumers)

    monkeypatch.setattr(QueueConsumers, "undelivered", after_the_first)
    taken += await one.reserve(native, 1, 0, 30)
    assert [each.body for each in taken] == [THREE, b"1"]
    assert await one.ack(native, [each.handle for each in taken]) == [None, None]


@pytest.mark.pulsar
@pytest.mark.parametrize("is_batch", [False, True])
async def test_what_a_client_has_encrypted_is_one_message_with_its_bytes(
    one: PulsarBinding, server: PulsarServer, queue: str, native: NativeQueue, tmp_path: Path, is_batch: bool
) -> None:
    made = rsa.generate_private_key(65537, 2048)
    pem = serialization.Encoding.PEM
    public, private = tmp_path / "public", tmp_path / "private"
    public.write_bytes(made.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    kind, plain = serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    private.write_bytes(made.private_bytes(pem, kind, plain))

    def produce() -> None:
        with client(server.port) as opened:
            producer = opened.create_producer(
                queue,
                encryption_key="the key",
                crypto_key_reader=pulsar.CryptoKeyReader(str(public), str(private)),
                batching_enabled=is_batch,
                batching_max_publish_delay_ms=60_000,
            )
            for _ in range(3 if is_batch else 1):
                producer.send_async(BODY, lambda result, message_id: None)
            producer.flush()

    await asyncio.to_thread(produce)
    topic = f"persistent://public/default/{queue}"
    (entry,) = [each async for each in read_entries(await one._receiving.owner(topic), topic)]
    (key,) = entry._metadata.encryption_keys
    assert b"the key" in key
    assert entry.size == (3 if is_batch else 1)
    (delivery,) = await one.reserve(native, 5, 30, 30)
    assert delivery.body == entry._payload
    assert BODY not in delivery.body
    assert await one.ack(native, [delivery.handle]) == [None]
    await is_settled(one, native)
