"""Jobs as envelopes and back: what is lost, and what two readers see."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from babelgate.envelope import inspect, read_publication, with_attempts
from babelgate.errors import EnvelopeError, EnvelopeSyntaxError
from babelgate.ojs import (
    MessageProperties,
    as_entry,
    attributes_of,
    discarded,
    envelope_of,
    job_of,
    places_in_job,
    retried,
    revived,
)
from babelgate.ojs.terms import SERVER, type_of, urn_of
from tests.unit.envelope.strategies import OBJECTS, TEXTS, exact, frames
from tests.unit.envelope.support import LIMITS, NOW, TRACE, compact

V7 = "01975a1e-3c58-7abc-8def-0123456789ab"
JOB: dict[str, Any] = {
    "specversion": "1.0",
    "id": V7,
    "type": "email.send",
    "queue": "orders",
    "args": [{"to": "ada@example.com", "sum": 1}],
    "created_at": "2025-06-05T14:12:07.000Z",
}
BLANK = " \t\n\v\f\r"
BESIDE = MessageProperties("orders")


def published(body: bytes, queue: str = "orders") -> bytes:
    """The canonical envelope of a publish body."""
    return read_publication(body, queue, LIMITS, lambda: NOW).envelope.body


def again(body: bytes, queue: str = "orders") -> bytes | None:
    """An envelope after its time as a job on an OJS queue."""
    job = attributes_of(job_of(body, queue, NOW).body, declared=False)
    assert job is not None
    return envelope_of(job, MessageProperties(queue, attempts=0))


def read(job: Any, beside: MessageProperties = BESIDE) -> dict[str, Any]:
    body = job if isinstance(job, bytes) else compact(job)
    attributes = attributes_of(body, declared=False)
    assert attributes is not None
    envelope = envelope_of(attributes, beside)
    assert envelope is not None
    inspect(envelope, LIMITS)
    found: dict[str, Any] = json.loads(envelope)
    return found


@given(frames(clean=True), st.sampled_from(["orders", "shop.orders"]))
@example(
    '{"job":"urn:a","trace_id":"t","data":{"n":1.10,"b":12345678901234567890},"meta":{"id":"i","queue":"orders",'
    '"lang":"go","schema_version":1,"created_at":5,"ext":{"ojs":{"args":"list"},"a":1}},"attempts":3}',
    "orders",
)
@example(
    '{"job":"urn:a","trace_id":"t","data":{"args":[1]},"meta":{"id":"i","queue":"orders","lang":"go",'
    '"schema_version":1,"created_at":5,"ext":{"ojs":{"args":"list","type":"a.b","id":"i"}}},"attempts":3}',
    "orders",
)
@example(
    '{"job":"urn:a","trace_id":"t","data":{},"meta":{"id":"i","queue":"orders","lang":"go","schema_version":1,'
    '"created_at":5,"other":[1.0]},"attempts":3,"top":{"x":1e2}}',
    "orders",
)
@example(
    '{"job":"urn:a","trace_id":"t","data":{},"meta":{"id":"i","queue":"orders","lang":"go","schema_version":1,'
    '"created_at":253402300800000,"ext":null},"attempts":3}',
    "orders",
)
@example(
    '{"job":"urn:a","trace_id":"t","data":{},"meta":{"id":"i","queue":"orders","lang":"go","schema_version":1,'
    '"created_at":5,"ext":{"ojs":{"meta":{"urn":7,"lang":"tr","bq_schema_version":9}}}},"attempts":3}',
    "orders",
)
def test_an_envelope_survives_its_time_as_a_job_byte_for_byte(text: str, queue: str) -> None:
    try:
        body = published(text.encode(errors="surrogatepass"))
    except EnvelopeError:
        return  # a number or a string that no publish takes
    assert again(body, queue) == body


def test_a_foreign_envelope_with_blanks_and_repeated_keys_survives_too() -> None:
    body = b' {"data" : { "a" : 1 , "a":2.0},"data":{"b":1.50} ,"job":"u",'
    body += b'"trace_id":"t","attempts":0,"meta":{"schema_version":1}} '
    assert again(body) == body


def test_more_attempts_change_nothing_else() -> None:
    body = published(
        compact(
            {
                "job": "u",
                "trace_id": TRACE,
                "data": {},
                "x": 1,
                "meta": {"id": V7, "queue": "orders", "lang": "go", "schema_version": 1, "created_at": 5},
                "attempts": 0,
            }
        )
    )
    job = attributes_of(job_of(body, "orders", NOW).body, declared=False)
    assert job is not None
    again = attributes_of(retried(job, 4, "no route", "OSError"), declared=False)
    assert again is not None
    assert envelope_of(again, BESIDE) == with_attempts(body, 4)


WORDS = st.text("abcXYZ_09-. é", min_size=1, max_size=12)
ATTRIBUTES = st.dictionaries(
    st.one_of(st.sampled_from(["priority", "timeout", "retry", "tags", "unique", "schema", "args_form", "urn"]), WORDS),
    OBJECTS,
    max_size=4,
).map(lambda found: {name: raw for name, raw in found.items() if name not in SERVER})


@st.composite
def jobs(draw: st.DrawFn) -> str:
    """A client's job as text."""
    members = {
        "specversion": draw(st.sampled_from(['"1.0"', '"1.0.0-rc.1"'])),
        "id": json.dumps(draw(st.one_of(st.just(V7), st.uuids(version=4).map(str), WORDS.filter(str.strip)))),
        "type": json.dumps(draw(st.one_of(st.sampled_from(["echo", "email.send", "a.b.c"]), WORDS.filter(str.strip)))),
        "queue": '"orders"',
        "args": "[" + ",".join(draw(st.lists(st.one_of(OBJECTS, st.just("1.10"), st.just('"x"')), max_size=2))) + "]",
        "created_at": json.dumps(draw(st.sampled_from(["2025-06-05T14:12:07.123456Z", "2025-06-05T16:12:07+02:00"]))),
    }
    meta = draw(
        st.dictionaries(
            st.one_of(st.sampled_from(["trace_id", "lang", "urn", "ext", "locale"]), WORDS),
            st.one_of(OBJECTS, st.just('"tr"'), st.just(f'"{TRACE}"')),
            max_size=3,
        )
    )
    rest = draw(ATTRIBUTES)
    members["meta"] = "{" + ",".join(f"{json.dumps(name)}:{raw}" for name, raw in meta.items()) + "}"
    return "{" + ",".join(f"{json.dumps(name)}:{raw}" for name, raw in {**rest, **members}.items()) + "}"


