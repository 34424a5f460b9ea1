"""CloudEvents on the publish and receive endpoints, for a queue on any broker."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.harness.problems import problem

ONE, MANY = "application/cloudevents+json", "application/cloudevents-batch+json"
EVENT: dict[str, Any] = {
    "specversion": "1.0",
    "id": "A234-1234-1234",
    "source": "https://example.com/shop",
    "type": "com.example.order.created",
    "subject": "order/4711",
    "time": "2026-04-05T17:31:00.123456789+02:00",
    "dataschema": "https://example.com/schemas/order.json",
    "datacontenttype": "application/json",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "comexampleextension": "värde",
    "othervalue": 5,
    "urgent": True,
    "data": {"sum": 1, "items": [1.10]},
}
ADDED = {"bqtraceid", "bqacktoken", "bqleaseexpiresat", "bqattempts", "bqredelivered"}


@pytest.fixture
def send(client, queue):
    """A function that publishes an event in the JSON format, or several as a batch."""

    async def publish(body, verb="", **headers) -> httpx.Response:
        kind = MANY if isinstance(body, list) else ONE
        return await client.post(
            f"/queues/{queue}/messages{verb}", content=json.dumps(body), headers={"content-type": kind} | headers
        )

    return publish


@pytest.fixture
def post(client, queue):
    """A function that publishes an event in the binary mode."""

    async def publish(content: bytes, verb="", **headers) -> httpx.Response:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return await client.post(f"/queues/{queue}/messages{verb}", content=content, headers=given)

    return publish


@pytest.fixture
def take(client, queue):
    """A function that receives the events of a queue, without what a delivery adds."""

    async def receive(own=True) -> list[dict[str, Any]]:
        answer = await client.post(
            f"/queues/{queue}/messages:receive", params={"max_messages": 100}, headers={"accept": MANY}
        )
        assert (answer.status_code, answer.headers["content-type"]) == (200, MANY)
        assert answer.headers["cache-control"] == "no-store"
        return [own_part(event) if own else event for event in answer.json()]

    return receive


def own_part(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in ADDED}


async def envelopes(client, queue):
    answer = await client.post(f"/queues/{queue}/messages:receive", params={"max_messages": 100})
    return [message["envelope"] for message in answer.json()["messages"]]


def binary(event: dict[str, Any]) -> dict[str, str]:
    """The headers of an event without ``data`` and ``datacontenttype``."""
    attributes = {name: str(value) for name, value in event.items() if name not in ("data", "datacontenttype")}
    return {f"ce-{name}": quote(value, safe=":/+.-") for name, value in attributes.items()}


async def test_an_event_becomes_an_envelope(client, queue, send):
    answer = await send(EVENT)
    assert answer.status_code == 201
    (envelope,) = await envelopes(client, queue)
    assert (envelope["job"], envelope["data"], envelope["attempts"]) == (EVENT["type"], EVENT["data"], 0)
    assert envelope["meta"]["id"] == answer.json()["id"] == EVENT["id"]
    assert envelope["trace_id"] == answer.json()["trace_id"] == "0af76519-16cd-43dd-8448-eb211c80319c"
    kept = {name: value for name, value in EVENT.items() if name not in ("type", "id", "data")}
    assert envelope["meta"]["ext"] == {"cloudevents": kept}


async def test_what_was_published_as_an_event_is_received_as_the_same_event(send, take):
    assert (await send(EVENT)).status_code == 201
    assert await take() == [EVENT]


async def test_a_delivery_of_an_event_is_settled_with_its_token(client, queue, send):
    await send(EVENT)
    url = f"/queues/{queue}/messages"
    first = await client.post(f"{url}:receive", headers={"accept": ONE})
    assert (first.status_code, first.headers["content-type"]) == (200, ONE)
    event = first.json()
    assert own_part(event) == EVENT
    assert (event["bqattempts"], event["bqredelivered"]) == (0, False)
    assert event["bqacktoken"] == first.headers["ack-token"]
    assert event["bqleaseexpiresat"].endswith("Z")
    nacked = {"ack_tokens": [event["bqacktoken"]], "delay_seconds": 0}
    assert (await client.post(f"{url}:nack", json=nacked)).status_code == 200
    (again,) = (await client.post(f"{url}:receive", headers={"accept": MANY})).json()
    assert (again["bqattempts"], again["bqredelivered"]) == (1, True)
    assert (await client.post(f"{url}:ack", json={"ack_tokens": [again["bqacktoken"]]})).status_code == 200
    assert (await client.post(f"{url}:receive", headers={"accept": ONE})).status_code == 204
    assert (await client.post(f"{url}:receive", headers={"accept": MANY})).json() == []


async def test_one_event_is_asked_for_alone(client, queue):
    answer = await client.post(f"/queues/{queue}/messages:receive", params={"max_messages": 2}, headers={"accept": ONE})
    refused = problem(answer, 400, "invalid_parameter")
    assert MANY in refused["detail"]


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({}, {}),
        ({"data": None}, {"content_type": "application/json", "body": None}),
        ({"data": [1, 2.50]}, {"content_type": "application/json", "body": [1, 2.5]}),
        ({"data": "text"}, {"content_type": "application/json", "body": "text"}),
        ({"data": {"body": 1}}, {"body": 1}),
        ({"data": "<a/>", "datacontenttype": "text/xml"}, {"content_type": "text/xml", "body": "<a/>"}),
        (
            {"data_base64": "AAEC/w==", "datacontenttype": "image/png"},
            {"content_type": "image/png", "body_base64": "AAEC/w=="},
        ),
        ({"data_base64": "AAEC"}, {"content_type": "application/json", "body_base64": "AAEC"}),
    ],
    ids=["none", "null", "array", "string", "an object like ours", "xml", "binary", "binary without a type"],
)
async def test_data_of_any_kind_comes_back(client, queue, send, take, given, stored):
    event = {name: EVENT[name] for name in ("specversion", "id", "source", "type", "traceparent")} | given
    await send(event)
    await send(event)
    answer = await client.post(f"/queues/{queue}/messages:receive")
    assert answer.json()["messages"][0]["envelope"]["data"] == stored
    assert await take() == [event]


async def test_json_in_base64_is_json(send, take):
    text = base64.b64encode(b'{"sum": 1}').decode()
    event = {name: value for name, value in EVENT.items() if name != "data"}
    await send(event | {"data_base64": text})
    assert await take() == [event | {"data": {"sum": 1}}]


async def test_an_event_in_the_binary_mode_is_the_same_event(post, take):
    headers = binary(EVENT) | {"content-type": "application/json"}
    assert (await post(json.dumps(EVENT["data"]).encode(), **headers)).status_code == 201
    assert await take() == [EVENT | {"othervalue": "5", "urgent": "True"}]


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro € 😀"),
        ('"quoted \\"text\\""', 'quoted "text"'),
        ('"a%22b"', 'a"b'),
        ("100%", "100%"),
        ("%2525", "%25"),
    ],
)
async def test_headers_are_unquoted_then_decoded_once(post, take, value, read):
    await post(b"{}", **binary(EVENT) | {"ce-subject": value})
    assert [event["subject"] for event in await take()] == [read]


@pytest.mark.parametrize(
    ("kind", "content", "member"),
    [
        ("text/plain; charset=utf-8", "grüß".encode(), {"data": "grüß"}),
        ("text/plain; charset=latin1", "grüß".encode("latin1"), {"data_base64": "Z3L83w=="}),
        ("application/xml", b"<a/>", {"data": "<a/>"}),
        ("application/octet-stream", b"\x00\xff", {"data_base64": "AP8="}),
        ("application/vnd.example+json", b"[1, 2]", {"data": [1, 2]}),
        ("application/json", b"", {}),
    ],
)
async def test_the_body_of_the_binary_mode_is_the_data(post, take, kind, content, member):
    assert (await post(content, **binary(EVENT) | {"content-type": kind})).status_code == 201
    (event,) = await take()
    found = {name: value for name, value in event.items() if name in ("data", "data_base64", "datacontenttype")}
    assert found == member | {"datacontenttype": kind}


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"id": None}, "/id", "missing_attribute"),
        ({"source": ""}, "/source", "missing_attribute"),
        ({"type": 1}, "/type", "invalid_attribute"),
        ({"specversion": "0.3"}, "/specversion", "unsupported_specversion"),
        ({"time": "yesterday"}, "/time", "invalid_time"),
        ({"time": "2026-02-30T00:00:00Z"}, "/time", "invalid_time"),
        ({"datacontenttype": "json"}, "/datacontenttype", "invalid_attribute"),
        ({"source": "my shop"}, "/source", "invalid_attribute"),
        ({"Bad_Name": 1}, "/Bad_Name", "invalid_attribute_name"),
        ({"list": [1]}, "/list", "invalid_attribute"),
        ({"large": 2**31}, "/large", "invalid_attribute"),
        ({"subject": "a\nb"}, "/subject", "invalid_attribute"),
        ({"data_base64": "AAEC"}, "/data_base64", "invalid_event_data"),
        ({"partitionkey": "k" * 2000}, "/partitionkey", "invalid_ordering_key"),
    ],
)
async def test_a_bad_event_names_the_place(client, queue, send, change, pointer, code):
    for body, verb in ((EVENT | change, ""), (EVENT | change, ":validate")):
        refused = problem(await send(body, verb), 422, code)
        assert [(each["pointer"], each["code"]) for each in refused["errors"]] == [(pointer, code)]
    for verb in ("", ":batch"):
        answer = await send([EVENT, EVENT | change], verb)
        assert answer.status_code == 207
        first, second = answer.json()["results"]
        assert (first["status"], second["status"], second["code"]) == (201, 422, code)
        assert second["errors"][0]["pointer"] == pointer
    assert len(await envelopes(client, queue)) == 2


async def test_data_that_not_every_language_reads_names_the_place(send, post):
    refused = problem(await send(EVENT | {"data": {"n": "\ud800"}}), 422, "lone_surrogate")
    assert [each["pointer"] for each in refused["errors"]] == ["/data/n"]
    headers = binary(EVENT) | {"content-type": "application/json"}
    problem(await post(b'{"n": 1e400}', **headers), 422, "invalid_event_data")


@pytest.mark.parametrize(
    ("change", "content", "header", "code"),
    [
        ({"ce-id": ""}, b"{}", "ce-id", "missing_attribute"),
        ({"ce-time": "now"}, b"{}", "ce-time", "invalid_time"),
        ({"ce-bad_name": "1"}, b"{}", "ce-bad_name", "invalid_attribute_name"),
        ({"ce-subject": "%FF"}, b"{}", "ce-subject", "invalid_attribute"),
        ({"ce-datacontenttype": "text/xml"}, b"{}", "ce-datacontenttype", "invalid_attribute_name"),
        ({"content-type": "json"}, b"{}", "Content-Type", "invalid_attribute"),
        ({}, b"{", None, "invalid_event_data"),
        ({"ce-partitionkey": "k" * 2000}, b"{}", "ce-partitionkey", "invalid_ordering_key"),
    ],
)
async def test_a_bad_event_of_the_binary_mode_names_the_header(client, queue, post, change, content, header, code):
    headers = binary(EVENT) | {"content-type": "application/json"} | change
    for verb in ("", ":validate"):
        answer = await client.post(f"/queues/{queue}/messages{verb}", content=content, headers=headers)
        errors = problem(answer, 422, code)["errors"]
        assert (errors[0]["code"], errors[0].get("header")) == (code, header)
    assert await envelopes(client, queue) == []
    if header is None:
        return
    repeated = [*headers.items(), ("ce-subject", "another")]
    answer = await client.post(f"/queues/{queue}/messages", content=content, headers=repeated)
    assert problem(answer, 422, "invalid_attribute")["errors"][0]["header"] == "ce-subject"


async def test_a_missing_required_attribute_does_not_make_the_body_a_draft(client, queue):
    for name in ("specversion", "id", "source", "type"):
        headers = {"content-type": "application/json", "ce-" + name: EVENT[name]}
        answer = await client.post(f"/queues/{queue}/messages", json={"job": "a", "data": {}}, headers=headers)
        assert len(problem(answer, 422, "missing_attribute")["errors"]) == 3


async def test_other_formats_are_refused_with_the_known_ones(client, queue, send):
    url = f"/queues/{queue}/messages"
    for kind in ("application/cloudevents+xml", "application/cloudevents"):
        answer = await client.post(url, content=b"<a/>", headers={"content-type": kind})
        assert ONE in problem(answer, 415, "unsupported_media_type")["detail"]
    assert MANY in problem(await send(EVENT, ":batch"), 415, "unsupported_media_type")["detail"]
    assert problem(await send([EVENT], ":validate"), 415, "unsupported_media_type")
    assert problem(await send(EVENT, ":validate?mode=consume"), 415, "unsupported_media_type")


async def test_an_id_that_no_envelope_has_is_kept_beside_a_stable_one(client, queue, send, take):
    event = EVENT | {"id": "ordre №1 " + "x" * 200}
    ids = {(await send(event)).json()["id"] for _ in range(2)}
    assert len(ids) == 1 and len(ids.pop()) == 36
    assert await take() == [event, event]


async def test_another_message_is_an_event_of_its_queue(client, queue, take):
    draft = {"job": "urn:babel:emails:send", "data": {"to": "ada@example.com"}, "meta": {"ext": {"shop": {"a": 1}}}}
    receipt = (await client.post(f"/queues/{queue}/messages", json=draft)).json()
    (event,) = await take(own=False)
    assert (event["id"], event["bqtraceid"]) == (receipt["id"], receipt["trace_id"])
    assert (event["source"], event["type"]) == (f"/queues/{queue}", draft["job"])
    assert (event["data"], event["datacontenttype"]) == (draft["data"], "application/json")
    assert event["traceparent"].split("-")[1] == receipt["trace_id"].replace("-", "")


async def test_a_received_event_can_be_published_again(client, queue, send, take):
    await send(EVENT)
    (event,) = await take(own=False)
    assert (await send(event)).status_code == 201
    (envelope,) = await envelopes(client, queue)
    assert not ADDED & envelope["meta"]["ext"]["cloudevents"].keys()
    assert envelope["trace_id"] == event["bqtraceid"]


@pytest.mark.parametrize("form", [ONE, MANY])
async def test_a_mistake_of_ours_leaves_the_messages_to_the_next(client, queue, send, take, monkeypatch, form):
    def mistaken(*_):
        raise ValueError("a mistake")

    await send([EVENT, EVENT])
    with monkeypatch.context() as patched:
        patched.setattr("babelgate.http.consume.event_of", mistaken)
        answer = await client.post(f"/queues/{queue}/messages:receive", headers={"accept": form})
        problem(answer, 500, "internal_error")
    assert await take() == [EVENT, EVENT]


async def test_an_idempotency_key_stands_for_one_event(client, queue, post):
    headers = binary(EVENT) | {"idempotency-key": "once"}
    first, second = [await post(b"{}", **headers) for _ in range(2)]
    assert (first.status_code, second.json()) == (201, first.json())
    assert second.headers["idempotency-replayed"] == "true"
    problem(await post(b"{}", **headers | {"ce-subject": "another"}), 422, "idempotency_key_reused")
    assert len(await envelopes(client, queue)) == 1


async def test_id_and_source_are_no_idempotency_key(send, take):
    assert [(await send(EVENT)).status_code for _ in range(2)] == [201, 201]
    assert len(await take()) == 2


async def test_a_partition_key_is_the_ordering_key(send, take):
    shown = (await send(EVENT | {"partitionkey": "customer-42"}, ":validate")).json()
    assert shown["ordering_key"] == "customer-42"
    await send(EVENT | {"partitionkey": "customer-42"})
    assert await take() == [EVENT | {"partitionkey": "customer-42"}]
    refused = problem(await send(EVENT | {"partitionkey": "a"}, "?ordering_key=b"), 422, "ordering_key_mismatch")
    assert refused["errors"][0]["pointer"] == "/partitionkey"


async def test_rights_come_before_the_event(serve, connect, token_config, queue):
    app = await serve(auth=token_config(reader={"*": ["listen"]}))
    client = await connect(app, "reader")
    for verb, kind in (("", ONE), ("", MANY), (":batch", MANY), (":validate", ONE)):
        answer = await client.post(f"/queues/{queue}/messages{verb}", content=b"[]", headers={"content-type": kind})
        problem(answer, 403, "forbidden")
