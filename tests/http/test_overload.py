"""Requests that an overloaded process refuses, over the API."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc

import pytest

from babelgate.http.schemas import MAX_ENTRIES
from tests.harness.asgi import GONE, Call, part
from tests.harness.problems import problem

DRAFT = {"job": "urn:babel:test:made", "data": {"n": 1}}
BODY = json.dumps(DRAFT).encode()


def refused(call):
    assert call.status == 429, call.body
    assert call.json()["code"] == "overloaded"
    assert call.json()["retryable"] is True
    assert int(call.headers["retry-after"]) >= 1


class Slow(Call):
    """A client that sends the first of its messages at once, and the rest on request."""

    def __init__(self, *arguments, **headers):
        super().__init__(*arguments, **headers)
        self.go_on = asyncio.Event()
        self.begun = asyncio.Event()

    async def _receive(self):
        if self.log:
            self.begun.set()
            await self.go_on.wait()
        return await super()._receive()


@pytest.fixture
async def narrow(serve):
    """An application that takes on little at a time."""
    return await serve(
        limits={
            "max_publishes_in_flight": 2,
            "max_publish_bytes_in_flight": 4096,
            "max_other_bytes_in_flight": 4096,
            "max_receives_in_flight": 2,
        }
    )


def slow(queue, length=None, path="messages"):
    """A publish whose second half is still to come."""
    length = {} if length is None else {"content_length": str(length)}
    if not length:
        length = {"transfer_encoding": "chunked"}
    return Slow("POST", f"/queues/{queue}/{path}", [part(BODY[:9]), part(BODY[9:], more=False)], **length)


async def under_way(app, *calls):
    tasks = [asyncio.create_task(call.run(app)) for call in calls]
    await asyncio.wait_for(asyncio.gather(*(call.begun.wait() for call in calls)), 60)
    return tasks


async def end(calls, tasks):
    for call in calls:
        call.go_on.set()
    await asyncio.wait_for(asyncio.gather(*tasks), 60)


@pytest.mark.parametrize("path", ["messages", "messages:batch"])
async def test_publishes_past_their_number_are_refused_unread_and_later_ones_served(narrow, queue, path):
    calls = [slow(queue, len(BODY)) for _ in range(2)]
    tasks = await under_way(narrow, *calls)
    extra = await Call("POST", f"/queues/{queue}/{path}", [part(BODY), part(BODY), GONE], content_length="900000").run(
        narrow
    )
    refused(extra)
    assert extra.log[0] == "wrote"
    await end(calls, tasks)
    assert [call.status for call in calls] == [201, 201]
    assert (await Call("POST", f"/queues/{queue}/messages", [part(BODY, more=False)]).run(narrow)).status == 201


async def test_bodies_past_their_bytes_are_refused_by_their_length(narrow, queue):
    large = slow(queue, 4000)
    tasks = await under_way(narrow, large)
    refused(await Call("POST", f"/queues/{queue}/messages", [part(BODY), GONE], content_length="900").run(narrow))
    fits = await Call("POST", f"/queues/{queue}/messages", [part(BODY, more=False)], content_length="61").run(narrow)
    assert fits.status == 201
    await end([large], tasks)


async def test_a_body_without_a_length_counts_as_it_grows(narrow, queue):
    large = slow(queue, 4000)
    tasks = await under_way(narrow, large)
    pieces = [part(b" " * 90), part(b" " * 90), part(b"{}", more=False)]
    refused(await Call("POST", f"/queues/{queue}/messages", pieces, transfer_encoding="chunked").run(narrow))
    await end([large], tasks)
    assert (await Call("POST", f"/queues/{queue}/messages", [part(BODY, more=False)]).run(narrow)).status == 201


async def test_a_packed_body_counts_as_it_is_unpacked(narrow, queue):
    large = slow(queue, 3900)
    tasks = await under_way(narrow, large)
    packed = gzip.compress(b" " * 500 + BODY)
    call = Call(
        "POST",
        f"/queues/{queue}/messages",
        [part(packed, more=False)],
        content_encoding="gzip",
        content_length=str(len(packed)),
    )
    refused(await call.run(narrow))
    await end([large], tasks)


async def test_settles_are_served_where_publishes_are_not(narrow, client, connect, queue):
    client = await connect(narrow)
    await client.post(f"/queues/{queue}/messages", json=DRAFT)
    (message,) = (await client.post(f"/queues/{queue}/messages:receive")).json()["messages"]
    calls = [slow(queue, 2048) for _ in range(2)]
    tasks = await under_way(narrow, *calls)
    problem(await client.post(f"/queues/{queue}/messages", json=DRAFT), 429, "overloaded")
    answer = await client.post(f"/queues/{queue}/messages:ack", json={"ack_tokens": [message["ack_token"]]})
    assert answer.status_code == 200
    assert (await client.get("/readyz")).status_code == 200
    await end(calls, tasks)


async def test_a_small_settle_is_served_where_large_ones_have_all_the_room(narrow, queue):
    large = slow(queue, 200_000, path="messages:ack")
    tasks = await under_way(narrow, large)
    refused(
        await Call("POST", f"/queues/{queue}/messages:ack", [part(b"{}"), GONE], content_length="70000").run(narrow)
    )
    small = await Call("POST", f"/queues/{queue}/messages:ack", [part(b"{}", more=False)], content_length="2").run(
        narrow
    )
    assert small.status == 400
    assert (await Call("GET", "/readyz").run(narrow)).status == 200
    assert (await Call("GET", "/metrics").run(narrow)).status == 200
    await end([large], tasks)


async def test_who_hangs_up_half_way_leaves_room_to_others(narrow, queue):
    for _ in range(5):
        await Call("POST", f"/queues/{queue}/messages", [part(BODY[:9]), GONE], content_length="4000").run(narrow)
    fits = [part(BODY, more=False)]
    assert (await Call("POST", f"/queues/{queue}/messages", fits, content_length="61").run(narrow)).status == 201


async def test_a_body_without_a_length_counts_also_when_it_comes_in_one_piece(narrow, queue):
    large = slow(queue, 4000)
    tasks = await under_way(narrow, large)
    pieces = [part(BODY + b" " * 200, more=False)]
    refused(await Call("POST", f"/queues/{queue}/messages", pieces, transfer_encoding="chunked").run(narrow))
    await end([large], tasks)


@pytest.mark.parametrize(
    "head", [{"transfer_encoding": "chunked"}, {"content_encoding": "gzip", "content_length": "9"}]
)
async def test_an_upload_of_unknown_length_takes_room_for_what_it_holds(narrow, queue, head):
    upload = Slow(
        "POST", f"/queues/{queue}/messages:batch", [part(b""), GONE], content_type="application/x-ndjson", **head
    )
    tasks = await under_way(narrow, upload)
    refused(await Call("POST", f"/queues/{queue}/messages", [part(BODY, more=False)], content_length="61").run(narrow))
    await end([upload], tasks)
    assert (await Call("POST", f"/queues/{queue}/messages", [part(BODY, more=False)]).run(narrow)).status == 201


async def test_receives_past_their_number_are_refused(narrow, queue):
    waiting = [Call("POST", f"/queues/{queue}/messages:receive?wait_seconds=30") for _ in range(2)]
    tasks = [asyncio.create_task(call.run(narrow)) for call in waiting]
    await asyncio.sleep(0)
    assert [call.log for call in waiting] == [["read"]] * 2
    refused(await Call("POST", f"/queues/{queue}/messages:receive").run(narrow))
    for call in waiting:
        call.hang_up()
    await asyncio.wait_for(asyncio.gather(*tasks), 60)
    assert (await Call("POST", f"/queues/{queue}/messages:receive").run(narrow)).status == 200


async def test_a_small_refused_body_has_come_with_its_head_and_its_connection_is_kept(narrow, queue):
    calls = [slow(queue, len(BODY)) for _ in range(2)]
    tasks = await under_way(narrow, *calls)
    whole = [part(BODY, more=False)]
    call = await Call("POST", f"/queues/{queue}/messages", whole, content_length=str(len(BODY))).run(narrow)
    refused(call)
    assert "connection" not in call.headers
    await end(calls, tasks)


async def test_an_array_of_countless_tiny_entries_is_refused_in_little_memory(app, queue):
    junk = b"[" + b"1," * 8_000_000 + b"1]"

    async def send() -> Call:
        path = f"/queues/{queue}/messages:batch"
        return await Call("POST", path, [part(junk, more=False)], content_length=str(len(junk))).run(app)

    # The first such body of a process makes the class that stops at the limit.
    await send()
    tracemalloc.start()
    try:
        call = await send()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (call.status, call.json()["code"]) == (400, "invalid_parameter")
    assert str(MAX_ENTRIES) in call.json()["detail"]
    assert peak < 8_000_000


async def test_an_array_of_the_most_entries_is_read(app, queue):
    body = b"[" + b",".join([b"1"] * MAX_ENTRIES) + b"]"
    call = await Call("POST", f"/queues/{queue}/messages:batch", [part(body, more=False)]).run(app)
    assert (call.status, call.json()["failed"]) == (207, MAX_ENTRIES)


async def test_of_two_brokers_one_leaves_room_for_the_other(serve, tmp_path, queue):
    app = await serve(
        brokers={name: {"url": f"sqlite:///{tmp_path}/{name}.db", "timeout_seconds": 30} for name in ("slow", "quick")},
        queues={"slow": {"broker": "slow"}},
        default={"broker": "quick"},
        limits={"max_publishes_in_flight": 4},
    )
    calls = [slow("slow", len(BODY)) for _ in range(2)]
    tasks = await under_way(app, *calls)
    refused(await Call("POST", "/queues/slow/messages", [part(BODY, more=False)]).run(app))
    assert (await Call("POST", f"/queues/{queue}/messages", [part(BODY, more=False)]).run(app)).status == 201
    await end(calls, tasks)
