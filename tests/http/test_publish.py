"""Publishing one message, batches, and dry runs."""

from __future__ import annotations

import json

import pytest

from babelgate.clock import now_ms
from babelgate.http.schemas import MAX_ENTRIES
from tests.harness.problems import problem

DRAFT = {"job": "urn:babel:test:made", "data": {"n": 1}}
NDJSON = {"content-type": "application/x-ndjson"}


async def test_a_draft_is_completed_and_accepted(client, queue):
    answer = await client.post(f"/queues/{queue}/messages", json=DRAFT)
    assert answer.status_code == 201
    receipt = answer.json()
    assert list(receipt) == ["id", "trace_id", "queue", "broker", "attempts", "created_at"]
    assert (receipt["queue"], receipt["broker"], receipt["attempts"]) == (queue, "local", 0)


async def test_a_delay_and_a_key_of_the_query_reach_the_broker(client, queue):
    url = f"/queues/{queue}/messages"
    began = now_ms()
    assert (await client.post(url, params={"delay_seconds": "0.2", "ordering_key": "a"}, json=DRAFT)).status_code == 201
    later = await client.post(f"{url}:receive", params={"wait_seconds": 30})
    assert len(later.json()["messages"]) == 1
    assert now_ms() >= began + 200


@pytest.mark.parametrize("way", ["messages", "json batch", "ndjson batch"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["draft", "entry"])
async def test_the_options_of_a_body_mean_the_same_everywhere(client, queue, way, wrapped):
    options = {"delay_seconds": 60, "idempotency_key": "k", "ordering_key": "a", "headers": {"a": "1"}}
    body = {"envelope": DRAFT, **options} if wrapped else DRAFT | options
    url = f"/queues/{queue}/messages"
    for _ in range(2):
        if way == "messages":
            answer = await client.post(url, json=body)
        else:
            ndjson = way == "ndjson batch"
            content = json.dumps(body if ndjson else [body])
            answer = await client.post(f"{url}:batch", content=content, headers=NDJSON if ndjson else {})
        assert answer.status_code == 201, answer.text
    stats = (await client.get(f"/queues/{queue}")).json()["stats"]
    assert (stats["depth"], stats["delayed"]) == (0, 1), "it was neither delayed nor published once"
    shown = (await client.post(f"{url}:validate", json=body)).json()
    assert shown["headers"]["a"] == "1"
    assert options.keys().isdisjoint(shown["envelope"])
    problem(await client.post(f"{url}:validate", json=body | {"delay_seconds": 1e9}), 422, "delay_too_long")


@pytest.mark.parametrize(
    ("query", "member"),
    [
        ("delay_seconds=5", {"delay_seconds": 60}),
        ("ordering_key=a", {"ordering_key": "b"}),
        ("deliver_at=5", {"deliver_at": 60}),
        ("ttl_seconds=5", {"ttl_seconds": 60}),
        ("priority=5", {"priority": 9}),
    ],
)
@pytest.mark.parametrize("verb", ["", ":validate"])
async def test_a_query_that_contradicts_its_body_is_refused(client, queue, query, member, verb):
    url = f"/queues/{queue}/messages{verb}?{query}"
    (name,) = member
    for body in (DRAFT | member, {"envelope": DRAFT} | member):
        refused = problem(await client.post(url, json=body), 422, f"{name}_mismatch")
        assert refused["errors"][0]["pointer"] == f"/{name}"
        assert f"the query parameter {name}" in refused["detail"]
    same = dict([query.split("=")])
    value = same[name] if name == "ordering_key" else json.loads(same[name])
    assert (await client.post(url, json=DRAFT | {name: value})).status_code in (200, 201)


@pytest.mark.parametrize(
    "query",
    [
        "delay_seconds=-1",
        "delay_seconds=nan",
        "delay_seconds=x",
        "delay_seconds=",
        "delay_seconds=1&delay_seconds=2",
        "delay_second=1",
        "deliver_at=-1",
        "deliver_at=1.5",
        "deliver_at=9223372036854775808",
        "deliver_at=x",
        "ttl_seconds=0",
        "priority=10",
        "priority=high",
        "ttl_seconds=nan",
        "ttl_seconds=315360001",
        "ordering_key=",
        "ordering_key=%20",
        "ordering_key=%ff",
    ],
)
async def test_parameters_out_of_range_are_refused(client, queue, query):
    answer = await client.post(f"/queues/{queue}/messages?{query}", json=DRAFT)
    problem(answer, 400, "invalid_parameter")
    assert (await client.post(f"/queues/{queue}/messages:receive")).json() == {"messages": []}


async def test_a_delay_beyond_the_broker_names_its_maximum(client, queue):
    answer = await client.post(f"/queues/{queue}/messages", json={"envelope": DRAFT, "delay_seconds": 1e9})
    assert problem(answer, 422, "delay_too_long")["maximum"] < 1e9


@pytest.mark.parametrize("verb", ["", ":validate"])
async def test_a_time_of_delivery_is_a_delay_from_now(client, queue, verb):
    url = f"/queues/{queue}/messages"
    due = now_ms() + 60_000
    for key, given in (
        ("query", {"params": {"deliver_at": due}, "json": DRAFT}),
        ("body", {"json": DRAFT | {"deliver_at": due}}),
    ):
        # The delay of the repetition is another one, its request is not.
        for replayed in (None, "true"):
            answer = await client.post(url, headers={"idempotency-key": key}, **given)
            assert (answer.status_code, answer.headers.get("idempotency-replayed")) == (201, replayed)
        assert 0 < (await client.post(f"{url}:validate", **given)).json()["delay_seconds"] <= 60
    both = await client.post(f"{url}{verb}?delay_seconds=0", json=DRAFT | {"deliver_at": due})
    assert problem(both, 422, "deliver_at_mismatch")["errors"][0]["pointer"] == "/deliver_at"
    late = await client.post(f"{url}{verb}", json=DRAFT | {"deliver_at": due + 10**12})
    assert problem(late, 422, "delay_too_long")["errors"][0]["pointer"] == "/deliver_at"


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"job":"a","data":{}} x', b"\xff", b"null"])
async def test_a_body_that_is_no_json_object(client, queue, body):
    problem(await client.post(f"/queues/{queue}/messages", content=body), 400, "invalid_json")