@given(jobs())
def test_a_job_survives_its_time_as_an_envelope(text: str) -> None:
    job = attributes_of(text.encode(errors="surrogatepass"), declared=False)
    if job is None:
        return  # a lone surrogate
    envelope = envelope_of(job, BESIDE)
    if envelope is None:
        return  # a number or string that no envelope carries
    assert envelope_of(job, BESIDE) == envelope
    written = exact(job_of(envelope, "orders", NOW).body.decode())
    back, there = dict(written), dict(exact(text))
    kept = dict(back.pop("meta"))
    given_meta = dict(there.pop("meta"))
    assert {name: kept.get(name) for name in given_meta} == given_meta
    assert {name: back.get(name) for name in there} == there


def test_what_only_a_job_knows_is_one_object_in_meta() -> None:
    envelope = read(JOB | {"priority": 10, "tags": ["a"], "meta": {"locale": "tr", "lang": "go"}, "state": "active"})
    assert envelope["job"] == "urn:babel:email:send"
    assert envelope["data"] == JOB["args"][0]
    assert envelope["meta"] == {
        "id": V7,
        "queue": "orders",
        "lang": "go",
        "schema_version": 1,
        "created_at": 1_749_132_727_000,
        "ext": {"ojs": {"priority": 10, "tags": ["a"], "meta": {"locale": "tr"}}},
    }


