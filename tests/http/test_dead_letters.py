"""Dead letters one by one, and redrives in the background, over HTTP."""

from __future__ import annotations

import asyncio
import json

import pytest

from babelgate.brokers.binding import DeadLetterRequest, Outgoing
from babelgate.clock import now_ms
from babelgate.envelope import dead_letter_block
from babelgate.gateway.redrive_files import MAX_RUNNING
from tests.harness.problems import problem
from tests.http.test_operators import DRAFT, dead_letter

UNKNOWN = "0" * 32


async def letters(client, queue):
    answer = await client.get(f"/queues/{queue}/dead-letters")
    assert answer.status_code == 200
    return answer.json()["dead_letters"]


async def received(client, queue):
    """The envelopes on the queue."""
    answer = await client.post(f"/queues/{queue}/messages:receive?max_messages=100")
    return [message["envelope"] for message in answer.json()["messages"]]


async def poison(app, client, queue, body=b'{"job":"App\\\\Jobs\\\\Mail","data":[1]}'):
    """Put a body on the queue, and let a receive dead-letter it."""
    binding = app.gateway.bindings["local"]
    await binding.publish(binding.native_queue(queue, {}), [Outgoing(body)])
    assert await received(client, queue) == []
    return (await letters(client, queue))[-1]


async def test_one_letter_is_read_and_deleted(client, queue):
    await dead_letter(client, queue, "a", "b")
    first, second = await letters(client, queue)
    url = f"/queues/{queue}/dead-letters/{first['letter_id']}"
    assert (await client.get(url)).json() == first
    assert (await client.head(url)).status_code == 200
    answer = await client.delete(url)
    assert (answer.status_code, answer.json()) == (200, {"removed": 1})
    problem(await client.get(url), 404, "unknown_dead_letter")
    problem(await client.delete(url), 404, "unknown_dead_letter")
    problem(await client.post(f"{url}:redrive"), 404, "unknown_dead_letter")
    assert await letters(client, queue) == [second]


async def test_several_are_deleted(client, queue):
    await dead_letter(client, queue, "a", "b", "c")
    ids = [letter["letter_id"] for letter in await letters(client, queue)]
    url = f"/queues/{queue}/dead-letters:delete"
    answer = await client.post(url, json={"ids": [ids[2], UNKNOWN, ids[0]]})
    assert answer.status_code == 207
    assert (answer.json()["removed"], answer.json()["failed"]) == (2, 1)
    assert [(each["letter_id"], each["status"], each.get("code")) for each in answer.json()["results"]] == [
        (ids[2], 200, None),
        (UNKNOWN, 404, "unknown_dead_letter"),
        (ids[0], 200, None),
    ]
    answer = await client.post(url, json={"ids": [ids[1]]})
    assert (answer.status_code, answer.json()["removed"]) == (200, 1)
    assert await letters(client, queue) == []


@pytest.mark.parametrize("ids", [None, [], ["x"] * 1001, [""], ["x" * 65], [1]])
async def test_bad_ids(client, queue, ids):
    for verb in ("delete", "redrive"):
        if verb == "delete" or ids is not None:
            answer = await client.post(f"/queues/{queue}/dead-letters:{verb}", json={"ids": ids})
            problem(answer, 400, "invalid_parameter")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"ids": [UNKNOWN], "filter": {}}, "/ids"),
        ({"per_second": 0}, "/per_second"),
        ({"per_second": 1}, "/per_second"),
        ({"background": True, "dry_run": True}, "/dry_run"),
    ],
)
async def test_redrives_that_do_not_fit(client, queue, body, pointer):
    answer = await client.post(f"/queues/{queue}/dead-letters:redrive", json=body)
    assert problem(answer, 400, "invalid_parameter")["errors"][0]["pointer"] == pointer


async def test_letters_with_equal_bytes_share_an_id_and_the_oldest_is_meant(app, client, queue):
    binding = app.gateway.bindings["local"]
    native = binding.native_queue(queue, {})
    body = json.dumps(DRAFT).encode()
    await binding.publish(native, [Outgoing(body, {"which": which}) for which in ("first", "second")])
    block = dead_letter_block("failed", queue, 1, failed_at=1)
    taken = await binding.reserve(native, 2, 0, 60)
    await binding.dead_letter(native, [DeadLetterRequest(each.handle, block) for each in taken])
    first, second = await letters(client, queue)
    assert first["letter_id"] == second["letter_id"]
    assert (await client.get(f"/queues/{queue}/dead-letters/{first['letter_id']}")).json() == first
    assert (await client.delete(f"/queues/{queue}/dead-letters/{first['letter_id']}")).status_code == 200
    assert await letters(client, queue) == [second]


