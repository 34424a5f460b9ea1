"""What a process holds of a queue, what the broker counts of it, and how it is given back. Without a server: the broker
is scripted, with the accounts of Pulsar 4.0.8."""

from __future__ import annotations

import asyncio
import itertools
import struct
import sys
import threading
import zlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from babelgate.brokers.binding import Delivery, Outcome, Outgoing
from babelgate.brokers.pulsar import consumer, wire
from babelgate.brokers.pulsar.client import PulsarClient
from babelgate.brokers.pulsar.connection import PulsarConnection
from babelgate.brokers.pulsar.consumer import Taken
from babelgate.brokers.pulsar.message import MAX_MESSAGES, read_entry
from babelgate.brokers.pulsar.queue import ReceivingQueue
from babelgate.brokers.pulsar.url import PulsarQueue, settings_of
from babelgate.brokers.pulsar.wire import EntryId
from babelgate.errors import BrokerUnavailable
from tests.brokers.pulsar.raw import BODY, batched
from tests.harness.local import eventually

THREE = batched(b"", b"", b"")
ALONE = b"alone"


@dataclass
class Stored:
    """An entry of the topic. ``unacked``: the words of its ack set, none if no message was acknowledged by its
    index. ``is_damaged``: it has a wrong checksum."""

    metadata: Any
    payload: bytes
    unacked: Sequence[int]
    is_damaged: bool
    redeliveries: int = 0

    @property
    def count(self) -> int:
        """How many messages the broker counts, and takes permits for: ``Consumer.sendMessages`` of Pulsar 4.0.8."""
        if self.unacked:
            return sum(word.bit_count() for word in self.unacked)
        declared: int = self.metadata.num_messages_in_batch
        return declared if self.metadata.HasField("num_messages_in_batch") else 1


class ScriptedBroker(PulsarConnection):
    """A connection to a broker with one topic. ``stored``: what it has; ``held``: the entries that the consumer holds;
    ``written``: the commands that it has, in order."""

    def __init__(self) -> None:
        async def credentials() -> tuple[str, bytes]:
            return "", b""

        super().__init__(credentials)
        self.stored: dict[EntryId, Stored] = {}
        self.held: list[EntryId] = []
        self.written: list[str] = []
        self._permits = 0
        self._numbered = itertools.count()

    def add(self, payload: bytes, *unacked: int, is_damaged: bool = False, **fields: Any) -> None:
        """Store an entry with these fields of a MessageMetadata, and deliver it if there are permits."""
        entry = Stored(wire.MessageMetadata(**fields), payload, unacked, is_damaged)
        self.stored[EntryId(7, next(self._numbered))] = entry
        self._deliver()

    def write(self, frame: bytes) -> None:
        kind, fields, _ = wire.read_command(frame[4:])
        self.written.append(kind)
        if kind == "flow":
            self._permits += fields.messagePermits
        elif kind == "redeliverUnacknowledgedMessages":
            for place in map(wire.entry_id_of, fields.message_ids):
                if place in self.held:
                    self.held.remove(place)
                    self.stored[place].redeliveries += 1
        elif kind == "ack":
            self._acked(map(wire.entry_id_of, fields.message_id))
        asyncio.get_running_loop().call_soon(self._deliver)

    async def request(self, kind: str, **fields: Any) -> Any:
        self.written.append(kind)
        # What was delivered before the answer arrives before it.
        await asyncio.sleep(0)
        if kind == "ack":
            self._acked(EntryId(each["ledgerId"], each["entryId"]) for each in fields["message_id"])
        elif kind == "close_consumer":
            self.held.clear()
            self._permits = 0
        unacked = sum(self.stored[place].count for place in self.held)
        return SimpleNamespace(unackedMessages=unacked, msgBacklog=len(self.stored))

    def _acked(self, places: Any) -> None:
        for place in places:
            self.stored.pop(place, None)
            if place in self.held:
                self.held.remove(place)

    def _deliver(self) -> None:
        for place, entry in list(self.stored.items()):
            if self._permits > 0 and place not in self.held and self.consumers:
                self._permits -= entry.count
                self.held.append(place)
                ((number, consumer),) = self.consumers.items()
                message = {"consumer_id": number, "message_id": wire.entry_id(place), "ack_set": entry.unacked}
                command = wire.BaseCommand(message=message | {"redelivery_count": entry.redeliveries})
                encoded = entry.metadata.SerializeToString()
                rest = struct.pack(">I", len(encoded)) + encoded + entry.payload
                if entry.is_damaged:
                    rest = b"\x0e\x01" + bytes(4) + rest
                consumer.received("message", command.message, rest)


class _Client(PulsarClient):
    def __init__(self, broker: ScriptedBroker) -> None:
        super().__init__("pulsar", settings_of("pulsar://localhost", {}), 5)
        self._only = broker

    async def owner(self, topic: str) -> PulsarConnection:
        return self._only

    async def partitions(self, topic: str, *, create: bool) -> list[str]:
        return [topic]


