"""Events as envelopes and back: every attribute and the data of an event survive."""

from __future__ import annotations

import base64
import json
import re
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from babelgate.cloudevents import binary_entry, binary_of, event_of, structured_entry
from babelgate.cloudevents.binary import decoded
from babelgate.cloudevents.terms import is_json, is_text
from babelgate.envelope import inspect, read_publication
from babelgate.envelope.contract import is_id
from babelgate.envelope.contract import is_text as is_not_blank
from babelgate.errors import EnvelopeError, EnvelopeSyntaxError
from babelgate.jsontext import is_plain
from tests.unit.envelope.strategies import VALUES
from tests.unit.envelope.support import LIMITS, NOW

ADDED = {"bqtraceid", "bqacktoken", "bqleaseexpiresat", "bqattempts", "bqredelivered"}
TRACED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
EVENT: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "a.b", "traceparent": TRACED}

CHARACTERS = st.characters(exclude_categories=["Cc", "Cs"])
TEXTS = st.text(CHARACTERS, min_size=1, max_size=20).filter(lambda text: text.strip() != "")
URIS = TEXTS.map(lambda text: "".join(text.split()))
TYPES = st.sampled_from(
    ["application/json", "text/json; charset=utf-8", "application/a+json", "text/plain", "image/png"]
)
NAMES = st.from_regex(r"[a-z0-9]{1,20}", fullmatch=True).filter(
    lambda name: (
        name not in ("data", "partitionkey", "traceparent", *ADDED, *EVENT, "subject", "time")
        and name not in ("datacontenttype", "dataschema")
    )
)
EXTENSIONS = st.dictionaries(
    NAMES, st.one_of(st.text(CHARACTERS), st.booleans(), st.integers(-(2**31), 2**31 - 1)), max_size=3
)
OPTIONAL = st.fixed_dictionaries(
    {},
    optional={
        "subject": TEXTS,
        "dataschema": URIS,
        "datacontenttype": TYPES,
        "time": st.sampled_from(["2026-01-31T23:59:59Z", "1937-01-01T12:00:27.870000001+00:20"]),
        "partitionkey": TEXTS,
    },
)
REQUIRED = st.fixed_dictionaries(
    {"specversion": st.just("1.0"), "id": TEXTS, "source": URIS, "type": TEXTS.filter(is_not_blank)}
)


@st.composite
def events(draw: st.DrawFn) -> bytes:
    """Events as JSON text, with the data as one may write it."""
    attributes = draw(REQUIRED) | {"traceparent": TRACED} | draw(OPTIONAL) | draw(EXTENSIONS)
    text = json.dumps(attributes, ensure_ascii=draw(st.booleans()))[:-1]
    kind = draw(st.sampled_from(["none", "data", "base64"]))
    if kind == "data":
        text += f', "data": {draw(VALUES)}'
    elif kind == "base64":
        text += f', "data_base64": "{base64.b64encode(draw(st.binary(max_size=9))).decode()}"'
    return (text + "}").encode()


def envelope(entry: bytes) -> bytes:
    """The canonical envelope that is published for ``entry``."""
    return read_publication(entry, "orders", LIMITS, lambda: NOW).envelope.body


def delivered(body: bytes, **facts: Any) -> Any:
    """A message with this body."""
    trace_id = inspect(body, LIMITS).trace_id
    given = {"ack_token": "token", "lease_expires_at": NOW, "attempts": 0, "redelivered": False, "headers": {}}
    return SimpleNamespace(**given, body=body, trace_id=trace_id, **facts)


def received(body: bytes, **facts: Any) -> dict[str, Any]:
    """The event that a consumer of ``body`` gets, without what its delivery adds."""
    made: dict[str, Any] = json.loads(event_of(delivered(body, **facts), "orders"))
    assert made.keys() >= ADDED
    return {name: value for name, value in made.items() if name not in ADDED}


def again(event: dict[str, Any]) -> dict[str, Any]:
    return received(envelope(structured_entry(json.dumps(event).encode(), "orders", lambda: NOW)))


