"""Publishes messages, waits for their confirms, and explains the ones that the broker refuses."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from functools import partial
from weakref import WeakValueDictionary

from aiormq.exceptions import ChannelAccessRefused, ChannelNotFoundEntity

from babelgate.brokers.binding import Outcome
from babelgate.brokers.connect import SharedConnect
from babelgate.brokers.errors import failure_for_each
from babelgate.brokers.rabbitmq.channel import Channel, ChannelGone
from babelgate.brokers.rabbitmq.confirms import UNCONFIRMED, Confirmed, Nacked, Returned
from babelgate.brokers.rabbitmq.connection import AmqpConnection
from babelgate.brokers.rabbitmq.errors import translate
from babelgate.brokers.rabbitmq.management import ManagementClient, QueueCounts
from babelgate.brokers.rabbitmq.profile import AddressedMessage, Topology
from babelgate.brokers.rabbitmq.topology import Declare, Declarer
from babelgate.errors import (
    BabelgateError,
    BodyTooLarge,
    BrokerError,
    BrokerRejected,
    BrokerUnavailable,
    OutcomeUnknown,
    StorageFull,
)
from babelgate.runtime.background import BackgroundTasks
from babelgate.runtime.cache import Recent

_MAX_LANES = 64
"""Most channels for publishing, one for each exchange; further exchanges share one."""

# No exchange has such a name: RabbitMQ removes line breaks.
_OTHERS, _APART = "\n", "\n\n"
"""The lane of further exchanges, and that of a message on a channel of its own."""

ALWAYS_BYTES = 16_384
"""Bodies up to this size are taken for accepted: a thousandth of RabbitMQ's default limit of 16 MiB."""

# rabbit_channel.erl, check_msg_size/2, of RabbitMQ 3.8 to 4.1. The management API does not report the limit.
_REFUSED = re.compile(r"message size \d+ is larger than (?:\w+ )*max size (\d+)")

_REMEMBERED_SECONDS = 5.0
"""How long an answer of the management API is reused, because a full queue refuses every message."""
_REMEMBERED_QUEUES = 1_000

_FULL = "the queue {queue!r} is at its length limit and rejects messages (x-overflow: reject-publish)"
_NOT_TAKEN = "the quorum queue {queue!r} did not take the message (basic.nack): no leader answered, or it is full"
_UNKNOWN = "the {where} did not take the message (basic.nack): it is full (x-overflow: reject-publish), or it failed"


class AcceptedSizes:
    """The limit of one connection, ``max_message_size``, as far as its server has shown it.

    It is read at the start of a server, so that another connection may have another limit.
    ``proven``: bodies up to this size, in bytes, are accepted. ``limit``: larger ones are refused; None: not known.
    """

    def __init__(self) -> None:
        self._generation = 0
        self.proven = ALWAYS_BYTES
        self.limit: int | None = None

    def of_connection(self, generation: int) -> None:
        """Forget the limit learned on another connection than number ``generation``."""
        if generation != self._generation:
            self._generation = generation
            self.proven, self.limit = ALWAYS_BYTES, None

    def refusal(self, size: int) -> BodyTooLarge | None:
        """The error of a body of ``size`` bytes, where the limit is known and less."""
        if self.limit is None or size <= self.limit:
            return None
        return BodyTooLarge(actual=size, limit=self.limit)

    def runs(self, messages: Sequence[AddressedMessage]) -> Iterator[Sequence[AddressedMessage]]:
        """``messages`` in order: as many as possible of proven sizes together, each other one by itself."""
        at = 0
        while at < len(messages):
            end = at
            while end < len(messages) and len(messages[end].body) <= self.proven:
                end += 1
            end = max(end, at + 1)
            yield messages[at:end]
            at = end

    def refused(self, reason: str) -> None:
        """Learn the limit from the ``reason`` with which the server closed a channel, if that was a message's size."""
        if (found := _REFUSED.search(reason)) is not None:
            self.limit = int(found[1])
            self.proven = min(self.proven, self.limit)