@dataclass
class Process:
    """A process that receives from the queue. ``copies``: what it has published to it. ``refuses``: the broker takes
    none; ``refused``: how many it has not taken."""

    broker: ScriptedBroker
    queue: ReceivingQueue = field(init=False)
    copies: list[Outgoing] = field(default_factory=list)
    refuses: bool = False
    refused: int = 0

    def __post_init__(self) -> None:
        self.queue = ReceivingQueue(_Client(self.broker), PulsarQueue("t"), self._publish)

    async def _publish(self, topic: str, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        if self.refuses:
            self.refused += len(messages)
            return [BrokerUnavailable("pulsar", "it refuses")] * len(messages)
        self.copies += messages
        return [None] * len(messages)


async def beside_a_lease(process: Process, payload: bytes, **fields: Any) -> None:
    """An entry arrives with no receive waiting, at a consumer whose other message is leased."""
    process.broker.add(ALONE)
    (leased,) = await at_once(process)
    assert process.queue.holds(leased.handle)
    (holder,) = process.queue._consumers.all()
    holder.flow(1)
    process.broker.add(payload, **fields)


async def at_once(process: Process) -> Sequence[Delivery]:
    """What a receive gets that may wait for a message for longer than this."""
    async with asyncio.timeout(20):
        return await process.queue.reserve(1, 60)


@pytest.fixture
async def process() -> AsyncIterator[Process]:
    made = Process(ScriptedBroker())
    yield made
    await made.queue.close()


@pytest.mark.parametrize(
    ("unacked", "declared"),
    [((0b110,), 3), ((1,), MAX_MESSAGES + 1), ((), 0), ((), -5), ((), MAX_MESSAGES + 1)],
    ids=["partly_acked", "partly_acked_and_too_large", "without_messages", "negative", "too_large"],
)
async def test_the_messages_of_a_batch_are_those_that_the_broker_counts(
    process: Process, unacked: Sequence[int], declared: int
) -> None:
    """Else each extend of a message that stands alone would be ``lease_lost`` while this process holds the batch."""
    process.broker.add(ALONE)
    process.broker.add(THREE, *unacked, num_messages_in_batch=declared)
    found = []
    while len(process.broker.held) < 2:
        found += await process.queue.reserve(5, 0)
    (alone,) = (each.handle for each in found if each.body == ALONE)
    assert await process.queue.proofs([alone], acked=False) == [None]
    assert "redeliverUnacknowledgedMessages" not in process.broker.written
    (holder,) = process.queue._consumers.all()
    assert holder.permits == process.broker._permits


async def test_a_batch_of_which_nothing_is_left_is_acknowledged_at_once(process: Process) -> None:
    """Its ack set has other positions than those of its messages, as any consumer may write it. A receive that waits
    gets what is behind it."""
    process.broker.add(THREE, 0b1000, num_messages_in_batch=3)
    process.broker.add(ALONE)
    (found,) = await at_once(process)
    assert found.body == ALONE
    (holder,) = process.queue._consumers.all()
    assert [entry.size for entry in holder.entries.values()] == [1]
    assert len(process.broker.stored) == 1


async def test_a_receive_that_waits_gets_what_is_behind_an_entry_that_was_acknowledged(process: Process) -> None:
    """The broker has sent it before it was acknowledged, for the only permit."""
    assert await process.queue.ack([f"7-0---{'a' * 16}-0-1"]) == [None]
    process.broker.add(b"acknowledged")
    process.broker.add(ALONE)
    (found,) = await at_once(process)
    assert found.body == ALONE
    assert len(process.broker.stored) == 1


async def test_a_large_message_is_decompressed_in_a_thread_before_it_is_copied(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def recorded(*arguments: Any, **named: Any) -> Any:
        threads.append(threading.current_thread())
        return read_entry(*arguments, **named)

    body = bytes(1_000_000)
    await beside_a_lease(process, zlib.compress(body), compression=2, uncompressed_size=len(body))
    monkeypatch.setattr(consumer, "read_entry", recorded)
    await eventually(lambda: process.copies)
    assert [copy.body for copy in process.copies] == [body]
    (thread,) = threads
    assert thread is not threading.main_thread()
    await eventually(lambda: len(process.broker.stored) == 1)


UNREADABLE: dict[str, dict[str, Any]] = {
    "encrypted": {"encryption_keys": [b"key"], "compression": 2, "uncompressed_size": 99},
    "a chunk": {"num_chunks_from_msg": 2},
    "of an unknown compression": {"compression": 99},
    "of another size": {"compression": 2, "uncompressed_size": 99},
    "a batch that ends too early": {"num_messages_in_batch": 4},
    "a batch that its bytes cannot hold": {"num_messages_in_batch": 1_000},
    "damaged": {"is_damaged": True},
}
"""No copy of these would be what they are: it would have no keys, no place among chunks, another compression."""


@pytest.mark.parametrize("fields", UNREADABLE.values(), ids=list(UNREADABLE))
async def test_what_cannot_be_read_is_given_back_by_the_broker_beside_a_lease(
    process: Process, fields: dict[str, Any]
) -> None:
    await beside_a_lease(process, THREE, **fields)
    broker, (holder,) = process.broker, process.queue._consumers.all()
    # A damaged entry is asked for once more first.
    before = int("is_damaged" in fields)
    await eventually(lambda: len(holder.entries) == 2)
    await eventually(lambda: len(broker.held) == len(holder.entries) == 1)
    assert process.copies == []
    assert [entry.redeliveries for entry in broker.stored.values()] == [0, before + 1]
    # It comes again, and a client gives it back.
    (found,) = await at_once(process)
    assert THREE in found.body
    assert await process.queue.give_back([found.handle]) == [None]
    assert not process.queue.holds(found.handle)
    assert process.copies == []
    assert [entry.redeliveries for entry in broker.stored.values()] == [0, before + 2]


async def test_what_can_be_read_is_copied_beside_a_lease(process: Process) -> None:
    await beside_a_lease(process, THREE, num_messages_in_batch=3)
    await eventually(lambda: len(process.broker.stored) == 1)
    assert [copy.body for copy in process.copies] == [BODY] * 3
    assert "redeliverUnacknowledgedMessages" not in process.broker.written


async def test_a_batch_that_arrives_makes_no_object_for_each_of_its_messages(process: Process) -> None:
    """There may be 100,000 in a few hundred bytes, which hold up the event loop. They have numbers only."""
    await beside_a_lease(process, ALONE)
    before = sys.getallocatedblocks()
    size = 4 * MAX_MESSAGES
    process.broker.add(b"junk", num_messages_in_batch=MAX_MESSAGES, compression=2, uncompressed_size=size)
    (holder,) = process.queue._consumers.all()
    holder.flow(1)
    await asyncio.sleep(0)
    assert process.queue._consumers.ready_count == MAX_MESSAGES + 1
    assert sys.getallocatedblocks() - before < 1.5 * MAX_MESSAGES


async def test_messages_that_are_put_back_are_taken_in_their_order(process: Process) -> None:
    await beside_a_lease(process, THREE, num_messages_in_batch=3)
    (holder,) = process.queue._consumers.all()
    holder.flow(3)
    process.broker.add(ALONE)
    consumers = process.queue._consumers
    for count in (1, 2, 3, 4, 4):
        taken: list[Taken] = []
        consumers.pop(taken, count)
        assert [(each.entry.place.entry, each.position) for each in taken] == PLACES[:count]
        consumers.put_back(taken)
    first: list[Taken] = []
    consumers.pop(first, 2)
    others: list[Taken] = []
    consumers.pop(others, 9)
    assert (len(first), len(others), consumers.ready_count, consumers.has_ready) == (2, 2, 0, False)
    consumers.put_back(others)
    consumers.put_back(first)
    again: list[Taken] = []
    consumers.pop(again, 9)
    assert again == first + others


PLACES = [(1, 0), (1, 1), (1, 2), (2, 0)]


async def test_a_consumer_ends_with_what_no_receive_has_taken(process: Process) -> None:
    """That is delivered again, uncounted. What was settled or is leased keeps a consumer."""
    process.broker.add(THREE, num_messages_in_batch=3)
    (first,) = await at_once(process)
    assert await process.queue.give_back([first.handle]) == [None]
    assert process.broker.written.count("close_consumer") == 1
    assert process.broker.held == []
    assert process.copies == []
    found = list(await process.queue.reserve(3, 60))
    assert await process.queue.ack([found[0].handle]) == [None]
    assert await process.queue.give_back([each.handle for each in found[1:]]) == [None, None]
    assert process.broker.written.count("close_consumer") == 1
    assert [copy.body for copy in process.copies] == [BODY] * 2
    assert process.broker.stored == {}
    await eventually(lambda: process.queue.is_idle)
    assert process.broker.written.count("close_consumer") == 2


async def test_what_arrived_with_no_receive_ends_with_its_consumer(process: Process) -> None:
    process.broker.add(ALONE)
    (leased,) = await at_once(process)
    (holder,) = process.queue._consumers.all()
    holder.flow(3)
    process.broker.add(THREE, num_messages_in_batch=3)
    assert await process.queue.ack([leased.handle]) == [None]
    assert process.queue._consumers.ready_count == 3
    await eventually(lambda: process.queue.is_idle and not process.broker.held)
    assert not process.queue._consumers.ready
    assert process.copies == []
    assert [entry.redeliveries for entry in process.broker.stored.values()] == [0]


async def test_what_was_not_given_back_is_ready_again(process: Process) -> None:
    process.refuses = True
    await beside_a_lease(process, THREE, num_messages_in_batch=3)
    await eventually(lambda: process.refused == 3)
    assert [each.body for each in await process.queue.reserve(3, 0)] == [BODY] * 3
