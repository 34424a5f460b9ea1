"""Frames of AMQP: the bytes that are written, and the reading of incoming ones."""

from __future__ import annotations

import asyncio
import struct
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pamqp.frame
import pytest
from aiormq.connection import FrameReceiver
from aiormq.exceptions import ChannelClosed
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands as spec
from pamqp.body import ContentBody
from pamqp.header import ContentHeader
from pamqp.heartbeat import Heartbeat

from babelgate.brokers.rabbitmq import incoming
from babelgate.brokers.rabbitmq.channel import Channel
from babelgate.brokers.rabbitmq.confirms import Nacked, Returned
from babelgate.brokers.rabbitmq.frames import acks, publish, requeues
from babelgate.brokers.rabbitmq.incoming import Arrival, FrameReader, arrival_of, properties_of, size_of
from babelgate.brokers.rabbitmq.profile import AddressedMessage
from tests.brokers.rabbitmq.support import FULL
from tests.harness.local import eventually


class Wire(asyncio.Transport):
    """A transport that keeps its protocol."""

    def __init__(self) -> None:
        super().__init__()
        self._protocol: asyncio.BaseProtocol = asyncio.Protocol()
        self.written = b""

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written += data

    def wrote(self, method: Any) -> bool:
        """Whether a method was written to channel 3."""
        return pamqp.frame.marshal(method, 3) in self.written

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol


def fed(*frames: bytes, **contents: Kept) -> FrameReader:
    """A reader that has read ``frames``, and the end. ``contents``: by channel, as in ``channel_3``."""
    reader = FrameReader(Wire())
    reader.contents = {int(name.removeprefix("channel_")): kept for name, kept in contents.items()}
    reader.data_received(b"".join(frames))
    reader.eof_received()
    return reader


async def received(reader: FrameReader) -> list[tuple[int, Any]]:
    """Pairs of channel and frame, read by aiormq."""
    stream: Any = reader
    return [(channel, frame) async for _, channel, frame in FrameReceiver(stream)]


class Kept:
    """Records the messages of a channel."""

    def __init__(self) -> None:
        self.methods: list[Arrival] = []
        self.headers: list[bytes] = []
        self.bodies: list[bytes] = []

    def content_method(self, payload: bytes) -> bool:
        self.methods.append(arrival_of(payload))
        return True

    def content_header(self, payload: bytes) -> None:
        self.headers.append(payload)

    def content_body(self, payload: bytes) -> None:
        self.bodies.append(payload)


GOT = spec.Basic.GetOk(delivery_tag=7, redelivered=True, exchange="", routing_key="q", message_count=3)
DELIVERED = spec.Basic.Deliver(consumer_tag="c", delivery_tag=1 << 40, exchange="e", routing_key="ü")


async def test_messages_go_to_their_channel_and_other_methods_pass() -> None:
    header = ContentHeader(body_size=8, properties=FULL)
    kept = Kept()
    frames = (GOT, header, ContentBody(b"hel"), ContentBody(b"lo\xce\x00\xff"), spec.Basic.ConsumeOk("c"), DELIVERED)
    reader = fed(
        *(pamqp.frame.marshal(frame, 3) for frame in frames),
        pamqp.frame.marshal(ContentBody(b"of another"), 4),
        pamqp.frame.marshal(Heartbeat(), 0),
        channel_3=kept,
    )
    passed = await received(reader)
    assert [(channel, type(frame)) for channel, frame in passed] == [
        (3, spec.Basic.ConsumeOk),
        (4, ContentBody),
        (0, Heartbeat),
    ]
    assert kept.methods == [Arrival(7, True, None, 3), Arrival(1 << 40, False, "c")]
    (payload,) = kept.headers
    assert (size_of(payload), properties_of(payload)) == (8, FULL)
    assert kept.bodies == [b"hel", b"lo\xce\x00\xff"]