class ConfirmedPublisher:
    """Publishes to the broker of ``connection``. Never repeats a message.

    All callers share a channel for each exchange. RabbitMQ closes the channel of a message that it refuses, with the
    confirms of all others in flight. So a message to a deleted exchange affects no other exchange, and a body that is
    larger than any the broker has confirmed is alone on a channel until it is confirmed.
    """

    def __init__(self, connection: AmqpConnection, declarer: Declarer, nacks: NackErrors | None = None) -> None:
        self._connection = connection
        self._declarer = declarer
        self._nacks = nacks or NackErrors(connection.broker)
        self._timeout_seconds = connection.timeout_seconds
        self._sizes = AcceptedSizes()
        self._trying: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        """By exchange and routing key: locked while a body of an unproven size is in flight there."""
        self._opening: dict[str, SharedConnect[Channel]] = {}
        self._channels: dict[str, Channel] = {}
        """By lane: an exchange, or _OTHERS."""
        self._closing: BackgroundTasks[None] = BackgroundTasks()

    async def publish(self, messages: Sequence[AddressedMessage], topology: Topology, mode: Declare) -> list[Outcome]:
        """Write all messages in one piece; returns when all are confirmed, with one outcome per message.

        A body of an unproven size waits for the confirms of those before it, and those behind it wait for its confirm.
        One beyond the limit of the server is BodyTooLarge. Takes at most ``timeout_seconds``, connecting and declaring
        included, and 2 s more where the management API is queried about a refusal. Before the write it raises
        BrokerUnavailable, StorageFull at once while the broker blocks publishers, or BrokerRejected for the topology;
        but a channel that closes just before the write is the outcome of its messages, BrokerUnavailable.
        """
        until = asyncio.get_running_loop().time() + self._timeout_seconds
        self._sizes.of_connection(self._connection.generation + (not self._connection.is_open))
        outcomes: list[Outcome] = []
        for run in self._sizes.runs(messages):
            size = len(run[0].body)
            is_known = size <= self._sizes.proven or self._sizes.refusal(size) is not None
            send = self._send if is_known else self._try
            try:
                outcomes += await send(run, topology, mode, until)
            except BabelgateError as error:
                if len(run) == len(messages):
                    raise
                outcomes += failure_for_each(error, len(run))
        return outcomes

    async def _try(
        self, messages: Sequence[AddressedMessage], topology: Topology, mode: Declare, until: float
    ) -> list[Outcome]:
        """Write one message of an unproven size, one at a time to the same queue: its outcome decides on the next."""
        first = messages[0]
        lock = self._trying.setdefault((first.exchange, first.routing_key), asyncio.Lock())
        try:
            async with asyncio.timeout_at(until):
                await lock.acquire()
        except TimeoutError:
            raise self._unavailable() from None
        try:
            return await self._send(messages, topology, mode, until)
        finally:
            lock.release()

    async def _send(
        self, messages: Sequence[AddressedMessage], topology: Topology, mode: Declare, until: float
    ) -> list[Outcome]:
        """Write a run of messages in one piece on the channels of their exchanges, or one of an unproven size on a
        channel of its own."""
        size = len(messages[0].body)
        if (refusal := self._sizes.refusal(size)) is not None:
            return [refusal]
        self._check_blocked()
        is_unproven = size > self._sizes.proven
        lanes: dict[str, list[int]] = {}
        for index, message in enumerate(messages):
            lanes.setdefault(_APART if is_unproven else self._lane(message.exchange), []).append(index)
        try:
            # Not bounded.within, which needs a task: mostly everything exists, and this returns at once.
            async with asyncio.timeout_at(until):
                await self._ensure(messages, topology, mode)
                channels = {lane: await self._channel(lane) for lane in lanes}
        except TimeoutError:
            raise self._unavailable() from None
        try:
            # The broker may have blocked publishers since the first check.
            self._check_blocked()
            outcomes: list[Outcome] = [None] * len(messages)
            written: list[tuple[str, Confirmed]] = []
            for lane, chosen in lanes.items():
                try:
                    written.append((lane, channels[lane].publish([messages[index] for index in chosen])))
                except ChannelGone as error:
                    for index in chosen:
                        outcomes[index] = translate(error, self._connection.broker, written=False)
            for _, batch in written:
                await batch.wait(until)
            for lane, batch in written:
                # A copy, because a late confirm may change them meanwhile.
                for index, failure in zip(lanes[lane], tuple(batch.results), strict=True):
                    if failure is None:
                        continue
                    outcomes[index] = await self._outcome(failure, messages[index], topology, mode)
                    if failure is UNCONFIRMED:
                        self._give_up(lane, channels[lane])
                    elif isinstance(failure, Returned | ChannelGone):
                        self._declarer.forget(topology, messages[index].needs or topology)
            if is_unproven and outcomes == [None]:
                self._sizes.proven = max(self._sizes.proven, size)
            return outcomes
        finally:
            if is_unproven:
                self._closing.start(channels[_APART].close())

    async def close(self) -> None:
        """Close the channels, without waiting for confirms. The owner closes the connection."""
        channels = [*self._channels.values()]
        self._channels.clear()
        await asyncio.gather(*(channel.close() for channel in channels), *self._closing)

    async def _ensure(self, messages: Sequence[AddressedMessage], topology: Topology, mode: Declare) -> None:
        """Ensure the topology of ``messages``. May be cancelled: what was begun completes for the next caller."""
        await self._declarer.ensure(topology, mode)
        for needs in {id(message.needs): message.needs for message in messages}.values():
            if needs is not None:
                # Delay queues belong to the gateway in every mode; without them delayed messages would never arrive.
                await self._declarer.ensure(needs, "active" if mode == "active" else "missing")

    def _lane(self, exchange: str) -> str:
        if exchange in self._opening:
            return exchange
        lane = exchange if len(self._opening) < _MAX_LANES else _OTHERS
        self._opening.setdefault(lane, SharedConnect(self._connection.broker, partial(self._open, lane)))
        return lane

    def _unavailable(self) -> BrokerUnavailable:
        return BrokerUnavailable(self._connection.broker, f"no answer within {self._timeout_seconds:g} s")

    def _check_blocked(self) -> None:
        if (why := self._connection.blocked) is not None:
            reason = f"it blocks publishers: {why}"
            raise StorageFull(self._connection.broker, reason)

    async def _channel(self, lane: str) -> Channel:
        if lane == _APART:
            return await self._connection.channel(confirms=True)
        channel = self._channels.get(lane)
        if channel is not None and channel.is_open and self._connection.is_open:
            return channel
        return await self._opening[lane].connected()

    async def _open(self, lane: str) -> Channel:
        channel = self._channels[lane] = await self._connection.channel(confirms=True)
        return channel

    async def _outcome(
        self, error: Exception, message: AddressedMessage, topology: Topology, mode: Declare
    ) -> BabelgateError:
        broker = self._connection.broker
        if error is UNCONFIRMED:
            reason = f"no confirm within {self._timeout_seconds:g} s"
            return OutcomeUnknown(broker=broker, reason=reason)
        if isinstance(error, Returned):
            return _returned(broker, error, message, mode)
        if isinstance(error, Nacked):
            return await self._nacks.error(message, topology, mode)
        if isinstance(error, ChannelGone):
            self._sizes.refused(str(error))
            if (refusal := self._sizes.refusal(len(message.body))) is not None:
                return refusal
            if offends(error.__cause__, message):
                return translate(error, broker, written=False)
        return translate(error, broker, written=True)

    def _give_up(self, lane: str, channel: Channel) -> None:
        """Replace a channel whose confirms are late, except while the broker blocks publishers and sends none."""
        if self._channels.get(lane) is channel and self._connection.blocked is None:
            del self._channels[lane]
            self._closing.start(channel.close())


