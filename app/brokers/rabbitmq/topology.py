"""Declares exchanges, queues and bindings, or looks whether they are there; once for each connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal
from weakref import WeakValueDictionary

from aiormq.exceptions import ChannelNotFoundEntity, ChannelPreconditionFailed

from app.brokers.rabbitmq.channel import Channel
from app.brokers.rabbitmq.connection import AmqpConnection
from app.brokers.rabbitmq.errors import translate
from app.brokers.rabbitmq.profile import BindingDeclaration, ExchangeDeclaration, QueueDeclaration, Topology
from app.errors import BrokerRejected, BrokerUnavailable

Declare = Literal["active", "passive", "none"]
"""``active``: make what is missing. ``passive``: only look, and refuse to work without. ``none``: neither."""

Mode = Declare | Literal["missing"]
"""``missing``: make what a look does not find, for which alone the right to configure is needed. Bindings, which nobody
can look for and which need no such right, are made."""

DECLARE_SECONDS = 10.0
_AT_ONCE = 2
"""Looks that go on at the same time, each on a channel, of which a connection may have few."""

_REMEMBERED = 10_000

_Part = ExchangeDeclaration | QueueDeclaration | BindingDeclaration


class Declarer:
    """What exists on the broker of ``connection``, as far as this process has seen to it."""

    def __init__(self, connection: AmqpConnection, locks: WeakValueDictionary[str, asyncio.Lock] | None = None) -> None:
        """``locks``: by the name of a queue, shared with the declarers of this process on other connections."""
        self._connection = connection
        self._locks = WeakValueDictionary() if locks is None else locks
        self._generation = 0
        self._ensured: dict[tuple[int, Mode], Topology] = {}
        self._there: set[tuple[Mode, _Part]] = set()
        self._running: dict[tuple[int, Mode], asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def ensure(self, topology: Topology, mode: Mode) -> None:
        """See to it that ``topology`` exists, as ``mode`` says; callers of the same share one look.

        Raises BrokerRejected for what is missing (passive), refused or made otherwise, and BrokerUnavailable; within
        15 s. Remembered until the connection is another, or :meth:`forget`.
        """
        if mode == "none":
            return
        key = id(topology), mode
        # A topology is known by its identity: it is kept here, so that no other can have it.
        current = self._generation == self._connection.generation and self._connection.is_open
        if current and self._ensured.get(key) is topology:
            return
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = asyncio.get_running_loop().create_task(self._ensure(topology, mode))
            running.add_done_callback(lambda task: self._ran(key, task))
        await asyncio.shield(running)

    def forget(self, *topologies: Topology) -> None:
        """The queues of ``topologies`` were found missing: with them went what was bound to them."""
        queues = {queue.name for topology in topologies for queue in topology.queues}
        exchanges = {exchange.name for topology in topologies for exchange in topology.exchanges}
        self._there = {(mode, part) for mode, part in self._there if not _concerns(part, queues, exchanges)}
        self._ensured.clear()

    def _ran(self, key: tuple[int, Mode], task: asyncio.Task[None]) -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()

    async def _ensure(self, topology: Topology, mode: Mode) -> None:
        await self._connection.open()
        generation = self._connection.generation
        if generation != self._generation:
            self._generation = generation
            self._ensured.clear()
            self._there.clear()
        if missing := [part for part in _parts(topology) if (mode, part) not in self._there]:
            try:
                async with asyncio.timeout(DECLARE_SECONDS), self._turns:
                    await self._see_to_all(missing, mode, generation)
            except TimeoutError:
                reason = f"no answer to a declaration within {DECLARE_SECONDS:g} s"
                raise BrokerUnavailable(broker=self._connection.broker, reason=reason) from None
        # On another connection than it began with, nothing is remembered: the next caller looks again.
        if generation == self._connection.generation:
            if len(self._ensured) >= _REMEMBERED:
                self._ensured.clear()
            self._ensured[id(topology), mode] = topology

    async def _see_to_all(self, parts: Sequence[_Part], mode: Mode, generation: int) -> None:
        # A channel of its own: a declaration that is refused closes it.
        channel = await self._connection.channel()
        try:
            for part in parts:
                channel = await self._see_to(channel, part, mode)
                if generation == self._connection.generation:
                    self._there.add((mode, part))
        finally:
            await channel.close()

    async def _see_to(self, channel: Channel, part: _Part, mode: Mode) -> Channel:
        """Declare or look for ``part``; the channel to go on with."""
        try:
            if mode == "missing" and not isinstance(part, BindingDeclaration):
                try:
                    await _look(channel, part)
                    return channel
                except ChannelNotFoundEntity:
                    channel = await self._connection.channel()
            if mode == "passive":
                await _look(channel, part)
            elif isinstance(part, QueueDeclaration):
                return await self._declare_queue(channel, part)
            else:
                await _declare(channel, part)
        except ChannelNotFoundEntity as error:
            hint = " (declare: active would make it)" if mode == "passive" else ""
            raise BrokerRejected(broker=self._connection.broker, reason=f"{error.args[0]}{hint}") from error
        except Exception as error:
            raise translate(self._connection.broker, error, written=False) from error
        return channel

    async def _declare_queue(self, channel: Channel, queue: QueueDeclaration) -> Channel:
        refused: ChannelPreconditionFailed | None = None
        for arguments in (queue.arguments, *queue.or_else):
            if refused is not None:
                channel = await self._connection.channel()
            try:
                # One at a time: while one connection makes a quorum queue, RabbitMQ tells another that it is there
                # before it has a leader, and then refuses the first messages.
                async with self._locks.setdefault(queue.name, asyncio.Lock()):
                    await channel.rpc.queue_declare(queue.name, durable=True, arguments=self._said(arguments))
                return channel
            except ChannelPreconditionFailed as error:
                refused = refused or error
        assert refused is not None
        raise refused

    def _said(self, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """``arguments`` for this server: before 4.0 there is no limit unless one is set, and -1 drops at once."""
        old = self._connection.server_version < (4,)
        said = {key: value for key, value in arguments.items() if not (old and key == "x-delivery-limit" and value < 0)}
        return said or None


def _parts(topology: Topology) -> Iterable[_Part]:
    yield from topology.exchanges
    yield from topology.queues
    yield from topology.bindings


def _concerns(part: _Part, queues: set[str], exchanges: set[str]) -> bool:
    if isinstance(part, QueueDeclaration):
        return part.name in queues
    if isinstance(part, ExchangeDeclaration):
        return part.name in exchanges
    return part.exchange in exchanges or part.destination in (exchanges if part.to_exchange else queues)


async def _look(channel: Channel, part: _Part) -> None:
    """AMQP cannot look for a binding: of these the names are taken at their word."""
    if isinstance(part, QueueDeclaration):
        await channel.rpc.queue_declare(part.name, passive=True)
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