class Rpc:
    """What aiormq does for a channel, without a broker."""

    number = 3

    def __init__(self) -> None:
        self.connection = SimpleNamespace(connection_tune=SimpleNamespace(frame_max=131_072))
        self.closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_closed(self) -> bool:
        return self.closing.done()

    async def rpc(self, method: Any) -> None:
        pass


def channel_of(reader: FrameReader) -> tuple[Channel, Rpc]:
    """The channel 3 of a connection."""
    rpc: Any = Rpc()
    return Channel(rpc, reader), rpc


async def test_answers_go_to_their_channel() -> None:
    wire = Wire()
    reader = FrameReader(wire)
    channel, _ = channel_of(reader)
    messages = [AddressedMessage("e", "k", spec.Basic.Properties(), body) for body in (b"1", b"2", b"3")]
    batch = channel.publish(messages)
    ends: list[str] = []
    consumer = await channel.consume("q", 1, lambda message: None, lambda: ends.append("cancelled"))
    waiting = asyncio.gather(channel.get("q", 1), channel.barrier())
    await eventually(lambda: wire.wrote(spec.Channel.Flow(active=True)))
    answers: tuple[Any, ...] = (
        spec.Basic.Ack(1),
        spec.Basic.Nack(2),
        spec.Basic.Return(312, "NO_ROUTE", "e", "k"),
        ContentHeader(body_size=1),
        ContentBody(b"3"),
        spec.Basic.Ack(3),
        spec.Basic.GetEmpty(),
        spec.Basic.QosOk(),
        spec.Channel.FlowOk(True),
        spec.Basic.Cancel(consumer),
    )
    reader.data_received(b"".join(pamqp.frame.marshal(frame, 3) for frame in answers))
    reader.data_received(pamqp.frame.marshal(spec.Basic.Ack(5), 4))
    reader.eof_received()
    # aiormq answers the end of a consumer.
    assert [(channel, type(frame)) for channel, frame in await received(reader)] == [
        (3, spec.Basic.Cancel),
        (4, spec.Basic.Ack),
    ]
    assert list(map(type, batch.results)) == [type(None), Nacked, Returned]
    got, _ = await waiting
    assert got == []
    assert ends == ["cancelled"]


async def test_a_closed_channel_does_not_end_the_connection() -> None:
    """Frames that were on their way come after its end, and what is in them does not matter any more."""
    reader = FrameReader(Wire())
    _, rpc = channel_of(reader)
    rpc.closing.set_exception(ChannelClosed(406, "PRECONDITION_FAILED"))
    method, body = (pamqp.frame.marshal(frame, 3) for frame in (GOT, ContentBody(b"hello")))
    unreadable = broken(b"\xff\xfe", bytes(8))
    header = incoming.FRAME.pack(incoming.HEADER, 3, len(unreadable)) + unreadable + incoming.END
    reader.data_received(method + header + body)
    # The channel hears of its end in the next turn of the event loop.
    await asyncio.sleep(0)
    reader.data_received(header + body)
    reader.data_received(method + header + body)
    reader.data_received(pamqp.frame.marshal(Heartbeat(), 0))
    reader.eof_received()
    assert [(channel, type(frame)) for channel, frame in await received(reader)] == [(0, Heartbeat)]


async def test_aiormq_learns_from_messages_that_the_connection_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "_ALIVE_SECONDS", 0)
    kept = Kept()
    reader = fed(pamqp.frame.marshal(DELIVERED, 3), channel_3=kept)
    assert [(channel, type(frame)) for channel, frame in await received(reader)] == [(0, Heartbeat)]
    assert len(kept.methods) == 1


async def test_what_a_channel_cannot_read_ends_the_connection_as_a_frame_that_aiormq_cannot_read() -> None:
    short = struct.pack(">BHI", 1, 3, 4) + b"\x00\x3c\x00\x3c" + b"\xce"
    reader = fed(short, channel_3=Kept())
    with pytest.raises(IndexError):
        await received(reader)


