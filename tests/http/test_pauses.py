"""Pause and resume by HTTP: what callers see, on both ways that serve a receive."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from queue import Queue
from threading import Thread

import httpx
import pytest

from babelgate.cluster.signing import ANYBODY
from babelgate.cluster.wire import PAUSES_PATH, Told, decode_pauses, encode_told
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.pauses import PauseChange
from tests.harness.problems import problem
from tests.harness.replica import Replica
from tests.harness.world import until
from tests.http.test_peer import call

DRAFT = {"job": "urn:babel:test:made", "data": {"n": 1}}
LINES = "application/x-ndjson"
BATCHED = "application/cloudevents-batch+json"
ENVELOPE = {"accept": "application/vnd.babelqueue.envelope+json"}


def test_a_paused_queue_says_so(caller, queue):
    caller.post(f"queues/{queue}/messages", json=DRAFT).raise_for_status()
    outcome = caller.post(f"queues/{queue}:pause", json={"reason": "<b>mail & more</b>"}).raise_for_status().json()
    pause = outcome["pause"]
    assert (pause["by"], pause["publishes"], pause["reason"]) == ("all", "accept", "<b>mail & more</b>")
    assert (outcome["kept"], outcome["told"], outcome["silent"]) == (True, 0, [])
    assert "No peers on other hosts are configured" in outcome["detail"]
    for body in ({}, {"wait_seconds": 0.2}):
        answer = caller.post(f"queues/{queue}/messages:receive", json=body)
        assert (answer.status_code, answer.json()) == (200, {"messages": [], "paused": True})
        assert answer.headers["cache-control"] == "no-store"
    bare = caller.post(f"queues/{queue}/messages:receive", headers=ENVELOPE)
    assert (bare.status_code, bare.headers["paused"], bare.content) == (204, "true", b"")
    events = caller.post(f"queues/{queue}/messages:receive", headers={"accept": BATCHED})
    assert (events.json(), events.headers["paused"]) == ([], "true")
    assert caller.get(f"queues/{queue}").json()["pause"] == pause
    assert len(caller.get(f"queues/{queue}/messages:peek").json()["messages"]) == 1
    (concern,) = [each for each in caller.get("rates").json()["attention"] if each["kind"] == "queue_paused"]
    assert concern["queue"] == queue and "by all. Reason: <b>mail & more</b>" in concern["detail"]
    assert caller.post(f"queues/{queue}:resume").json()["pause"] is None
    (message,) = caller.post(f"queues/{queue}/messages:receive").json()["messages"]
    assert message["attempts"] == 0
    assert "paused" not in caller.post(f"queues/{queue}/messages:receive").json()
    assert caller.get(f"queues/{queue}").json()["pause"] is None


def test_publishes_are_refused_in_words(caller, queue):
    caller.post(f"queues/{queue}:pause", json={"publishes": "refuse"}).raise_for_status()
    answer = caller.post(f"queues/{queue}/messages", json=DRAFT)
    refused = problem(answer, 409, "queue_paused")
    assert (refused["retryable"], answer.headers["retry-after"]) == (True, "10")
    problem(caller.post(f"queues/{queue}/messages", json=DRAFT, headers={"idempotency-key": "k"}), 409, "queue_paused")
    batch = caller.post(f"queues/{queue}/messages:batch", json=[DRAFT, DRAFT])
    assert batch.status_code == 207
    assert {(each["status"], each["code"]) for each in batch.json()["results"]} == {(409, "queue_paused")}
    lines = "\n".join([json.dumps(DRAFT)] * 3)
    upload = caller.post(
        f"queues/{queue}/messages:batch", content=lines, headers={"content-type": "application/x-ndjson"}
    )
    assert (upload.json()["accepted"], upload.json()["failed"]) == (0, 3)
    assert caller.post(f"queues/{queue}/messages:validate", json=DRAFT).status_code == 200
    caller.post(f"queues/{queue}:resume").raise_for_status()
    assert caller.post(f"queues/{queue}/messages", json=DRAFT).status_code == 201


async def test_a_receive_that_waits_is_served_at_the_resume(client, queue):
    await client.post(f"/queues/{queue}/messages", json=DRAFT)
    await client.post(f"/queues/{queue}:pause")
    waiting = asyncio.create_task(client.post(f"/queues/{queue}/messages:receive", json={"wait_seconds": 30}))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await client.post(f"/queues/{queue}:resume")
    assert len((await waiting).json()["messages"]) == 1


def test_a_stream_waits_until_the_resume(caller, queue):
    lines: Queue[str] = Queue()

    def read():
        with caller.stream("POST", f"queues/{queue}/messages:stream", headers={"accept": LINES}) as answer:
            for line in answer.iter_lines():
                lines.put(line)
                if '"message"' in line:
                    return

    caller.post(f"queues/{queue}:pause").raise_for_status()
    reading = Thread(target=read)
    reading.start()
    caller.post(f"queues/{queue}/messages", json=DRAFT).raise_for_status()
    assert caller.post(f"queues/{queue}/messages:receive", json={"wait_seconds": 2}).json()["paused"]
    assert reading.is_alive()
    caller.post(f"queues/{queue}:resume").raise_for_status()
    reading.join(60)
    assert not reading.is_alive()
    assert '"attempts":0' in lines.queue[-1].replace(" ", "")


async def test_a_metric_counts_paused_queues(client, queue):
    await client.post(f"/queues/{queue}:pause")
    line = f'babelgate_queue_paused{{broker="local",queue="{queue}"}} 1.0'

    async def shows(expected=True):
        return (line in (await client.get("/metrics")).text) is expected

    await until(shows)
    await client.post(f"/queues/{queue}:resume")
    await until(partial(shows, False))


async def test_the_list_shows_and_selects_paused_queues(client, queue):
    await client.post(f"/queues/{queue}.one/messages", json=DRAFT)
    # Nobody has used this one.
    await client.post(f"/queues/{queue}.two:pause")

    async def names(query=""):
        return {
            each["queue"]: each["pause"] is not None for each in (await client.get(f"/queues{query}")).json()["queues"]
        }

    assert await names() == {f"{queue}.one": False, f"{queue}.two": True}
    assert await names("?paused=true") == {f"{queue}.two": True}
    assert await names("?paused=false") == {f"{queue}.one": False}


async def test_dead_letters_go_on(client, queue):
    await client.post(f"/queues/{queue}/messages", json=DRAFT)
    (message,) = (await client.post(f"/queues/{queue}/messages:receive")).json()["messages"]
    await client.post(f"/queues/{queue}:pause", json={"publishes": "refuse"})
    rejected = await client.post(f"/queues/{queue}/messages:reject", json={"ack_tokens": [message["ack_token"]]})
    assert rejected.status_code == 200
    assert len((await client.get(f"/queues/{queue}/dead-letters")).json()["dead_letters"]) == 1
    assert (await client.post(f"/queues/{queue}/dead-letters:redrive", json={})).json()["redriven"] == 1
    assert (await client.get(f"/queues/{queue}")).json()["stats"]["depth"] == 1


def test_a_pause_needs_the_right_to_manage(direct, queue):
    host, port = direct.address
    for verb in ("pause", "resume"):
        url = f"http://{host}:{port}/mq/queues/direct-{queue}:{verb}"
        problem(httpx.post(url, headers={"authorization": "Bearer read"}, timeout=60), 403, "forbidden")


@pytest.mark.parametrize(
    ("verb", "body", "code"),
    [
        ("pause", {"publishes": "drop"}, "invalid_parameter"),
        ("pause", {"reason": ""}, "invalid_parameter"),
        ("pause", {"reason": "x" * 501}, "invalid_parameter"),
        ("pause", {"for_seconds": 3}, "invalid_parameter"),
        ("resume", {"reason": "x"}, "invalid_parameter"),
    ],
)
async def test_what_is_wrong_is_refused(client, queue, verb, body, code):
    answer = await client.post(f"/queues/{queue}:{verb}", json=body)
    assert answer.status_code == 400, answer.text
    assert (await client.get(f"/queues/{queue}")).json()["pause"] is None
    problem(await client.get(f"/queues/{queue}:{verb}"), 405, "method_not_allowed")


async def test_a_peer_tells_and_learns(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    await replica.gateway.start()
    try:
        await replica.gateway.pauses.pause(ANYONE, "here")
        there = PauseChange(queue="there", paused=True, at=1, by="x")
        body = encode_told(Told("f" * 16, [there]))
        done = await call(replica, replica.signer.sign("POST", PAUSES_PATH, ANYBODY, body), "POST", PAUSES_PATH, body)
        answered: Told[PauseChange] = decode_pauses(done.body)
        assert answered.incarnation == replica.gateway.incarnation
        assert {each.queue for each in answered.changes} == {"here", "there"}
        assert replica.gateway.pauses.get("there") == there
        for bad in (b"[]", b'{"incarnation": "x"}', b"\xff"):
            proof = replica.signer.sign("POST", PAUSES_PATH, ANYBODY, bad)
            assert (await call(replica, proof, "POST", PAUSES_PATH, bad)).status == 400
        assert (await call(replica, None, "POST", PAUSES_PATH, body)).status == 401
    finally:
        await replica.gateway.close()