async def test_a_time_to_live_ends_with_a_redrive_unless_the_edit_has_one(client, queue):
    url = f"/queues/{queue}"
    sent = {"job": "urn:babel:test:made", "data": {}, "headers": {"a": "1"}, "ttl_seconds": 60}
    assert (await client.post(f"{url}/messages", json=sent)).status_code == 201
    seen = []
    for edit in ({"data": {"n": 2}}, {"body": {"job": "a", "data": {}, "ttl_seconds": 3600}}, None):
        (message,) = (await client.post(f"{url}/messages:receive")).json()["messages"]
        seen.append(message["headers"])
        tokens = {"ack_tokens": [message["ack_token"]]}
        assert (await client.post(f"{url}/messages:reject", json=tokens)).status_code == 200
        (letter,) = await letters(client, queue)
        content = {} if edit is None else {"edit": edit}
        redrive = f"{url}/dead-letters/{letter['letter_id']}:redrive"
        assert (await client.post(redrive, json=content)).status_code == 200
    first, ended, again = (each.pop("babelgate-expires-at") for each in seen)
    assert [each["a"] for each in seen] == ["1"] * 3
    assert ended == "never"
    assert 3_500_000 < int(again) - int(first) < 3_700_000


async def test_an_edit(client, queue):
    await dead_letter(client, queue, "a")
    [letter] = await letters(client, queue)
    url = f"/queues/{queue}/dead-letters/{letter['letter_id']}:redrive"
    # Python's parser would change this number.
    answer = await client.post(url, content=b'{"edit": {"data": {"amount": 1.10, "big": 12345678901234567890123}}}')
    assert answer.json() == {
        "letter_id": letter["letter_id"],
        "id": letter["id"],
        "to_queue": queue,
        "edited": True,
        "forced": False,
        "removed": True,
    }
    answer = await client.post(f"/queues/{queue}/messages:receive")
    assert '"data":{"amount":1.10,"big":12345678901234567890123}' in answer.text
    assert await letters(client, queue) == []


@pytest.mark.parametrize(
    ("body", "status", "code", "pointer"),
    [
        ({"edit": {"data": [1]}}, 422, "invalid_data", "/edit/data"),
        ({"edit": {"body": {"job": "", "data": {}}}}, 422, "missing_urn", "/edit/body/job"),
        ({"edit": {"body": {"envelope": {"job": "a"}}}}, 422, "invalid_data", "/edit/body/envelope/data"),
        (
            {"edit": {"body": {"envelope": {"job": "a", "data": {}}, "idempotency_key": "k"}}},
            422,
            "invalid_idempotency_key",
            "/edit/body/idempotency_key",
        ),
        ({"edit": {}}, 400, "invalid_parameter", "/edit"),
        ({"edit": {"data": {}, "body": {}}}, 400, "invalid_parameter", "/edit"),
        ({"edit": {"data": {}}, "force": True, "to_queue": "other"}, 400, "invalid_parameter", "/force"),
        ({"edit": {"date": {}}}, 400, "invalid_parameter", "/edit/date"),
        ({"force": True}, 422, "force_needs_other_queue", "/force"),
        ({"to_queue": "a b"}, 400, "invalid_parameter", "/to_queue"),
    ],
)
async def test_an_edit_that_does_not_fit_changes_nothing(client, queue, body, status, code, pointer):
    await dead_letter(client, queue, "a")
    listed = await letters(client, queue)
    url = f"/queues/{queue}/dead-letters/{listed[0]['letter_id']}:redrive"
    answer = await client.post(url, json=body)
    assert problem(answer, status, code)["errors"][0]["pointer"] == pointer
    assert await letters(client, queue) == listed
    assert await received(client, queue) == []


async def test_an_edited_body_may_be_as_large_as_a_message(client, queue):
    await dead_letter(client, queue, "a")
    [letter] = await letters(client, queue)
    url = f"/queues/{queue}/dead-letters/{letter['letter_id']}:redrive"
    answer = await client.post(url, json={"edit": {"data": {"text": "x" * 500_000}}})
    assert answer.status_code == 200
    [envelope] = await received(client, queue)
    assert len(envelope["data"]["text"]) == 500_000


async def test_an_edited_message_that_is_too_large_is_refused(client, queue):
    await dead_letter(client, queue, "a")
    [letter] = await letters(client, queue)
    url = f"/queues/{queue}/dead-letters/{letter['letter_id']}:redrive"
    problem(await client.post(url, json={"edit": {"data": {"text": "x" * 1_048_576}}}), 413, "body_too_large")
    assert await letters(client, queue) == [letter]


async def test_an_entry_gives_headers_and_a_delay(client, queue):
    await dead_letter(client, queue, "a")
    [letter] = await letters(client, queue)
    entry = {"envelope": DRAFT, "headers": {"tenant": "a"}, "delay_seconds": 0.5}
    url = f"/queues/{queue}/dead-letters/{letter['letter_id']}:redrive"
    began = now_ms()
    assert (await client.post(url, json={"edit": {"body": entry}})).status_code == 200
    answer = await client.post(f"/queues/{queue}/messages:receive?wait_seconds=30")
    assert answer.json()["messages"][0]["headers"]["tenant"] == "a"
    assert now_ms() >= began + 500


