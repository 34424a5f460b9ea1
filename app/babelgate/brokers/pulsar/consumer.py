"""One consumer of one topic: permits for messages, the entries that it holds, and acknowledgements with a receipt."""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from babelgate.brokers.pulsar import wire
from babelgate.brokers.pulsar.connection import PulsarConnection
from babelgate.brokers.pulsar.errors import ConnectionEnded
from babelgate.brokers.pulsar.message import ReadMessage, positions_of, read_entry, size_and_due
from babelgate.brokers.pulsar.publish import SUBSCRIPTION
from babelgate.brokers.pulsar.wire import EntryId
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger
from babelgate.runtime import turns

_EXCLUSIVE, _SHARED, _KEY_SHARED = 0, 1, 3
_BEGINNING = EntryId(-1, -1)
_EARLIEST = 1
_INDIVIDUAL = 0

_READ = 1_000
"""Permits of a reader."""

_MAX_FLOW = 2**31 - 1
"""The most permits of one FLOW: the broker counts with 32 bits, of which one is the sign."""

_numbers = itertools.count(1)
_throttled = LogThrottle(get_logger(__name__))

_HANDLE = re.compile(r"(\d{1,20})-(\d{1,20})-(\d{0,6})-(\d{0,6})-([0-9a-f]+)-\d{1,15}-(\d{1,15})", re.ASCII)
"""Behind ``process`` earlier versions have a number, which is 0 now."""


class Extent(NamedTuple):
    """From where to where the backlog of a subscription reaches. ``acked``: the place before its first entry, None if
    that is not known; ``last``: the last entry of the topic."""

    acked: EntryId | None
    last: EntryId


class Entry:
    """A received entry. ``left``: the positions of its messages that are neither settled nor given back; ``untaken``:
    those that no receive has taken, in order; ``size``: how many messages it declares; ``due``: in Unix ms.
    ``number``: an entry that comes again has another one.

    ``permits``: how many messages the broker takes permits for, and counts as not acknowledged: those that the entry
    declares, also if there are none, without those that were acknowledged by their index.
    """

    __slots__ = (
        "_first",
        "_is_cleared",
        "_is_damaged",
        "_metadata",
        "_payload",
        "_read",
        "_whole",
        "consumer",
        "due",
        "left",
        "number",
        "permits",
        "place",
        "redeliveries",
        "size",
        "untaken",
    )

    def __init__(
        self,
        consumer: TopicConsumer,
        place: EntryId,
        redeliveries: int,
        metadata: Any,
        payload: bytes,
        unacked: int | None,
        *,
        is_damaged: bool = False,
    ) -> None:
        self.consumer = consumer
        self.place = place
        self.number = next(_numbers)
        self.redeliveries = redeliveries
        self.size, self.due = size_and_due(metadata)
        positions = positions_of(metadata, payload)
        self.left = set(positions)
        if unacked is not None and len(positions) == self.size:
            bits = f"{unacked & (1 << self.size) - 1:b}"
            self.left = {at for at, bit in enumerate(reversed(bits)) if bit == "1"}
        self.permits = self.size if unacked is None else unacked.bit_count()
        self.untaken = deque(sorted(self.left))
        self._first = self.untaken[0] if self.untaken else 0
        self._whole = len(self.left)
        self._is_cleared = False
        self._is_damaged = is_damaged
        self._metadata = metadata
        self._payload = payload
        self._read: list[ReadMessage | None] | None = None

    @property
    def is_batch(self) -> bool:
        """Whether a producer's batch is acknowledged with it."""
        return self.size > 1

    @property
    def is_whole(self) -> bool:
        """Whether no message of it is settled that a consumer may get."""
        return len(self.left) == self._whole

    @property
    def is_ready(self) -> bool:
        """Whether a message of it can be handed out. Drops the untaken positions before it."""
        while self.untaken and self.untaken[0] not in self.left:
            self.untaken.popleft()
        return bool(self.untaken) and self.consumer.is_open

    @property
    def bytes(self) -> int:
        """How many bytes :meth:`messages` reads, decompressed."""
        metadata = self._metadata
        return 0 if metadata is None else max(len(self._payload), metadata.uncompressed_size)

    def messages(self) -> list[ReadMessage | None]:
        """Its messages, by their positions. Read once, or by each thread that reads at the same time."""
        metadata, payload = self._metadata, self._payload
        if self._read is None:
            self._read = read_entry(metadata, payload, self._first, is_damaged=self._is_damaged)
            self._metadata, self._payload = None, b""
        return self._read

    def message(self, position: int) -> ReadMessage | None:
        """The one at ``position``; None where nothing is to be handed out, which need not be settled either. Only in
        the event loop."""
        messages = self.messages()
        if not self._is_cleared:
            self._is_cleared = True
            self.left.difference_update(at for at, each in enumerate(messages) if each is None)
            self._whole = len(self.left)
            if not self.left and self.consumer.entries.get(self.place) is self:
                # With no message to settle, nothing else acknowledges it.
                self.consumer.discard(self.place)
        return messages[position]


