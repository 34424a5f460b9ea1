"""Serves the path ``messages:stream``: deliveries as Server-Sent Events or lines of JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from babelgate.errors import BabelgateError, InternalError
from babelgate.gateway.admission import Permit
from babelgate.gateway.authorization import Right
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.model import Message
from babelgate.gateway.open_streams import StreamOptions
from babelgate.gateway.streaming import Stream
from babelgate.http.body import read
from babelgate.http.consume import EVENT_TYPES, NO_STORE, as_event, encoded, parameters_of
from babelgate.http.exchange import Exchange, log
from babelgate.http.parts import PART_BYTES
from babelgate.http.problems import ResumeUnsupported, problem
from babelgate.http.publish_parameters import given
from babelgate.http.schemas import MAX_PARAMETER_BYTES, StreamRequest
from babelgate.runtime import turns
from babelgate.streams.framing import Framing, framing_of
from babelgate.streams.websocket import SOCKET_FRAMES, Socket, handshake, offers_websocket

KEEP_ALIVE_SECONDS = 15.0
"""Pause between two keep-alives. Proxies close connections on which nothing is sent for 30 to 60 s."""

_HEADERS = [NO_STORE, (b"x-accel-buffering", b"no")]
"""The second one makes nginx pass events on at once:
https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_buffering"""


class Streaming:
    """The endpoint of streams."""

    def __init__(self, gateway: Gateway, keep_alive_seconds: float = KEEP_ALIVE_SECONDS) -> None:
        self._gateway = gateway
        self._keep_alive_seconds = keep_alive_seconds

    async def serve(self, exchange: Exchange) -> None:
        """Deliver messages until the client disconnects or the gateway stops.

        Raises the errors of a receive before the answer starts; later ones are events of the stream.
        """
        gateway = self._gateway
        access = gateway.access(exchange.caller, Right.LISTEN, exchange.queue)
        with gateway.admission.receive(access.route.broker) as permit:
            body = await read(exchange, MAX_PARAMETER_BYTES, permit)
            permit.hold(0)
            asked = parameters_of(exchange, exchange.scope["query_string"], body, StreamRequest)
            if exchange.headers.get(b"last-event-id"):
                raise ResumeUnsupported(header="Last-Event-ID")
            if exchange.quota is not None:
                await exchange.quota.know("streams")
                # Meanwhile the right may have been taken away.
                access = gateway.access(exchange.caller, Right.LISTEN, exchange.queue)
                permit.then = exchange.quota.enter("streams")
            options = StreamOptions(asked.max_in_flight, given(asked.lease_seconds), asked.auto_extend)
            with Stream(gateway, exchange.caller, access, options, exchange.trace) as stream:
                if not offers_websocket(exchange.headers) or exchange.whole is None:
                    framing = framing_of(exchange.headers.get(b"accept", b""))
                    await exchange.begin(framing.content_type, _HEADERS)
                    await exchange.unless_gone(self._deliver(exchange, stream, framing, permit))
                    return
                socket = Socket(gateway, exchange, stream)
                exchange.switch(handshake(exchange.headers), socket.received)
                try:
                    await exchange.unless_gone(self._deliver(exchange, stream, SOCKET_FRAMES, permit, socket))
                finally:
                    # What the client has settled before it went must not be given back.
                    await socket.end()

    async def _deliver(
        self, exchange: Exchange, stream: Stream, framing: Framing, permit: Permit, socket: Socket | None = None
    ) -> None:
        has_failed = False
        if framing.opening:
            await exchange.write(framing.opening)
        has_told = False
        while not stream.is_over:
            if stream.is_draining and not has_told:
                has_told = True
                await exchange.write(framing.event("drain", b"{}"))
                continue
            try:
                messages = await stream.take(self._keep_alive_seconds)
            except Exception as raised:
                error = _error_of(raised, exchange)
                _, _, body = problem(error, exchange.path)
                await exchange.write(framing.event("problem", body))
                if not error.retryable:
                    has_failed = True
                    break
                continue
            if messages:
                await self._send(exchange, framing, messages, permit)
            elif not stream.is_draining:
                await exchange.write(framing.keep_alive)
        if stream.is_draining and not has_told:
            await exchange.write(framing.event("drain", b"{}"))
        if socket is not None:
            await socket.end()
            socket.close(has_failed=has_failed)
        await exchange.end()

    async def _send(self, exchange: Exchange, framing: Framing, messages: Sequence[Message], permit: Permit) -> None:
        size = sum([len(each.body) for each in messages])
        permit.hold(size)
        encode = _encoder(exchange)
        documents = [encode(each) for each in messages] if size <= PART_BYTES else await turns.mapped(encode, messages)
        for part in _parts(framing, documents):
            await exchange.write(part)
        permit.hold(0)


def _encoder(exchange: Exchange) -> Callable[[Message], bytes]:
    """What writes the messages of a stream: as events for a client that accepts a type of CloudEvents."""
    accept = exchange.headers.get(b"accept", b"")
    return partial(as_event, exchange.queue) if EVENT_TYPES in accept else encoded


def _parts(framing: Framing, documents: Sequence[bytes]) -> Iterator[bytes]:
    """The events of messages, in parts of about PART_BYTES."""
    part: list[bytes] = []
    size = 0
    for document in documents:
        part.append(framing.event("message", document))
        size += len(document)
        if size > PART_BYTES:
            yield b"".join(part)
            part, size = [], 0
    if part:
        yield b"".join(part)


def _error_of(raised: Exception, exchange: Exchange) -> BabelgateError:
    if isinstance(raised, BabelgateError):
        return raised.without_frames()
    log.exception("stream failed", **exchange.ids())
    return InternalError()