def offends(cause: BaseException | None, message: AddressedMessage) -> bool:
    """Whether the broker closed the channel because of ``message``; it may have stored the others in flight."""
    text = str(cause)
    if isinstance(cause, ChannelNotFoundEntity | ChannelAccessRefused):
        return f"exchange '{message.exchange or 'amq.default'}'" in text
    return False


def _returned(broker: str, error: Returned, message: AddressedMessage, mode: Declare) -> BabelgateError:
    where = f"queue {message.routing_key!r}" if message.exchange == "" else f"exchange {message.exchange!r}"
    if mode == "active":
        reason = f"the {where} was deleted ({error}); the next publish declares it again"
        return BrokerUnavailable(broker=broker, reason=reason)
    return BrokerRejected(broker=broker, reason=f"the {where} does not exist or routes to no queue ({error})")


class NackErrors:
    """Maps a negative confirm (``basic.nack``) to an error, depending on the type and state of the queue.

    RabbitMQ gives no reason with a nack. It refuses messages beyond the limit of a queue with ``x-overflow:
    reject-publish`` (https://www.rabbitmq.com/docs/maxlength#overflow-behaviour), and messages that it could not handle
    (https://www.rabbitmq.com/docs/confirms#server-sent-nacks). Whether the message was stored depends on the queue:

    - A full quorum queue, or one without a leader, was never sent the message: ``enqueue`` in rabbit_fifo_client.erl of
      RabbitMQ 3.10 to 4.1.
    - A classic queue whose process or node failed may have stored it: ``handle_event`` of ``down`` in
      rabbit_classic_queue.erl rejects all messages that are unconfirmed then.
    """

    def __init__(self, broker: str, management: ManagementClient | None = None) -> None:
        self._broker = broker
        self._management = management
        self._answers: Recent[str, tuple[float, asyncio.Task[QueueCounts | None]]] = Recent(_REMEMBERED_QUEUES)

    async def error(self, message: AddressedMessage, topology: Topology, mode: Declare) -> BrokerError:
        """The error of a refused ``message``; queries the management API, where it is configured, for at most 2 s.

        StorageFull where the queue is known to reject messages beyond its limit; BrokerUnavailable where it is known to
        be a quorum queue. In both cases nothing was written. Otherwise OutcomeUnknown, also for a message to another
        exchange than the default one, because one of several queues may have stored it.
        """
        queue = message.routing_key
        if message.exchange != "":
            return OutcomeUnknown(self._broker, _UNKNOWN.format(where=f"queue behind {message.exchange!r}"))
        counts = await self._counts(queue)
        if counts is not None and counts.rejects_beyond_limit:
            return StorageFull(self._broker, _FULL.format(queue=queue))
        if (counts is not None and counts.type == "quorum") or _is_declared_quorum(queue, topology, mode):
            return BrokerUnavailable(self._broker, _NOT_TAKEN.format(queue=queue))
        return OutcomeUnknown(self._broker, _UNKNOWN.format(where=f"queue {queue!r}"))

    async def _counts(self, queue: str) -> QueueCounts | None:
        if self._management is None:
            return None
        loop = asyncio.get_running_loop()
        until, query = self._answers.get(queue, (0.0, None))
        if query is None or until <= loop.time():
            query = loop.create_task(self._management.counts(queue))
            self._answers[queue] = (loop.time() + _REMEMBERED_SECONDS, query)
        # Concurrent callers share the answer.
        return await asyncio.shield(query)


def _is_declared_quorum(queue: str, topology: Topology, mode: Declare) -> bool:
    """Whether the gateway declared ``queue`` as a quorum queue, which RabbitMQ refuses for a queue of another type."""
    return mode == "active" and any(
        each.name == queue and each.arguments.get("x-queue-type") == "quorum" and not each.or_else
        for each in topology.queues
    )