async def test_nothing_is_read_after_what_cannot_be_read() -> None:
    reader, kept = FrameReader(Wire()), Kept()
    reader.contents[3] = kept
    reader.data_received(struct.pack(">BHI", 1, 3, 4) + b"\x00\x3c\x00\x3c" + b"\xce")
    reader.data_received(pamqp.frame.marshal(spec.Basic.Ack(5), 3))
    assert kept.methods == []
    with pytest.raises(IndexError):
        await received(reader)


async def test_a_lost_connection_says_why() -> None:
    reader = FrameReader(Wire())
    reading = asyncio.create_task(received(reader))
    await asyncio.sleep(0)
    reader.connection_lost(ConnectionResetError("reset"))
    with pytest.raises(ConnectionError, match="reset"):
        await reading


async def test_frames_arrive_in_pieces_of_any_size() -> None:
    reader = FrameReader(Wire())
    reader.contents[3] = kept = Kept()
    reading = asyncio.create_task(received(reader))
    body = bytes(range(256)) * 400
    for octet in b"".join(
        pamqp.frame.marshal(each, 3) for each in (DELIVERED, ContentBody(body), spec.Basic.ConsumeOk("c"))
    ):
        reader.data_received(bytes((octet,)))
        if octet % 16 == 0:
            await asyncio.sleep(0)
    reader.eof_received()
    # A busy machine takes more than a second for the pieces, and there is a heartbeat for each.
    passed = [type(frame) for _, frame in await reading if not isinstance(frame, Heartbeat)]
    assert passed == [spec.Basic.ConsumeOk]
    assert (len(kept.methods), kept.bodies) == (1, [body])


async def test_a_notice_that_the_broker_blocks_is_kept_until_it_is_lifted() -> None:
    reader = FrameReader(Wire())
    said = [reader.blocked]
    for notice in (spec.Connection.Blocked(reason="low on memory"), spec.Connection.Unblocked()):
        reader.data_received(pamqp.frame.marshal(notice, 0))
        said.append(reader.blocked)
    reader.eof_received()
    assert said == [None, "low on memory", None]
    assert [type(frame) for _, frame in await received(reader)] == [spec.Connection.Blocked, spec.Connection.Unblocked]


async def test_the_words_that_the_broker_closes_with_are_kept() -> None:
    close = spec.Connection.Close(reply_code=530, reply_text="vhost nope not found", class_id=10, method_id=40)
    reader = fed(pamqp.frame.marshal(close, 0))
    await received(reader)
    assert reader.closed == "vhost nope not found"


async def test_a_server_of_another_protocol_is_passed_on() -> None:
    assert await fed(b"AMQP\x00\x01\x00\x00").readexactly(8) == b"AMQP\x00\x01\x00\x00"


async def test_half_a_frame_is_an_incomplete_read() -> None:
    with pytest.raises(asyncio.IncompleteReadError):
        await fed(pamqp.frame.marshal(ContentBody(b"hello"), 1)[:-1]).readexactly(1)


def broken(type_: bytes, timestamp: bytes) -> bytes:
    """The payload of a header with message id, timestamp, type and app id, and no headers."""
    flags = 0x80 | 0x40 | 0x20 | 0x08
    short = [struct.pack(">B", len(text)) + text for text in (b"id-1", type_, b"app")]
    return struct.pack(">HHQH", 60, 0, 5, flags) + short[0] + timestamp + short[1] + short[2]


@pytest.mark.parametrize(
    ("type_", "timestamp", "expected"),
    [
        (b"urn:x", struct.pack(">Q", 1_700_000_000), ("id-1", "urn:x", "app", 1_700_000_000)),
        (b"\xff\xfe", struct.pack(">Q", 1_700_000_000), ("id-1", None, "app", 1_700_000_000)),
        (b"urn:x", b"\xff" * 8, ("id-1", "urn:x", "app", None)),
    ],
    ids=["sound", "no UTF-8", "past the year 9999"],
)
def test_one_property_that_cannot_be_read_costs_only_itself(type_: bytes, timestamp: bytes, expected: tuple) -> None:
    found = properties_of(broken(type_, timestamp))
    moment = int(found.timestamp.timestamp()) if found.timestamp is not None else None
    assert (found.message_id, found.message_type, found.app_id, moment) == expected