async def test_all_defects_of_an_envelope_are_told(client, queue):
    answer = await client.post(f"/queues/{queue}/messages", json={"job": " ", "data": [], "trace_id": "t"})
    body = problem(answer, 422, "missing_urn")
    assert [defect["pointer"] for defect in body["errors"]] == ["/job", "/data"]
    assert body["trace_id"] == "t"


async def test_a_body_over_the_limit_tells_size_and_limit(serve, connect, queue):
    client = await connect(await serve(limits={"max_message_bytes": 2000}))
    fits = json.dumps(DRAFT | {"data": {"x": "a" * 600}})
    answer = await client.post(f"/queues/{queue}/messages", content=fits)
    assert answer.status_code == 201, answer.text
    body = json.dumps(DRAFT | {"data": {"x": "a" * 4000}}).encode()
    refused = problem(await client.post(f"/queues/{queue}/messages", content=body), 413, "body_too_large")
    assert (refused["actual"], refused["limit"]) == (len(body), 2000)


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=utf-8", "application/vnd.x+json", None]
)
async def test_json_types_are_taken(client, queue, kind):
    headers = {"content-type": kind} if kind else {}
    answer = await client.post(f"/queues/{queue}/messages", content=json.dumps(DRAFT), headers=headers)
    assert answer.status_code == 201


@pytest.mark.parametrize("path", ["messages", "messages:batch", "messages:validate", "messages:ack"])
async def test_other_types_are_not(client, queue, path):
    answer = await client.post(f"/queues/{queue}/{path}", content="a=b", headers={"content-type": "text/plain"})
    problem(answer, 415, "unsupported_media_type")
    assert "accept-encoding" not in answer.headers


async def test_a_batch_where_all_is_well(client, queue):
    answer = await client.post(f"/queues/{queue}/messages:batch", json=[DRAFT, {"envelope": DRAFT}])
    assert answer.status_code == 201
    body = answer.json()
    assert (body["accepted"], body["failed"]) == (2, 0)
    assert [list(result) for result in body["results"]] == [["index", "status", "id", "trace_id"]] * 2
    got = await client.post(f"/queues/{queue}/messages:receive", params={"max_messages": 10})
    ids = [message["envelope"]["meta"]["id"] for message in got.json()["messages"]]
    assert ids == [result["id"] for result in body["results"]]