class TopicConsumer:
    """A consumer of ``topic``.

    ``permits``: how many more messages the broker may send; below 0 after a batch that is larger than they were.
    ``arrived`` is called with each entry; ``ended`` when the connection or the broker ends the consumer.
    """

    def __init__(
        self,
        connection: PulsarConnection,
        topic: str,
        arrived: Callable[[Entry], None],
        ended: Callable[[TopicConsumer], None],
    ) -> None:
        self.connection = connection
        self.topic = topic
        self.permits = 0
        self.entries: dict[EntryId, Entry] = {}
        self._id = connection.number()
        self._is_reader = False
        self._arrived = arrived
        self._ended = ended

    @property
    def is_open(self) -> bool:
        """Whether it gets messages."""
        return self.connection.consumers.get(self._id) is self

    async def open(self, *, key_shared: bool) -> None:
        """Subscribe; the topic and the subscription are created where the broker may. It gets no permits.

        Raises PulsarError and ConnectionEnded.
        """
        rest: dict[str, Any] = {"keySharedMeta": {"keySharedMode": 0}} if key_shared else {}
        kind = _KEY_SHARED if key_shared else _SHARED
        await self._subscribe(SUBSCRIPTION, kind, initialPosition=_EARLIEST, **rest)

    async def open_reader(self, name: str, first: EntryId = _BEGINNING) -> None:
        """Read the topic from its beginning, or from an entry, by a subscription ``name`` of its own, which ends
        with this consumer. It shows what is delayed, held or acknowledged, too. Raises PulsarError and
        ConnectionEnded."""
        self._is_reader = True
        await self._subscribe(name, _EXCLUSIVE, durable=False, start_message_id=wire.entry_id(first))

    async def _subscribe(self, name: str, kind: int, **rest: Any) -> None:
        self.connection.consumers[self._id] = self
        fields = {"topic": self.topic, "subscription": name, "subType": kind, "consumer_id": self._id, **rest}
        try:
            await self.connection.request("subscribe", **fields)
        except BaseException:
            # The broker may subscribe it after all, and would keep its share of the keys for it.
            with suppress(ConnectionEnded):
                number = self.connection.number()
                self.connection.write(wire.command("close_consumer", consumer_id=self._id, request_id=number))
            self.connection.consumers.pop(self._id, None)
            raise
        if not self.is_open:
            raise ConnectionEnded("the broker has closed the consumer")

    def flow(self, count: int) -> None:
        """Let the broker send ``count`` more messages. Raises ConnectionEnded."""
        self.permits += count
        while count > 0:
            part = min(count, _MAX_FLOW)
            self.connection.write(wire.command("flow", consumer_id=self._id, messagePermits=part))
            count -= part

    async def counts(self) -> Any:
        """What the broker says; what it had sent before has arrived then. ``msgBacklog``: entries of the subscription
        that are not acknowledged, those that are held or delayed among them; ``unackedMessages``: messages that this
        consumer holds. Raises PulsarError and ConnectionEnded."""
        return await self.connection.request("consumerStats", consumer_id=self._id)

    async def extent(self) -> Extent:
        """Where the backlog is. The broker reads the last entry of the topic for its answer. Raises PulsarError, also
        where it cannot read that, and ConnectionEnded."""
        answer = await self.connection.request("getLastMessageId", consumer_id=self._id)
        is_known = answer.HasField("consumer_mark_delete_position")
        acked = wire.entry_id_of(answer.consumer_mark_delete_position) if is_known else None
        return Extent(acked, wire.entry_id_of(answer.last_message_id))

    async def ack(self, places: Sequence[EntryId]) -> None:
        """Acknowledge entries, which any consumer of the subscription may hold; returns after the broker's receipt.

        Raises PulsarError and ConnectionEnded.
        """
        await self.connection.request("ack", **self._ack(places))

    def discard(self, place: EntryId) -> None:
        """Acknowledge an entry of which nothing is to be handed out: also once more, where it has arrived after its
        acknowledgement. Waits for no receipt; raises ConnectionEnded."""
        self.connection.write(wire.command("ack", **self._ack([place])))
        self.settled(place)

    def _ack(self, places: Sequence[EntryId]) -> dict[str, Any]:
        return {"consumer_id": self._id, "ack_type": _INDIVIDUAL, "message_id": list(map(wire.entry_id, places))}

    def settled(self, place: EntryId) -> None:
        """Note that an entry is acknowledged, or given back, if this consumer has it."""
        if (entry := self.entries.pop(place, None)) is not None:
            entry.left.clear()

    def redeliver(self, place: EntryId) -> None:
        """Give an entry back: the broker delivers it again, counted, if this consumer holds it. Raises
        ConnectionEnded."""
        fields = {"consumer_id": self._id, "message_ids": [wire.entry_id(place)]}
        self.connection.write(wire.command("redeliverUnacknowledgedMessages", **fields))
        self.settled(place)

    async def close(self) -> None:
        """End it; what it holds is delivered again, uncounted. Waits for the broker's answer; raises nothing."""
        if not self.is_open:
            return
        self.entries.clear()
        self.connection.consumers.pop(self._id, None)
        # With its connection, the consumer has ended, too.
        with suppress(Exception):
            await self.connection.request("close_consumer", consumer_id=self._id)

    def received(self, kind: str, fields: Any, rest: bytes) -> None:
        """Take an entry. A damaged one is asked for again, because the fault may be on the way. If it has the fault
        again, it is a message whose body is all of its bytes, so that no consumer takes it for another."""
        place = wire.entry_id_of(fields.message_id)
        is_damaged = False
        try:
            metadata, payload = wire.read_message(rest)
        except wire.DamagedMessage as error:
            _throttled.warning(str(error), topic=self.topic)
            # How many permits it took is in the part that is damaged.
            self.permits = 0
            if not fields.redelivery_count and not self._is_reader:
                self.flow(1)
                self.redeliver(place)
                return
            metadata, payload, is_damaged = wire.MessageMetadata(), error.damaged, True
        unacked = None
        if fields.ack_set:
            words = struct.pack(f"<{len(fields.ack_set)}Q", *fields.ack_set)
            unacked = int.from_bytes(words, "little")
        entry = Entry(self, place, fields.redelivery_count, metadata, payload, unacked, is_damaged=is_damaged)
        self.permits -= entry.permits
        self.entries[place] = entry
        self._arrived(entry)

    def lost(self, error: ConnectionEnded) -> None:
        self.entries.clear()
        self._ended(self)


