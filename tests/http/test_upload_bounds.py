"""An upload of invalid entries ends, and so does one whose client has gone, on both ways."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import NamedTuple

import httpx
import pytest
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.server import ServerState

from babelgate.errors import BrokerUnavailable
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.routing import Router, Rule
from babelgate.http.api import create_api
from babelgate.http.auth import Auth
from babelgate.http.body import RequestLimits
from babelgate.http.upload import CHUNK_LINES, MAX_FAILED_BYTES, MAX_FAILED_ENTRIES
from babelgate.server.protocol import GatewayProtocol
from tests.harness.asgi import Call, part
from tests.harness.gateway import gateway
from tests.harness.local import eventually
from tests.harness.memory import MemoryBinding
from tests.harness.problems import problem
from tests.harness.world import KEYS
from tests.http.test_steps import Transport

LINE = json.dumps({"job": "urn:babel:test:made", "data": {"n": 1}}).encode() + b"\n"
NDJSON = {"content-type": "application/x-ndjson"}
GZIP = NDJSON | {"content-encoding": "gzip"}


@pytest.fixture(params=["server", "asgi"])
async def way(request, tmp_path, serve, connect):
    """A client of the gateway's own server, or of the application."""
    if request.param == "asgi":
        yield await connect(await serve())
        return
    with gateway(tmp_path) as process:
        async with httpx.AsyncClient(base_url=process.url, timeout=120) as client:
            yield client


async def depth(client, queue):
    return (await client.get(f"/queues/{queue}")).json()["stats"]["depth"]


@pytest.mark.parametrize("line", [b"x\n", b"{}\n", b'{"job":"a","data":{"n":1e999}}\n'])
async def test_an_upload_ends_after_too_many_failed_entries(way, queue, line):
    lines = gzip.compress(LINE * 3 + line * 10 * MAX_FAILED_ENTRIES + LINE)
    told = problem(
        await way.post(f"/queues/{queue}/messages:batch", content=lines, headers=GZIP), 422, "too_many_failures"
    )
    assert told["accepted"] == 3
    assert MAX_FAILED_ENTRIES <= told["failed"] < MAX_FAILED_ENTRIES + CHUNK_LINES
    assert told["limit"] == MAX_FAILED_ENTRIES
    assert await depth(way, queue) == 3


async def test_as_many_failed_entries_at_the_end_have_their_results(way, queue):
    lines = LINE + b"{}\n" * MAX_FAILED_ENTRIES
    answer = await way.post(f"/queues/{queue}/messages:batch", content=lines, headers=NDJSON)
    assert (answer.status_code, answer.json()["failed"]) == (207, MAX_FAILED_ENTRIES)
    assert len(answer.json()["results"]) == MAX_FAILED_ENTRIES + 1


async def test_an_upload_ends_after_too_many_bytes_of_failed_entries(way, queue):
    large = b'"%b"\n' % (b"x" * 1_000_000)

    async def lines():
        yield LINE
        for _ in range(MAX_FAILED_BYTES // len(large) + 3):
            yield large

    answer = await way.post(f"/queues/{queue}/messages:batch", content=lines(), headers=NDJSON)
    told = problem(answer, 422, "too_many_failures")
    assert (told["accepted"], told["limit"]) == (1, MAX_FAILED_BYTES)
    assert told["failed"] * len(large) <= MAX_FAILED_BYTES + 2 * len(large)


@pytest.fixture
async def held():
    """A gateway whose broker, in memory, holds publishes until its gate opens."""
    binding = MemoryBinding()
    binding.gates["publish"] = asyncio.Event()
    gateway = Gateway({"memory": binding}, Router([], Rule("*", binding)), TokenSealer(KEYS))
    await gateway.start()
    yield Held(gateway, binding, create_api(gateway, auth=Auth(), limits=RequestLimits()))
    await gateway.close()


class Held(NamedTuple):
    gateway: Gateway
    binding: MemoryBinding
    api: ASGIApp


async def test_entries_that_a_broker_does_not_take_end_an_upload_with_its_error(held, connect):
    held.binding.gates.clear()
    held.binding.fail_after("publish", 0)
    client = await connect(held.api)
    answer = await client.post("/queues/q/messages:batch", content=LINE * 2 * MAX_FAILED_ENTRIES, headers=NDJSON)
    told = problem(answer, 503, BrokerUnavailable.code)
    assert (told["accepted"], told["failed"], told["retryable"]) == (0, MAX_FAILED_ENTRIES, True)


async def test_once_something_was_accepted_it_is_no_error_after_which_clients_repeat(held, connect):
    held.binding.gates.clear()
    held.binding.fail_after("publish", 2)
    client = await connect(held.api)
    answer = await client.post("/queues/q/messages:batch", content=LINE * 2 * MAX_FAILED_ENTRIES, headers=NDJSON)
    told = problem(answer, 422, "too_many_failures")
    assert (told["accepted"], told["retryable"]) == (200, False)
    assert told["failed"] >= MAX_FAILED_ENTRIES


LEFT = {
    "lines": (LINE * 3 * CHUNK_LINES, NDJSON),
    "packed lines": (gzip.compress(LINE * 3 * CHUNK_LINES), GZIP),
    "packed lines of which most fail": (gzip.compress(LINE + b"x\n" * 9_000 + LINE * CHUNK_LINES), GZIP),
    "packed members": (gzip.compress(LINE * CHUNK_LINES) + gzip.compress(b"") * 1000 + gzip.compress(LINE), GZIP),
    "array": (b"[%b]" % b",".join([LINE] * 3 * CHUNK_LINES), {"content-type": "application/json"}),
}


def _asgi(held, body, headers):
    """Send a request to the application; a function that hangs up."""
    call = Call("POST", "/queues/q/messages:batch", [part(body, more=False)], **headers)
    task = asyncio.create_task(call.run(held.api))
    return call.hang_up, lambda: task.done() and call.status == 0


def _server(held, body, headers):
    """The same over the gateway's own protocol class."""
    config = Config(held.api, http=GatewayProtocol, ws="none", interface="asgi3")
    config.load()
    protocol, transport = GatewayProtocol(config, ServerState(), {}), Transport()
    protocol.connection_made(transport)
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST /queues/q/messages:batch HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n{fields}\r\n"
    protocol.data_received(head.encode() + body)
    return lambda: protocol.connection_lost(None), lambda: not transport.written


@pytest.mark.parametrize("send", [_server, _asgi])
@pytest.mark.parametrize(("body", "headers"), LEFT.values(), ids=LEFT)
async def test_an_upload_ends_when_its_client_has_gone(held, send, body, headers):
    hang_up, unanswered = send(held, body, headers)
    published = held.binding.calls["publish"]
    await eventually(lambda: published)
    hang_up()
    held.binding.gates["publish"].set()
    await eventually(lambda: held.gateway.admission.publishing("memory") == 0)
    assert unanswered()
    assert sum(published) <= CHUNK_LINES
