"""The encoding of AMQP 1.0, as far as no broker sends it in the tests of a binding."""

from __future__ import annotations

import pytest

from babelgate.brokers import amqp
from babelgate.brokers.amqp import DATA, HEADER, SEQUENCE, VALUE, Malformed, MessageParts, described, parts_of


def test_data_sections_are_one_body() -> None:
    message = described(DATA, amqp.binary(b"{")) + described(DATA, amqp.binary(b"}" * 300))
    assert parts_of(message) == MessageParts(body=b"{" + b"}" * 300, is_data=True)


@pytest.mark.parametrize(
    ("section", "value", "body"),
    [
        (VALUE, amqp.string("ä"), "ä".encode()),
        (VALUE, amqp.NULL, b""),
        (VALUE, amqp.binary(b"\xff"), b"\xff"),
        (VALUE, amqp.mapping({amqp.symbol("a"): amqp.long(1)}), b'{"a":1}'),
        (SEQUENCE, amqp.sequence([amqp.TRUE, amqp.NULL]), b"[true,null]"),
    ],
)
def test_another_body_is_its_text(section: int, value: bytes, body: bytes) -> None:
    assert parts_of(described(section, value)).body == body


def test_the_places_of_values_are_known() -> None:
    message = described(HEADER, amqp.sequence([amqp.TRUE, amqp.long(7)])) + described(
        amqp.APPLICATION, amqp.mapping({amqp.string("n"): amqp.long(2**40)})
    )
    parts = parts_of(message)
    assert [amqp.decode(message, start) for start in parts.header] == [True, 7]
    assert {name: amqp.decode(message, start) for name, start in parts.application} == {"n": 2**40}


def test_a_character_beyond_unicode_is_none() -> None:
    assert [amqp.decode(b"\x73" + number.to_bytes(4, "big")) for number in (0xE4, 0x11_0000)] == ["ä", None]


@pytest.mark.parametrize("message", [b"\x01", b"\x00", b"\x00\xa3\x01x\x40", b"\x00\x53\x74\xc1\x05\x01\xa1\x01a"])
def test_other_bytes_are_refused(message: bytes) -> None:
    with pytest.raises(Malformed):
        parts_of(message)
