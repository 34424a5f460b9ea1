"""Declares exchanges, queues and bindings, or checks that they exist, once for each connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal
from weakref import WeakValueDictionary

from aiormq.exceptions import ChannelNotFoundEntity, ChannelPreconditionFailed

from babelgate.brokers.connect import shared_result
from babelgate.brokers.rabbitmq.channel import Channel
from babelgate.brokers.rabbitmq.connection import AmqpConnection
from babelgate.brokers.rabbitmq.errors import translate
from babelgate.brokers.rabbitmq.profile import BindingDeclaration, ExchangeDeclaration, QueueDeclaration, Topology
from babelgate.errors import BrokerRejected, BrokerUnavailable
from babelgate.runtime.background import error_seen
from babelgate.runtime.cache import Recent

Declare = Literal["active", "passive", "none"]
"""``active``: declare. ``passive``: check, and refuse a missing queue or exchange. ``none``: neither."""

Mode = Declare | Literal["missing"]
"""``missing``: declare what a check does not find; only that needs the permission to configure. Bindings are always
declared: they cannot be checked and do not need this permission."""

DECLARE_SECONDS = 10.0
"""How long the answer to one declaration may take, or the time-out of a call where that is more. The delay queues have
more than a hundred, each of which a cluster agrees on, so that all together may take longer than a call."""

_MAX_CONCURRENT = 2
"""Concurrent topologies, each on a channel of its own, because a connection may allow only a few channels."""

_REMEMBERED = 10_000
_MAX_PARTS = 20_000
"""Parts that are known to exist, of about 1 KB each; a queue with dead letters has two or more. Beyond it the oldest
are forgotten, and declared or checked again when they are used."""

_Part = ExchangeDeclaration | QueueDeclaration | BindingDeclaration


class Declarer:
    """Ensures that topologies exist on the broker of ``connection``, and remembers which ones do."""

    def __init__(
        self,
        connection: AmqpConnection,
        locks: WeakValueDictionary[str, asyncio.Lock] | None = None,
        max_parts: int = _MAX_PARTS,
        answer_seconds: float = DECLARE_SECONDS,
    ) -> None:
        """``locks``: by queue name, shared with the declarers of other connections of this process. ``max_parts``: the
        most exchanges, queues and bindings that are remembered; at least one. ``answer_seconds``: see
        DECLARE_SECONDS."""
        self._connection = connection
        self._locks = WeakValueDictionary() if locks is None else locks
        self._generation = 0
        self._ensured: Recent[tuple[int, Mode], Topology] = Recent(_REMEMBERED)
        self._existing: Recent[tuple[Mode, _Part], None] = Recent(max_parts)
        self._running: dict[tuple[int, Mode], asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(_MAX_CONCURRENT)
        self._answer_seconds = answer_seconds

    async def ensure(self, topology: Topology, mode: Mode) -> None:
        """Ensure that ``topology`` exists, by ``mode``. Concurrent callers for one topology share the work.

        Raises BrokerRejected for a part that is missing (passive), refused or declared differently, and
        BrokerUnavailable where the broker does not answer a declaration. It takes as long as the broker answers them
        one by one: the caller bounds its wait, and the work goes on for the next caller. The result is remembered until
        a reconnect or :meth:`forget`.
        """
        if mode == "none":
            return
        key = id(topology), mode
        # The key is the identity of the topology; the stored reference keeps it from being reused.
        current = self._generation == self._connection.generation and self._connection.is_open
        if current and self._ensured.get(key) is topology:
            return
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = asyncio.get_running_loop().create_task(self._ensure(topology, mode))
            running.add_done_callback(lambda _: self._running.pop(key))
            running.add_done_callback(error_seen)
        await shared_result(running, self._connection.broker)

    def forget(self, *topologies: Topology) -> None:
        """Forget the queues and exchanges of ``topologies``, with their bindings, because a queue was found missing."""
        queues = {queue.name for topology in topologies for queue in topology.queues}
        exchanges = {exchange.name for topology in topologies for exchange in topology.exchanges}
        for mode, part in [each for each in self._existing if _affects(each[1], queues, exchanges)]:
            del self._existing[mode, part]
        self._ensured.clear()

    async def close(self) -> None:
        """End what is begun, once the connection is closed: its callers get BrokerUnavailable. At most 2 s."""
        running = list(self._running.values())
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _ensure(self, topology: Topology, mode: Mode) -> None:
        await self._connection.connected()
        generation = self._connection.generation
        if generation != self._generation:
            self._generation = generation
            self._ensured.clear()
            self._existing.clear()
        if self._missing(topology, mode):
            try:
                async with self._turns:
                    # Again: another topology may have ensured them meanwhile.
                    if missing := self._missing(topology, mode):
                        await self._ensure_parts(missing, mode, generation)
            except TimeoutError:
                reason = f"no answer to a declaration within {self._answer_seconds:g} s"
                raise BrokerUnavailable(broker=self._connection.broker, reason=reason) from None
        # After a reconnect nothing is remembered, and the next caller checks again.
        if generation == self._connection.generation:
            self._ensured[id(topology), mode] = topology

    def _missing(self, topology: Topology, mode: Mode) -> list[_Part]:
        """The parts of ``topology`` that are not known to exist."""
        return [part for part in _parts(topology) if (mode, part) not in self._existing]

    async def _ensure_parts(self, parts: Sequence[_Part], mode: Mode, generation: int) -> None:
        # A separate channel, because a refused declaration closes it.
        channel = await self._connection.channel()
        try:
            for part in parts:
                async with asyncio.timeout(self._answer_seconds):
                    channel = await self._ensure_part(channel, part, mode)
                if generation == self._connection.generation:
                    self._existing[mode, part] = None
        finally:
            await channel.close()

    async def _ensure_part(self, channel: Channel, part: _Part, mode: Mode) -> Channel:
        """Declare or check ``part``; the channel for the next part."""
        try:
            if mode == "missing" and not isinstance(part, BindingDeclaration):
                try:
                    await _check(channel, part)
                    return channel
                except ChannelNotFoundEntity:
                    channel = await self._connection.channel()
            if mode == "passive":
                await _check(channel, part)
            elif isinstance(part, QueueDeclaration):
                return await self._declare_queue(channel, part)
            else:
                await _declare(channel, part)
        except ChannelNotFoundEntity as error:
            hint = " (declare: active would create it)" if mode == "passive" else ""
            raise BrokerRejected(broker=self._connection.broker, reason=f"{error.args[0]}{hint}") from error
        except Exception as error:
            raise translate(error, self._connection.broker, written=False) from error
        return channel

    async def _declare_queue(self, channel: Channel, queue: QueueDeclaration) -> Channel:
        refused: ChannelPreconditionFailed | None = None
        for arguments in (queue.arguments, *queue.or_else):
            if refused is not None:
                channel = await self._connection.channel()
            try:
                # One at a time: while one connection declares a quorum queue, RabbitMQ confirms it to another before
                # it has a leader, and then refuses the first messages.
                async with self._locks.setdefault(queue.name, asyncio.Lock()):
                    await channel.rpc.queue_declare(queue.name, durable=True, arguments=self._supported(arguments))
                return channel
            except ChannelPreconditionFailed as error:
                refused = refused or error
        assert refused is not None
        raise refused

    def _supported(self, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """``arguments`` for this server version: before 4.0 the default is no limit, and -1 drops messages at once."""
        old = self._connection.server_version < (4,)
        supported = {
            key: value for key, value in arguments.items() if not (old and key == "x-delivery-limit" and value < 0)
        }
        return supported or None


def _parts(topology: Topology) -> Iterable[_Part]:
    yield from topology.exchanges
    yield from topology.queues
    yield from topology.bindings


def _affects(part: _Part, queues: set[str], exchanges: set[str]) -> bool:
    if isinstance(part, QueueDeclaration):
        return part.name in queues
    if isinstance(part, ExchangeDeclaration):
        return part.name in exchanges
    return part.exchange in exchanges or part.destination in (exchanges if part.to_exchange else queues)


async def _check(channel: Channel, part: _Part) -> None:
    """Check that ``part`` exists. A binding is assumed to exist, because AMQP cannot check it."""
    if isinstance(part, QueueDeclaration):
        await channel.ready(part.name)
    elif isinstance(part, ExchangeDeclaration):
        await channel.rpc.exchange_declare(part.name, exchange_type=part.kind, passive=True)


async def _declare(channel: Channel, part: ExchangeDeclaration | BindingDeclaration) -> None:
    if isinstance(part, ExchangeDeclaration):
        arguments = {"alternate-exchange": part.alternate} if part.alternate is not None else None
        await channel.rpc.exchange_declare(part.name, exchange_type=part.kind, durable=True, arguments=arguments)
    elif part.to_exchange:
        await channel.rpc.exchange_bind(part.destination, part.exchange, part.routing_key)
    else:
        await channel.rpc.queue_bind(part.destination, part.exchange, part.routing_key)
