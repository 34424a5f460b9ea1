"""The canonical form of a body found on a queue: the frame in order, nothing added, nothing that counts lost."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from babelgate.envelope import Poison, canonical, inspect, read_publication
from babelgate.errors import BodyTooLarge, EnvelopeError
from tests.unit.envelope.strategies import bodies, exact, near_ordinary
from tests.unit.envelope.support import FULL, LIMITS, changed, compact, without

META = FULL["meta"]


def form(text: str) -> str:
    body = text.encode()
    inspect(body, LIMITS)
    return canonical(body).decode()


def test_a_canonical_body_is_the_same_object() -> None:
    for body in (compact(FULL), compact({**FULL, "x": 1}), compact(without("/meta/id"))):
        assert canonical(body) is body


@pytest.mark.parametrize(
    "document",
    [
        {"attempts": 2, "meta": dict(reversed(META.items())), "x": [1], "job": FULL["job"], **without("/job")},
        {"dead_letter": {"reason": "failed"}, "meta": {"y": 1, **META}, **FULL},
    ],
)
def test_the_frame_is_brought_in_order(document: dict[str, object]) -> None:
    made = json.loads(form(json.dumps(document, indent=2)))
    assert made == document
    assert list(made)[:5] == ["job", "trace_id", "data", "meta", "attempts"]
    assert list(made["meta"])[:5] == ["id", "queue", "lang", "schema_version", "created_at"]


def test_nothing_is_completed() -> None:
    sparse = {"job": "a", "trace_id": "t", "data": {}, "meta": {"schema_version": 1}, "attempts": -3}
    assert form(json.dumps(sparse)) == compact(sparse).decode()
    null = changed("/meta/lang", None)
    assert form(json.dumps(null)) == compact(null).decode()


def test_what_a_re_emit_drops_is_dropped() -> None:
    document = {"urn": "urn:b", "timestamp": 1, **FULL, "meta": {**META, "ts": 1, "source": "x"}}
    assert form(json.dumps(document)) == compact(FULL).decode()
    urn = {"urn": "urn:b", **FULL, "job": 7}
    assert form(json.dumps(urn)) == compact({**FULL, "job": "urn:b"}).decode()


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (r'{"a": "\u00e9\/", "b": 1.10, "b": -0}', '{"a":"é/","b":1.10,"b":-0}'),
        (r'{"a": "\ud800", "é\u00e9" : [ "\ud800 \u00e9" , "\u00e9" ]}', r'{"a":"\ud800","éé":["\ud800 \u00e9","é"]}'),
        ("[" * 400 + " 1 " + "]" * 400, "[" * 400 + "1" + "]" * 400),
    ],
)
def test_payloads_and_unknown_members_keep_their_literals(written: str, kept: str) -> None:
    body = compact(FULL).decode().replace('{"order_id":1042}', '{"d":%s}')[:-1] + ',"x":%s}'
    assert form(body % (written, written)) == body % (kept, kept)


def test_minus_zero_is_zero_where_an_integer_counts() -> None:
    for more in ("", ',"x":-0'):
        body = compact({**FULL, "attempts": 0}).decode()[:-1] + more + "}"
        assert form(body.replace('"attempts":0', '"attempts":-0')) == body


def facts(body: bytes) -> tuple[object, ...]:
    found = inspect(body, LIMITS)
    return found.id, found.trace_id, found.job, found.attempts, found.created_at, found.lang


def published(body: bytes) -> bytes | None:
    try:
        return read_publication(body, "orders", LIMITS, lambda: 5).envelope.body
    except (EnvelopeError, BodyTooLarge):
        return None


@given(st.one_of(near_ordinary(), bodies()))
@example(compact(FULL).replace(b'"job":', b'"job":"x","job":'))
@example(compact(FULL).replace(b'"meta":', b'"meta":{"id":"x"},"meta":'))
def test_the_canonical_form_of_any_valid_body(body: bytes) -> None:
    try:
        received = inspect(body, LIMITS)
    except Poison:
        return
    made = canonical(body)
    assert canonical(made) is made
    assert facts(made) == facts(body)
    assert inspect(made, LIMITS).warnings == ()
    data = [dict(exact(text.decode()))["data"] for text in (body, made)]
    assert data[0] == data[1]
    kept = published(body)
    if kept is not None and received.id is not None and b'"dead_letter"' not in body:
        assert made == kept, "a body that may be published reads the same on the way in and on the way out"


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        (b"[]", "invalid_json", ""),
        (b"[" * 10_000 + b"]" * 10_000, "invalid_json", ""),
        (b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "too_deep", ""),
        (compact(without("/job")), "missing_urn", "/job"),
        (compact(without("/meta")), "missing_meta", "/meta"),
        (compact(changed("/meta/schema_version", 2)), "unsupported_schema_version", "/meta/schema_version"),
        (compact(changed("/data", [])), "invalid_data", "/data"),
        (compact(changed("/trace_id", " ")), "missing_trace_id", "/trace_id"),
        (compact(changed("/attempts", 1.0)), "invalid_attempts", "/attempts"),
        (compact(FULL).replace(b"1042", b'[{"x/y":1e400}]'), "number_out_of_range", "/data/order_id/0/x~1y"),
        (compact(changed("/meta/id", 1)), "invalid_id", "/meta/id"),
        (compact(changed("/meta/queue", 1)), "invalid_queue", "/meta/queue"),
        (compact(changed("/meta/lang", 1)), "invalid_lang", "/meta/lang"),
        (compact(changed("/meta/created_at", "1")), "invalid_created_at", "/meta/created_at"),
        (compact(changed("/dead_letter", 1)), "invalid_dead_letter", "/dead_letter"),
    ],
)
def test_a_refused_body_is_told_where(body: bytes, code: str, pointer: str) -> None:
    with pytest.raises(Poison) as refused:
        inspect(body, LIMITS)
    assert (refused.value.code, refused.value.pointer) == (code, pointer)