@given(events())
@example(b'{"specversion":"1.0","id":"1","source":"a","type":"b","traceparent":"%b","data":null}' % TRACED.encode())
@example(
    b'{"specversion":"1.0","id":"1","source":"a","type":"b","traceparent":"%b","data":{"n":1.10}}' % TRACED.encode()
)
def test_an_event_comes_back_as_it_was(text: bytes) -> None:
    assume(is_plain(text.decode()))
    body = envelope(structured_entry(text, "orders", lambda: NOW))
    sent = json.loads(text)
    if "data_base64" in sent and is_json(sent.get("datacontenttype", "a/b")):
        try:
            sent["data"] = json.loads(base64.b64decode(sent["data_base64"]))
            del sent["data_base64"]
        except ValueError:
            pass
    assert received(body) == sent
    found = inspect(body, LIMITS)
    assert found.job == sent["type"]
    assert found.id == sent["id"] or not is_id(sent["id"])
    assert found.trace_id == "0af76519-16cd-43dd-8448-eb211c80319c"


@given(events())
@example(b'{"specversion":"1.0","id":"\\u20ac 5%%","source":"a","type":"b","traceparent":"%b"}' % TRACED.encode())
def test_the_binary_mode_has_all_attributes_as_headers_and_the_data_as_the_body(text: bytes) -> None:
    assume(is_plain(text.decode()))
    headers, body = binary_of(delivered(envelope(structured_entry(text, "orders", lambda: NOW))), "orders")
    sent = json.loads(text)
    assert all(re.fullmatch("[!-~]*", value) for name, value in headers if name != "content-type")
    written = {name.removeprefix("ce-"): decoded(value.encode()) for name, value in headers if name.startswith("ce-")}
    given = dict(headers).get("content-type")
    kind = sent.pop("datacontenttype", None)
    # A header has no blank at its end.
    kind = None if kind is None else kind.rstrip()
    data, encoded = sent.pop("data", ...), sent.pop("data_base64", None)
    shown = {name: json.dumps(value) if isinstance(value, bool | int) else value for name, value in sent.items()}
    assert {name: value for name, value in written.items() if name not in ADDED} == shown
    assert written.keys() & ADDED == {"bqtraceid", "bqattempts", "bqredelivered"}
    if encoded is not None:
        wanted = base64.b64decode(encoded)
        is_value = is_json(kind) and body != wanted
        assert json.loads(body) == json.loads(wanted) if is_value else body == wanted
        assert given == kind or (kind, given) == (None, "application/json")
    elif data is ...:
        assert (body, given) == (b"", kind)
    else:
        assert body == data.encode() if isinstance(data, str) and not is_json(kind) else json.loads(body) == data
        assert given == (kind or "application/json")


@pytest.mark.parametrize(
    ("ext", "data", "kind", "body"),
    [
        ({"data": "body_base64"}, {"body_base64": "?"}, "image/png", b'"?"'),
        ({"data": "body"}, {"body": 5}, "text/plain", b"5"),
        ({"data": "body"}, {"body": "5"}, "text/plain ; a=5 ", b"5"),
        ({"data": "body"}, {"body": "\u00fc"}, "text/plain; a=\u00fc", "\u00fc".encode()),
    ],
)
def test_the_binary_mode_of_a_foreign_message(ext: Any, data: Any, kind: str, body: bytes) -> None:
    kept = {"source": "/shop", "datacontenttype": kind, **ext}
    text = json.dumps({**FOREIGN, "data": data, "meta": {**FOREIGN["meta"], "ext": {"cloudevents": kept}}})
    headers, written = binary_of(delivered(text.encode()), "orders")
    assert (dict(headers)["content-type"], written) == (kind.partition("; a=\u00fc")[0].rstrip(), body)