def test_tables_that_are_nested_too_deeply_cost_only_themselves() -> None:
    table = b""
    for _ in range(500):
        table = b"\x01aF" + struct.pack(">I", len(table)) + table
    headers = struct.pack(">I", len(table)) + table
    found = properties_of(struct.pack(">HHQH", 60, 0, 5, 0x2000 | 0x80) + headers + b"\x04id-1")
    assert (found.headers, found.message_id) == (None, "id-1")


_SHORT = st.text(max_size=60) | st.none()
_VALUE = st.text() | st.binary() | st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(-(1 << 63), (1 << 63) - 1)
_TABLE = st.dictionaries(st.text(max_size=60), _VALUE | st.booleans() | st.floats(allow_nan=False) | st.lists(_VALUE))


@given(_SHORT, _SHORT, _TABLE | st.none(), st.none() | st.integers(1, 2), st.none() | st.integers(0, 1 << 34))
def test_properties_are_those_that_pamqp_reads(
    kind: str | None, message_id: str | None, headers: dict[str, Any] | None, mode: int | None, moment: int | None
) -> None:
    timestamp = None if moment is None else datetime.fromtimestamp(moment, UTC)
    properties = spec.Basic.Properties(kind, None, headers, mode, None, message_id, timestamp=timestamp)
    wire = publish(AddressedMessage("", "q", properties, b""), 1, frame_max=0)
    size, _, _ = pamqp.frame.unmarshal(wire)
    written = wire[size + 7 : -1]
    whole = ContentHeader()
    whole.unmarshal(written)
    assert properties_of(written) == whole.properties


@pytest.mark.parametrize("cut", range(12, 40))
def test_a_header_that_ends_too_early_raises_nothing(cut: int) -> None:
    whole = broken(b"\xff\xfe", b"\xff" * 8)
    assert cut > len(whole) or properties_of(whole[:cut]) is not None


def frames_of(data: bytes) -> list[tuple[int, Any]]:
    found = []
    while data:
        size, channel, frame = pamqp.frame.unmarshal(data)
        found.append((channel, frame))
        data = data[size:]
    return found


@pytest.mark.parametrize(("size", "bodies"), [(0, 0), (1, 1), (192, 1), (193, 2), (500, 3)])
def test_a_body_is_cut_to_frames_of_the_agreed_size(size: int, bodies: int) -> None:
    body = bytes(range(256)) * 2
    method, header, *rest = frames_of(publish(AddressedMessage("e", "k", FULL, body[:size]), 4, frame_max=200))
    assert {channel for channel, _ in (method, header, *rest)} == {4}
    assert method[1].mandatory and (method[1].exchange, method[1].routing_key) == ("e", "k")
    assert header[1].properties == FULL and header[1].body_size == size
    assert len(rest) == bodies and b"".join(frame.value for _, frame in rest) == body[:size]


@pytest.mark.parametrize(
    "properties",
    [
        spec.Basic.Properties(headers={"n" * 256: "x"}),
        spec.Basic.Properties(headers={"ü" * 128: "x"}),
        spec.Basic.Properties(headers={"CC": "other"}),
        spec.Basic.Properties(headers={"BCC": "other"}),
        spec.Basic.Properties(message_type="x" * 256),
        spec.Basic.Properties(headers={"x-attempts": 1 << 64}),
        spec.Basic.Properties(priority=256),
    ],
    ids=["long name", "long name in UTF-8", "CC", "BCC", "long property", "large number", "large priority"],
)
def test_what_amqp_cannot_carry_is_refused_before_it_is_written(properties: spec.Basic.Properties) -> None:
    with pytest.raises((ValueError, TypeError, struct.error)):
        publish(AddressedMessage("", "q", properties, b"x"), 1, frame_max=4096)