async def read_entries(
    connection: PulsarConnection, topic: str, first: EntryId = _BEGINNING, most: int | None = None
) -> AsyncIterator[Entry]:
    """The entries of ``topic`` from ``first`` on, at most ``most``; None: all that it has now. What is delayed, held or
    acknowledged is among them, and nothing is taken. Raises PulsarError and ConnectionEnded."""
    arrived: asyncio.Queue[Entry | None] = asyncio.Queue()
    reader = TopicConsumer(connection, topic, arrived.put_nowait, lambda reader: arrived.put_nowait(None))
    await reader.open_reader(f"babelgate-{secrets.token_hex(8)}", first)
    permits = most or _READ
    try:
        # Nothing is acknowledged, so the backlog is what there is to read.
        left = most or (await reader.counts()).msgBacklog
        while left > 0:
            if reader.permits <= permits // 2:
                reader.flow(permits - reader.permits)
            entry = await arrived.get()
            if entry is None:
                raise ConnectionEnded("the broker has closed the reader")
            reader.entries.clear()
            left -= 1
            yield entry
    finally:
        await reader.close()


class Taken(NamedTuple):
    """A message that has arrived: its entry, and its position there."""

    entry: Entry
    position: int

    @property
    def is_held(self) -> bool:
        """Whether it can still be handed out."""
        return self.entry.consumer.is_open and self.position in self.entry.left


async def read_messages(several: Iterable[Taken]) -> None:
    """Read the entries of messages that have arrived, large ones in threads: :meth:`Entry.message` then takes no time
    of the event loop."""
    entries = list(dict.fromkeys(each.entry for each in several))
    await turns.mapped(Entry.messages, entries, size=lambda entry: entry.bytes)


class Handle(NamedTuple):
    """A delivery. ``position`` in a producer's batch; None for a message that stands alone. ``partition``: None of a
    topic without. ``process`` names the consumers among which one received it."""

    place: EntryId
    position: int | None
    partition: int | None
    process: str
    number: int

    @classmethod
    def read(cls, text: str) -> Handle | None:
        """The delivery that ``text`` names; None for a malformed one."""
        found = _HANDLE.fullmatch(text)
        if found is None:
            return None
        ledger, entry, position, partition, process, number = found.groups()
        place = EntryId(int(ledger), int(entry))
        return cls(
            place,
            int(position) if position else None,
            int(partition) if partition else None,
            process,
            int(number),
        )
