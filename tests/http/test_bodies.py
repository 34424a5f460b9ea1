"""Request bodies: limits, gzip, and clients that continue writing or disconnect."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib

import pytest

from babelgate.http.exchange import DISCARDED_BYTES
from tests.harness.asgi import GONE, Call, part
from tests.harness.problems import problem

DRAFT = {"job": "urn:babel:test:made", "data": {"n": 1}}
LINE = json.dumps(DRAFT).encode() + b"\n"
GZIP = {"content-encoding": "gzip"}
NDJSON = {"content-type": "application/x-ndjson"}


@pytest.fixture
async def small(serve):
    """An application with narrow limits."""
    return await serve(limits={"max_message_bytes": 2000, "max_request_bytes": 100_000, "max_stream_bytes": 200_000})


async def depth(client, queue):
    return (await client.get(f"/queues/{queue}")).json()["stats"]["depth"]


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "GZIP"])
async def test_gzip_is_unpacked(client, queue, encoding):
    body = gzip.compress(json.dumps(DRAFT).encode())
    answer = await client.post(f"/queues/{queue}/messages", content=body, headers={"content-encoding": encoding})
    assert answer.status_code == 201, answer.text


async def test_gzip_in_several_members_and_tiny_pieces(client, queue):
    packed = b"".join(gzip.compress(LINE * 300) for _ in range(3))

    async def bytewise():
        for at in range(0, len(packed), 7):
            yield packed[at : at + 7]

    answer = await client.post(f"/queues/{queue}/messages:batch", content=bytewise(), headers=NDJSON | GZIP)
    assert answer.json()["accepted"] == 900


@pytest.mark.parametrize(
    "body",
    [b"plain", gzip.compress(LINE)[:-3], gzip.compress(LINE) + b"rest", zlib.compress(LINE)],
    ids=["plain", "cut", "trailing", "zlib"],
)
@pytest.mark.parametrize("path", ["messages", "messages:batch", "messages:ack", "messages:validate"])
async def test_bad_gzip(client, queue, path, body):
    problem(await client.post(f"/queues/{queue}/{path}", content=body, headers=GZIP), 400, "invalid_encoding")
    assert await depth(client, queue) == 0


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", ""])
async def test_other_encodings(client, queue, encoding):
    headers = {"content-encoding": encoding}
    answer = await client.post(f"/queues/{queue}/messages", content=b"x", headers=headers)
    problem(answer, 415, "unsupported_media_type")
    assert answer.headers["accept-encoding"] == "gzip"


@pytest.mark.parametrize("path", ["messages", "messages:batch", "messages:validate"])
async def test_a_bomb_is_refused_at_the_limit(client, queue, path):
    bomb = gzip.compress(b" " * 100_000_000)
    assert len(bomb) < 200_000
    refused = problem(await client.post(f"/queues/{queue}/{path}", content=bomb, headers=GZIP), 413, "body_too_large")
    assert int(refused["actual"].removeprefix("at least ")) < 20_000_000


async def test_a_json_batch_has_a_limit_of_its_own(small, connect, queue):
    client = await connect(small)
    body = b"[" + b" " * 100_000 + b"]"
    refused = problem(await client.post(f"/queues/{queue}/messages:batch", content=body), 413, "body_too_large")
    assert (refused["actual"], refused["limit"]) == (len(body), 100_000)


async def test_an_upload_over_the_limit_tells_what_was_published(small, connect, queue):
    client = await connect(small)

    async def upload():
        for _ in range(100):
            yield LINE * 100

    answer = await client.post(f"/queues/{queue}/messages:batch", content=upload(), headers=NDJSON)
    refused = problem(answer, 413, "body_too_large")
    assert refused["limit"] == 200_000
    assert 0 < refused["accepted"] == await depth(client, queue) < 10_000


async def test_an_upload_announced_too_large_is_not_begun(small, connect, queue):
    client = await connect(small)
    body = LINE * 5000
    problem(await client.post(f"/queues/{queue}/messages:batch", content=body, headers=NDJSON), 413, "body_too_large")
    assert await depth(client, queue) == 0


async def test_413_is_told_first_and_the_rest_is_read_afterwards(app, queue):
    body = [part(b"x" * 1000) for _ in range(20)] + [part(b"", more=False)]
    call = await Call("POST", f"/queues/{queue}/messages", body, content_length="20000000").run(app)
    assert (call.status, call.headers["connection"], call.complete) == (413, "close", True)
    assert call.log == ["wrote", *["read"] * 21]


async def test_no_more_than_a_bound_is_discarded(app, queue):
    pieces = [part(b"x" * 8_000_000)] * (DISCARDED_BYTES // 8_000_000 + 100)
    call = await Call("POST", f"/queues/{queue}/messages", pieces, content_length="9000000000").run(app)
    assert (call.status, call.complete) == (413, True)
    assert call.log.count("read") <= DISCARDED_BYTES // 8_000_000 + 1


async def test_a_client_that_hangs_up_is_not_read_any_longer(app, queue):
    messages = [part(b"x" * 1000), GONE]
    call = await Call("POST", f"/queues/{queue}/messages", messages, content_length="20000000").run(app)
    assert (call.status, call.log) == (413, ["wrote", "read", "read"])


async def test_an_upload_without_the_right_is_refused_before_it_is_read(serve, token_config):
    app = await serve(auth=token_config(listener={"*": ["listen"]}))
    messages = [part(LINE), part(LINE, more=False)]
    headers = {
        "authorization": "Bearer listener",
        "content_type": "application/x-ndjson",
        "transfer_encoding": "chunked",
    }
    call = await Call("POST", "/queues/q/messages:batch", messages, **headers).run(app)
    assert (call.status, call.log[0]) == (403, "wrote")


@pytest.mark.parametrize("path", ["messages", "messages:batch", "messages:validate"])
async def test_a_broken_body_publishes_nothing_and_is_not_answered(app, client, queue, path):
    messages = [part(json.dumps([DRAFT]).encode() if "batch" in path else json.dumps(DRAFT).encode()), GONE]
    call = await Call("POST", f"/queues/{queue}/{path}", messages).run(app)
    assert (call.status, call.body) == (0, b"")
    assert await depth(client, queue) == 0


async def test_a_broken_upload_leaves_published_what_was(app, client, queue):
    messages = [part(LINE * 500), part(LINE[:-1]), GONE]
    call = await Call("POST", f"/queues/{queue}/messages:batch", messages, content_type="application/x-ndjson").run(app)
    assert (call.status, call.body) == (0, b"")
    assert await depth(client, queue) == 500


async def test_hanging_up_while_waiting_takes_no_message(app, client, queue):
    call = Call("POST", f"/queues/{queue}/messages:receive?wait_seconds=30")
    serving = asyncio.create_task(call.run(app))
    await asyncio.sleep(0.05)
    call.hang_up()
    await asyncio.wait_for(serving, 60)
    assert call.status == 0
    await client.post(f"/queues/{queue}/messages", json=DRAFT)
    # The reserve that is still under way may take it for a moment, and gives it back.
    (message,) = (await client.post(f"/queues/{queue}/messages:receive?wait_seconds=30")).json()["messages"]
    assert message["attempts"] == 0


@pytest.mark.parametrize("wait", [0, 5])
async def test_hanging_up_before_the_answer_gives_the_messages_back(app, client, queue, wait):
    await client.post(f"/queues/{queue}/messages:batch", json=[DRAFT] * 3)
    call = Call("POST", f"/queues/{queue}/messages:receive?max_messages=3&wait_seconds={wait}")
    call.hang_up()
    await call.run(app)
    assert call.status == 0
    again = (await client.post(f"/queues/{queue}/messages:receive?max_messages=3&wait_seconds=30")).json()["messages"]
    assert {message["attempts"] for message in again} == {0}


async def test_a_stopping_gateway_ends_the_wait_with_an_empty_list(app, queue):
    call = Call("POST", f"/queues/{queue}/messages:receive?wait_seconds=30")
    serving = asyncio.create_task(call.run(app))
    await asyncio.sleep(0.05)
    await app.gateway.drain()
    await asyncio.wait_for(serving, 60)
    assert (call.status, call.json()) == (200, {"messages": []})


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("messages", '{"job":"j","data":{}}'),
        ("messages:batch", '[{"job":"j","data":{}}]'),
        ("messages:validate", '{"job":"j","data":{}}'),
        ("messages:receive", '{"max_messages":1}'),
        *((f"messages:{verb}", '{"ack_tokens":["a"]}') for verb in ("ack", "nack", "reject")),
        ("messages:settle", '{"acks":["a"]}'),
    ],
)
def test_a_byte_order_mark_is_refused_by_its_name(caller, path, body):
    answer = caller.post(f"/queues/direct-bom/{path}", content=b"\xef\xbb\xbf" + body.encode())
    refused = problem(answer, 400, "invalid_json")
    assert refused["detail"].endswith(": it starts with a byte order mark.")


def test_a_byte_order_mark_before_the_first_line_refuses_that_line(caller):
    line = b'{"job":"j","data":{}}\n'
    upload = b"\xef\xbb\xbf" + line * 3
    headers = {"content-type": "application/x-ndjson"}
    results = caller.post("/queues/direct-bom/messages:batch", content=upload, headers=headers).json()["results"]
    assert [each["status"] for each in results] == [400, 201, 201]
    assert results[0]["detail"].endswith(": it starts with a byte order mark.")
