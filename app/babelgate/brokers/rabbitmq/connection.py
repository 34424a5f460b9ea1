"""One connection to RabbitMQ, opened on demand and reopened after a loss."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any, Literal, cast
from urllib.parse import quote

from aio_pika.abc import UnderlayConnection
from aiormq.connection import Connection
from aiormq.exceptions import ConnectionClosed, InvalidFrameError
from yarl import URL

from babelgate.brokers.bounded import within
from babelgate.brokers.connect import CONNECT_SECONDS, Closable, ConnectPause, SharedConnect, replaced
from babelgate.brokers.errors import translating
from babelgate.brokers.options import TIMEOUT_SECONDS
from babelgate.brokers.rabbitmq.channel import Channel
from babelgate.brokers.rabbitmq.errors import reason_of, translate
from babelgate.brokers.rabbitmq.incoming import FrameReader, Transport
from babelgate.brokers.rabbitmq.url import ConnectionParameters
from babelgate.errors import BrokerUnavailable
from babelgate.observe.logs import get_logger
from babelgate.runtime.background import BackgroundTasks, error_seen

_CLOSE_SECONDS = 4.0
_GRACE_SECONDS = 0.5

log = get_logger(__name__)
# aiormq logs a lost connection in several lines with a traceback; this module logs it in one.
logging.getLogger("aiormq").setLevel(logging.CRITICAL)


class AmqpConnection(Closable):
    """A connection of ``broker`` for one ``purpose``, opened on demand and reopened after a loss.

    It is not aio-pika's robust connection, which restores consumers and channels by itself: the consumers would have a
    prefetch that no client waits for, and delivery tags of the old connection would seem valid on the new one. Callers
    ask for a new channel instead.
    """

    def __init__(
        self,
        broker: str,
        parameters: ConnectionParameters,
        purpose: Literal["publish", "consume", "isolated"],
        pause: ConnectPause | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        """``pause``: shared by the connections to one broker."""
        self.broker = broker
        self.timeout_seconds = timeout_seconds
        self.generation = 0
        """The number of connections so far. A declaration is valid for one generation."""
        self._parameters = parameters
        self._purpose = purpose
        self._connection: Connection | None = None
        self._reader: FrameReader | None = None
        self._channel_seconds = min(CONNECT_SECONDS, timeout_seconds)
        self._attempts = SharedConnect(broker, self._connect, pause or ConnectPause())
        self._replacing: BackgroundTasks[None] = BackgroundTasks()
        self._closing: BackgroundTasks[None] = BackgroundTasks()

    @property
    def is_open(self) -> bool:
        """Whether the connection is open."""
        return self._connection is not None and self._connection.is_opened

    @property
    def blocked(self) -> str | None:
        """The broker's reason while it blocks publishers on this connection (a resource alarm); otherwise None."""
        return self._reader.blocked if self._reader is not None and self.is_open else None

    @property
    def channel_max(self) -> int:
        """The number of channels that the server allows on this connection; 0 before the first connection."""
        return _channel_max(self._connection) if self._connection is not None else 0

    @property
    def frame_max(self) -> int:
        """The most bytes of a frame that the server allows, 0 without a limit; its default before the first connection:
        https://www.rabbitmq.com/docs/configure (frame_max)."""
        return self._connection.connection_tune.frame_max if self._connection is not None else 131_072

    @property
    def server_version(self) -> tuple[int, ...]:
        """The server's version, such as (3, 10, 8); empty before the first connection."""
        properties = self._connection.server_properties if self._connection is not None else {}
        version = properties.get("version", "")
        text = version.decode("ascii", "replace") if isinstance(version, bytes) else str(version)
        found = re.match(r"\d+(\.\d+)*", text)
        return tuple(map(int, found[0].split("."))) if found else ()

    async def open(self) -> None:
        """Connect unless connected, also after :meth:`close`. Raises like :meth:`connected`."""
        self.closed = False
        await self.connected()

    async def connected(self) -> Connection:
        """The open connection, or a new one.

        Raises BrokerUnavailable within 5 s, at once during the pause after a failure and after :meth:`close`.
        """
        self.check_open()
        if self._connection is not None and self._connection.is_opened:
            return self._connection
        return await self._attempts.connected()

    async def channel(self, *, confirms: bool = False) -> Channel:
        """A new channel; ``confirms`` enables publisher confirms. Raises BrokerUnavailable within 10 s."""
        connection = await self.connected()
        assert self._reader is not None
        opening = asyncio.create_task(self._open_channel(connection, self._reader, confirms))
        # Its error is marked as seen, also where the caller was cancelled and does not see it.
        opening.add_done_callback(error_seen)
        try:
            # After a pause of this process the first wait ends although answers have arrived; the second reads them.
            # A channel takes several round trips, so that the grace of bounded.within may be too short.
            for _ in range(2):
                await asyncio.wait({opening}, timeout=self._channel_seconds / 2)
            if opening.done():
                return opening.result()
        finally:
            opening.cancel()
        self.mark_suspect()
        raise BrokerUnavailable(broker=self.broker, reason=f"no channel within {self._channel_seconds:g} s")

    async def _open_channel(self, connection: Connection, reader: FrameReader, confirms: bool) -> Channel:
        used, most = connection.channels, _channel_max(connection)
        if len(used) >= most:
            raise BrokerUnavailable(broker=self.broker, reason=f"all {most} channels are in use")
        # aiormq would continue from the highest number in use, beyond the server's limit.
        number = next(free for free in range(1, most + 1) if free not in used)
        with translating(translate, self.broker):
            return await Channel.open(connection, reader, number, confirms=confirms)

    async def close(self) -> None:
        """Disconnect with AMQP's close handshake; idempotent; at most 5 s. Later calls fail until :meth:`open`."""
        self.closed = True
        await self._replacing.cancel()
        await self._attempts.cancel(_GRACE_SECONDS)
        connection, self._connection = self._connection, None
        if connection is not None:
            self._closing.start(_close(connection, "closed by the gateway"))
        await self._closing.wait()

    def mark_suspect(self) -> None:
        """Replace the connection in the background if its peer has vanished: it gave no answer."""
        connection, reader = self._connection, self._reader
        if connection is None or reader is None or self._replacing or self.closed:
            return

        def replace(made: tuple[Connection, FrameReader]) -> None:
            if self._connection is not connection:
                discard(made)
                return
            reason = "it is silent, and a new connection is answered"
            log.info("connection given up", broker=self.broker, purpose=self._purpose, reason=reason)
            self._use(*made)
            self._closing.start(_close(connection, reason))

        def discard(made: tuple[Connection, FrameReader]) -> None:
            self._closing.start(_close(made[0], "the other one is answered"))

        self._replacing.start(replaced(lambda: reader.heard, self._dial, replace, discard))

    async def _connect(self) -> Connection:
        connection, reader = await self._dial()
        self._use(connection, reader)
        return connection

    def _use(self, connection: Connection, reader: FrameReader) -> None:
        self._connection, self._reader = connection, reader
        self.generation += 1
        connection.closing.add_done_callback(lambda closing: self._lost(connection, closing))

    async def _dial(self) -> tuple[Connection, FrameReader]:
        """A new connection. Raises BrokerUnavailable."""
        parameters = self._parameters
        transport = Transport(tls=parameters.tls is not None)
        connection: Connection | None = None
        try:
            context = parameters.tls.context() if parameters.tls is not None else None
            url = URL.build(
                scheme="amqps" if parameters.tls is not None else "amqp",
                host=parameters.host,
                port=parameters.port,
                user=parameters.username,
                password=parameters.password,
                query={"heartbeat": str(parameters.heartbeat), "name": f"babelgate {self.broker} {self._purpose}"},
            ).with_path("/" + quote(parameters.vhost, safe=""), encoded=True, keep_query=True)
            connecting = UnderlayConnection.connect(url, _retrieve, context=context, transport_factory=transport)
            connection = cast(Connection, (await within(CONNECT_SECONDS, self.broker, connecting)).connection)
        except BrokerUnavailable:
            raise
        except Exception as error:
            if transport.reader is not None and isinstance(error, InvalidFrameError) and transport.reader.closed:
                # aiormq reports an unexpected frame; it was the broker's connection.close, with its reason.
                raise BrokerUnavailable(broker=self.broker, reason=transport.reader.closed.rstrip(".")) from error
            raise translate(error, self.broker, written=False) from error
        finally:
            # aiormq forgets a connection whose caller is cancelled when it is open, before its tasks have begun.
            if connection is None and transport.reader is not None:
                transport.reader.transport.abort()
        assert transport.reader is not None
        return connection, transport.reader

    def _lost(self, connection: Connection, closing: asyncio.Future[Any]) -> None:
        if self._connection is connection:
            self._connection = None
            cause = None if closing.cancelled() else closing.exception()
            why = reason_of(cause) if cause is not None else "closed"
            log.info("connection lost", broker=self.broker, purpose=self._purpose, reason=why)


def _channel_max(connection: Connection) -> int:
    return connection.connection_tune.channel_max or 65535


async def _retrieve(closing: asyncio.Future[Any]) -> None:
    """Mark the error of ``closing`` as seen. AmqpConnection watches the connection itself once it is open."""
    if not closing.cancelled():
        closing.exception()


async def _close(connection: Connection, reason: str) -> None:
    closing = asyncio.ensure_future(connection.close(ConnectionClosed(320, reason)))
    await asyncio.wait({closing}, timeout=_CLOSE_SECONDS)
    if not closing.done():
        closing.cancel()
        await asyncio.wait({closing}, timeout=_GRACE_SECONDS)