def test_the_longest_name_of_a_header_is_kept_whole() -> None:
    properties = spec.Basic.Properties(headers={"n" * 255: "x"})
    _, (_, header) = frames_of(publish(AddressedMessage("", "q", properties, b""), 1, frame_max=0))
    assert header.properties.headers == {"n" * 255: "x"}


def test_headers_that_do_not_fit_into_a_frame_are_refused() -> None:
    # Of the 92 bytes for a payload, 14 tell the size of the body and the flags, 4 the size of the table, and 7 the
    # name, the kind and the size of the text.
    for length, fits in ((67, True), (68, False)):
        message = AddressedMessage("", "q", spec.Basic.Properties(headers={"n": "x" * length}), b"")
        if fits:
            assert len(publish(message, 1, frame_max=100).split(b"\xce")[1]) == 7 + 92
        else:
            with pytest.raises(ValueError, match="93 bytes, and at most 92"):
                publish(message, 1, frame_max=100)


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0, b"I\0\0\0\0"),
        (-(1 << 31), b"I\x80\0\0\0"),
        ((1 << 31) - 1, b"I\x7f\xff\xff\xff"),
        (1 << 31, b"l\0\0\0\0\x80\0\0\0"),
        (-(1 << 63), b"l\x80" + b"\0" * 7),
    ],
)
def test_a_whole_number_is_an_int32_where_it_fits(number: int, written: bytes) -> None:
    properties = spec.Basic.Properties(headers={"n": number})
    assert b"\x01n" + written + b"\xce" in publish(AddressedMessage("", "q", properties, b""), 1, frame_max=0)


def sent(properties: spec.Basic.Properties) -> spec.Basic.Properties:
    _, (_, header), *_ = frames_of(publish(AddressedMessage("e", "k", properties, b"x"), 1, frame_max=0))
    assert isinstance(header, ContentHeader)
    return header.properties


COPIES = {"CC", "BCC"}
NAMES = st.text(max_size=30).filter(lambda name: name not in COPIES)
TEXTS = st.text(max_size=40)
SHORT = st.none() | st.text(max_size=60)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | TEXTS
    | st.binary(min_size=1, max_size=20).map(lambda value: value + b"\xff")
    | st.just(Decimal("1.5"))
    | st.just(datetime(2026, 1, 1, tzinfo=UTC)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(
    headers=st.dictionaries(NAMES, VALUES, max_size=5),
    texts=st.tuples(SHORT, SHORT, SHORT),
    priority=st.none() | st.integers(0, 255),
)
def test_what_is_read_is_what_was_written(headers: Any, texts: Any, priority: int | None) -> None:
    properties = spec.Basic.Properties(
        headers=headers, message_type=texts[0], correlation_id=texts[1], app_id=texts[2], priority=priority
    )
    found = sent(properties)
    assert (found.headers or {}) == headers
    assert (found.message_type or None, found.correlation_id or None) == (texts[0] or None, texts[1] or None)
    assert (found.app_id or None, found.priority) == (texts[2] or None, priority)


@given(headers=st.dictionaries(NAMES, st.booleans() | TEXTS, max_size=5))
def test_it_is_what_the_library_would_write(headers: Any) -> None:
    # The library sorts the names.
    properties = spec.Basic.Properties(headers=dict(sorted(headers.items())), message_type="urn:x", delivery_mode=2)
    frames = (spec.Basic.Publish(exchange="e", routing_key="k", mandatory=True), ContentHeader(0, 0, properties))
    theirs = b"".join(pamqp.frame.marshal(frame, 9) for frame in frames)
    assert publish(AddressedMessage("e", "k", properties, b""), 9, frame_max=0) == theirs


def test_settling_is_what_the_library_would_write() -> None:
    tags = [(1, False), (1 << 40, True)]
    theirs = [pamqp.frame.marshal(spec.Basic.Ack(tag, many), 9) for tag, many in tags]
    assert acks(tags, 9) == b"".join(theirs)
    theirs = [pamqp.frame.marshal(spec.Basic.Nack(tag, many, requeue=True), 9) for tag, many in tags]
    assert requeues(tags, 9) == b"".join(theirs)
