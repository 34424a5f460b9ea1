"""Why frames are encoded and decoded here (docs/adr/0014-amqp-frames.md): what pamqp does to a message. If one of these
fails, pamqp has become better: read the decision again."""

from __future__ import annotations

import datetime
import inspect
import struct
from typing import Any

import pytest
from aiormq.channel import Channel
from pamqp import commands, encode, frame
from pamqp.exceptions import UnmarshalingException
from pamqp.header import ContentHeader

_SECONDS = 1_577_836_800
_TIME = datetime.datetime.fromtimestamp(_SECONDS, datetime.UTC)


def head(**properties: Any) -> bytes:
    """The header frame of a message."""
    return frame.marshal(ContentHeader(0, 10, commands.Basic.Properties(**properties)), 1)


def test_it_narrows_a_double() -> None:
    assert encode.encode_table_value(1.1) == b"f" + struct.pack(">f", 1.1)


@pytest.mark.parametrize(("number", "encoded"), [(5, b"b\x05"), (300, b"s\x01\x2c")])
def test_it_writes_a_whole_number_as_the_smallest_type(number: int, encoded: bytes) -> None:
    assert encode.encode_table_value(number) == encoded


def test_it_cuts_a_long_name(caplog: pytest.LogCaptureFixture) -> None:
    assert encode.field_table({"n" * 200: 1})[4:6] == b"\x80n"
    assert "Truncating" in caplog.text


def test_a_text_that_is_not_utf8_ends_the_reader() -> None:
    assert frame.unmarshal(head(content_type="x"))[0]
    with pytest.raises(UnmarshalingException, match="utf-8"):
        frame.unmarshal(head(content_type="x").replace(b"\x01x", b"\x01\xff"))


def test_a_far_time_ends_the_reader() -> None:
    with pytest.raises(UnmarshalingException):
        frame.unmarshal(head(timestamp=_TIME).replace(struct.pack(">Q", _SECONDS), struct.pack(">Q", 2**60)))


def test_aiormq_takes_one_message_a_call() -> None:
    assert list(inspect.signature(Channel.basic_publish).parameters)[:2] == ["self", "body"]
    assert not [name for name in dir(Channel) if "batch" in name or "many" in name]
