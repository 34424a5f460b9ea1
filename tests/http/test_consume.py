"""Receive and settle."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec.structs import replace

from babelgate.brokers.binding import MAX_HANDLE_LENGTH
from babelgate.config import settings
from babelgate.config.token_keys import token_keys
from babelgate.gateway.ack_tokens import TokenSealer
from tests.harness.problems import problem

DRAFT = {"job": "urn:babel:test:made", "data": {"n": 1}}
BARE = {"accept": "application/vnd.babelqueue.envelope+json"}


async def publish(client, queue, count=1, **options):
    answer = await client.post(f"/queues/{queue}/messages:batch", json=[DRAFT | options] * count)
    assert answer.status_code == 201


async def receive(client, queue, **parameters):
    answer = await client.post(f"/queues/{queue}/messages:receive", params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()["messages"]


async def tokens(client, queue, count=1, **parameters):
    await publish(client, queue, count)
    return [message["ack_token"] for message in await receive(client, queue, max_messages=count, **parameters)]


@pytest.mark.parametrize("how", ["get", "query", "body"])
async def test_receive_by_query_and_by_body(client, queue, how):
    await publish(client, queue, 3)
    url, asked = f"/queues/{queue}/messages:receive", {"max_messages": 2, "lease_seconds": 1.5}
    if how == "get":
        answer = await client.get(url, params=asked)
    elif how == "query":
        answer = await client.post(url, params=asked)
    else:
        answer = await client.post(url, json=asked)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    messages = answer.json()["messages"]
    assert len(messages) == 2
    members = ["ack_token", "lease_expires_at", "attempts", "redelivered", "headers", "envelope"]
    assert list(messages[0]) == members


async def test_the_envelope_is_the_stored_bytes(client, queue):
    body = '{"job":"a","data":{"z":1.10,"a":123456789012345678901234567890,"e":"é"}}'
    assert (await client.post(f"/queues/{queue}/messages", content=body)).status_code == 201
    peeked = await client.get(f"/queues/{queue}/messages:peek")
    stored = peeked.text.split('"envelope":', 1)[1].rsplit(',"body_base64"', 1)[0]
    answer = await client.post(f"/queues/{queue}/messages:receive")
    assert f'"envelope":{stored}}}]}}' in answer.text
    assert '"data":{"z":1.10,"a":123456789012345678901234567890,"e":"é"}' in stored


async def test_a_bare_envelope(client, queue):
    url = f"/queues/{queue}/messages:receive"
    none = await client.get(url, headers=BARE)
    assert (none.status_code, none.content, none.headers["cache-control"]) == (204, b"", "no-store")
    assert "content-length" not in none.headers
    await publish(client, queue)
    answer = await client.get(url, headers=BARE)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == BARE["accept"]
    assert answer.json()["job"] == DRAFT["job"]
    assert (answer.headers["attempts"], answer.headers["redelivered"]) == ("0", "false")
    assert int(answer.headers["lease-expires-at"]) > answer.json()["meta"]["created_at"]
    acked = await client.post(f"/queues/{queue}/messages:ack", json={"ack_tokens": [answer.headers["ack-token"]]})
    assert acked.status_code == 200
    problem(await client.get(f"{url}?max_messages=2", headers=BARE), 400, "invalid_parameter")


async def test_a_bare_envelope_shows_the_headers_of_a_json_answer(client, queue):
    url = f"/queues/{queue}/messages:receive"
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    for given in ({}, {"tenant": "é\n", "traceparent": trace}, {"tenant": "x" * 5000}):
        await publish(client, queue, headers=given)
        (message,) = (await client.post(url)).json()["messages"]
        nacked = await client.post(
            f"/queues/{queue}/messages:nack",
            json={"ack_tokens": [message["ack_token"]], "failed": False},
        )
        assert nacked.status_code == 200, nacked.text
        bare = await client.get(url, headers=BARE)
        assert message["headers"] == {"traceparent": bare.headers["traceparent"]} | given
        shown = bare.headers.get("message-headers")
        assert (None if shown is None else json.loads(shown)) == (
            message["headers"] if len(str(given)) < 4096 else None
        )
        await client.post(f"/queues/{queue}/messages:ack", json={"ack_tokens": [bare.headers["ack-token"]]})


@pytest.mark.parametrize(
    "query",
    [
        "max_messages=0",
        "max_messages=101",
        "max_messages=1.5",
        "wait_seconds=-1",
        "wait_seconds=30.1",
        "wait_seconds=nan",
        "lease_seconds=0",
        "lease_seconds=null",
        "lease_seconds=inf",
        "wait=1",
    ],
)
async def test_parameters_are_never_clamped(client, queue, query):
    problem(await client.post(f"/queues/{queue}/messages:receive?{query}"), 400, "invalid_parameter")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"max_messages": 0}, "/max_messages"),
        ({"max_messages": "1"}, "/max_messages"),
        ({"wait_seconds": 31}, "/wait_seconds"),
        ({"wait": 1}, "/wait"),
        ([], ""),
    ],
)
async def test_a_misfit_of_the_body_is_pointed_at(client, queue, body, pointer):
    answer = await client.post(f"/queues/{queue}/messages:receive", json=body)
    assert problem(answer, 400, "invalid_parameter")["errors"][0]["pointer"] == pointer


async def test_parameters_stand_in_one_place(client, queue):
    url = f"/queues/{queue}/messages:receive?max_messages=1"
    problem(await client.post(url, json={"wait_seconds": 0}), 400, "invalid_parameter")
    get = await client.request("GET", f"/queues/{queue}/messages:receive", json={"max_messages": 1})
    problem(get, 400, "invalid_parameter")
    problem(await client.post(f"/queues/{queue}/messages:receive", content="{"), 400, "invalid_json")


async def test_a_lease_beyond_the_broker_names_its_maximum(client, queue):
    answer = await client.post(f"/queues/{queue}/messages:receive?lease_seconds=31000000")
    assert problem(answer, 422, "lease_too_long")["maximum"] < 31_000_000


async def test_what_no_token_can_have_is_refused_as_a_whole(client, queue):
    held = await tokens(client, queue, 2)
    answer = await client.post(f"/queues/{queue}/messages:extend", json={"ack_tokens": held, "lease_seconds": 50_000})
    assert problem(answer, 422, "lease_too_long")["maximum"] < 50_000
    acked = await client.post(f"/queues/{queue}/messages:ack", json={"ack_tokens": held})
    assert acked.json()["settled"] == 2


async def test_a_long_poll_ends_with_the_message(client, queue):
    waiting = asyncio.create_task(receive(client, queue, wait_seconds=20))
    await asyncio.sleep(0.05)
    await publish(client, queue)
    assert len(await waiting) == 1


async def test_ack_twice_is_done(client, queue):
    asked = {"ack_tokens": await tokens(client, queue, 2)}
    for _ in range(2):
        answer = await client.post(f"/queues/{queue}/messages:ack", json=asked)
        assert answer.status_code == 200
        body = answer.json()
        assert (body["settled"], body["failed"]) == (2, 0)
        assert body["results"][1] == {"index": 1, "action": "ack", "status": 200}


async def test_nack_delivers_again_and_counts(client, queue):
    [token] = await tokens(client, queue)
    error = {"message": "no", "exception": "E"}
    asked = {"ack_tokens": [token], "delay_seconds": 0, "error": error}
    assert (await client.post(f"/queues/{queue}/messages:nack", json=asked)).status_code == 200
    [message] = await receive(client, queue)
    assert (message["attempts"], message["redelivered"]) == (1, True)


async def test_a_nack_of_what_was_not_attempted_is_not_counted(client, queue):
    [token] = await tokens(client, queue)
    asked = {"ack_tokens": [token], "failed": False}
    for more in ({"delay_seconds": 1}, {"error": {"message": "no"}}):
        problem(await client.post(f"/queues/{queue}/messages:nack", json=asked | more), 400, "invalid_parameter")
    assert (await client.post(f"/queues/{queue}/messages:settle", json={"nacks": [asked]})).status_code == 200
    [message] = await receive(client, queue)
    assert message["attempts"] == 0


async def test_reject_dead_letters_with_the_error(client, queue):
    [token] = await tokens(client, queue)
    asked = {"ack_tokens": [token], "error": {"message": "no", "exception": "E"}}
    assert (await client.post(f"/queues/{queue}/messages:reject", json=asked)).status_code == 200
    [letter] = (await client.get(f"/queues/{queue}/dead-letters")).json()["dead_letters"]
    assert (letter["reason"], letter["error"]) == ("failed", "no")
    assert letter["record"]["dead_letter"]["exception"] == "E"


async def test_extend_tells_the_new_deadline(client, queue):
    await publish(client, queue)
    [message] = await receive(client, queue, lease_seconds=10)
    asked = {"ack_tokens": [message["ack_token"]], "lease_seconds": 100}
    [result] = (await client.post(f"/queues/{queue}/messages:extend", json=asked)).json()["results"]
    assert result["lease_expires_at"] > message["lease_expires_at"] + 80_000


async def test_settle_does_all_four_and_counts_within_each(client, queue):
    a, b, c, d, e = await tokens(client, queue, 5)
    asked = {
        "acks": [a],
        "nacks": [{"ack_tokens": [b]}, {"ack_tokens": [c], "delay_seconds": 1}],
        "rejects": [{"ack_tokens": [d]}],
        "extends": [{"ack_tokens": [e], "lease_seconds": 5}],
    }
    answer = await client.post(f"/queues/{queue}/messages:settle", json=asked)
    assert answer.status_code == 200
    told = [(result["action"], result["index"]) for result in answer.json()["results"]]
    assert told == [("ack", 0), ("nack", 0), ("nack", 1), ("reject", 0), ("extend", 0)]


async def test_one_bad_token_of_several_fails_alone(client, queue):
    [good] = await tokens(client, queue)
    answer = await client.post(f"/queues/{queue}/messages:ack", json={"ack_tokens": ["forged", good]})
    assert answer.status_code == 207
    body = answer.json()
    assert (body["settled"], body["failed"]) == (1, 1)
    told = [(result["status"], result.get("code"), result.get("retryable")) for result in body["results"]]
    assert told == [(400, "invalid_ack_token", False), (200, None, None)]


@pytest.mark.parametrize("verb", ["ack", "nack", "reject", "extend"])
async def test_the_failure_of_a_single_token_is_the_answer(client, queue, verb):
    url = f"/queues/{queue}/messages:{verb}"
    problem(await client.post(url, json={"ack_tokens": ["forged"]}), 400, "invalid_ack_token")
    [foreign] = await tokens(client, queue + "x")
    problem(await client.post(url, json={"ack_tokens": [foreign]}), 400, "invalid_ack_token")
    [token] = await tokens(client, queue, lease_seconds=0.05)
    [again] = await receive(client, queue, wait_seconds=30)
    assert again["ack_token"] != token
    answer = problem(await client.post(url, json={"ack_tokens": [token]}), 409, "lease_lost")
    assert answer["retryable"] is False


@pytest.mark.parametrize("verb", ["ack", "nack", "reject", "extend"])
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"ack_tokens": []},
        {"ack_tokens": ["t"] * 1001},
        {"ack_tokens": [1]},
        {"ack_tokens": "t"},
        {"ack_tokens": ["t"], "more": 1},
        {"ack_tokens": ["t"], "delay_seconds": -1, "lease_seconds": -1, "error": 1},
    ],
)
async def test_a_settle_body_that_does_not_fit(client, queue, verb, body):
    problem(await client.post(f"/queues/{queue}/messages:{verb}", json=body), 400, "invalid_parameter")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"acks": []},
        {"acks": ["t"] * 1001},
        {"acks": ["t"] * 999, "nacks": [{"ack_tokens": ["t", "t"]}]},
        {"ack": ["t"]},
    ],
)
async def test_a_combined_settle_has_1_to_1000_tokens(client, queue, body):
    problem(await client.post(f"/queues/{queue}/messages:settle", json=body), 400, "invalid_parameter")


async def test_a_pointer_names_the_member(client, queue):
    asked = {"nacks": [{"ack_tokens": ["t"]}, {"ack_tokens": ["t"], "delay_seconds": -1}]}
    answer = await client.post(f"/queues/{queue}/messages:settle", json=asked)
    assert problem(answer, 400, "invalid_parameter")["errors"][0]["pointer"] == "/nacks/1/delay_seconds"


async def test_settling_takes_json_and_no_query(client, queue):
    url = f"/queues/{queue}/messages:ack"
    problem(await client.post(url, content="{"), 400, "invalid_json")
    problem(await client.post(url + "?x=1", content=json.dumps({"ack_tokens": ["t"]})), 400, "invalid_parameter")


async def test_a_message_with_a_long_job_has_a_short_token_and_is_settled(client, queue):
    draft = {"job": "urn:babel:test:" + "a" * 700, "data": {}}
    assert (await client.post(f"/queues/{queue}/messages", json=draft)).status_code == 201
    (message,) = await receive(client, queue)
    assert len(message["ack_token"]) <= 300
    answer = await client.post(f"/queues/{queue}/messages:ack", json={"ack_tokens": [message["ack_token"]]})
    assert (answer.status_code, answer.json()["settled"]) == (200, 1)


async def test_a_handle_of_the_greatest_length_is_settled(client, queue, tmp_path):
    """SQLite reads its handles as numbers, so zeros in front lengthen them."""
    sealer = TokenSealer(token_keys(settings.load(tmp_path / "babelgate.yaml", {})))
    for verb in ("extend", "ack"):
        (token,) = await tokens(client, queue, lease_seconds=30)
        lease = sealer.open(token, queue)
        long = sealer.seal(replace(lease, handle=lease.handle.rjust(MAX_HANDLE_LENGTH, "0")))
        assert len(sealer.open(long, queue).handle) == MAX_HANDLE_LENGTH
        asked = {"ack_tokens": [long]} | ({"lease_seconds": 60} if verb == "extend" else {})
        answer = await client.post(f"/queues/{queue}/messages:{verb}", json=asked)
        assert (answer.status_code, answer.json()["settled"]) == (200, 1), answer.text
