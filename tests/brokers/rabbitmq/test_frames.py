"""Frames as they come in, down to the byte."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pamqp.frame
import pytest
from aiormq.connection import FrameReceiver
from pamqp import commands as spec
from pamqp.body import ContentBody
from pamqp.header import ContentHeader
from pamqp.heartbeat import Heartbeat

from app.brokers.rabbitmq.frames import FrameReader, properties_of, size_of
from tests.brokers.rabbitmq.support import FULL


def fed(*frames: bytes) -> FrameReader:
    stream = asyncio.StreamReader()
    stream.feed_data(b"".join(frames))
    stream.feed_eof()
    return FrameReader(stream)


async def received(reader: FrameReader) -> list[tuple[int, Any]]:
    """As aiormq reads them: the channel and the frame."""
    stream: Any = reader
    return [(channel, frame) async for _, channel, frame in FrameReceiver(stream)]


class Kept:
    """What a channel is given."""

    def __init__(self) -> None:
        self.headers: list[bytes] = []
        self.bodies: list[bytes] = []

    def content_header(self, payload: bytes) -> None:
        self.headers.append(payload)

    def content_body(self, payload: bytes) -> None:
        self.bodies.append(payload)


async def test_the_content_of_messages_goes_to_its_channel_and_methods_pass() -> None:
    got = spec.Basic.GetOk(delivery_tag=7, exchange="", routing_key="q", message_count=0)
    header = ContentHeader(body_size=8, properties=FULL)
    reader, kept = (
        fed(
            *(
                pamqp.frame.marshal(frame, 3)
                for frame in (got, header, ContentBody(b"hel"), ContentBody(b"lo\xce\x00\xff"))
            ),
            pamqp.frame.marshal(Heartbeat(), 0),
            pamqp.frame.marshal(ContentBody(b"of another"), 4),
            pamqp.frame.marshal(got, 3),
        ),
        Kept(),
    )
    reader.contents[3] = kept
    passed = await received(reader)
    assert [(channel, type(frame)) for channel, frame in passed] == [
        (3, spec.Basic.GetOk),
        (0, Heartbeat),
        (4, ContentBody),
        (3, spec.Basic.GetOk),
    ]
    (payload,) = kept.headers
    assert (size_of(payload), properties_of(payload)) == (8, FULL)
    assert kept.bodies == [b"hel", b"lo\xce\x00\xff"]


async def test_content_that_no_channel_takes_passes_and_its_header_loses_its_properties() -> None:
    reader = fed(
        pamqp.frame.marshal(spec.Basic.GetOk(delivery_tag=7, exchange="", routing_key="q", message_count=0), 3),
        pamqp.frame.marshal(ContentHeader(body_size=5, properties=FULL), 3),
        pamqp.frame.marshal(ContentBody(b"hello"), 3),
        pamqp.frame.marshal(Heartbeat(), 0),
    )
    (_, got), (channel, header), (_, body), (_, beat) = await received(reader)
    assert (got.delivery_tag, channel, header.body_size, body.value) == (7, 3, 5, b"hello")
    assert header.properties == spec.Basic.Properties() and isinstance(beat, Heartbeat)


async def test_a_header_that_cannot_be_decoded_does_not_end_the_connection() -> None:
    payload = broken(type_=b"\xff\xfe", timestamp=b"\xff" * 8)
    reader = fed(
        struct.pack(">BHI", 2, 1, len(payload)) + payload + b"\xce", pamqp.frame.marshal(ContentBody(b"hello"), 1)
    )
    (_, header), (_, body) = await received(reader)
    assert (header.body_size, body.value) == (5, b"hello")


async def test_a_notice_that_the_broker_blocks_is_kept_until_it_is_lifted() -> None:
    blocked = pamqp.frame.marshal(spec.Connection.Blocked(reason="low on memory"), 0)
    reader = fed(blocked, pamqp.frame.marshal(spec.Connection.Unblocked(), 0))
    stream: Any = reader
    frames = FrameReceiver(stream)
    said = [reader.blocked]
    for _ in range(2):
        await frames.get_frame()
        said.append(reader.blocked)
    assert said == [None, "low on memory", None]


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


@pytest.mark.parametrize("cut", range(12, 40))
def test_a_header_that_ends_too_early_raises_nothing(cut: int) -> None:
    whole = broken(b"\xff\xfe", b"\xff" * 8)
    assert cut > len(whole) or properties_of(whole[:cut]) is not None