async def test_poison_is_told_and_then_mended(app, client, queue):
    letter = await poison(app, client, queue)
    url = f"/queues/{queue}/dead-letters/{letter['letter_id']}:redrive"
    assert "meta" in problem(await client.post(url), 422, "not_redrivable")["detail"]
    [letter] = await letters(client, queue)
    # A null is no body.
    problem(await client.post(url, content=b"null"), 422, "not_redrivable")
    # New data do not complete an envelope that lacks other members; the problems are those of a publish.
    problem(await client.post(url, json={"edit": {"data": {}}}), 422, "missing_meta")
    answer = await client.post(url, json={"edit": {"body": DRAFT}})
    assert answer.json()["id"]
    [envelope] = await received(client, queue)
    assert (envelope["meta"]["id"], envelope["data"]) == (answer.json()["id"], DRAFT["data"])


async def test_a_job_over_http(client, queue):
    await dead_letter(client, queue, "a", "b", "c")
    url = f"/queues/{queue}/dead-letters:redrive"
    answer = await client.post(url, json={"background": True, "filter": {"job": "b"}, "to_queue": queue + "x"})
    job = answer.json()
    assert (answer.status_code, job["state"], answer.headers["location"]) == (202, "running", f"redrives/{job['id']}")
    path = str(answer.request.url.join(answer.headers["location"]))
    async with asyncio.timeout(60):
        found = job
        while found["state"] == "running":
            found = (await client.get(path)).json()
    assert (found["state"], found["redriven"], found["to_queue"], found["errors"]) == ("completed", 1, queue + "x", [])
    assert [envelope["job"] for envelope in await received(client, queue + "x")] == ["b"]
    assert (await client.get(f"/queues/{queue}/redrives")).json() == {"redrives": [found]}
    assert (await client.post(f"{path}:cancel")).json() == found
    assert (await client.post(f"{path}:resume")).json() == found
    problem(await client.get(f"/queues/{queue}x/redrives/{job['id']}"), 404, "unknown_redrive")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", "dead-letters/x", "GET, HEAD, DELETE"),
        ("POST", "dead-letters/x", "GET, HEAD, DELETE"),
        ("GET", "dead-letters/x:redrive", "POST"),
        ("DELETE", "dead-letters/x:redrive", "POST"),
        ("PUT", "dead-letters/x:redrive", "POST"),
        ("GET", "redrives/x:cancel", "POST"),
        ("GET", "redrives/x:resume", "POST"),
        ("OPTIONS", "redrives/x:resume", "POST"),
        ("POST", "redrives/x", "GET, HEAD"),
    ],
)
async def test_methods(client, queue, method, path, allow):
    answer = await client.request(method, f"/queues/{queue}/{path}")
    problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == allow


async def test_rights(serve, connect, token_config, queue):
    app = await serve(auth=token_config(reader={queue: ["listen"]}, boss={queue: ["manage", "send", "listen"]}))
    boss, reader = await connect(app, "boss"), await connect(app, "reader")
    await dead_letter(boss, queue, "a")
    [letter] = await letters(reader, queue)
    base = f"/queues/{queue}"
    assert (await reader.get(f"{base}/dead-letters/{letter['letter_id']}")).status_code == 200
    assert (await reader.get(f"{base}/redrives")).status_code == 200
    for method, path in [
        ("DELETE", f"dead-letters/{letter['letter_id']}"),
        ("POST", f"dead-letters/{letter['letter_id']}:redrive"),
        ("POST", "dead-letters:redrive"),
        ("POST", "redrives/x:cancel"),
        ("POST", "redrives/x:resume"),
    ]:
        problem(await reader.request(method, f"{base}/{path}"), 403, "forbidden")
    problem(await reader.post(f"{base}/dead-letters:delete", json={"ids": ["x"]}), 403, "forbidden")
    answer = await boss.post(f"{base}/dead-letters/{letter['letter_id']}:redrive", json={"to_queue": "elsewhere"})
    problem(answer, 403, "forbidden")
    assert (await boss.delete(f"{base}/dead-letters/{letter['letter_id']}")).status_code == 200


async def test_a_caller_leaves_redrive_jobs_to_others(serve, connect, token_config, queue):
    everything = {"*": ["manage", "send", "listen"]}
    app = await serve(auth=token_config(shop=everything, blog=everything))
    shop, blog = await connect(app, "shop"), await connect(app, "blog")

    async def start(client, number):
        await dead_letter(client, f"{queue}-{number}", "a", "b")
        slow = {"background": True, "per_second": 0.01}
        return await client.post(f"/queues/{queue}-{number}/dead-letters:redrive", json=slow)

    assert {(await start(shop, number)).status_code for number in range(MAX_RUNNING // 2)} == {202}
    refused = await start(shop, 100)
    problem(refused, 429, "too_many_redrives")
    assert refused.json()["detail"].startswith("The caller 'shop' already runs")
    assert (refused.json()["limit"], refused.json()["retryable"], refused.headers["retry-after"]) == (32, True, "10")
    assert (await start(blog, 200)).status_code == 202
