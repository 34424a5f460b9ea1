"""Connects to Azure Service Bus. Each sender and each receiver of the client library is a connection of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple, TypeVar

from azure.servicebus import ServiceBusReceiveMode, TransportType
from azure.servicebus.aio import ServiceBusClient

from babelgate.brokers.bounded import GRACE_SECONDS, finished, within
from babelgate.brokers.connect import CONNECT_SECONDS, Closable, ConnectPause, SharedConnect
from babelgate.brokers.errors import translating
from babelgate.brokers.servicebus.errors import CLOSE_ERRORS, HARMLESS, translate
from babelgate.brokers.servicebus.sdk_internals import end_keep_alive, is_attached, socket_of, work_around_sdk_bugs
from babelgate.brokers.servicebus.url import ServiceBusSettings
from babelgate.errors import BabelgateError, BrokerError, BrokerUnavailable, ConfigError, OutcomeUnknown
from babelgate.extras import how_to_install, missing
from babelgate.runtime.background import BackgroundTasks, error_seen
from babelgate.runtime.cache import Recent

IDLE_SECONDS = 240.0
"""An unused connection is closed before Service Bus detaches its link, after ten minutes:
https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-troubleshoot"""

_LOOK_SECONDS = 10.0
"""How often unused connections are looked for."""

_CLOSE_SECONDS = 3.0
MAX_OPENING = 8
"""Connections that are opened at a time. Opening one takes the client library some 30 ms of CPU: a hundred at once take
so long that none is open in the time of a call, and the event loop has no time for anything else."""

_MAX_CONNECTS = 1_000
"""Pauses after a failed attempt that are remembered, each for one kind of work on one queue."""

_RESTED_SECONDS = 1.0
"""After this time without a use, a connection may have been idle while the process stood still."""

_SOCKET_SECONDS = 0.2
"""How long the client library reads a socket before it looks at its other work."""

Kind = Literal["send", "receive", "manage", "delete"]
"""What a connection is used for. ``manage``: requests to the management node. ``delete``: receives that remove."""

Result = TypeVar("Result")
Operation = Callable[[Any], Awaitable[Result]]
"""Uses the sender or receiver of the client library."""


class HandlerKey(NamedTuple):
    """The connection for one kind of work on one entity."""

    kind: Kind
    entity: str


class Handler:
    """The open sender or receiver for ``key``, and its ``socket``. ``lock``: one operation at a time. ``users``:
    operations in progress or waiting."""

    def __init__(self, key: HandlerKey, client: Any, socket: asyncio.StreamWriter | None) -> None:
        self.key = key
        self.client = client
        self.socket = socket
        self.lock = asyncio.Lock()
        self.checking = asyncio.Lock()
        self.users = 0
        self.closed = False
        self.used_at = 0.0

    async def is_usable(self) -> bool:
        """Whether neither connection nor link has ended. Only one caller at a time looks."""
        async with self.checking:
            if self.closed:
                return False
            if asyncio.get_running_loop().time() > self.used_at + _RESTED_SECONDS:
                # What arrived while the process stood still is in the buffer after two turns of the event loop.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            return await is_attached(self.client)


class ServiceBusConnections(Closable):
    """The connections of one broker: opened at first use, at most ``max_handlers``, the least recently used closed.

    The client library repeats nothing.
    """

    def __init__(
        self, broker: str, settings: ServiceBusSettings, timeout_seconds: float, max_connects: int = _MAX_CONNECTS
    ) -> None:
        self.broker = broker
        self.timeout_seconds = timeout_seconds
        self.settings = settings
        self._made: ServiceBusClient | None = None
        self.credential: Any = None
        self._handlers: Recent[HandlerKey, Handler] = Recent(
            settings.max_handlers, lambda each: each.users, self.discard
        )
        self._connects: Recent[HandlerKey, SharedConnect[Handler | BabelgateError]] = Recent(
            max_connects, lambda each: each.busy
        )
        self._closing: BackgroundTasks[None] = BackgroundTasks()
        self._opening = asyncio.Semaphore(MAX_OPENING)
        self._looked_at = 0.0

    async def call(
        self,
        kind: Kind,
        entity: str,
        operation: Operation[Result],
        *,
        writes: bool,
        seconds: float | None = None,
    ) -> Result:
        """The result of ``operation`` on the connection for ``kind`` and ``entity``, within ``seconds`` (default: the
        broker's time-out), opening it included.

        Raises BabelgateError. ``writes``: without an answer to an operation that has begun the outcome is unknown.
        """
        begun = False

        async def work() -> Result:
            nonlocal begun
            handler = await self.taken(kind, entity)
            try:
                async with handler.lock:
                    if handler.closed:
                        raise BrokerUnavailable(self.broker, "the connection was closed")
                    begun = True
                    return await operation(handler.client)
            except HARMLESS:
                raise
            except BaseException:
                self.discard(handler)
                raise
            finally:
                self.leave(handler)

        def late(broker: str, reason: str) -> BrokerError:
            return (OutcomeUnknown if writes and begun else BrokerUnavailable)(broker, reason)

        try:
            return await within(self.timeout_seconds if seconds is None else seconds, self.broker, work(), late)
        except Exception as error:
            raise translate(error, self.broker, written=writes and begun) from error

    async def taken(self, kind: Kind, entity: str) -> Handler:
        """The open connection for ``kind`` and ``entity``, in use until :meth:`leave`."""
        self.check_open()
        self._close_idle()
        key = HandlerKey(kind, entity)
        handler = self._handlers.get(key)
        if handler is not None and (not handler.users or handler.checking.locked()) and not await handler.is_usable():
            self.discard(handler)
            handler = self._handlers.get(key)
        if handler is None:
            connect = self._connects.obtain(
                key, lambda: SharedConnect(self.broker, lambda: self._open(key), ConnectPause())
            )
            opened = await connect.connected()
            if isinstance(opened, BabelgateError):
                raise opened.without_frames()
            handler = opened
        else:
            self._handlers.move_to_end(key)
        handler.users += 1
        return handler

    def leave(self, handler: Handler) -> None:
        """End a use of a connection."""
        handler.users -= 1
        handler.used_at = asyncio.get_running_loop().time()

    def discard(self, handler: Handler) -> None:
        """Close a connection in the background; the next call opens another one."""
        if handler.closed:
            return
        handler.closed = True
        if self._handlers.get(handler.key) is handler:
            del self._handlers[handler.key]
        self.close_later(handler.client, handler.socket)

    async def close(self) -> None:
        """Close all connections, within a few seconds; idempotent."""
        self.closed = True
        await asyncio.gather(*(connect.cancel(_CLOSE_SECONDS) for connect in self._connects.values()))
        for handler in list(self._handlers.values()):
            self.discard(handler)
        await self._closing.wait(_CLOSE_SECONDS)
        await self._closing.cancel()
        # Sockets that were aborted are closed in the next turn.
        await asyncio.sleep(0)
        made, self._made = self._made, None
        if made is not None:
            # Its set of senders and receivers may change while it goes through them; it passes over their errors.
            with contextlib.suppress(RuntimeError):
                await made.close()
        if self.credential is not None:
            with contextlib.suppress(*CLOSE_ERRORS):
                await self.credential.close()
            self.credential = None

    def namespace(self) -> ServiceBusClient:
        """The client library's client. Raises ConfigError if the credentials cannot be read; BrokerUnavailable if the
        authorities cannot, and like :meth:`check_open`."""
        self.check_open()
        if self._made is None:
            settings = self.settings
            transport = TransportType.AmqpOverWebsocket if settings.websocket else TransportType.Amqp
            how: dict[str, Any] = {
                "retry_total": 0,
                "transport_type": transport,
                "user_agent": "babelgate",
                "socket_timeout": 1.0 if settings.websocket else _SOCKET_SECONDS,
            }
            if settings.endpoint_url is not None:
                how["custom_endpoint_address"] = settings.endpoint_url
            if settings.tls is not None:
                with translating(translate, self.broker):
                    how["ssl_context"] = settings.tls.context()
            if settings.connection_string is not None:
                self._made = ServiceBusClient.from_connection_string(settings.connection_string, **how)
            else:
                self.credential = default_credential()
                self._made = ServiceBusClient(settings.host, self.credential, **how)
        return self._made

    async def _open(self, key: HandlerKey) -> Handler | BabelgateError:
        """The new connection, or the answer of the service that it opens none. Raises BrokerUnavailable."""
        kind, entity = key
        namespace = self.namespace()
        if kind == "send":
            client: Any = namespace.get_queue_sender(entity)
        else:
            mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE if kind == "delete" else ServiceBusReceiveMode.PEEK_LOCK
            client = namespace.get_queue_receiver(entity, receive_mode=mode)
        try:
            async with self._opening:
                socket = await self.open(client)
        except BrokerUnavailable:
            raise
        except BabelgateError as error:
            self._connects.pop(key, None)
            return error
        handler = Handler(key, client, socket)
        handler.used_at = asyncio.get_running_loop().time()
        if self.closed:
            self.discard(handler)
        self.check_open()
        self._handlers[key] = handler
        self._connects.pop(key, None)
        return handler

    async def open(self, client: Any, seconds: float = CONNECT_SECONDS) -> asyncio.StreamWriter | None:
        """Open a sender or receiver within ``seconds``; returns its socket. Raises BrokerError."""
        work_around_sdk_bugs(client)
        opening = asyncio.ensure_future(client.__aenter__())
        try:
            if not await finished(opening, seconds - GRACE_SECONDS):
                raise BrokerUnavailable(self.broker, f"no answer within {seconds:g} s")
            opening.result()
            return socket_of(client)
        except BaseException as error:
            self._closing.start(self._give_up(opening, client))
            if isinstance(error, Exception):
                raise translate(error, self.broker, written=False) from error
            raise

    def close_later(self, client: Any, socket: asyncio.StreamWriter | None) -> None:
        """Close a sender or receiver in the background, and its socket, which the client library may have forgotten."""
        self._closing.start(self._close(client, socket))

    def _close_idle(self) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._looked_at + _LOOK_SECONDS:
            return
        self._looked_at, oldest = now, now - IDLE_SECONDS
        for handler in list(self._handlers.values()):
            if not handler.users and handler.used_at < oldest:
                self.discard(handler)

    async def _give_up(self, opening: asyncio.Future[Any], client: Any) -> None:
        """End an open that failed or takes too long."""
        socket = socket_of(client)
        try:
            opening.cancel()
            await asyncio.wait((opening,))
            error_seen(opening)
        finally:
            await self._close(client, socket)

    async def _close(self, client: Any, socket: asyncio.StreamWriter | None) -> None:
        end_keep_alive(client)
        sockets = {socket, socket_of(client)}
        try:
            with contextlib.suppress(*CLOSE_ERRORS):
                await client.close()
        finally:
            # Also where the peer hangs, and the close was cancelled. An operation may have opened the client again,
            # before the close or in it.
            for each in filter(None, {*sockets, socket_of(client)}):
                each.transport.abort()


def check_credentials(settings: ServiceBusSettings) -> None:
    """Raise ConfigError if ``settings`` need credentials of Microsoft Entra ID, and their extra is not installed."""
    if settings.connection_string is None and missing(["azure.identity"]):
        reason = f"credentials of Microsoft Entra ID need another client: {how_to_install('azure')}"
        raise ConfigError(key="url", reason=reason, extra="azure")


def default_credential() -> Any:
    """Credentials of Microsoft Entra ID, as the environment has them."""
    from azure.identity.aio import DefaultAzureCredential

    return DefaultAzureCredential()
