"""One connection to RabbitMQ, made when it is needed and made again when it was lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
from collections.abc import Coroutine
from typing import Any, Literal, cast
from urllib.parse import quote

from aio_pika.abc import UnderlayConnection
from aiormq.connection import Connection
from aiormq.exceptions import ConnectionClosed, InvalidFrameError
from yarl import URL

from app.brokers.options import TIMEOUT_SECONDS
from app.brokers.rabbitmq.channel import Channel
from app.brokers.rabbitmq.errors import reason_of, translate
from app.brokers.rabbitmq.frames import FrameReader, Transport
from app.brokers.rabbitmq.url import ConnectionParameters
from app.errors import BrokerUnavailable
from app.observe.logs import get_logger

CONNECT_SECONDS = 4.0
"""How long connecting, or opening a channel, may take; ``timeout_seconds`` where that is less."""
CLOSE_SECONDS = 4.0
_GRACE_SECONDS = 0.5
_BACKOFF_SECONDS = 0.2
_MAX_BACKOFF_SECONDS = 5.0

log = get_logger("babelgate.rabbitmq")
# What aiormq says of a lost connection, in several lines and with a trace, is said below in one.
logging.getLogger("aiormq").setLevel(logging.CRITICAL)


class Backoff:
    """How long to leave a broker alone that could not be connected to; shared by its connections."""

    def __init__(self) -> None:
        self._failures = 0
        self._not_before = 0.0
        self._cause = ""

    @property
    def cause(self) -> str | None:
        """Why the last attempt failed, while it is too early for another."""
        return self._cause if asyncio.get_running_loop().time() < self._not_before else None

    def succeeded(self) -> None:
        """The broker is there."""
        self._failures, self._not_before = 0, 0.0

    def failed(self, error: BaseException) -> None:
        """Twice as long as the time before, with jitter, so that not all replicas come at once to a broker that has
        just started."""
        wait = min(_BACKOFF_SECONDS * 2**self._failures, _MAX_BACKOFF_SECONDS)
        self._failures = min(self._failures + 1, 10)
        self._not_before = asyncio.get_running_loop().time() + wait * random.uniform(0.5, 1)
        self._cause = str(getattr(error, "reason", error))


class AmqpConnection:
    """A connection of ``broker`` for one ``purpose``.

    It is not aio-pika's robust one, which restores itself: consumers would come back with a prefetch that nobody waits
    for any more, and tags of the old connection would seem to be good on the new. Whoever uses it asks for a channel
    again.
    """

    def __init__(
        self,
        broker: str,
        parameters: ConnectionParameters,
        purpose: Literal["publish", "consume"],
        backoff: Backoff | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self.broker = broker
        self.generation = 0
        """Counts the connections: what was declared on one is not known on the next."""
        self._parameters = parameters
        self._purpose = purpose
        self._connection: Connection | None = None
        self._reader: FrameReader | None = None
        self._connecting: asyncio.Task[Connection] | None = None
        self._backoff = backoff or Backoff()
        self._connect_seconds = min(CONNECT_SECONDS, timeout_seconds)

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self._connection is not None and self._connection.is_opened

    @property
    def blocked(self) -> str | None:
        """Why the broker takes no messages on this connection just now (a resource alarm); None when it does."""
        return self._reader.blocked if self._reader is not None and self.is_open else None

    @property
    def channel_max(self) -> int:
        """How many channels the server allows on this connection; 0 while there is none."""
        return (self._connection.connection_tune.channel_max or 65535) if self._connection is not None else 0

    @property
    def server_version(self) -> tuple[int, ...]:
        """The numbers of the server's version, (3, 10, 8); empty before the first connection."""
        properties = self._connection.server_properties if self._connection is not None else {}
        version = properties.get("version", "")
        text = version.decode("ascii", "replace") if isinstance(version, bytes) else str(version)
        found = re.match(r"\d+(\.\d+)*", text)
        return tuple(map(int, found[0].split("."))) if found else ()

    async def open(self) -> None:
        """Connect, unless connected. Raises BrokerUnavailable within 5 s; at once while it waits after a failure."""
        await self._connected()

    async def channel(self, *, confirms: bool = False) -> Channel:
        """A new channel; with ``confirms`` one to publish on. Raises BrokerUnavailable within 10 s."""
        connection = await self._connected()
        reader, used = self._reader, connection.channels
        assert reader is not None
        if len(used) >= self.channel_max:
            raise BrokerUnavailable(broker=self.broker, reason=f"all {self.channel_max} channels are in use")
        # aiormq counts on from the highest number in use, past what the server allows.
        number = next(free for free in range(1, self.channel_max + 1) if free not in used)
        try:
            async with asyncio.timeout(self._connect_seconds):
                return await Channel.open(connection, reader, number, confirms=confirms)
        except TimeoutError:
            # A server that does not even open a channel does nothing else on this connection.
            self.drop(connection, "no answer to the opening of a channel")
            reason = f"no channel within {self._connect_seconds:g} s"
            raise BrokerUnavailable(broker=self.broker, reason=reason) from None
        except Exception as error:
            raise translate(self.broker, error, written=False) from error

    async def close(self) -> None:
        """Disconnect, politely; idempotent; at most 5 s. A later call connects again."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting}, timeout=_GRACE_SECONDS)
        connection, self._connection = self._connection, None
        if connection is not None:
            await _closed(connection, "closed by the gateway")

    def drop(self, connection: Any, reason: str) -> None:
        """Give a ``connection`` up that does not answer: the next caller gets another."""
        if self._connection is connection:
            self._connection = None
            log.info("connection given up", broker=self.broker, purpose=self._purpose, reason=reason)
        task = asyncio.get_running_loop().create_task(_closed(connection, reason))
        _CLOSING.add(task)
        task.add_done_callback(_CLOSING.discard)

    async def _connected(self) -> Connection:
        """The connection; all that ask at the same time wait for the same attempt."""
        if self._connection is not None and self._connection.is_opened:
            return self._connection
        if self._connecting is None:
            if (cause := self._backoff.cause) is not None:
                raise BrokerUnavailable(broker=self.broker, reason=cause)
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            self._connecting.add_done_callback(self._attempted)
        attempt = self._connecting
        try:
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            if attempt.cancelled():
                raise BrokerUnavailable(broker=self.broker, reason="the gateway disconnects") from None
            raise

    def _attempted(self, attempt: asyncio.Task[Connection]) -> None:
        self._connecting = None
        if attempt.cancelled():
            return
        error = attempt.exception()
        if error is None:
            self._backoff.succeeded()
        else:
            self._backoff.failed(error)

    async def _connect(self) -> Connection:
        wanted = self._parameters
        transport = Transport(tls=wanted.tls is not None)
        try:
            context = wanted.tls.context() if wanted.tls is not None else None
            url = URL.build(
                scheme="amqps" if wanted.tls is not None else "amqp",
                host=wanted.host,
                port=wanted.port,
                user=wanted.username,
                password=wanted.password,
                query={"heartbeat": str(wanted.heartbeat), "name": f"babelgate {self.broker} {self._purpose}"},
            ).with_path("/" + quote(wanted.vhost, safe=""), encoded=True, keep_query=True)
            connecting = UnderlayConnection.connect(url, _noted, context=context, transport_factory=transport)
            connection = cast(Connection, (await _within(connecting, self._connect_seconds)).connection)
        except TimeoutError:
            reason = f"no connection within {self._connect_seconds:g} s"
            raise BrokerUnavailable(broker=self.broker, reason=reason) from None
        except Exception as error:
            if transport.reader is not None and isinstance(error, InvalidFrameError) and transport.reader.closed:
                # aiormq tells of a frame it did not expect; the frame was the broker's refusal.
                raise BrokerUnavailable(broker=self.broker, reason=transport.reader.closed.rstrip(".")) from error
            raise translate(self.broker, error, written=False) from error
        self._connection, self._reader = connection, transport.reader
        self.generation += 1
        connection.closing.add_done_callback(lambda closing: self._lost(connection, closing))
        return connection

    def _lost(self, connection: Connection, closing: asyncio.Future[Any]) -> None:
        if self._connection is connection:
            self._connection = None
            cause = None if closing.cancelled() else closing.exception()
            why = reason_of(cause) if cause is not None else "closed"
            log.info("connection lost", broker=self.broker, purpose=self._purpose, reason=why)


_CLOSING: set[asyncio.Task[None]] = set()


async def _noted(closing: asyncio.Future[Any]) -> None:
    """Loss is watched on the connection itself, once it is open; here its cause only counts as seen."""
    if not closing.cancelled():
        closing.exception()


async def _within(connecting: Coroutine[Any, Any, UnderlayConnection], seconds: float) -> UnderlayConnection:
    """Await ``connecting``; past ``seconds`` TimeoutError, however long its cancellation takes."""
    attempt = asyncio.ensure_future(connecting)
    try:
        done, _ = await asyncio.wait({attempt}, timeout=seconds)
    except asyncio.CancelledError:
        attempt.cancel()
        raise
    if not done:
        attempt.cancel()
        await asyncio.wait({attempt}, timeout=_GRACE_SECONDS)
        raise TimeoutError
    return attempt.result()


async def _closed(connection: Connection, reason: str) -> None:
    closing = asyncio.ensure_future(connection.close(ConnectionClosed(320, reason)))
    await asyncio.wait({closing}, timeout=CLOSE_SECONDS)
    if not closing.done():
        closing.cancel()
    with contextlib.suppress(Exception, asyncio.CancelledError):
        await asyncio.wait({closing}, timeout=_GRACE_SECONDS)
