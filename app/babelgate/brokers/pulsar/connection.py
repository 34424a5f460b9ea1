"""One connection to a Pulsar broker: frames, requests with answers, and the live check of both sides."""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

from babelgate.brokers.pulsar import wire
from babelgate.brokers.pulsar.errors import ConnectionEnded, PulsarError
from babelgate.brokers.pulsar.wire import MalformedFrame
from babelgate.runtime.background import BackgroundTasks

PING_SECONDS = 30.0
"""The broker drops a connection that is silent for this long after its ping:
https://pulsar.apache.org/docs/4.0.x/developing-binary-protocol/#keep-alive"""

_SIZE = struct.Struct(">I")
_MAX_FRAME = 1 << 30
_CLIENT = "babelgate"

Credentials = Callable[[], Awaitable[tuple[str, bytes]]]
"""The name of a method of authentication, and its data; ("", b"") for none."""


class Endpoint(Protocol):
    """A producer or a consumer on a connection. Each method is called in the event loop."""

    def received(self, kind: str, fields: Any, rest: bytes) -> None:
        """A command for it, with the bytes behind the command."""

    def lost(self, error: ConnectionEnded) -> None:
        """The connection has ended, or the broker has closed the endpoint. Called once, with the reason."""


class PulsarConnection(asyncio.Protocol):
    """A connection. ``max_message_bytes``: the largest message, with its metadata, that the broker takes."""

    def __init__(self, credentials: Credentials) -> None:
        self.max_message_bytes = 5 * 1024 * 1024
        self.version = 0
        self.server = ""
        """The server's own name and version."""
        self._credentials = credentials
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)
        self.producers: dict[int, Endpoint] = {}
        self.consumers: dict[int, Endpoint] = {}
        """Who has the commands for a producer, or a consumer, by its number; later ones are dropped."""
        self._connected: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pongs: list[asyncio.Future[None]] = []
        self._refreshing: BackgroundTasks[None] = BackgroundTasks()
        self.heard = 0
        """How often bytes have arrived."""
        self._heard_before = -1
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False
        self._gone = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None and not self._ended

    async def open(self, proxied: str | None) -> None:
        """Introduce this client. ``proxied``: the broker to which a Pulsar proxy leads. Raises the broker's errors."""
        method, secret = await self._credentials()
        fields: dict[str, Any] = {"client_version": _CLIENT, "protocol_version": wire.PROTOCOL_VERSION}
        if method:
            fields |= {"auth_method_name": method, "auth_data": secret}
        if proxied is not None:
            fields["proxy_to_broker_url"] = proxied
        self.write(wire.command("connect", **fields, feature_flags={"supports_auth_refresh": True}))
        answer = await self._connected
        self.version = answer.protocol_version
        self.server = answer.server_version.decode("utf-8", "replace")
        self.max_message_bytes = answer.max_message_size or self.max_message_bytes
        self._timer = asyncio.get_running_loop().call_later(PING_SECONDS, self._check)

    def write(self, frame: bytes) -> None:
        """Send frames. Raises ConnectionEnded."""
        if self._transport is None or self._ended:
            raise ConnectionEnded("the connection was closed")
        self._transport.write(frame)

    async def request(self, kind: str, **fields: Any) -> Any:
        """Send a command with these fields; the fields of its answer. Raises PulsarError and
        ConnectionEnded."""
        request = next(self._numbers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._requests[request] = answer
        try:
            self.write(wire.command(kind, **fields, request_id=request))
            return await answer
        finally:
            self._requests.pop(request, None)

    async def ping(self) -> None:
        """One round trip. Raises ConnectionEnded."""
        pong: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.write(wire.command("ping"))
        self._pongs.append(pong)
        await pong

    def number(self) -> int:
        """A number for a producer or a consumer of this connection."""
        return next(self._numbers)

    def drop(self, reason: str) -> None:
        """End the connection at once; idempotent."""
        if self._transport is not None:
            self._transport.abort()
        self._end(ConnectionEnded(reason))

    def close(self) -> None:
        """End the connection; idempotent. What a broker that does not read has not taken is dropped."""
        if self._transport is not None:
            if self._transport.get_write_buffer_size():
                self._transport.abort()
            else:
                self._transport.close()
            self._end(ConnectionEnded("closed by the gateway"))

    async def gone(self) -> None:
        """Wait until the socket is closed, where there is one."""
        if self._transport is not None:
            await self._gone.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set()
        self._end(ConnectionEnded(str(exc) if exc is not None else "the broker has closed the connection"))

    def data_received(self, data: bytes) -> None:
        self.heard += 1
        buffer = self._buffer
        buffer += data
        position, end = 0, len(buffer)
        try:
            while end - position >= 4:
                size = _SIZE.unpack_from(buffer, position)[0]
                if size > _MAX_FRAME:
                    raise MalformedFrame("a frame is too large")
                if end - position - 4 < size:
                    break
                frame = bytes(buffer[position + 4 : position + 4 + size])
                position += 4 + size
                self._receive(frame)
        except (MalformedFrame, struct.error) as error:
            self.drop(f"the broker does not speak Pulsar's protocol: {error}")
            return
        del buffer[:position]

    def _receive(self, frame: bytes) -> None:
        kind, fields, behind = wire.read_command(frame)
        if kind in ("message", "send_receipt", "send_error"):
            endpoint = (
                self.consumers.get(fields.consumer_id) if kind == "message" else self.producers.get(fields.producer_id)
            )
            if endpoint is not None:
                endpoint.received(kind, fields, frame[behind:])
        elif kind == "ping":
            self.write(wire.command("pong"))
        elif kind == "pong":
            for pong in self._pongs:
                if not pong.done():
                    pong.set_result(None)
            self._pongs.clear()
        elif kind == "connected":
            if not self._connected.done():
                self._connected.set_result(fields)
        elif kind == "authChallenge":
            self._refreshing.start(self._refresh())
        elif kind in ("close_producer", "close_consumer"):
            closed = kind.removeprefix("close_")
            endpoints = self.producers if closed == "producer" else self.consumers
            if (endpoint := endpoints.pop(getattr(fields, f"{closed}_id"), None)) is not None:
                endpoint.lost(ConnectionEnded(f"the broker has closed the {closed}"))
        elif hasattr(fields, "request_id"):
            self._answer(fields)

    def _answer(self, fields: Any) -> None:
        error = None
        if any(field.name == "error" for field, _ in fields.ListFields()):
            error = PulsarError(fields.error, fields.message.decode("utf-8", "replace"))
        answer = self._requests.get(fields.request_id)
        if answer is None and error is not None and not self._connected.done():
            # An error before CONNECTED answers CONNECT.
            answer = self._connected
        if answer is None or answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(fields)

    async def _refresh(self) -> None:
        """Answer the broker's question for fresh credentials."""
        try:
            method, secret = await self._credentials()
            answer = {"auth_method_name": method, "auth_data": secret}
            fields = {"client_version": _CLIENT, "protocol_version": wire.PROTOCOL_VERSION}
            self.write(wire.command("authResponse", response=answer, **fields))
        except Exception as error:
            self.drop(f"no fresh credentials: {error}")

    def _check(self) -> None:
        """End a connection on which the broker is silent; ask it for a sign of life."""
        if self._ended:
            return
        if self.heard == self._heard_before:
            self.drop(f"the broker was silent for {PING_SECONDS:g} s")
            return
        self._heard_before = self.heard
        self.write(wire.command("ping"))
        self._timer = asyncio.get_running_loop().call_later(PING_SECONDS, self._check)

    def _end(self, error: ConnectionEnded) -> None:
        if self._ended:
            return
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        waiting: list[asyncio.Future[Any]] = [self._connected, *self._pongs, *self._requests.values()]
        for answer in waiting:
            if not answer.done():
                answer.set_exception(error)
                # Marks the error as retrieved where no caller waits any more.
                answer.exception()
        endpoints = [*self.producers.values(), *self.consumers.values()]
        self.producers.clear()
        self.consumers.clear()
        for endpoint in endpoints:
            endpoint.lost(error)