@pytest.mark.parametrize(
    ("args", "data"),
    [
        ([], {"args": []}),
        ([1, "x"], {"args": [1, "x"]}),
        ([[1]], {"args": [[1]]}),
        ([{"a": 1}, {}], {"args": [{"a": 1}, {}]}),
    ],
)
def test_arguments_that_are_not_one_object_stand_as_args(args: list[Any], data: Any) -> None:
    envelope = read(JOB | {"args": args})
    assert envelope["data"] == data
    assert json.loads(job_of(compact(envelope), "orders", NOW).body)["args"] == args


@pytest.mark.parametrize(
    ("type_", "urn"),
    [("email.send", "urn:babel:email:send"), ("a.b.c", "urn:babel:a:b.c"), ("echo", "urn:babel:ojs:echo")],
)
def test_a_type_is_a_urn(type_: str, urn: str) -> None:
    assert urn_of(type_) == urn
    assert read(JOB | {"type": type_})["job"] == urn


@pytest.mark.parametrize(
    ("urn", "type_"),
    [
        ("urn:babel:orders:created", "orders.created"),
        ("urn:shop:orders:v2", "shop.orders.v2"),
        ("urn:babel:Order-Items:2nd", "order_items.x2nd"),
        ("...", "x"),
        ("urn:babel:" + "a" * 300, "a" * 255),
    ],
)
def test_a_urn_becomes_a_legal_type(urn: str, type_: str) -> None:
    assert type_of(urn) == type_


def test_an_id_of_another_version_becomes_one_of_version_7_and_is_kept_beside() -> None:
    body = published(compact({"job": "u", "data": {}, "meta": {"lang": "go"}}))
    first, second = job_of(body, "orders", NOW), job_of(body, "orders", NOW + 5)
    assert first.id == second.id
    made = uuid.UUID(first.id)
    assert (made.version, made.variant, made.int >> 80) == (7, uuid.RFC_4122, NOW)
    assert json.loads(first.body)["meta"]["bq_id"] == json.loads(body)["meta"]["id"]


def test_an_id_of_version_7_is_kept() -> None:
    envelope = compact(read(JOB))
    assert job_of(envelope, "orders", NOW).id == V7
    assert "bq_id" not in json.loads(job_of(envelope, "orders", NOW).body)["meta"]


@pytest.mark.parametrize(
    ("meta", "beside", "trace_id"),
    [
        ({"trace_id": TRACE}, BESIDE, TRACE),
        ({"trace_id": "no uuid"}, MessageProperties(trace_id=TRACE), TRACE),
        ({}, MessageProperties(traceparent="00-7b3f9c2ae41d4f889b2a1c0d5e6f7a8b-00f067aa0ba902b7-01"), TRACE),
        ({"traceparent": "00-7b3f9c2ae41d4f889b2a1c0d5e6f7a8b-00f067aa0ba902b7-01"}, BESIDE, TRACE),
        ({}, MessageProperties(trace_id="x", traceparent="x"), None),
    ],
)
def test_the_trace_id_is_found_or_derived(meta: Any, beside: MessageProperties, trace_id: str | None) -> None:
    found = read(JOB | {"meta": meta}, beside)["trace_id"]
    assert found == read(JOB | {"meta": meta}, beside)["trace_id"]
    assert found == trace_id if trace_id else str(uuid.UUID(found)) == found


@pytest.mark.parametrize(
    ("job", "beside", "attempts"),
    [
        ({}, BESIDE, 0),
        ({"attempt": 2, "state": "retryable"}, BESIDE, 2),
        ({"attempt": 2, "state": "active"}, BESIDE, 1),
        ({"attempt": 0, "state": "active"}, BESIDE, 0),
        ({"attempt": 1}, MessageProperties(attempts=3), 3),
        ({"attempt": True}, BESIDE, 0),
        ({"attempt": -4}, BESIDE, 0),
    ],
)
def test_attempts_are_the_most_that_anything_tells(job: Any, beside: MessageProperties, attempts: int) -> None:
    assert read(JOB | job, beside)["attempts"] == attempts


