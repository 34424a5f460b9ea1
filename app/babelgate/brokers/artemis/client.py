"""The connection to one broker: opened on demand, reopened after a loss, and its links by queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar
from weakref import WeakSet

from babelgate.brokers.artemis.connection import ArtemisConnection
from babelgate.brokers.artemis.errors import translate
from babelgate.brokers.artemis.links import Link, ReceiverLink, SenderLink, Settlement
from babelgate.brokers.artemis.url import ArtemisSettings
from babelgate.brokers.binding import Outcome
from babelgate.brokers.bounded import answering, within
from babelgate.brokers.connect import CONNECT_SECONDS, Closable, ConnectPause, SharedConnect, replaced
from babelgate.brokers.errors import translating
from babelgate.errors import BrokerUnavailable, OutcomeUnknown
from babelgate.observe.logs import get_logger
from babelgate.runtime.background import BackgroundTasks
from babelgate.runtime.cache import Recent

IDLE_SECONDS = 60.0
"""How long an unused link stays attached; longer than a reserve may last."""

MAX_QUEUES = 1_000
"""Queues whose sender, and queues whose free receivers, stay attached; beyond it those not used for longest are ended,
unless they are in use. A link takes about 4 KB here, and without this bound each name used within IDLE_SECONDS has
one."""

_CLOSE_SECONDS = 4.0
_NO_CREDIT = (
    "the broker gave no credit within {seconds:g} s: the address is full (address-full-policy BLOCK), or its disk"
)

log = get_logger(__name__)

AnyLink = TypeVar("AnyLink", bound=Link)


class ArtemisClient(Closable):
    """One connection, which all queues share. ``timeout_seconds``: the bound of a call. ``pause``: shared by the
    connections to one broker. ``max_queues``: see MAX_QUEUES."""

    def __init__(
        self,
        broker: str,
        settings: ArtemisSettings,
        timeout_seconds: float,
        pause: ConnectPause,
        max_queues: int = MAX_QUEUES,
    ) -> None:
        self.broker = broker
        self.timeout_seconds = timeout_seconds
        self._settings = settings
        self._hosts = list(settings.hosts)
        self._connection: ArtemisConnection | None = None
        self._made: WeakSet[ArtemisConnection] = WeakSet()
        """Also those of attempts to connect that were cancelled."""
        self._attempts = SharedConnect(broker, self._connect, pause)
        self._replacing: BackgroundTasks[None] = BackgroundTasks()
        self._senders: Recent[str, SenderLink] = Recent(max_queues, _is_busy, Link.close)
        self._receivers: Recent[str, list[ReceiverLink]] = Recent(max_queues, _are_outstanding, _close_all)
        """The receivers of each queue that no caller uses."""
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def server_version(self) -> str | None:
        """As the broker reported it on the open connection; None without one."""
        return self._connection.server_version if self._connection is not None else None

    async def open(self) -> None:
        """Connect unless connected, also after :meth:`close`. Raises like :meth:`connected`."""
        self.closed = False
        await self.connected()

    async def connected(self) -> ArtemisConnection:
        """The open connection, or a new one. Raises BrokerUnavailable within 4 s, and at once after :meth:`close`."""
        self.check_open()
        if self._connection is not None:
            return self._connection
        return await self._attempts.connected()

    def of_generation(self, generation: str) -> ArtemisConnection | None:
        """The connection of ``generation`` while it is open; None after that."""
        found = self._connection
        return found if found is not None and found.generation == generation else None

    async def close(self) -> None:
        """Disconnect; the broker takes back unsettled messages; at most 5 s. Later calls fail until :meth:`open`."""
        self.closed = True
        await self._replacing.cancel()
        await self._attempts.cancel(0.5)
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close(_CLOSE_SECONDS)
        for made in list(self._made):
            made.abort("closed")
        self._forget()

    def mark_suspect(self) -> None:
        """Replace the connection in the background if its peer has vanished: it gave no answer."""
        connection = self._connection
        if connection is None or self._replacing or self.closed:
            return

        def replace(made: ArtemisConnection) -> None:
            if self._connection is not connection:
                discard(made)
                return
            connection.abort("it is silent, and a new connection is answered")
            self._connection = made

        def discard(made: ArtemisConnection) -> None:
            made.abort("the other one is answered")

        self._replacing.start(replaced(lambda: connection.heard, self._dial, replace, discard))

    async def send(self, queue: str, payloads: Sequence[bytes]) -> list[Outcome]:
        """Send messages to ``queue``, and wait for their confirms; one outcome each, in order.

        Raises BabelgateError where nothing was sent; takes at most ``timeout_seconds``.
        """
        until = asyncio.get_running_loop().time() + self.timeout_seconds
        try:
            async with asyncio.timeout_at(until):
                sender = await self._sender(queue)
            futures = sender.send(payloads)
        except TimeoutError:
            self.mark_suspect()
            raise BrokerUnavailable(self.broker, f"no answer within {self.timeout_seconds:g} s") from None
        except Exception as error:
            raise translate(error, self.broker, written=False) from error
        await asyncio.wait(futures, timeout=max(until - asyncio.get_running_loop().time(), 0))
        outcomes = [self._outcome(future) for future in futures]
        if not all(future.done() for future in futures):
            self.mark_suspect()
            for future in sender.withdraw(set(futures)):
                reason = _NO_CREDIT.format(seconds=self.timeout_seconds)
                outcomes[futures.index(future)] = BrokerUnavailable(self.broker, reason)
        return outcomes

    def _outcome(self, future: Settlement) -> Outcome:
        if not future.done():
            return OutcomeUnknown(self.broker, f"no confirm within {self.timeout_seconds:g} s")
        error = future.exception()
        return None if error is None else translate(error, self.broker, written=True).without_frames()

    @asynccontextmanager
    async def receiver(self, queue: str) -> AsyncIterator[ReceiverLink]:
        """An attached receiver of ``queue`` that no other caller uses: two of a queue at most, as reserves of it are.
        Raises the errors of connecting and attaching.

        Where the caller fails or is cancelled, what still arrives is given back uncounted.
        """
        free = self._receivers.get(queue, [])
        receiver = None
        while free and receiver is None:
            receiver = free.pop()
            receiver = receiver if receiver.ended is None else None
        if receiver is None:
            receiver = await attached((await self.connected()).receiver(queue))
        try:
            yield receiver
        except BaseException:
            receiver.abandon()
            raise
        receiver.used_at = asyncio.get_running_loop().time()
        self._receivers.obtain(queue, list).append(receiver)
        self._sweep_later()

    @asynccontextmanager
    async def temporary(
        self, queue: str, *, copying: bool = False, selector: str | None = None
    ) -> AsyncIterator[ReceiverLink]:
        """A receiver of ``queue`` that ends with the block, and gives back unsettled messages.

        See :meth:`babelgate.brokers.artemis.connection.ArtemisConnection.receiver`. The block may take
        ``timeout_seconds``. Raises BabelgateError.
        """
        async with answering(self.timeout_seconds, translate, self.broker, written=not copying):
            receiver = (await self.connected()).receiver(queue, copying=copying, selector=selector)
            try:
                yield await attached(receiver)
            finally:
                receiver.close()

    async def ping(self) -> None:
        """A round trip. Raises BrokerUnavailable."""
        with translating(translate, self.broker):
            await (await self.connected()).barrier()

    async def _sender(self, queue: str) -> SenderLink:
        sender = self._senders.get(queue)
        if sender is None or sender.ended is not None:
            connection = await self.connected()
            # Another caller may have attached one meanwhile.
            sender = self._senders.get(queue)
            if sender is None or sender.ended is not None:
                self._senders.pop(queue, None)
                sender = self._senders[queue] = connection.sender(queue)
                self._sweep_later()
        sender.used_at = asyncio.get_running_loop().time()
        self._senders.move_to_end(queue)
        if sender.opened.done() and sender.ended is None:
            return sender
        sender.users += 1
        try:
            return await attached(sender)
        finally:
            sender.users -= 1

    async def _connect(self) -> ArtemisConnection:
        self._connection = await self._dial()
        return self._connection

    async def _dial(self) -> ArtemisConnection:
        """Connect to the first host that answers, beginning with the one that did last."""
        errors: list[BrokerUnavailable] = []
        for host, port in list(self._hosts):
            try:
                connection = await within(CONNECT_SECONDS / len(self._hosts), self.broker, self._connect_to(host, port))
            except BrokerUnavailable as error:
                errors.append(error)
                # The next attempt begins with another host.
                self._hosts.append(self._hosts.pop(0))
            else:
                if connection.error is not None:
                    # It has ended since the broker opened it.
                    raise translate(connection.error, self.broker, written=False)
                return connection
        raise errors[0]

    async def _connect_to(self, host: str, port: int) -> ArtemisConnection:
        with translating(translate, self.broker):
            tls = self._settings.tls
            context = None if tls is None else tls.context()
            connection = ArtemisConnection(self._settings, host, self._lost)
            self._made.add(connection)
            try:
                await asyncio.get_running_loop().create_connection(lambda: connection, host, port, ssl=context)
                await asyncio.shield(connection.opened)
            except BaseException:
                connection.abort("connecting has failed")
                raise
            return connection

    def _lost(self, connection: ArtemisConnection, error: Exception) -> None:
        if self._connection is connection:
            self._connection = None
            self._forget()
            log.info("connection lost", broker=self.broker, reason=str(error))

    def _forget(self) -> None:
        self._senders.clear()
        self._receivers.clear()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def _sweep_later(self) -> None:
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(IDLE_SECONDS / 2, self._close_idle)

    def _close_idle(self) -> None:
        self._sweep = None
        long_ago = asyncio.get_running_loop().time() - IDLE_SECONDS
        for queue, sender in list(self._senders.items()):
            if sender.ended is not None or (sender.used_at < long_ago and not sender.busy):
                del self._senders[queue]
                sender.close()
        for queue, free in list(self._receivers.items()):
            # A receiver with unsettled deliveries stays: they would go back to the queue.
            idle = [each for each in free if each.ended or (each.used_at < long_ago and not each.outstanding)]
            for receiver in idle:
                free.remove(receiver)
                receiver.close()
            if not free:
                del self._receivers[queue]
        if self._senders or self._receivers:
            self._sweep_later()


def _is_busy(sender: SenderLink) -> bool:
    return sender.busy


def _are_outstanding(free: list[ReceiverLink]) -> bool:
    return any(each.outstanding and each.ended is None for each in free)


def _close_all(free: list[ReceiverLink]) -> None:
    for receiver in free:
        receiver.close()


async def attached(link: AnyLink) -> AnyLink:
    """``link`` when the broker has attached it. Raises Refused or ConnectionLost."""
    await asyncio.shield(link.opened)
    return link
