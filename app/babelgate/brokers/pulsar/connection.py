"""One connection to a Pulsar broker: frames, requests with answers, and the live check of both sides."""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

from babelgate.brokers.pulsar import wire
from babelgate.brokers.pulsar.errors import ConnectionEnded, PulsarError
from babelgate.brokers.pulsar.wire import FieldList, Fields, MalformedFrame
from babelgate.runtime.background import BackgroundTasks

PING_SECONDS = 30.0
"""The broker drops a connection that is silent for this long after its ping:
https://pulsar.apache.org/docs/4.0.x/developing-binary-protocol/#keep-alive"""

_SIZE = struct.Struct(">I")
_MAX_FRAME = 1 << 30
_CLIENT = "babelgate"

_ASKED_FIELD = {
    wire.SUBSCRIBE: 5,
    wire.PRODUCER: 3,
    wire.ACK: 8,
    wire.CLOSE_CONSUMER: 2,
    wire.PARTITIONS: 2,
    wire.LOOKUP: 2,
    wire.CONSUMER_STATS: 1,
    wire.LAST_MESSAGE_ID: 2,
    wire.TOPICS: 1,
}
"""The field of a request that has its number."""

_ANSWER_FIELDS = {
    wire.SUCCESS: (1, 0, 0),
    wire.ERROR: (1, 2, 3),
    wire.PRODUCER_SUCCESS: (1, 0, 0),
    wire.PARTITIONS_RESPONSE: (2, 4, 5),
    wire.LOOKUP_RESPONSE: (4, 6, 7),
    wire.CONSUMER_STATS_RESPONSE: (1, 2, 3),
    wire.LAST_MESSAGE_ID_RESPONSE: (2, 0, 0),
    wire.TOPICS_RESPONSE: (1, 0, 0),
    wire.ACK_RESPONSE: (6, 4, 5),
}
"""The fields of an answer with the number of its request, an error's code, and its text; 0 where it has no error."""

_TOPICS_FIELD = 2

Credentials = Callable[[], Awaitable[tuple[str, bytes]]]
"""The name of a method of authentication, and its data; ("", b"") for none."""


class Endpoint(Protocol):
    """A producer or a consumer on a connection. Each method is called in the event loop."""

    def received(self, kind: int, fields: FieldList, rest: bytes) -> None:
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
        self._requests: dict[int, asyncio.Future[Fields]] = {}
        self._numbers = itertools.count(1)
        self.producers: dict[int, Endpoint] = {}
        self.consumers: dict[int, Endpoint] = {}
        """Who has the commands for a producer, or a consumer, by its number; later ones are dropped."""
        self._connected: asyncio.Future[Fields] = asyncio.get_running_loop().create_future()
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
        body = wire.text(1, _CLIENT) + wire.number(4, wire.PROTOCOL_VERSION)
        if method:
            body += wire.text(5, method) + wire.data(3, secret)
        if proxied is not None:
            body += wire.text(6, proxied)
        # It can refresh its credentials.
        body += wire.data(10, wire.number(1, 1))
        self.write(wire.command(wire.CONNECT, body))
        answer: Fields = await self._connected
        self.version = answer.get(2, 0)
        self.server = bytes(answer.get(1, b"")).decode("utf-8", "replace")
        self.max_message_bytes = answer.get(3) or self.max_message_bytes
        self._timer = asyncio.get_running_loop().call_later(PING_SECONDS, self._check)

    def write(self, frame: bytes) -> None:
        """Send frames. Raises ConnectionEnded."""
        if self._transport is None or self._ended:
            raise ConnectionEnded("the connection was closed")
        self._transport.write(frame)

    async def request(self, kind: int, body: bytes) -> Fields:
        """Send a command with the fields in ``body``; the fields of its answer. Raises PulsarError and
        ConnectionEnded."""
        request = next(self._numbers)
        answer: asyncio.Future[Fields] = asyncio.get_running_loop().create_future()
        self._requests[request] = answer
        try:
            self.write(wire.command(kind, body + wire.number(_ASKED_FIELD[kind], request)))
            return await answer
        finally:
            self._requests.pop(request, None)

    async def ping(self) -> None:
        """One round trip. Raises ConnectionEnded."""
        pong: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.write(wire.command(wire.PING, b""))
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
        kind, body, behind = wire.read_command(frame)
        if kind in (wire.MESSAGE, wire.SEND_RECEIPT, wire.SEND_ERROR):
            given = wire.fields_of(body)
            endpoints = self.consumers if kind == wire.MESSAGE else self.producers
            if (endpoint := endpoints.get(dict(given).get(1, 0))) is not None:
                endpoint.received(kind, given, frame[behind:])
        elif kind in _ANSWER_FIELDS:
            given = wire.fields_of(body)
            fields = dict(given)
            if kind == wire.TOPICS_RESPONSE:
                fields[wire.REPEATED] = [value for number, value in given if number == _TOPICS_FIELD]
            self._answer(kind, fields)
        elif kind == wire.PING:
            self.write(wire.command(wire.PONG, b""))
        elif kind == wire.PONG:
            for pong in self._pongs:
                if not pong.done():
                    pong.set_result(None)
            self._pongs.clear()
        elif kind == wire.CONNECTED:
            if not self._connected.done():
                self._connected.set_result(wire.read(body))
        elif kind == wire.AUTH_CHALLENGE:
            self._refreshing.start(self._refresh())
        elif kind in (wire.CLOSE_PRODUCER, wire.CLOSE_CONSUMER):
            is_producer = kind == wire.CLOSE_PRODUCER
            endpoints, closed = (self.producers, "producer") if is_producer else (self.consumers, "consumer")
            if (endpoint := endpoints.pop(wire.read(body).get(1, 0), None)) is not None:
                endpoint.lost(ConnectionEnded(f"the broker has closed the {closed}"))

    def _answer(self, kind: int, fields: Fields) -> None:
        request, code, message = _ANSWER_FIELDS[kind]
        error = None
        if code and code in fields:
            error = PulsarError(fields[code], fields.get(message, b"").decode("utf-8", "replace"))
        answer = self._requests.get(fields.get(request, -1))
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
            answer = wire.data(2, wire.text(1, method) + wire.data(2, secret))
            body = wire.text(1, _CLIENT) + answer + wire.number(3, wire.PROTOCOL_VERSION)
            self.write(wire.command(wire.AUTH_RESPONSE, body))
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
        self.write(wire.command(wire.PING, b""))
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