def test_the_time_comes_from_the_body_or_from_beside_or_from_the_id() -> None:
    bare = {name: said for name, said in JOB.items() if name != "created_at"}
    assert read(JOB)["meta"]["created_at"] == 1_749_132_727_000
    assert read(bare, MessageProperties(created_at=5))["meta"]["created_at"] == 5
    assert read(bare)["meta"]["created_at"] == int(V7.replace("-", "")[:12], 16)
    arrived = MessageProperties(enqueued_at=7)
    assert read(bare, arrived)["meta"]["created_at"] == int(V7.replace("-", "")[:12], 16)
    assert read(bare | {"id": "x"}, arrived)["meta"]["created_at"] == 7
    at = {"enqueued_at": "2025-06-05T14:12:07Z"}
    assert read(bare | {"id": "x"} | at, arrived)["meta"]["created_at"] == 1_749_132_727_000
    assert read(bare | {"id": "x", "enqueued_at": 5})["meta"]["created_at"] is None


@pytest.mark.parametrize(
    "change",
    [{"type": ""}, {"type": 5}, {"args": {}}, {"args": None}, {"specversion": "2.0"}, {"specversion": 1.0}],
)
def test_what_is_no_job_of_this_version_is_none(change: Any) -> None:
    assert attributes_of(compact(JOB | change), declared=True) is None


def test_a_body_without_version_is_a_job_only_where_its_content_type_says_so() -> None:
    body = compact({name: said for name, said in JOB.items() if name != "specversion"})
    assert attributes_of(body, declared=False) is None
    assert attributes_of(body, declared=True) is not None


@given(st.binary(max_size=40))
def test_reading_never_raises(body: bytes) -> None:
    assert attributes_of(body, declared=True) is None
    assert attributes_of(b"{" * 20_000 + body, declared=True) is None


@given(OBJECTS, TEXTS)
def test_whatever_a_job_holds_it_is_an_envelope_or_none(data: str, type_: str) -> None:
    body = f'{{"specversion":"1.0","type":{json.dumps(type_)},"args":[{data}]}}'.encode(errors="surrogatepass")
    job = attributes_of(body, declared=False)
    envelope = None if job is None else envelope_of(job, BESIDE)
    assert envelope is None or json.loads(envelope)["meta"]["queue"] == "orders"


def test_a_retry_changes_the_attempt_and_the_error_and_nothing_else() -> None:
    text = '{"specversion":"1.0","type":"a.b","args":[1.10],"x":1e2,"state":"active","attempt":1,"id":"i"}'
    job = attributes_of(text.encode(), declared=False)
    assert job is not None
    after = retried(job, 2, None, "OSError").decode()
    error = (("type", '"OSError"'), ("message", '"failed"'))
    assert dict(exact(after)) == dict(exact(text)) | {
        "attempt": "int 2",
        "state": "available",
        "error": tuple((name, json.loads(said)) for name, said in error),
    }


def test_a_discarded_job_comes_back_as_it_was() -> None:
    body = compact(JOB | {"x": 1})
    job = attributes_of(body, declared=False)
    assert job is not None
    block = {
        "reason": "failed",
        "error": "e",
        "exception": None,
        "failed_at": NOW,
        "original_queue": "orders",
        "attempts": 3,
    }
    dead = attributes_of(discarded(job, block), declared=False)
    assert dead is not None
    found = json.loads(discarded(job, block))
    assert (found["state"], found["attempt"], found["discarded_at"]) == ("discarded", 3, "2025-06-05T14:12:07.000Z")
    assert found["error"] == {"type": "failed", "message": "e"}
    assert found["dead_letter"] == block
    assert json.loads(revived(dead)) == JOB | {"x": 1, "state": "available", "attempt": 0}


def entry(job: Any) -> Any:
    return json.loads(as_entry(job if isinstance(job, bytes) else compact(job), "orders", lambda: NOW))


def test_a_published_job_is_an_entry_that_the_publish_api_takes() -> None:
    job = JOB | {"state": "completed", "attempt": 9, "priority": 5, "scheduled_at": "2025-06-05T14:12:17.500Z"}
    made = entry(job)
    assert made["deliver_at"] == NOW + 10_500
    assert made["envelope"]["attempts"] == 0
    assert made["envelope"]["meta"]["ext"]["ojs"] == {"priority": 5, "scheduled_at": job["scheduled_at"]}
    publication = read_publication(as_entry(compact(job), "orders", lambda: NOW), "orders", LIMITS, lambda: NOW)
    assert (publication.envelope.id, publication.deliver_at) == (V7, NOW + 10_500)


