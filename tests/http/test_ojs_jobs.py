"""OJS jobs on the publish endpoints, for a queue on any broker."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from babelgate.clock import now_ms, timestamp
from tests.harness.problems import problem

JOB: dict[str, Any] = {"specversion": "1.0", "type": "email.send", "args": [{"to": "ada@example.com"}], "priority": 10}
MEDIA = {"content-type": "application/openjobspec+json; charset=utf-8"}


@pytest.fixture
def send(client, queue):
    """A function that publishes a body with the content type of jobs."""

    async def publish(job, verb="", **headers) -> httpx.Response:
        body = job if isinstance(job, bytes) else json.dumps(job)
        return await client.post(f"/queues/{queue}/messages{verb}", content=body, headers=MEDIA | headers)

    return publish


async def received(client, queue):
    return (await client.post(f"/queues/{queue}/messages:receive", params={"max_messages": 10})).json()["messages"]


async def test_a_job_becomes_an_envelope(client, queue, send):
    answer = await send(JOB | {"state": "completed", "attempt": 7})
    assert answer.status_code == 201
    (message,) = await received(client, queue)
    envelope = message["envelope"]
    assert (envelope["job"], envelope["data"], envelope["attempts"]) == ("urn:babel:email:send", JOB["args"][0], 0)
    assert envelope["meta"]["ext"] == {"ojs": {"priority": 10}}
    assert (answer.json()["id"], answer.json()["trace_id"]) == (envelope["meta"]["id"], envelope["trace_id"])


async def test_a_scheduled_job_comes_when_it_is_due(client, queue, send):
    due = now_ms() + 400
    assert (await send(JOB | {"scheduled_at": timestamp(due)})).status_code == 201
    later = await client.post(f"/queues/{queue}/messages:receive", params={"wait_seconds": 30})
    assert len(later.json()["messages"]) == 1
    assert now_ms() >= due


async def test_a_job_expires_at_its_time(client, queue, send):
    lasting = JOB | {"id": "a-job", "expires_at": "2099-01-31T00:00:00+01:00"}
    answers = [await send(lasting, **{"idempotency-key": "k"}) for _ in range(2)]
    assert [each.status_code for each in answers] == [201, 201]
    for job in (JOB | {"expires_at": timestamp(now_ms() - 1)}, JOB | {"expires_at": None}):
        assert (await send(job)).status_code == 201
    messages = await received(client, queue)
    assert [each["headers"].get("babelgate-expires-at") for each in messages] == ["4073497200000", None]
    assert messages[0]["envelope"]["meta"]["ext"]["ojs"]["expires_at"] == lasting["expires_at"]
    (letter,) = (await client.get(f"/queues/{queue}/dead-letters")).json()["dead_letters"]
    assert letter["error"] == "message expired"


@pytest.mark.parametrize("verb", ["", ":validate"])
async def test_a_scheduled_job_has_no_other_delay(client, queue, send, verb):
    later = JOB | {"scheduled_at": timestamp(now_ms() + 60_000)}
    refused = problem(await send(later, f"{verb}?delay_seconds=60"), 422, "delay_seconds_mismatch")
    assert refused["errors"][0]["pointer"] == "/scheduled_at"
    assert (await send(JOB, f"{verb}?delay_seconds=60")).status_code in (200, 201)
    refused = problem(await send(later, f"{verb}?deliver_at=1"), 422, "deliver_at_mismatch")
    assert refused["errors"][0]["pointer"] == "/scheduled_at"
    assert await received(client, queue) == []


async def test_a_job_that_is_sent_as_plain_json_is_called_one(client, queue):
    url = f"/queues/{queue}/messages"
    for body, pointer in ((JOB, ""), (JOB | {"args": {}}, "/args"), ({"specversion": "1.0", "args": []}, "/type")):
        refused = problem(await client.post(url, json=body), 422, "invalid_job")
        assert [each["pointer"] for each in refused["errors"]] == [pointer]
        (result,) = (await client.post(f"{url}:batch", json=[body])).json()["results"]
        assert (result["status"], result["code"]) == (422, "invalid_job")


async def test_jobs_of_a_batch_have_their_own_results(client, queue, send):
    answer = await send([JOB, {"type": "a"}, JOB | {"queue": "other"}, JOB], ":batch")
    assert answer.status_code == 207
    results = answer.json()["results"]
    assert [result["status"] for result in results] == [201, 422, 422, 201]
    assert [result["errors"][0]["pointer"] for result in results[1:3]] == ["/args", "/queue"]
    assert len(await received(client, queue)) == 2


async def test_a_dry_run_shows_the_envelope_of_a_job(client, queue, send):
    shown = (await send(JOB, ":validate")).json()["envelope"]
    assert shown["meta"]["ext"] == {"ojs": {"priority": 10}}
    assert await received(client, queue) == []


@pytest.mark.parametrize("verb", ["", ":validate"])
async def test_a_job_that_is_none_names_the_place(send, verb):
    answer = await send({"type": "a", "args": {}}, verb)
    assert [(e["pointer"], e["code"]) for e in problem(answer, 422, "invalid_args")["errors"]] == [
        ("/args", "invalid_args")
    ]
    problem(await send(b"[", verb), 400, "invalid_json")


async def test_a_draft_is_no_job(send):
    problem(await send({"job": "urn:babel:a:b", "data": {}}), 422, "invalid_type")


async def test_rights_come_before_the_job(serve, connect, token_config, queue):
    app = await serve(auth=token_config(reader={"*": ["listen"]}))
    client = await connect(app, "reader")
    for verb in ("", ":validate", ":batch"):
        answer = await client.post(f"/queues/{queue}/messages{verb}", content=b"[]", headers=MEDIA)
        problem(answer, 403, "forbidden")
