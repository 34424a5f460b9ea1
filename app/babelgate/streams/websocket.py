"""Streams over a WebSocket, with settles, extends and the window in band: https://www.rfc-editor.org/rfc/rfc6455

The server's frames have no mask and no fragments, so they are written as bytes. A Protocol of the library
``websockets`` parses those of the client, and answers its pings and its close.
"""

from __future__ import annotations

import asyncio
import binascii
from base64 import b64decode
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import OPEN, SERVER, Protocol
from websockets.utils import accept_key

from babelgate.brokers.binding import Outcome
from babelgate.errors import BabelgateError, InternalError, InvalidParameter
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.model import SettleResult
from babelgate.gateway.streaming import MAX_IN_FLIGHT, Stream
from babelgate.http.consume import ONE_ACK, settlement_of
from babelgate.http.exchange import Exchange, log
from babelgate.http.problems import MalformedHttp, RawHeaders, problem
from babelgate.http.results import log_defects, settle_outcome
from babelgate.http.schemas import (
    MAX_SETTLE_BYTES,
    MAX_TOKENS,
    ExtendRequest,
    NackRequest,
    RejectRequest,
    SettleRequest,
    Token,
    from_body,
)

SUBPROTOCOL = b"babelgate.v1"

MAX_PENDING = 64
"""Maximum commands of one client that are carried out at a time. It is not read while there are as many, and what has
been read of it waits."""

MAX_ACK_BYTES = 4_096
"""Largest command that is decoded to see whether it is an ack of one message. Another one is decoded twice."""

_encode = msgspec.json.Encoder().encode


class Command(Struct, forbid_unknown_fields=True, frozen=True):
    """What a client sends: settles and extends, or a new window. ``id`` comes back with the answer."""

    id: Annotated[str, Meta(max_length=128)] | int | None = None
    acks: Annotated[list[Token], Meta(max_length=MAX_TOKENS)] = []
    nacks: Annotated[list[NackRequest], Meta(max_length=MAX_TOKENS)] = []
    rejects: Annotated[list[RejectRequest], Meta(max_length=MAX_TOKENS)] = []
    extends: Annotated[list[ExtendRequest], Meta(max_length=MAX_TOKENS)] = []
    max_in_flight: Annotated[int, Meta(ge=0, le=MAX_IN_FLIGHT)] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if not (self.acks or self.nacks or self.rejects or self.extends) and self.max_in_flight is UNSET:
            raise ValueError("must have ack tokens, or max_in_flight")


_decode = msgspec.json.Decoder(Command).decode


class SocketFrames:
    """The events of a stream as text frames: ``{"event": …, "data": …}``."""

    content_type = b""
    opening = b""
    keep_alive = b"\x89\x00"
    """A ping."""

    def event(self, name: str, data: bytes) -> bytes:
        return _frame(b'{"event":"%b","data":%b}' % (name.encode("ascii"), data))


SOCKET_FRAMES = SocketFrames()