def test_a_published_job_may_leave_out_what_the_server_can_add() -> None:
    made = entry({"type": "email.send", "args": ["x"]})["envelope"]
    assert uuid.UUID(made["meta"]["id"]).version == 7
    assert (made["meta"]["queue"], made["meta"]["created_at"]) == ("orders", NOW)


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"type": " "}, "/type", "invalid_type"),
        ({"args": {}}, "/args", "invalid_args"),
        ({"specversion": "2.0"}, "/specversion", "unsupported_specversion"),
        ({"id": 5}, "/id", "invalid_id"),
        ({"id": "x" * 129}, "/id", "invalid_id"),
        (
            {
                "meta": {
                    "bq_schema_version": 1,
                    "bq_frame": {"before": "{", "after": "}", "attempts": 0, "spread": False},
                }
            },
            "/meta",
            "invalid_job",
        ),
        ({"meta": []}, "/meta", "invalid_meta"),
        ({"queue": "others"}, "/queue", "queue_mismatch"),
        ({"scheduled_at": "soon"}, "/scheduled_at", "invalid_scheduled_at"),
        ({"expires_at": "2025-06-05T14:12:07"}, "/expires_at", "invalid_expires_at"),
    ],
)
def test_a_bad_job_is_refused_with_the_place_in_it(change: Any, pointer: str, code: str) -> None:
    with pytest.raises(EnvelopeError) as refused:
        entry(JOB | change)
    assert [(problem.pointer, problem.code) for problem in refused.value.problems] == [(pointer, code)]


def test_numbers_and_strings_that_no_envelope_carries_are_refused_with_their_place() -> None:
    with pytest.raises(EnvelopeError) as refused:
        entry(b'{"type":"a","args":[{"a":1e400},"\\ud800"]}')
    assert [(problem.pointer, problem.code) for problem in refused.value.problems] == [
        ("/args/0/a", "number_out_of_range"),
        ("/args/1", "lone_surrogate"),
    ]


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"null"])
def test_what_is_no_object_is_a_syntax_error(body: bytes) -> None:
    with pytest.raises(EnvelopeSyntaxError):
        entry(body)


URN = {"meta": {"urn": "urn:babel:a:b", "trace_id": V7}}
TWO = {"args": [1, {"b": 2}]}


@pytest.mark.parametrize(
    ("changes", "place", "expected"),
    [
        ({}, "", ""),
        ({}, "/job", "/type"),
        (URN, "/job", "/meta/urn"),
        (URN, "/envelope/trace_id", "/meta/trace_id"),
        ({}, "/trace_id", ""),
        ({}, "/data/to", "/args/0/to"),
        ({}, "/envelope/data/a~1b", "/args/0/a~1b"),
        (TWO, "/data/args/1/b", "/args/1/b"),
        (TWO, "/data", "/args"),
        ({}, "/meta/created_at", "/created_at"),
        ({}, "/meta/lang", ""),
        ({}, "/meta/ext/ojs/tags/0", "/tags/0"),
        ({}, "/meta/ext/ojs/meta/note", "/meta/note"),
        ({}, "/meta/ext/mine", "/meta/ext/mine"),
        ({}, "/envelope", ""),
        ({}, "/envelope/attempts", ""),
        ({}, "/headers", ""),
        ({}, "/headers/traceparent", ""),
        ({}, "/delay_seconds", "/delay_seconds"),
        ({"scheduled_at": "2099-01-01T00:00:00Z"}, "/deliver_at", "/scheduled_at"),
        ({"expires_at": "2099-01-01T00:00:00Z"}, "/headers", "/expires_at"),
        ({}, "/ordering_key", "/ordering_key"),
    ],
)
def test_a_place_in_the_entry_is_one_in_the_job(changes: dict[str, Any], place: str, expected: str) -> None:
    assert places_in_job(json.dumps(JOB | changes).encode(), [place, place]) == [expected, expected]
