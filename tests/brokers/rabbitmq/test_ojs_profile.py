"""The OJS profile on RabbitMQ, without a broker: what it writes, and how it reads messages of others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.commands import Basic

from babelgate.brokers.binding import Delivery, LastFailure, Outgoing
from babelgate.brokers.options import OptionMap
from babelgate.brokers.rabbitmq.binding import connect
from babelgate.brokers.rabbitmq.frames import publish
from babelgate.brokers.rabbitmq.ojs.message import level_of
from babelgate.brokers.rabbitmq.ojs.profile import STEPS_MS, OjsProfile, profile_of
from babelgate.brokers.rabbitmq.options import queue_of
from babelgate.brokers.rabbitmq.profile import AddressedMessage, NativeMessage, Topology
from babelgate.envelope import (
    Limits,
    Poison,
    dead_letter_block,
    dead_letter_record,
    describe_dead,
    inspect,
    redriven,
    with_attempts,
)
from babelgate.envelope.options import EXPIRES_AT_HEADER, NEVER_EXPIRES
from babelgate.errors import ConfigError, UnsupportedByBroker
from babelgate.gateway.routing import Router, Rule
from tests.brokers.rabbitmq.support import decoded
from tests.unit.envelope.support import FULL, NOW, TRACE, compact

MEDIA = "application/openjobspec+json"
V7 = "01975a1e-3c58-7abc-8def-0123456789ab"
PARENT = "00-7b3f9c2ae41d4f889b2a1c0d5e6f7a8b-00f067aa0ba902b7-01"
ENVELOPE = compact(FULL)
JOB: dict[str, Any] = {"specversion": "1.0", "id": V7, "type": "email.send", "queue": "orders", "args": [{"a": 1}]}


def profile(**options: Any) -> OjsProfile:
    return profile_of("orders", OptionMap(options), lambda: NOW)


def native(body: bytes, content_type: str | None = MEDIA, headers: Any = None, **properties: Any) -> NativeMessage:
    return NativeMessage(body, Basic.Properties(content_type, headers=headers, **properties), False)


def arrived(written: AddressedMessage) -> NativeMessage:
    return NativeMessage(written.body, decoded(written), False)


def headers_of(written: AddressedMessage) -> dict[str, Any]:
    return dict(decoded(written).headers or {})


def described(
    topology: Topology | None,
) -> tuple[dict[str, str], dict[str, Mapping[str, Any]], set[tuple[str, str, str]]]:
    assert topology is not None
    return (
        {exchange.name: exchange.kind for exchange in topology.exchanges},
        {queue.name: queue.arguments for queue in topology.queues},
        {(bound.exchange, bound.destination, bound.routing_key) for bound in topology.bindings},
    )


def retry(
    read: Delivery, attempts: int, delay: float = 0, error: str | None = None, kind: str | None = None
) -> Outgoing:
    """The copy that the gateway publishes of a delivery that has failed."""
    body = with_attempts(read.body, attempts)
    return Outgoing(
        body, read.headers, delay_seconds=delay, failure=LastFailure(attempts, error, kind), carried=read.carried
    )


def letter(read: Delivery, reason: str = "failed", attempts: int = 3, error: str = "no route") -> Outgoing:
    """The dead-letter record that the gateway publishes for a delivery."""
    block = dead_letter_block(reason, "orders", attempts, NOW, error, "OSError")
    failure = LastFailure(attempts, error, "OSError")
    return Outgoing(dead_letter_record(read.body, block), read.headers, failure=failure, carried=read.carried)


def test_a_new_message_is_a_job_with_the_properties_of_both_texts() -> None:
    written = profile().message(Outgoing(ENVELOPE, {"traceparent": PARENT, "tracestate": "a=1", "tenant": "x"}))
    job = json.loads(written.body)
    assert (written.exchange, written.routing_key, written.needs) == ("ojs.direct", "orders", None)
    assert (job["specversion"], job["type"], job["queue"], job["args"]) == (
        "1.0",
        "orders.created",
        "orders",
        [FULL["data"]],
    )
    assert (job["state"], job["attempt"], job["created_at"]) == ("available", 2, "1970-01-01T00:00:00.005Z")
    properties = {name: said for name, said in decoded(written) if said not in (None, "")}
    headers = properties.pop("headers")
    assert properties == {
        "content_type": MEDIA,
        "content_encoding": "utf-8",
        "delivery_mode": 2,
        "message_id": job["id"],
        "message_type": "orders.created",
        "correlation_id": TRACE,
        "timestamp": datetime(1970, 1, 1, tzinfo=UTC),
        "app_id": "ojs",
    }
    assert headers == {
        "x-ojs-queue": "orders",
        "x-ojs-attempt": 3,
        "x-ojs-created-at": "1970-01-01T00:00:00.005Z",
        "x-ojs-enqueued-at": "2025-06-05T14:12:07.000Z",
        "x-ojs-traceparent": PARENT,
        "x-ojs-trace-id": PARENT,
        "x-ojs-trace-state": "a=1",
        "traceparent": PARENT,
        "tracestate": "a=1",
        "tenant": "x",
    }


@pytest.mark.parametrize("created_at", [-1, -(1 << 63), (1 << 63) - 1])
def test_a_time_that_amqp_has_no_words_for_is_left_to_the_body(created_at: int) -> None:
    body = compact(FULL | {"meta": FULL["meta"] | {"created_at": created_at}})
    written = profile().message(Outgoing(body))
    assert publish(written, 1, 131_072)
    assert profile().read(arrived(written)).body == body


def test_what_is_written_is_read_as_the_same_bytes() -> None:
    one = profile()
    read = one.read(arrived(one.message(Outgoing(ENVELOPE, {"traceparent": PARENT, "tenant": "x"}))))
    assert (read.body, read.headers, read.delivery_count) == (ENVELOPE, {"traceparent": PARENT, "tenant": "x"}, 2)


def test_what_a_job_asks_for_becomes_properties_and_headers() -> None:
    asked = {"priority": 10, "enqueue_ttl": 1.5, "tags": ["a", "b"], "retry": {"max_attempts": 5}}
    read = profile().read(native(compact(JOB | asked | {"meta": {"traceparent": PARENT}})))
    written = profile().message(Outgoing(read.body))
    headers = headers_of(written)
    assert (decoded(written).priority, decoded(written).expiration) == (8, "1500")
    assert (headers["x-ojs-tags"], headers["x-ojs-max-attempts"], headers["x-ojs-trace-id"]) == ("a,b", 5, PARENT)
    assert {name: json.loads(written.body)[name] for name in asked} == asked
    delayed = profile().message(Outgoing(read.body, delay_seconds=5))
    assert decoded(delayed).expiration is None, "a delay queue would let it go after 1.5 s"


@pytest.mark.parametrize("ttl", [0, -1, "5", True, 4_294_967.296, None])
def test_a_time_to_live_that_the_broker_would_refuse_is_left_to_the_body(ttl: Any) -> None:
    read = profile().read(native(compact(JOB | {"enqueue_ttl": ttl})))
    assert decoded(profile().message(Outgoing(read.body))).expiration is None


@pytest.mark.parametrize(
    ("expires_at", "headers", "expected"),
    [
        ("2026-09-21T14:13:20.500Z", {}, "1790000000500"),
        ("1969-12-31T00:00:00Z", {}, "0"),
        ("2026-09-21T14:13:20Z", {EXPIRES_AT_HEADER: NEVER_EXPIRES}, NEVER_EXPIRES),
        ("2026-09-21T14:13:20", {}, None),
        (1790000000, {}, None),
    ],
)
def test_the_time_of_expiry_of_a_job_is_that_of_its_message(
    expires_at: Any, headers: dict[str, str], expected: str | None
) -> None:
    read = profile().read(native(compact(JOB | {"expires_at": expires_at}), headers=headers))
    assert read.headers.get(EXPIRES_AT_HEADER) == expected
    again = profile().read(arrived(profile().message(retry(read, 1))))
    assert again.headers.get(EXPIRES_AT_HEADER) == expected
    # A redrive ends it, for the peers as for the gateway.
    body = redriven(letter(again).body)
    written = profile().message(Outgoing(body, {EXPIRES_AT_HEADER: NEVER_EXPIRES}, carried=again.carried))
    assert "expires_at" not in json.loads(written.body)
    assert profile().read(arrived(written)).headers.get(EXPIRES_AT_HEADER) in (None, NEVER_EXPIRES)


def test_a_time_to_live_is_the_time_of_expiry_of_the_job() -> None:
    kept = profile().read(native(compact(JOB | {"expires_at": "2026-09-21T16:13:20+02:00"}))).body
    for body, header, expected in (
        (ENVELOPE, "1790000000500", "2026-09-21T14:13:20.500Z"),
        (ENVELOPE, NEVER_EXPIRES, None),
        (kept, "1790000000500", "2026-09-21T14:13:20.500Z"),
        (kept, "1790000000000", "2026-09-21T16:13:20+02:00"),
        (kept, NEVER_EXPIRES, None),
    ):
        written = profile().message(Outgoing(body, {EXPIRES_AT_HEADER: header}))
        assert json.loads(written.body).get("expires_at") == expected
        read = profile().read(arrived(written))
        assert (read.body, read.headers[EXPIRES_AT_HEADER]) == (body, header)


@pytest.mark.parametrize("change", [{"args": {}}, {"type": 5}, {"specversion": "2.0"}])
def test_a_malformed_job_on_the_queue_is_poison_of_its_own_kind(change: dict[str, Any]) -> None:
    read = profile().read(native(compact(JOB | change)))
    with pytest.raises(Poison) as poison:
        inspect(read.body, Limits())
    assert (poison.value.code, poison.value.pointer) == ("invalid_job", f"/{next(iter(change))}")


def test_what_a_body_says_at_length_is_no_header() -> None:
    # All headers of a message must fit into one frame, of 128 KiB.
    long = {"tags": ["t" * 1000] * 200, "meta": {"traceparent": "p" * 100_000, "tracestate": "a=1"}}
    one = profile()
    read = one.read(native(compact(JOB | long)))
    written = one.message(Outgoing(read.body))
    assert headers_of(written).keys() >= {"tracestate", "x-ojs-trace-state"}
    assert headers_of(written).keys().isdisjoint({"x-ojs-tags", "traceparent", "x-ojs-traceparent"})
    assert json.loads(written.body)["tags"] == long["tags"]
    for copy in (one.message(retry(read, 1, error="é" * 65_536, kind="E")), one.dead(letter(read, error="é" * 65_536))):
        assert headers_of(copy)["x-ojs-error-message"] == "é" * 2048
        assert json.loads(copy.body)["error"]["message"] == "é" * 65_536


def test_the_named_priorities_stay_apart() -> None:
    assert [level_of(p) for p in (-200, -100, -99, -10, -9, -1, 0, 1, 9, 10, 99, 100, 500)] == [
        0,
        0,
        1,
        1,
        3,
        3,
        4,
        6,
        6,
        8,
        8,
        9,
        9,
    ]


@given(st.integers(), st.integers())
def test_a_higher_priority_is_never_later(one: int, other: int) -> None:
    assert (level_of(one) - level_of(other)) * (one - other) >= 0


def test_a_plain_job_of_the_reference_backend_is_a_job() -> None:
    read = profile().read(native(compact(JOB), "application/json"))
    assert json.loads(read.body)["job"] == "urn:babel:email:send"


def test_an_envelope_on_the_queue_stays_as_it_is_and_so_does_its_copy() -> None:
    body = b' {"job":"urn:a", "trace_id":"t","data":{"n":1.0},"meta":{"schema_version":1},"attempts":1} '
    read = profile().read(native(body, "application/json", {"x-attempts": 4, "x-source-lang": "go", "tenant": "x"}))
    assert (read.body, read.headers, read.delivery_count) == (body, {"tenant": "x"}, 4)
    again = profile().message(retry(read, 5))
    assert (again.body, decoded(again).content_type) == (with_attempts(body, 5), "application/json")
    assert (headers_of(again)["x-attempts"], headers_of(again)["x-ojs-attempt"]) == (5, 6)


@pytest.mark.parametrize(
    "body", [b"", b"\xff", b"[]", b'{"specversion":"2.0","type":"a","args":[]}', b'{"a":"\\ud800"}']
)
def test_what_is_neither_keeps_its_body_to_the_end(body: bytes) -> None:
    read = profile().read(native(body))
    assert read.body == body
    record = letter(read, "poison", 0)
    dead = profile().dead(record)
    assert (dead.body, decoded(dead).content_type) == (record.body, "application/json")
    assert profile().read_dead(arrived(dead)).body == record.body


@pytest.mark.parametrize(
    ("headers", "count"),
    [
        (None, 0),
        ({"x-ojs-attempt": 4}, 3),
        ({"x-ojs-attempt": 0}, 0),
        ({"x-ojs-attempt": True}, 0),
        ({"x-ojs-attempt": "4"}, 0),
        ({"x-death": [{"queue": "ojs.queue.orders", "reason": "rejected", "count": 2}]}, 2),
        ({"x-death": [{"queue": "ojs.queue.orders", "reason": "expired", "count": 2}]}, 0),
        ({"x-death": [{"queue": "ojs.queue.others", "reason": "rejected", "count": 2}]}, 0),
        ({"x-death": "nonsense"}, 0),
    ],
)
def test_attempts_come_from_the_headers(headers: Any, count: int) -> None:
    read = profile().read(native(compact(JOB), headers=headers))
    assert (read.delivery_count, json.loads(read.body)["attempts"]) == (count, count)


def test_the_trace_context_goes_by_its_own_name_whatever_text_a_peer_follows() -> None:
    for name in ("x-ojs-traceparent", "x-ojs-trace-id", "traceparent"):
        assert profile().read(native(compact(JOB), headers={name: PARENT})).headers == {"traceparent": PARENT}


def test_a_retry_is_the_job_that_came_with_the_attempt_and_the_error_changed() -> None:
    body = compact(JOB | {"x": {"y": [1]}, "meta": {"locale": "tr"}, "attempt": 1})
    deaths = [{"queue": "q", "reason": "expired", "count": 1}]
    headers = {"x-ojs-attempt": 2, "x-ojs-error-code": "Old", "x-death": deaths, "x-ojs-idempotency-key": "k", "n": 5}
    properties: dict[str, Any] = {
        "priority": 3,
        "reply_to": "r",
        "expiration": "5",
        "user_id": "u",
        "app_id": "peer",
        "message_id": V7,
    }
    read = profile().read(native(body, headers=headers, **properties))
    assert read.headers == {"x-ojs-idempotency-key": "k"}
    written = profile().message(retry(read, 2, error="no route", kind="OSError"))
    assert (written.exchange, written.routing_key, written.needs) == ("ojs.direct", "orders", None)
    error = {"type": "OSError", "message": "no route"}
    assert json.loads(written.body) == json.loads(body) | {"attempt": 2, "error": error}
    assert headers_of(written) == {
        "x-ojs-attempt": 3,
        "x-ojs-queue": "orders",
        "x-ojs-error-message": "no route",
        "x-ojs-error-code": "OSError",
        "x-ojs-idempotency-key": "k",
        "n": 5,
    }
    kept = decoded(written)
    assert (kept.priority, kept.reply_to, kept.app_id, kept.message_id) == (3, "r", "peer", V7)
    assert (kept.expiration, kept.user_id, kept.delivery_mode) == (None, None, 2)


def test_the_copy_of_a_delivery_that_was_not_kept_is_a_job_all_the_same() -> None:
    written = profile().message(Outgoing(with_attempts(ENVELOPE, 3), failure=LastFailure(3)))
    assert (json.loads(written.body)["attempt"], headers_of(written)["x-ojs-attempt"]) == (3, 4)
    assert headers_of(written)["x-ojs-error-code"] == headers_of(written)["x-ojs-error-message"] == "failed"


@pytest.mark.parametrize(
    ("delay", "step"),
    [(0.05, 100), (0.1, 100), (0.3, 500), (1, 1000), (1.001, 2000), (61, 90_000), (86_400, 86_400_000)],
)
def test_a_retry_waits_in_the_queue_of_the_next_longer_delay(delay: float, step: int) -> None:
    read = profile().read(native(compact(JOB)))
    written = profile().message(retry(read, 1, delay))
    assert (written.exchange, written.routing_key) == ("ojs.retry", f"orders.{step}")
    name = f"ojs.queue.retry.orders.{step}"
    exchanges, queues, bindings = described(written.needs)
    assert exchanges == {"ojs.retry": "direct"}
    assert {
        key: queues[name][key] for key in ("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-message-ttl")
    } == {
        "x-dead-letter-exchange": "ojs.direct",
        "x-dead-letter-routing-key": "orders",
        "x-message-ttl": step,
    }
    assert "x-expires" not in queues[name]
    assert bindings == {("ojs.retry", name, f"orders.{step}")}


def test_a_step_is_described_once_so_that_it_is_declared_once() -> None:
    one = profile()
    read = one.read(native(compact(JOB)))
    assert one.message(retry(read, 1, 3)).needs is one.message(retry(read, 1, 2.5)).needs


def test_a_schedule_is_kept_to_a_tenth_of_a_second_by_the_ladder_and_so_is_a_longer_retry() -> None:
    written = profile().message(Outgoing(ENVELOPE, delay_seconds=61))
    assert (written.exchange, written.routing_key.endswith(".ojs.queue.orders")) == ("babelgate.delay.09", True)
    assert headers_of(written)["x-ojs-scheduled-at"] == "2025-06-05T14:13:08.000Z"
    read = profile().read(arrived(written))
    assert profile().message(retry(read, 1, 90_000)).exchange.startswith("babelgate.delay.")
    assert "x-ojs-scheduled-at" not in headers_of(profile().message(retry(read, 1)))


def test_every_delay_of_the_steps_is_above_the_one_before() -> None:
    assert list(STEPS_MS) == sorted(set(STEPS_MS))
    assert STEPS_MS[-1] == 86_400_000


@pytest.mark.parametrize("reason", ["failed", "poison"])
def test_a_dead_job_is_discarded_and_its_record_comes_back(reason: str) -> None:
    body = compact(JOB | {"x": 1, "meta": {"locale": "tr"}})
    read = profile().read(native(body, headers={"n": 5}))
    record = letter(read, reason)
    dead = profile().dead(record)
    assert (dead.exchange, dead.routing_key, decoded(dead).content_type) == ("ojs.dlx", "orders", MEDIA)
    found = json.loads(dead.body)
    assert (found["state"], found["attempt"], found["x"]) == ("discarded", 3, 1)
    assert found["error"] == {"type": "OSError", "message": "no route"}
    assert headers_of(dead) == {
        "n": 5,
        "x-ojs-attempt": 3,
        "x-ojs-queue": "orders",
        "x-ojs-error-message": "no route",
        "x-ojs-error-code": "OSError",
    }
    again = profile().read_dead(arrived(dead))
    assert json.loads(again.body) == json.loads(record.body) | {"attempts": 3}
    if reason == "failed":
        assert again.body == record.body


@pytest.mark.parametrize(
    "body",
    [
        compact(JOB)[:-1] + b',"x":1e400}',
        compact(JOB).replace(b'{"a":1}', b'{"a":-1e400}'),
        ENVELOPE[:-1] + b',"x":1e400}',
        ENVELOPE[:-1] + b',"1e400":"\\ud800","\\ud800":5}',
    ],
    ids=["attribute", "argument", "envelope", "surrogates"],
)
@pytest.mark.parametrize("reason", ["failed", "poison"])
def test_what_few_parsers_read_rests_as_it_was_written(body: bytes, reason: str) -> None:
    one = profile()
    dead = one.dead(letter(one.read(native(body)), reason))
    assert b"1e400" in dead.body
    assert describe_dead(one.read_dead(arrived(dead)).body).reason == reason


ODDITIES = [
    {name: said for name, said in JOB.items() if name != "id"},
    JOB | {"id": 5, "error": {"type": "E"}, "state": "active", "attempt": 1},
    JOB | {"id": "k-1", "args": [1, "\U0001f600"], "dead_letter": 5, "unknown": {"a": [None]}},
    b'{"specversion":"1.0","type":"a","args":[{"n":123456789012345678901234567890,"m":1.10,"n":2}],"x":1e5,"x":1.0}',
    b'{"specversion":"1.0","type":"a","args":["\\ud83d\\ude00", "\\u00e9\\/"],"tags":["\\ud83d\\ude00"]}',
    JOB | {"args": ["x" * (1 << 20)]},
]


@pytest.mark.parametrize("job", ODDITIES, ids=["no id", "id is a number", "own id", "numbers", "escapes", "1 MiB"])
@pytest.mark.parametrize("content_type", [MEDIA, "application/json"])
def test_through_failures_death_and_redrive_a_job_is_the_same_envelope(job: Any, content_type: str) -> None:
    one = profile()
    body = job if isinstance(job, bytes) else compact(job)
    first = one.read(native(body, content_type))
    seen = first
    for attempts in (1, 2):
        seen = one.read(arrived(one.message(retry(seen, attempts, error="no route"))))
        assert seen.body == with_attempts(first.body, attempts)
    dead = one.read_dead(arrived(one.dead(letter(seen))))
    back = one.message(Outgoing(redriven(dead.body), dead.headers, carried=dead.carried))
    assert one.read(arrived(back)).body == with_attempts(first.body, 0)
    changed = {"attempt", "state", "error", "dead_letter"}
    before, after = (msgspec.json.decode(each, type=dict[str, msgspec.Raw]) for each in (body, back.body))
    assert {n: bytes(raw) for n, raw in after.items() if n not in changed} == {
        n: bytes(raw) for n, raw in before.items() if n not in changed
    }


def test_a_dead_letter_has_the_priority_that_its_message_had() -> None:
    """Not that of its job, which the option of a message replaces."""
    one = profile(max_priority=10)
    job = one.read(native(compact(JOB | {"priority": -10})))
    sent = one.message(Outgoing(job.body, priority=9))
    assert one.read_dead(arrived(one.dead(letter(one.read(arrived(sent)))))).priority == 9


def test_a_dead_envelope_rests_as_its_record_and_a_dead_job_of_ours_has_its_bytes() -> None:
    one = profile()
    for arrival in (native(ENVELOPE, "application/json"), arrived(one.message(Outgoing(ENVELOPE)))):
        record = letter(one.read(arrival))
        assert one.read_dead(arrived(one.dead(record))).body == record.body
    assert one.dead(Outgoing(record.body)).body == record.body


def test_a_dead_job_goes_back_as_it_came() -> None:
    one = profile()
    body = compact(JOB | {"x": 1, "state": "active", "attempt": 1})
    dead = one.read_dead(arrived(one.dead(letter(one.read(native(body, headers={"x-ojs-attempt": 1, "n": 5}))))))
    back = one.message(Outgoing(redriven(dead.body), dead.headers, carried=dead.carried))
    assert json.loads(back.body) == JOB | {"x": 1, "state": "available", "attempt": 0}
    assert headers_of(back) == {"n": 5, "x-ojs-queue": "orders", "x-ojs-attempt": 1}


def death(reason: str) -> list[dict[str, Any]]:
    at = datetime.fromtimestamp(NOW // 1000, UTC)
    return [{"queue": "ojs.queue.orders", "reason": reason, "count": 1, "time": at, "exchange": "", "routing-keys": []}]


@pytest.mark.parametrize(
    ("job", "headers", "error", "failed_at"),
    [
        ({}, {"x-death": death("expired"), "x-ojs-error-message": "old"}, "message expired", NOW),
        ({}, {"x-death": death("rejected")}, "rejected", NOW),
        ({}, {"x-death": death("rejected"), "x-ojs-error-message": "boom"}, "boom", NOW),
        ({"error": {"type": "E", "message": "bad"}, "discarded_at": "2025-06-05T14:12:08Z"}, {}, "bad", NOW + 1000),
        ({"error": "x", "discarded_at": 5}, {}, "dead-lettered by another program", 0),
        (
            {"dead_letter": {"reason": 5}},
            {"x-death": death("delivery_limit")},
            "the delivery limit of the queue was reached",
            NOW,
        ),
    ],
)
def test_dead_letters_of_others_are_records_too(job: Any, headers: Any, error: str, failed_at: int) -> None:
    found = describe_dead(profile().read_dead(native(compact(JOB | job), headers=headers)).body)
    assert (found.reason, found.error, found.failed_at, found.job) == (
        "failed",
        error,
        failed_at,
        "urn:babel:email:send",
    )


@pytest.mark.parametrize(
    ("job", "headers", "attempts"),
    [
        ({}, {}, 0),
        ({"attempt": 3, "state": "discarded"}, {"x-ojs-attempt": 3}, 3),
        ({"attempt": 1}, {"x-ojs-attempt": 3}, 2),
        ({}, {"x-death": death("rejected"), "x-ojs-attempt": 1}, 1),
    ],
)
def test_attempts_of_dead_letters_of_others_are_the_most_that_anything_tells(
    job: Any, headers: Any, attempts: int
) -> None:
    record = profile().read_dead(native(compact(JOB | job), headers=headers)).body
    assert (describe_dead(record).attempts, json.loads(record)["attempts"]) == (attempts, attempts)


def test_a_dead_envelope_of_another_program_is_a_record_too() -> None:
    found = describe_dead(profile().read_dead(native(ENVELOPE, "application/json", {"x-death": death("expired")})).body)
    assert (found.error, found.attempts, found.failed_at) == ("message expired", 2, NOW)


@given(st.binary(max_size=30), st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2))
def test_reading_never_raises(body: bytes, headers: Any) -> None:
    for each in (
        body,
        b'{"specversion":"1.0","type":"a","args":[]' + body,
        compact(JOB)[:-1] + b',"meta":' + body + b"}",
    ):
        assert profile().read(native(each, headers=headers)).carried is not None
        assert profile().read_dead(native(each, headers=headers)).carried is not None


def test_a_queue_that_is_no_ojs_name_is_the_clients_error_not_the_gateways() -> None:
    router = Router([], Rule("*", connect("rabbit", "amqp://localhost", {}, lambda: NOW), options={"profile": "ojs"}))
    assert router.route("orders").native.options.profile.queue == "ojs.queue.orders"
    with pytest.raises(UnsupportedByBroker, match="'My_Orders' is no OJS queue") as refused:
        router.route("My_Orders")
    assert refused.value.problem_code == "queue_name_unsupported"


def test_the_topology_of_the_site() -> None:
    exchanges, queues, bindings = described(profile().topology)
    assert exchanges == {"ojs.direct": "direct", "ojs.dlx": "direct"}
    assert queues == {
        "ojs.dead.orders": {},
        "ojs.queue.orders": {"x-dead-letter-exchange": "ojs.dlx", "x-dead-letter-routing-key": "orders"},
    }
    assert bindings == {("ojs.direct", "ojs.queue.orders", "orders"), ("ojs.dlx", "ojs.dead.orders", "orders")}
    assert described(profile().dead_topology)[1].keys() == {"ojs.dead.orders"}


def test_a_queue_may_be_called_as_is_only_dangerous_in_another_naming() -> None:
    assert profile_of("dlx.orders", OptionMap({})).queue == "ojs.queue.dlx.orders"
    assert profile_of("retry.orders", OptionMap({})).queue == "ojs.queue.retry.orders"


def test_the_names_of_the_repository_and_of_templates() -> None:
    one = profile(naming="spec")
    assert described(one.topology)[0].keys() == {"ojs.exchange.direct", "ojs.exchange.dlx"}
    assert (one.queue, one.dead_queue) == ("ojs.queue.orders", "ojs.queue.dlx.orders")
    read = one.read(native(compact(JOB)))
    assert one.message(retry(read, 1, 5)).exchange == "ojs.exchange.retry"
    two = profile(
        naming={
            "job_queue": "t1.ojs.{queue}",
            "retry_queue": "t1.{queue}.in.{delay_ms}",
            "retry_key": "{delay_ms}/{queue}",
        }
    )
    assert (two.queue, two.dead_queue) == ("t1.ojs.orders", "ojs.dead.orders")
    assert two.message(retry(read, 1, 5)).routing_key == "5000/orders"


def test_a_queue_may_have_priorities_or_be_a_quorum_queue() -> None:
    assert described(profile(max_priority=10).topology)[1]["ojs.queue.orders"]["x-max-priority"] == 10
    queues = described(profile(queue_type="quorum", delivery_limit=None).topology)[1]
    assert (queues["ojs.queue.orders"]["x-queue-type"], queues["ojs.queue.orders"]["x-delivery-limit"]) == (
        "quorum",
        -1,
    )
    assert queues["ojs.dead.orders"]["x-queue-type"] == "quorum"
    made = queue_of("orders", {"profile": "ojs", "queue_type": "quorum", "declare": "passive"})
    assert (made.stored_as["queue_type"], made.declare, made.profile.queue) == ("quorum", "passive", "ojs.queue.orders")


@pytest.mark.parametrize(
    ("name", "options", "key"),
    [
        ("Orders", {}, "native_name"),
        ("my_orders", {}, "native_name"),
        ("-x", {}, "native_name"),
        ("a" * 129, {}, "native_name"),
        ("orders", {"frames": True}, "frames"),
        ("orders", {"naming": "mine"}, "naming"),
        ("orders", {"naming": None}, "naming"),
        ("orders", {"naming": {"queue": "x{queue}"}}, "naming.queue"),
        ("orders", {"naming": {"job_queue": "x"}}, "naming.job_queue"),
        ("orders", {"naming": {"job_exchange": 5}}, "naming.job_exchange"),
        ("orders", {"naming": {"retry_queue": "{queue}"}}, "naming.retry_queue"),
        ("orders", {"naming": {"job_exchange": "{tenant}"}}, "naming.job_exchange"),
        ("orders", {"naming": {"dead_queue": "x" * 250 + "{queue}"}}, "naming.dead_queue"),
        ("orders", {"naming": {"job_queue": "x" * 200 + "{queue}"}}, "naming.job_queue"),
        ("retry.orders.1000", {}, "native_name"),
        ("dlx.orders", {"naming": "spec"}, "native_name"),
        ("orders.dead", {"naming": {"job_queue": "{queue}", "dead_queue": "{queue}.dead"}}, "native_name"),
        # With a text of its own for each placeholder, the search for a queue of this name took hours.
        (
            "a" * 120,
            {"naming": {"job_queue": "{queue}", "retry_queue": "{queue}" * 12 + "!{delay_ms}"}},
            "naming.retry_queue",
        ),
        ("orders", {"max_priority": 0}, "max_priority"),
        ("orders", {"max_priority": True}, "max_priority"),
        ("orders", {"max_priority": 5, "queue_type": "quorum"}, "max_priority"),
        ("orders", {"queue_type": "stream"}, "queue_type"),
        ("orders", {"delivery_limit": 5}, "delivery_limit"),
        ("orders", {"delivery_limit": 0, "queue_type": "quorum"}, "delivery_limit"),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(name: str, options: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        profile_of(name, OptionMap(options))
    assert refused.value.key == key
