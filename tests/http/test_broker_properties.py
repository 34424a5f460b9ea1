"""Broker properties: in a body, in the header of a request, and in what a receive answers."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from babelgate.brokers.servicebus.properties import PROPERTIES, READ_ONLY, WRITABLE
from babelgate.gateway.ack_tokens import TokenKey, TokenSealer
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.routing import Router, Rule
from babelgate.http.api import create_api
from babelgate.http.auth import Auth
from babelgate.http.body import RequestLimits
from babelgate.http.consume import MAX_HEADERS_BYTES
from tests.harness.memory import MemoryBinding, lacking
from tests.harness.problems import problem

DRAFT: dict[str, Any] = {"job": "urn:babel:test:made", "data": {"n": 1}}
GIVEN = {"SessionId": "é", "TimeToLive": 60, "ScheduledEnqueueTimeUtc": "Tue, 24 Nov 2026 10:00:00 GMT"}
READ = {"SessionId": "é", "TimeToLive": 60.0, "ScheduledEnqueueTimeUtc": 1_795_514_400_000}
RECEIVED = {**GIVEN, "TimeToLive": 60.0, "DeliveryCount": 1}
BARE = {"accept": "application/vnd.babelqueue.envelope+json"}
NDJSON = {"content-type": "application/x-ndjson"}


@pytest.fixture
def binding():
    """A broker that has every broker property."""
    return MemoryBinding(capabilities=lacking(broker_properties=PROPERTIES))


@pytest.fixture
async def capable(binding, connect):
    """A client of a gateway in front of it."""
    gateway = Gateway({"memory": binding}, Router([], Rule("*", binding)), TokenSealer([TokenKey("k", bytes(32))]))
    await gateway.start()
    yield await connect(create_api(gateway, auth=Auth(), limits=RequestLimits()))
    await gateway.close()


def header(properties):
    text = properties if isinstance(properties, str | bytes) else json.dumps(properties)
    return {"BrokerProperties": text}


@pytest.mark.parametrize("way", ["draft", "entry", "header", "both", "array", "ndjson", "job"])
async def test_they_reach_the_broker(capable, binding, queue, way):
    url, headers = f"/queues/{queue}/messages", {}
    body: Any = DRAFT | {"broker_properties": GIVEN}
    if way == "entry":
        body = {"envelope": DRAFT, "broker_properties": GIVEN}
    elif way == "header":
        body, headers = DRAFT, header(GIVEN)
    elif way == "both":
        headers = header({**GIVEN, "ScheduledEnqueueTimeUtc": "2026-11-24T10:00:00Z"})
    elif way == "array":
        url, body = f"{url}:batch", [body]
    elif way == "ndjson":
        url, headers = f"{url}:batch", NDJSON
    elif way == "job":
        body, headers = {"type": "a", "args": []}, header(GIVEN) | {"content-type": "application/openjobspec+json"}
    answer = await capable.post(url, content=json.dumps(body), headers=headers)
    assert answer.status_code == 201, answer.text
    (sent,) = binding.ready(queue)
    assert sent.properties == READ
    assert b"SessionId" not in sent.body


async def test_a_receive_returns_them(capable, queue, client):
    url = f"/queues/{queue}/messages"
    for body in (DRAFT, DRAFT | {"broker_properties": {}}, DRAFT | {"broker_properties": GIVEN}):
        assert (await capable.post(url, json=body)).status_code == 201
    messages = (await capable.post(f"{url}:receive?max_messages=3")).json()["messages"]
    assert [message.get("broker_properties") for message in messages] == [None, None, RECEIVED]
    assert list(messages[2]) == [*messages[0], "broker_properties"]
    document = (await client.get("/openapi.json")).json()
    schema = {"$ref": "#/components/schemas/ReceivedMessage", "components": document["components"]}
    for message in messages:
        jsonschema.Draft202012Validator(schema).validate(message)


async def test_a_bare_envelope_has_them_in_a_header(capable, queue):
    url = f"/queues/{queue}/messages"
    for body in (DRAFT, DRAFT | {"broker_properties": GIVEN}):
        assert (await capable.post(url, json=body)).status_code == 201
    assert "brokerproperties" not in (await capable.get(f"{url}:receive", headers=BARE)).headers
    answer = await capable.get(f"{url}:receive", headers=BARE)
    text = answer.headers["BrokerProperties"]
    assert json.loads(text) == RECEIVED
    assert text.isascii() and ", " not in text.replace(GIVEN["ScheduledEnqueueTimeUtc"], "")
    long = {"To": "x" * MAX_HEADERS_BYTES}
    assert (await capable.post(url, json=DRAFT | {"broker_properties": long})).status_code == 201
    assert "brokerproperties" not in (await capable.get(f"{url}:receive", headers=BARE)).headers


async def test_a_dry_run_shows_them(capable, queue):
    url = f"/queues/{queue}/messages:validate"
    for body, headers in ((DRAFT | {"broker_properties": GIVEN}, {}), (DRAFT, header(GIVEN))):
        (write,) = (await capable.post(url, json=body, headers=headers)).json()["writes"]
        assert write["fields"] == READ


async def test_the_capabilities_name_them(capable, client, queue):
    for asked, names in ((capable, sorted(WRITABLE)), (client, [])):
        shown = (await asked.get(f"/queues/{queue}")).json()["capabilities"]
        assert shown["broker_properties"] == names


@pytest.mark.parametrize(
    ("properties", "code", "at"),
    [
        ({"TimeToLive": 0}, "invalid_broker_properties", "/TimeToLive"),
        ({"TimeToLive": "60"}, "invalid_broker_properties", "/TimeToLive"),
        ({"ReplyTo": " "}, "invalid_broker_properties", "/ReplyTo"),
        ({"To": 5}, "invalid_broker_properties", "/To"),
        ({"ReplyToSessionId": "x" * 129}, "invalid_broker_properties", "/ReplyToSessionId"),
        ({"PartitionKey": ""}, "invalid_broker_properties", "/PartitionKey"),
        ({"SessionId": []}, "invalid_broker_properties", "/SessionId"),
        ({"ScheduledEnqueueTimeUtc": "tomorrow"}, "invalid_broker_properties", "/ScheduledEnqueueTimeUtc"),
        ({"SessionId": "a", "PartitionKey": "b"}, "broker_properties_mismatch", "/PartitionKey"),
        ({"ForcePersistence": True}, "unknown_member", "/ForcePersistence"),
        *(({name: "x"}, "read_only_property", f"/{name}") for name in READ_ONLY),
    ],
)
async def test_a_refusal_names_the_property(capable, binding, queue, properties, code, at):
    url = f"/queues/{queue}/messages"
    wrong = {"broker_properties": properties}
    for path in (url, f"{url}:validate"):
        for body, headers in ((DRAFT | wrong, {}), ({"envelope": DRAFT} | wrong, {}), (DRAFT, header(properties))):
            refused = problem(await capable.post(path, json=body, headers=headers), 422, code)
            assert [each["pointer"] for each in refused["errors"]] == [f"/broker_properties{at}"]
            assert [each.get("header") for each in refused["errors"]] == ["BrokerProperties" if headers else None]
            assert at[1:] in refused["detail"] or code == "unknown_member"
    for content, headers in ((json.dumps([DRAFT | wrong]), {}), (json.dumps(DRAFT | wrong), NDJSON)):
        answer = await capable.post(f"{url}:batch", content=content, headers=headers)
        (result,) = answer.json()["results"]
        assert (answer.status_code, result["status"], result["code"]) == (207, 422, code)
        assert result["errors"][0]["pointer"] == f"/broker_properties{at}"
    assert binding.ready(queue) == []


@pytest.mark.parametrize(
    ("properties", "other", "at"),
    [
        ({"SessionId": "a"}, {"ordering_key": "b"}, "/SessionId"),
        ({"PartitionKey": "a"}, {"ordering_key": "b"}, "/PartitionKey"),
        ({"ScheduledEnqueueTimeUtc": "2026-11-24T10:00:00Z"}, {"delay_seconds": 60}, "/ScheduledEnqueueTimeUtc"),
        ({"ScheduledEnqueueTimeUtc": "2026-11-24T10:00:00Z"}, {"delay_seconds": 0}, "/ScheduledEnqueueTimeUtc"),
    ],
)
async def test_they_must_not_contradict_another_option(capable, binding, queue, properties, other, at):
    url, given = f"/queues/{queue}/messages", {"broker_properties": properties}
    tries = [(DRAFT | given | other, {}, {}), (DRAFT | given, other, {}), (DRAFT | other, {}, header(properties))]
    for body, query, headers in tries:
        answer = await capable.post(url, json=body, params=query, headers=headers)
        refused = problem(answer, 422, "broker_properties_mismatch")
        assert [each["pointer"] for each in refused["errors"]] == [f"/broker_properties{at}"]
    same = {"broker_properties": {"SessionId": "a", "PartitionKey": "a"}, "ordering_key": "a"}
    assert (await capable.post(url, json=DRAFT | same)).status_code == 201
    assert len(binding.ready(queue)) == 1


async def test_a_time_in_the_past_is_taken(capable, queue):
    past = {"broker_properties": {"ScheduledEnqueueTimeUtc": "Sun, 06 Nov 1994 08:49:37 GMT"}}
    assert (await capable.post(f"/queues/{queue}/messages", json=DRAFT | past)).status_code == 201


@pytest.mark.parametrize("other", [{"SessionId": "b"}, {}, {"SessionId": "a", "To": "b"}])
async def test_body_and_header_must_be_equal(capable, binding, queue, other):
    url = f"/queues/{queue}/messages"
    for path in (url, f"{url}:validate"):
        body = DRAFT | {"broker_properties": {"SessionId": "a"}}
        refused = problem(await capable.post(path, json=body, headers=header(other)), 422, "broker_properties_mismatch")
        assert refused["errors"][0]["pointer"] == "/broker_properties"
        assert "the header BrokerProperties" in refused["detail"]
    assert binding.ready(queue) == []


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "null", "{", '{"SessionId":"a"} x', '{"TimeToLive":NaN}', b"\xff", "[" * 5000], ids=repr
)
@pytest.mark.parametrize("verb", ["", ":validate"])
async def test_a_header_that_is_no_json_object_is_refused(capable, queue, verb, text):
    answer = await capable.post(f"/queues/{queue}/messages{verb}", json=DRAFT, headers=header(text))
    refused = problem(answer, 400, "invalid_parameter")
    assert refused["detail"].startswith("BrokerProperties: must be one JSON object: ")
    assert [each["header"] for each in refused["errors"]] == ["BrokerProperties"]


async def test_a_header_that_cannot_count_is_refused(capable, queue):
    url = f"/queues/{queue}/messages"
    twice = [("BrokerProperties", "{}"), ("BrokerProperties", "{}")]
    refused = problem(await capable.post(url, json=DRAFT, headers=twice), 400, "invalid_parameter")
    assert refused["detail"] == "BrokerProperties: given more than once"
    answer = await capable.post(f"{url}:batch", json=[DRAFT], headers=header({}))
    assert "in its member broker_properties" in problem(answer, 400, "invalid_parameter")["detail"]
    answer = await capable.post(f"{url}:validate?mode=consume", json=DRAFT, headers=header({}))
    assert "mode=consume" in problem(answer, 400, "invalid_parameter")["detail"]


async def test_they_do_not_belong_into_an_envelope(capable, queue):
    full = json.loads((await capable.post(f"/queues/{queue}/messages:validate", json=DRAFT)).text)["envelope"]
    url, given = f"/queues/{queue}/messages", {"broker_properties": {"SessionId": "a"}}
    refused = problem(await capable.post(url, json=full | given), 422, "misplaced_option")
    assert '{"envelope": {…}, "broker_properties": {"SessionId":"a"}}' in refused["detail"]
    assert (await capable.post(url, json={"envelope": full} | given)).status_code == 201


@pytest.mark.parametrize("name", WRITABLE)
async def test_a_queue_without_one_refuses_it_by_name(client, queue, name):
    value = {"TimeToLive": 60, "ScheduledEnqueueTimeUtc": "2026-11-24T10:00:00Z"}.get(name, "a")
    url, given = f"/queues/{queue}/messages", {"broker_properties": {name: value}}
    for path in (url, f"{url}:validate"):
        for body, headers in ((DRAFT | given, {}), (DRAFT, header({name: value}))):
            answer = await client.post(path, json=body, headers=headers)
            refused = problem(answer, 422, "broker_property_unsupported")
            assert refused["errors"][0]["pointer"] == f"/broker_properties/{name}"
            assert name in refused["detail"] and "'local'" in refused["detail"]
    for body, headers in ((DRAFT | {"broker_properties": {name: None}}, {}), (DRAFT, header({}))):
        assert (await client.post(url, json=body, headers=headers)).status_code == 201


async def test_the_edit_of_a_dead_letter_takes_them(client, queue):
    base = f"/queues/{queue}"
    await client.post(f"{base}/messages", json=DRAFT)
    token = (await client.post(f"{base}/messages:receive")).json()["messages"][0]["ack_token"]
    await client.post(f"{base}/messages:reject", json={"ack_tokens": [token]})
    (letter,) = (await client.get(f"{base}/dead-letters")).json()["dead_letters"]
    body = {"envelope": DRAFT, "broker_properties": {"SessionId": "a"}}
    answer = await client.post(f"{base}/dead-letters/{letter['letter_id']}:redrive", json={"edit": {"body": body}})
    refused = problem(answer, 422, "broker_property_unsupported")
    assert refused["errors"][0]["pointer"] == "/edit/body/broker_properties/SessionId"


async def test_they_are_part_of_what_an_idempotency_key_stands_for(client, queue):
    url = f"/queues/{queue}/messages"
    key = {"idempotency-key": "k"}
    first = await client.post(url, json=DRAFT, headers=key)
    assert first.status_code == 201
    other = await client.post(url, json=DRAFT, headers=key | header({}))
    problem(other, 422, "idempotency_key_reused")
    again = await client.post(url, json=DRAFT, headers=key)
    assert (again.status_code, again.json()) == (201, first.json())