def test_a_number_that_python_refuses_is_no_attribute() -> None:
    """A foreign message may have one in the place of the attributes."""
    kept = json.dumps({**EVENT, "small": 5, "least": -(2**31)})[:-1] + f', "large": {"9" * 5000}}}'
    meta = '"id": "1", "queue": "orders", "lang": "python", "schema_version": 1, "created_at": 1'
    head = '"job": "a.b", "trace_id": "0af76519-16cd-43dd-8448-eb211c80319c", "data": {}, "attempts": 0'
    body = f'{{{head}, "meta": {{{meta}, "ext": {{"cloudevents": {kept}}}}}}}'.encode()
    event = received(body)
    assert (event["source"], event["small"], event["least"]) == ("/shop", 5, -(2**31))
    assert "large" not in event


def test_numbers_keep_their_digits() -> None:
    text = json.dumps(EVENT)[:-1] + ', "data": {"n": 1.10, "m": 12345678901234567890123}}'
    assert b'"data":{"n":1.10,"m":12345678901234567890123}' in envelope(
        structured_entry(text.encode(), "orders", lambda: NOW)
    )


@given(st.text(CHARACTERS), st.text(CHARACTERS, min_size=1).filter(lambda text: text.strip() != ""))
def test_headers_are_read_as_an_sdk_writes_them(extension: str, subject: str) -> None:
    fields = {b"ce-" + name.encode(): value.encode() for name, value in EVENT.items()}
    fields |= {b"ce-ext": quote(extension, safe="").encode(), b"ce-subject": quote(subject, safe=" /").encode()}
    fields |= {b"content-type": b"application/json", b"x-other": b"1"}
    made = received(envelope(binary_entry(fields, b'{"n":1}', "orders", lambda: NOW)))
    assert made == EVENT | {"ext": extension, "datacontenttype": "application/json", "data": {"n": 1}} | {
        "subject": subject.strip(" ") if subject != subject.strip(" ") else subject
    }


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (b"Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro € 😀"),
        (b"%e2%82%ac", "€"),
        (b'"a \\"b\\" \\\\ %41"', 'a "b" \\ A'),
        (b'" kept "', " kept "),
        (b"  trimmed\t", "trimmed"),
        (b'"', '"'),
        (b"5%", "5%"),
        (b"%zz%4", "%zz%4"),
        (b"%2525", "%25"),
        (b"", ""),
    ],
)
def test_a_header_is_unquoted_and_then_decoded_once(written: bytes, text: str) -> None:
    assert decoded(written) == text


@pytest.mark.parametrize("written", [b"%ff", b"\xff", b"%ed%a0%80"])
def test_a_header_that_is_no_utf8_is_refused(written: bytes) -> None:
    with pytest.raises(UnicodeDecodeError):
        decoded(written)


@pytest.mark.parametrize(
    ("content_type", "json_", "text"),
    [
        ("application/json", True, False),
        ("Application/JSON;charset=utf-8", True, False),
        ("text/json", True, True),
        ("application/vnd.example.v1+json", True, False),
        ("application/json5", False, False),
        ("application/jsonl", False, False),
        ("text/plain", False, True),
        ('text/plain; charset="UTF-8"', False, True),
        ("text/plain;charset=latin1", False, False),
        ("application/soap+xml", False, True),
        ("application/xmlx", False, False),
        ("image/png", False, False),
    ],
)
def test_which_types_are_json_or_text(content_type: str, json_: bool, text: bool) -> None:
    assert (is_json(content_type), is_text(content_type)) == (json_, text)


def test_every_problem_is_reported() -> None:
    with pytest.raises(EnvelopeError) as refused:
        structured_entry(b'{"id":"","time":"now","A":1,"x":1.5,"data":1,"data_base64":"?"}', "orders", lambda: NOW)
    assert [(each.pointer, each.code) for each in refused.value.problems] == [
        ("/specversion", "missing_attribute"),
        ("/id", "missing_attribute"),
        ("/source", "missing_attribute"),
        ("/type", "missing_attribute"),
        ("/time", "invalid_time"),
        ("/A", "invalid_attribute_name"),
        ("/x", "invalid_attribute"),
        ("/data_base64", "invalid_event_data"),
    ]