def offers_websocket(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request offers to go on as a WebSocket. Its head has the field only where the server can."""
    return headers.get(b"upgrade", b"").lower() == b"websocket"


def handshake(headers: Mapping[bytes, bytes]) -> RawHeaders:
    """The fields of the answer to an offer. Raises MalformedHttp."""
    key = headers.get(b"sec-websocket-key", b"").strip()
    if headers.get(b"sec-websocket-version", b"").strip() != b"13":
        raise MalformedHttp(kind="header", reason="The only version of WebSocket is 13.")
    if not _is_key(key):
        raise MalformedHttp(kind="header", reason="The field sec-websocket-key is not 16 bytes in base64.")
    fields = [
        (b"upgrade", b"websocket"),
        (b"connection", b"upgrade"),
        (b"sec-websocket-accept", accept_key(key.decode("ascii")).encode("ascii")),
    ]
    offered = headers.get(b"sec-websocket-protocol")
    if offered is None:
        return fields
    if SUBPROTOCOL not in [each.strip() for each in offered.split(b",")]:
        reason = f"The only subprotocol is {SUBPROTOCOL.decode('ascii')}."
        raise MalformedHttp(kind="header", reason=reason)
    return [*fields, (b"sec-websocket-protocol", SUBPROTOCOL)]


class Socket:
    """The client's side of a stream over a WebSocket: carries out its commands, and writes their answers."""

    def __init__(self, gateway: Gateway, exchange: Exchange, stream: Stream) -> None:
        self._gateway = gateway
        assert exchange.whole is not None
        self._exchange = exchange
        self._whole = exchange.whole
        self._stream = stream
        self._protocol = Protocol(SERVER, state=OPEN, max_size=MAX_SETTLE_BYTES)
        self._text = bytearray()
        """What has come of a text in fragments."""
        self._waiting: deque[bytes] = deque()
        """Commands that have not begun."""
        self._commands: set[asyncio.Future[Any]] = set()
        """Commands that are carried out: tasks, and the outcomes of acks."""

    def received(self, data: bytes) -> None:
        """Bytes of the client have arrived."""
        protocol = self._protocol
        protocol.receive_data(data)
        for frame in protocol.events_received():
            assert isinstance(frame, Frame)
            self._take(frame)
        self._flush()

    def close(self, *, has_failed: bool) -> None:
        """Send the close of this side, unless one was sent. ``has_failed``: the stream, else the gateway stops."""
        if self._protocol.state is OPEN:
            code = CloseCode.INTERNAL_ERROR if has_failed else CloseCode.GOING_AWAY
            self._protocol.send_close(code if self._stream.refusal is None else CloseCode.POLICY_VIOLATION)
            self._flush()

    async def end(self) -> None:
        """Wait for the commands that have come."""
        while self._waiting or self._commands:
            await asyncio.wait(self._commands)

    def _take(self, frame: Frame) -> None:
        if frame.opcode is Opcode.BINARY:
            self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "frames must be text")
        elif frame.opcode in (Opcode.TEXT, Opcode.CONT):
            self._text += frame.data
            if frame.fin:
                self._waiting.append(bytes(self._text))
                self._text.clear()
                self._begin()

    def _begin(self) -> None:
        """Begin as many commands as may be carried out at a time."""
        while self._waiting and len(self._commands) < MAX_PENDING:
            text = self._waiting.popleft()
            command = self._begin_ack(text) or asyncio.get_running_loop().create_task(self._carry_out(text))
            self._commands.add(command)
            command.add_done_callback(self._ended)
        self._whole.read(len(self._commands) < MAX_PENDING)

    def _begin_ack(self, text: bytes) -> asyncio.Future[Outcome] | None:
        """Begin to carry out an ack of one message, without a task; None for any other command, and for one that is
        refused. Its answer does not wait for a slow reader, of which nothing is read meanwhile."""
        if len(text) > MAX_ACK_BYTES or not text.isascii() or self._stream.refusal or self._exchange.trace:
            return None
        try:
            made = _decode(text)
            if len(made.acks) != 1 or made.nacks or made.rejects or made.extends or made.max_in_flight is not UNSET:
                return None
            outcome = self._gateway.begin_ack(self._stream.access, made.acks[0])
        except (msgspec.MsgspecError, RecursionError, BabelgateError):
            return None
        if outcome is not None:
            outcome.add_done_callback(partial(self._acked, made.id))
        return outcome

    def _acked(self, number: str | int | None, outcome: asyncio.Future[Outcome]) -> None:
        """Answer an ack of one message."""
        error: Outcome
        try:
            error = outcome.result()
        except Exception as raised:
            error = InternalError.caused_by(raised)
        data = ONE_ACK
        if error is not None:
            log_defects(self._exchange, self._exchange.queue, [error])
            data = _encode(settle_outcome([SettleResult(0, "ack", error)]))
        if self._protocol.state is OPEN:
            answer = _answer("settled", number, data)
            self._exchange.sent += len(answer)
            self._whole.write_now(answer)

    def _ended(self, command: asyncio.Future[Any]) -> None:
        self._commands.discard(command)
        self._begin()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            # An empty one stands for the end of what is sent.
            if data:
                self._whole.write_now(data)
        if self._protocol.close_expected():
            self._whole.end()

    async def _carry_out(self, text: bytes) -> None:
        made: Any = None
        try:
            if self._stream.refusal is not None:
                raise self._stream.refusal
            text.decode()
            made = from_body(text, Command)
            if made.max_in_flight is not UNSET:
                self._stream.resize(made.max_in_flight)
            data, event = _encode({"max_in_flight": self._stream.window}), "window"
            if made.acks or made.nacks or made.rejects or made.extends:
                settlement = settlement_of(SettleRequest(made.acks, made.nacks, made.rejects, made.extends))
                exchange, gateway = self._exchange, self._gateway
                with gateway.admission.other(self._stream.access.route.broker, len(text)):
                    results = await gateway.settle(exchange.caller, self._stream.access, settlement, exchange.trace)
                log_defects(exchange, exchange.queue, (result.error for result in results))
                data, event = _encode(settle_outcome(results)), "settled"
        except Exception as raised:
            event, data = "problem", problem(_error_of(raised, self._exchange), self._exchange.path)[2]
        if self._protocol.state is OPEN:
            await self._exchange.write(_answer(event, None if made is None else made.id, data))


def _error_of(raised: Exception, exchange: Exchange) -> BabelgateError:
    if isinstance(raised, UnicodeDecodeError):
        return InvalidParameter(name="body", reason=f"it is not valid UTF-8 at byte {raised.start}", pointer="")
    if isinstance(raised, BabelgateError):
        return raised.without_frames()
    log.exception("command of a stream failed", **exchange.ids())
    return InternalError()


def _is_key(key: bytes) -> bool:
    try:
        return len(b64decode(key, validate=True)) == 16
    except binascii.Error:
        return False


def _answer(event: str, number: str | int | None, data: bytes) -> bytes:
    """The answer to the command with this ``id``, if it has one."""
    member = b"" if number is None else b'"id":%b,' % _encode(number)
    return _frame(b'{"event":"%b",%b"data":%b}' % (event.encode("ascii"), member, data))


def _frame(text: bytes) -> bytes:
    """A text frame of a server: https://www.rfc-editor.org/rfc/rfc6455#section-5.2"""
    length = len(text)
    if length < 126:
        return b"\x81" + length.to_bytes(1, "big") + text
    if length < 65_536:
        return b"\x81\x7e" + length.to_bytes(2, "big") + text
    return b"\x81\x7f" + length.to_bytes(8, "big") + text
