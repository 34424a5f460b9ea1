"""The plain profile: what is written for a body, and what is read back."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from babelqueue.pika_transport import PikaTransport
from hypothesis import example, given
from hypothesis import strategies as st
from pamqp.commands import Basic
from pika import BasicProperties

from babelgate.brokers.binding import LastFailure, Outgoing
from babelgate.brokers.rabbitmq.delays import delayed_topology
from babelgate.brokers.rabbitmq.frames import encoded_properties
from babelgate.brokers.rabbitmq.options import queue_of
from babelgate.brokers.rabbitmq.plain import PlainProfile, _properties, _usual_properties
from babelgate.brokers.rabbitmq.profile import NativeMessage, Profile, QueueDeclaration
from babelgate.envelope import dead_letter_block, dead_letter_record, with_attempts
from tests.brokers.rabbitmq.support import decoded

PLAIN = PlainProfile(QueueDeclaration("orders"), QueueDeclaration("orders.dlq"))
META = {"id": "id-1", "queue": "orders", "lang": "php", "schema_version": 1, "created_at": 1_749_132_727_001}
FRAME: dict[str, Any] = {"job": "urn:x", "trace_id": "t-1", "data": {"a": 1.10}, "meta": META, "attempts": 2}


def body(**changes: Any) -> bytes:
    return json.dumps(FRAME | changes).encode()


def native(properties: Basic.Properties, content: bytes = b"{}") -> NativeMessage:
    return NativeMessage(content, properties, False)


def sdk(content: bytes, headers: dict[str, str] | None = None) -> BasicProperties:
    """What the SDK would write."""
    import pika

    transport = PikaTransport.__new__(PikaTransport)
    transport._pika = pika
    return transport._properties(content.decode(), headers)


def written(content: bytes, headers: dict[str, str] | None = None) -> Basic.Properties:
    return decoded(PLAIN.message(Outgoing(content, headers or {})))


NAMES = {"message_type": "type"}


@pytest.mark.parametrize(
    "content",
    [
        body(),
        body(attempts=0),
        body(unknown=[1, 2]),
        json.dumps({"job": "urn:x", "data": {}}).encode(),
        json.dumps({"job": "urn:x", "meta": None}).encode(),
        json.dumps({"job": "urn:x", "meta": {"schema_version": 1}}).encode(),
        b'{"raw":"x","dead_letter":{"reason":"poison"}}',
        b"\xef\xbb\xbf not JSON",
        b"",
    ],
    ids=["full", "new", "unknown keys", "no meta", "null meta", "thin meta", "wrapped poison", "poison", "empty"],
)
@pytest.mark.parametrize("headers", [{}, {"traceparent": "00-1"}, {"x-attempts": "9", "x-source-lang": "cobol"}])
def test_it_writes_what_the_sdk_writes(content: bytes, headers: dict[str, str]) -> None:
    ours, theirs = written(content, headers), sdk(content, headers)
    for name in Basic.Properties.attributes():
        if name not in ("headers", "timestamp", "cluster_id"):
            assert getattr(ours, name) == getattr(theirs, NAMES.get(name, name)), name
    # The SDK forgets the headers of a body that it cannot read.
    kept = {name: value for name, value in headers.items() if not name.startswith("x-")} if not theirs.headers else {}
    assert (ours.headers or {}) == (theirs.headers or {}) | kept


TEXTS = st.one_of(st.sampled_from(["", "x", "urn:x", "é" * 127, "x" * 255, "x" * 256]), st.text(max_size=10))
NUMBERS = st.one_of(st.integers(-1, 1), st.sampled_from([1 << 31, (1 << 31) - 1, 1 << 63, 253_402_300_800_000]))
VALUES = st.one_of(TEXTS, NUMBERS, st.none(), st.booleans(), st.floats(allow_nan=False), st.just([]))


@given(st.builds(dict, job=TEXTS, trace_id=VALUES, attempts=VALUES), st.builds(dict, id=VALUES, lang=VALUES), VALUES)
@example({}, {}, 1_749_132_727_001)
def test_the_short_way_of_ordinary_messages_writes_the_same(
    frame: dict[str, Any], meta: dict[str, Any], created_at: Any
) -> None:
    outgoing = Outgoing(body(**frame, meta=META | meta | {"created_at": created_at}))
    usual = _usual_properties(outgoing)
    assert usual is None or usual == encoded_properties(_properties(outgoing))
    if not frame and not meta:
        assert usual


def test_the_time_is_when_the_message_was_made() -> None:
    assert written(body()).timestamp == datetime(2025, 6, 5, 14, 12, 7, tzinfo=UTC)


@pytest.mark.parametrize("created_at", [-1, 1 << 62, True, "soon", None])
def test_a_time_that_is_none_is_left_out(created_at: Any) -> None:
    properties = written(body(meta=META | {"created_at": created_at}))
    assert properties.timestamp is None and properties.message_id == "id-1"


@pytest.mark.parametrize("text", ["x" * 256, "ü" * 128])
def test_what_does_not_fit_a_property_is_left_to_the_body(text: str) -> None:
    assert written(body(trace_id=text)).correlation_id is None
    assert written(body(trace_id=text[:-1])).correlation_id == text[:-1]


@pytest.mark.parametrize("value", [{"a": 1}, [1], 1.5, 1 << 70])
def test_contract_headers_are_texts_and_numbers_only(value: Any) -> None:
    content = body(attempts=value, meta=META | {"lang": value})
    assert written(content).headers == {"x-schema-version": 1}


def test_where_messages_go() -> None:
    now, later = PLAIN.message(Outgoing(body())), PLAIN.message(Outgoing(body(), delay_seconds=0.5))
    assert (now.exchange, now.routing_key, now.needs) == ("", "orders", None)
    assert later.exchange.startswith("babelgate.delay.") and later.routing_key.endswith(".orders")
    assert later.needs is delayed_topology("orders")
    dead = PLAIN.dead(Outgoing(body()))
    assert (dead.exchange, dead.routing_key) == ("", "orders.dlq")
    assert PLAIN.topology.queues == (QueueDeclaration("orders"),) and PLAIN.dead_topology.queues == (
        QueueDeclaration("orders.dlq"),
    )


def test_an_empty_message_reads_as_nothing() -> None:
    read = PLAIN.read(native(Basic.Properties(), b""))
    assert (read.body, dict(read.headers), read.delivery_count) == (b"", {}, 0)


@pytest.mark.parametrize(
    ("header", "count"), [(3, 3), (0, 0), (-1, 0), (True, 0), ("3", 0), (3.0, 0), (None, 0), ([3], 0)]
)
def test_the_count_is_a_number_or_nothing(header: Any, count: int) -> None:
    assert PLAIN.read(native(Basic.Properties(headers={"x-attempts": header}))).delivery_count == count


OF_THE_BROKER: dict[str, Any] = {
    "x-death": [{"queue": "orders", "count": 1}],
    "x-first-death-queue": "orders",
    "x-first-death-exchange": "",
    "x-first-death-reason": "expired",
    "x-last-death-queue": "orders",
    "x-delivery-count": 3,
    "x-acquired-count": 3,
    "CC": ["other"],
    "BCC": ["other"],
}


def test_clients_see_headers_that_are_nobody_elses_as_texts() -> None:
    table = OF_THE_BROKER | {
        "traceparent": "00-1",
        "n": 1,
        "x-source-lang": "php",
        "x-schema-version": 1,
        "nothing": None,
        "utf-8": b"ok",
        "bytes": b"\xff",
        "bool": True,
        "time": datetime(2026, 1, 2, tzinfo=UTC),
        "list": [1, {"d": Decimal("1.5"), "none": None}],
    }
    assert PLAIN.read(native(Basic.Properties(headers=table))).headers == {
        "traceparent": "00-1",
        "n": "1",
        "utf-8": "ok",
        "bytes": "/w==",
        "bool": "true",
        "time": "2026-01-02T00:00:00+00:00",
        "list": '[1,{"d":"1.5","none":null}]',
    }


def test_a_copy_keeps_the_types_of_headers_whose_text_is_unchanged() -> None:
    table: dict[str, Any] = {"n": 1, "list": [True], "edited": 2, "text": "a"}
    read = PLAIN.read(native(Basic.Properties(headers=table), body()))
    copy = PLAIN.message(Outgoing(body(), {**read.headers, "edited": "3"}, carried=read.carried))
    headers = decoded(copy).headers or {}
    assert {name: headers[name] for name in table} == {"n": 1, "list": [True], "edited": "3", "text": "a"}


def delivered() -> Basic.Properties:
    properties = Basic.Properties(
        content_type="application/json",
        headers=OF_THE_BROKER | {"traceparent": "00-1", "n": 1, "list": ["x"], "x-attempts": 0},
        priority=7,
        correlation_id="t-1",
        reply_to="answers",
        expiration="60000",
        message_id="id-1",
        user_id="somebody",
        app_id="other",
    )
    properties.cluster_id = "c"
    return properties


def test_a_retry_keeps_what_came_with_the_message_and_drops_what_the_broker_wrote() -> None:
    read = PLAIN.read(native(delivered(), body()))
    retry = Outgoing(with_attempts(read.body, 3), read.headers, failure=LastFailure(3), carried=read.carried)
    properties = decoded(PLAIN.message(retry))
    assert properties.headers == {
        "traceparent": "00-1",
        "n": 1,
        "list": ["x"],
        "x-schema-version": 1,
        "x-source-lang": "php",
        "x-attempts": 3,
    }
    assert (properties.priority, properties.reply_to, properties.app_id) == (7, "answers", "babelqueue")
    assert properties.expiration is None and properties.user_id is None and properties.delivery_mode == 2
    assert delivered().headers == read.carried.headers


@pytest.mark.parametrize("profile", [PLAIN, queue_of("orders", {"profile": "ojs"}).profile], ids=["plain", "ojs"])
def test_an_expired_lease_is_marked_until_the_message_starts_again(profile: Profile) -> None:
    read = profile.read(native(Basic.Properties(content_type="application/json", headers={}), body()))
    assert not read.expired_before
    for failure, marked in ((LastFailure(1, "lease expired", expired=True), True), (LastFailure(2, "e"), True)):
        again = Outgoing(
            with_attempts(read.body, failure.attempts), read.headers, failure=failure, carried=read.carried
        )
        copy = profile.message(again)
        read = profile.read(native(decoded(copy), copy.body))
        assert (read.expired_before, read.headers) == (marked, {})
    redriven = profile.message(Outgoing(with_attempts(read.body, 0), carried=read.carried))
    assert not profile.read(native(decoded(redriven), redriven.body)).expired_before
    claimed = profile.message(Outgoing(body(), {"x-babelgate-expired": "1"}))
    assert not profile.read(native(decoded(claimed), claimed.body)).expired_before


def test_a_dead_letter_keeps_it_too() -> None:
    read = PLAIN.read(native(delivered(), body()))
    record = dead_letter_record(read.body, dead_letter_block("failed", "orders", 3, 1))
    properties = decoded(PLAIN.dead(Outgoing(record, read.headers, carried=read.carried)))
    headers = properties.headers or {}
    assert (properties.priority, headers["n"], headers["x-attempts"]) == (7, 1, 3)
    assert "x-death" not in headers


def test_a_dead_letter_is_read_as_it_rests() -> None:
    read = PLAIN.read_dead(native(delivered(), b'{"dead_letter":{}}'))
    assert read.body == b'{"dead_letter":{}}' and read.headers == {
        "traceparent": "00-1",
        "n": "1",
        "list": '["x"]',
    }


def test_a_queue_that_dead_letters_by_itself_has_its_dead_letter_queue() -> None:
    profile: Profile = queue_of("orders", {"queue_type": "quorum"}).profile
    assert [queue.name for queue in profile.topology.queues] == ["orders.dlq", "orders"]


@pytest.mark.parametrize("content", [b"not JSON", b'{"meta":{"id":7},"attempts":"x"}', b'{"a":1}'])
def test_the_record_of_poison_keeps_the_id_that_came_and_its_count_is_that_of_the_block(content: bytes) -> None:
    read = PLAIN.read(native(delivered(), content))
    block = dead_letter_block("poison", "orders", 2, 1, "invalid_json: it is no JSON")
    failure = LastFailure(2, block["error"])
    record = Outgoing(dead_letter_record(read.body, block), read.headers, failure=failure, carried=read.carried)
    properties = decoded(PLAIN.dead(record))
    assert (properties.message_id, (properties.headers or {})["x-attempts"]) == ("id-1", 2)
    assert (properties.priority, properties.content_type) == (7, "application/json")