def test_no_more_than_a_hundred_problems_are_reported() -> None:
    body = json.dumps(EVENT | {f"A{n}": n for n in range(500)}).encode()
    with pytest.raises(EnvelopeError) as refused:
        structured_entry(body, "orders", lambda: NOW)
    assert len(refused.value.problems) == 100


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"a":NaN}', b"\xef\xbb\xbf{}"])
def test_what_is_no_json_object_is_a_syntax_error(body: bytes) -> None:
    with pytest.raises(EnvelopeSyntaxError):
        structured_entry(body, "orders", lambda: NOW)


def test_a_deep_event_is_refused() -> None:
    body = json.dumps(EVENT)[:-1].encode() + b',"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(EnvelopeError) as refused:
        structured_entry(body, "orders", lambda: NOW)
    assert refused.value.problem_code in ("too_deep", "invalid_json")


FOREIGN: dict[str, Any] = {
    "job": "urn:babel:a:b",
    "trace_id": "7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b",
    "data": {"n": 1},
    "meta": {"id": "x", "queue": "orders", "lang": "php", "schema_version": 1, "created_at": 1_700_000_000_000},
    "attempts": 0,
}
ITS_EVENT = {
    "specversion": "1.0",
    "id": "x",
    "source": "/queues/orders",
    "type": "urn:babel:a:b",
    "time": "2023-11-14T22:13:20.000Z",
    "datacontenttype": "application/json",
    "traceparent": "00-7b3f9c2ae41d4f889b2a1c0d5e6f7a8b-980c512d6f4a8fba-01",
    "data": {"n": 1},
}


@pytest.mark.parametrize(
    "ext",
    [
        None,
        {},
        [],
        {"cloudevents": None},
        {"cloudevents": []},
        {"cloudevents": {}},
        {"cloudevents": {"subject": "a"}},
        {"cloudevents": {"source": ""}},
        {"cloudevents": {"source": 1}},
        {"cloudevents": {"source": None, "data": "body"}},
    ],
)
def test_a_message_that_is_no_event_is_one_of_its_queue(ext: Any) -> None:
    body = json.dumps(FOREIGN | {"meta": {**FOREIGN["meta"], "ext": ext}}).encode()
    assert received(body) == ITS_EVENT


def test_foreign_attributes_that_no_event_has_are_left_out() -> None:
    kept = {"source": "/a", "type": "other", "Bad": 1, "list": [1], "time": "now", "good": 1, "data": "body"}
    body = json.dumps(FOREIGN | {"meta": {**FOREIGN["meta"], "ext": {"cloudevents": kept}}}).encode()
    made = {name: value for name, value in ITS_EVENT.items() if name not in ("time", "datacontenttype")}
    assert received(body) == made | {"source": "/a", "good": 1}


@pytest.mark.parametrize(
    ("change", "event"),
    [
        ({"job": None, "urn": "urn:babel:a:b"}, {}),
        ({"meta": {"schema_version": 1}}, {"id": None, "time": None}),
        ({"\ud800": 1}, {}),
        ({"trace_id": "\ud800"}, {"traceparent": None}),
        ({"meta": {**FOREIGN["meta"], "ext": {"\ud800": 1}}}, {}),
        ({"data": {"\ud800": "\udc00"}}, {"data": {"\ud800": "\udc00"}}),
    ],
)
def test_any_body_that_is_handed_out_can_be_an_event(change: Any, event: Any) -> None:
    made = received(json.dumps(FOREIGN | change).encode())
    for name, value in (ITS_EVENT | event).items():
        if value is not None:
            assert made[name] == value
    assert made["id"] and ("time" in made) == ("time" not in event)


def test_an_edited_message_is_the_event_of_its_new_data() -> None:
    body = envelope(structured_entry(json.dumps(EVENT | {"data": [1]}).encode(), "orders", lambda: NOW))
    edited = msgspec.json.decode(body) | {"data": {"new": 1}}
    assert received(json.dumps(edited).encode()) == EVENT | {"data": {"new": 1}}
