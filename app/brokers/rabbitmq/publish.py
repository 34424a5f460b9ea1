"""Publishes messages, waits for their confirms, and explains the ones that the broker refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from aiormq.exceptions import ChannelAccessRefused, ChannelNotFoundEntity, ChannelPreconditionFailed

from app.brokers.binding import Outcome
from app.brokers.connect import SharedConnect
from app.brokers.options import TIMEOUT_SECONDS
from app.brokers.rabbitmq.channel import Channel, ChannelGone
from app.brokers.rabbitmq.confirms import Batch, Nacked, Returned, Unconfirmed
from app.brokers.rabbitmq.connection import AmqpConnection
from app.brokers.rabbitmq.errors import translate
from app.brokers.rabbitmq.management import ManagementClient, QueueCounts
from app.brokers.rabbitmq.profile import AddressedMessage, Topology
from app.brokers.rabbitmq.topology import Declare, Declarer
from app.errors import BabelgateError, BrokerError, BrokerRejected, BrokerUnavailable, OutcomeUnknown, StorageFull
from app.runtime.background import BackgroundTasks

_REMEMBERED_SECONDS = 5.0
"""How long an answer of the management API is reused, because a full queue refuses every message."""
_REMEMBERED_QUEUES = 1_000

_FULL = "the queue {queue!r} is at its length limit and rejects messages (x-overflow: reject-publish)"
_NOT_TAKEN = "the quorum queue {queue!r} did not take the message (basic.nack): no leader answered, or it is full"
_UNKNOWN = "the {where} did not take the message (basic.nack): it is full (x-overflow: reject-publish), or it failed"


class ConfirmedPublisher:
    """Publishes to the broker of ``connection``. Never repeats a message.

    All callers share two channels, one of them for the default exchange. A message to a deleted exchange closes its
    channel, and must not affect messages to the default exchange, which cannot be deleted.
    """

    def __init__(
        self,
        connection: AmqpConnection,
        declarer: Declarer,
        timeout_seconds: float = TIMEOUT_SECONDS,
        nacks: NackErrors | None = None,
    ) -> None:
        self._connection = connection
        self._declarer = declarer
        self._nacks = nacks or NackErrors(connection.broker)
        self._timeout_seconds = timeout_seconds
        self._channels: dict[bool, Channel] = {}
        self._attempts = {
            default: SharedConnect(connection.broker, partial(self._open, default)) for default in (False, True)
        }
        self._closing: BackgroundTasks[None] = BackgroundTasks()

    async def publish(self, messages: Sequence[AddressedMessage], topology: Topology, mode: Declare) -> list[Outcome]:
        """Write all messages in one piece; returns when all are confirmed, with one outcome per message.

        Takes at most ``timeout_seconds``, connecting and declaring included, and 2 s more where the management API is
        queried about a refusal. When nothing was written it raises BrokerUnavailable, at once while the broker blocks
        publishers, or BrokerRejected for the topology.
        """
        self._check_blocked()
        until = asyncio.get_running_loop().time() + self._timeout_seconds
        try:
            # Not bounded.within, which needs a task: mostly everything exists, and this returns at once.
            async with asyncio.timeout_at(until):
                channels = await self._prepare(messages, topology, mode)
        except TimeoutError:
            reason = f"no answer within {self._timeout_seconds:g} s"
            raise BrokerUnavailable(broker=self._connection.broker, reason=reason) from None
        # The broker may have blocked publishers since the first check.
        self._check_blocked()
        outcomes: list[Outcome] = [None] * len(messages)
        written: list[tuple[list[int], Batch]] = []
        for default, channel in channels.items():
            chosen = [index for index, message in enumerate(messages) if (message.exchange == "") == default]
            try:
                written.append((chosen, channel.publish([messages[index] for index in chosen])))
            except ChannelGone as error:
                for index in chosen:
                    outcomes[index] = translate(self._connection.broker, error, written=False)
        if not written and messages:
            raise next(outcome for outcome in outcomes if outcome is not None)
        for _, batch in written:
            await batch.wait(until)
        for chosen, batch in written:
            # A copy, because a late confirm may change them meanwhile.
            for index, failure in zip(chosen, tuple(batch.results), strict=True):
                if failure is not None:
                    outcomes[index] = await self._outcome(failure, messages[index], topology, mode)
                    self._recover(failure, messages[index], topology, channels)
        return outcomes

    async def close(self) -> None:
        """Close the channels, without waiting for confirms. The owner closes the connection."""
        channels = [*self._channels.values()]
        self._channels.clear()
        await asyncio.gather(*(channel.close() for channel in channels), *self._closing)

    async def _prepare(
        self, messages: Sequence[AddressedMessage], topology: Topology, mode: Declare
    ) -> dict[bool, Channel]:
        """Ensure the topology of ``messages``; their channels, by whether they use the default exchange.

        May be cancelled: declarations and channels that were started complete for the next caller.
        """
        await self._declarer.ensure(topology, mode)
        for needs in {id(message.needs): message.needs for message in messages}.values():
            if needs is not None:
                # Delay queues belong to the gateway in every mode; without them delayed messages would never arrive.
                await self._declarer.ensure(needs, "active" if mode == "active" else "missing")
        return {default: await self._channel(default) for default in {message.exchange == "" for message in messages}}

    def _check_blocked(self) -> None:
        if (why := self._connection.blocked) is not None:
            reason = f"it blocks publishers: {why}"
            raise BrokerUnavailable(broker=self._connection.broker, reason=reason)

    async def _channel(self, default: bool) -> Channel:
        channel = self._channels.get(default)
        if channel is not None and channel.is_open and self._connection.is_open:
            return channel
        return await self._attempts[default].connected()

    async def _open(self, default: bool) -> Channel:
        channel = self._channels[default] = await self._connection.channel(confirms=True)
        return channel

    async def _outcome(
        self, error: Exception, message: AddressedMessage, topology: Topology, mode: Declare
    ) -> BabelgateError:
        broker = self._connection.broker
        if isinstance(error, Unconfirmed):
            reason = f"no confirm within {self._timeout_seconds:g} s"
            return OutcomeUnknown(broker=broker, reason=reason)
        if isinstance(error, Returned):
            return _returned(broker, error, message, mode)
        if isinstance(error, Nacked):
            return await self._nacks.error(message, topology, mode)
        if isinstance(error, ChannelGone) and offends(error.__cause__, message):
            return translate(broker, error, written=False)
        return translate(broker, error, written=True)

    def _recover(
        self, error: Exception, message: AddressedMessage, topology: Topology, channels: dict[bool, Channel]
    ) -> None:
        """After a failure, forget topologies that must be declared again, and replace a channel without confirms."""
        if isinstance(error, Unconfirmed):
            self._give_up(message.exchange == "", channels)
        elif isinstance(error, Returned | ChannelGone):
            self._declarer.forget(topology, *([message.needs] if message.needs is not None else []))

    def _give_up(self, default: bool, channels: dict[bool, Channel]) -> None:
        """Replace a channel whose confirms are late, except while the broker blocks publishers and sends none."""
        channel = channels[default]
        if self._channels.get(default) is channel and self._connection.blocked is None:
            del self._channels[default]
            self._closing.start(channel.close())


def offends(cause: BaseException | None, message: AddressedMessage) -> bool:
    """Whether the broker closed the channel because of ``message``; it may have stored the others in flight."""
    text = str(cause)
    if isinstance(cause, ChannelPreconditionFailed):
        return f"message size {len(message.body)} " in text
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
        self._answers: dict[str, tuple[float, asyncio.Task[QueueCounts | None]]] = {}

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
            if len(self._answers) >= _REMEMBERED_QUEUES:
                self._answers.clear()
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