@pytest.mark.parametrize("ndjson", [False, True])
async def test_bad_entries_fail_alone(client, queue, ndjson):
    entries = [json.dumps(DRAFT), "7", '{"job":"","data":{}}', json.dumps(DRAFT)]
    content = "\r\n\n  \n".join(entries) if ndjson else "[" + ",".join(entries) + "]"
    answer = await client.post(f"/queues/{queue}/messages:batch", content=content, headers=NDJSON if ndjson else {})
    assert answer.status_code == 207
    body = answer.json()
    assert (body["accepted"], body["failed"]) == (2, 2)
    assert [result["index"] for result in body["results"]] == [0, 1, 2, 3]
    assert [result["status"] for result in body["results"]] == [201, 400, 422, 201]
    assert body["results"][2]["code"] == body["results"][2]["errors"][0]["code"] == "missing_urn"


@pytest.mark.parametrize(("content", "headers"), [("[]", {}), ("", NDJSON), ("\n \n", NDJSON)])
async def test_an_empty_batch_is_accepted(client, queue, content, headers):
    answer = await client.post(f"/queues/{queue}/messages:batch", content=content, headers=headers)
    assert (answer.status_code, answer.json()) == (201, {"accepted": 0, "failed": 0, "results": []})


@pytest.mark.parametrize("body", [b"", b"{}", b"[1", b"1"])
async def test_a_batch_that_is_no_array(client, queue, body):
    problem(await client.post(f"/queues/{queue}/messages:batch", content=body), 400, "invalid_json")


async def test_an_array_has_a_bounded_number_of_entries(client, queue):
    body = "[" + ",".join(["1"] * (MAX_ENTRIES + 1)) + "]"
    refused = problem(await client.post(f"/queues/{queue}/messages:batch", content=body), 400, "invalid_parameter")
    assert "ndjson" in refused["detail"]


async def test_a_batch_takes_no_parameters(client, queue):
    problem(await client.post(f"/queues/{queue}/messages:batch?delay_seconds=1", json=[]), 400, "invalid_parameter")


async def test_an_overlong_line_fails_alone(serve, connect, queue):
    client = await connect(await serve(limits={"max_message_bytes": 2000}))
    long = json.dumps(DRAFT | {"data": {"x": "a" * 200_000}})
    lines = [json.dumps(DRAFT), long, json.dumps(DRAFT), long]
    answer = await client.post(f"/queues/{queue}/messages:batch", content="\n".join(lines), headers=NDJSON)
    body = answer.json()
    assert [result["status"] for result in body["results"]] == [201, 413, 201, 413]
    assert str(len(long)) in body["results"][1]["detail"]


async def test_validate_shows_what_would_be_written_and_writes_nothing(client, queue):
    url = f"/queues/{queue}/messages"
    body = '{"data": {"b": 1.10, "a": 12345678901234567890}, "job": "urn:babel:test:made"}'
    answer = await client.post(f"{url}:validate", content=body)
    assert answer.status_code == 200
    seen = answer.json()
    assert (seen["queue"], seen["broker"], seen["native_name"]) == (queue, "local", queue)
    assert '"data":{"b":1.10,"a":12345678901234567890}' in answer.text
    message, ready = seen["writes"]
    assert (message["operation"], message["target"]) == ("INSERT", {"table": "messages"})
    assert json.loads(message["body"]) == seen["envelope"]
    assert (message["body_base64"], message["fields"]["headers"], message["headers"]) == (None, None, {})
    assert ready["target"] == {"table": "ready"} and ready["body"] is None
    assert (seen["delay_seconds"], seen["ordering_key"], seen["idempotency"]) == (0, None, None)
    assert seen["size_bytes"] == len(json.dumps(seen["envelope"], separators=(",", ":"))) + 1  # the zero of 1.10
    assert (await client.post(f"{url}:receive")).json() == {"messages": []}
    problem(await client.post(f"{url}:validate", json={}), 422, "missing_urn")
    problem(await client.post(f"{url}:validate?delay_seconds=-1", json=DRAFT), 400, "invalid_parameter")
    entry = {"envelope": DRAFT, "ordering_key": "a", "idempotency_key": "k", "headers": {"x": "1"}}
    seen = (await client.post(f"{url}:validate?delay_seconds=60", json=entry)).json()
    assert (seen["delay_seconds"], seen["ordering_key"], seen["idempotency"]["broker"]) == (60, "a", "local")
    message, held = seen["writes"]
    assert (message["fields"]["headers"], held["target"]) == ('{"x":"1"}', {"table": "held"})
    assert held["assigned"] == ["id", "queue_id", "until"]
