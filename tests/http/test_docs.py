"""The pages that anyone may read: made once, asked for once, and sent to slow readers within bounds."""

from __future__ import annotations

import asyncio
import sys
import threading
from importlib.resources import files
from typing import Any

import pytest
from fastapi import FastAPI, Request
from uvicorn.config import Config
from uvicorn.server import ServerState

from babelgate.http.direct import DIRECT
from babelgate.http.docs import MAX_READERS, Content, Readers, routes, takes_gzip
from babelgate.server.protocol import GatewayProtocol
from tests.harness.asgi import Call
from tests.harness.local import eventually
from tests.harness.problems import problem

SCRIPT, STYLE, DOCUMENT = "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css", "/openapi.json"
CACHED = {SCRIPT: "max-age=86400", STYLE: "max-age=86400", DOCUMENT: "no-cache"}
PLAIN = {"accept-encoding": "identity"}
MOST_WAITING_BYTES = 131_072
"""Maximum bytes that the server keeps for a client that does not read: a part, and the buffers above it."""


@pytest.mark.parametrize("path", CACHED)
async def test_they_are_compressed_if_the_client_takes_it(client, path):
    packed, plain = (
        await client.get(path, headers={"accept-encoding": "br, gzip"}),
        await client.get(path, headers=PLAIN),
    )
    assert (packed.status_code, packed.headers["content-encoding"]) == (200, "gzip")
    assert (plain.status_code, plain.headers.get("content-encoding")) == (200, None)
    assert packed.content == plain.content
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 3
    assert packed.headers["etag"] != plain.headers["etag"]
    for answer in (packed, plain):
        assert answer.headers["vary"] == "accept-encoding"
        assert answer.headers["cache-control"] == CACHED[path]
        assert answer.headers["etag"].startswith('"') and answer.headers["etag"].endswith('"')


async def test_the_assets_are_those_of_the_package(client):
    for path, kind in ((SCRIPT, "text/javascript; charset=utf-8"), (STYLE, "text/css; charset=utf-8")):
        answer = await client.get(path)
        name = path.rpartition("/")[2]
        assert answer.content == (files("fastapi_swagger") / "resources" / name).read_bytes()
        assert answer.headers["content-type"] == kind


async def test_no_request_waits_for_the_document_to_be_made(connect):
    made_in = []

    def document():
        made_in.append(threading.get_ident())
        return {}

    app = FastAPI(openapi_url=None)
    app.include_router(routes(document, Readers()))
    client = await connect(app)
    for _ in range(2):
        assert (await client.get(DOCUMENT)).json() == {}
    assert len(made_in) == 1 and made_in[0] != threading.get_ident()


@pytest.mark.parametrize("path", CACHED)
@pytest.mark.parametrize("given", ["{etag}", "W/{etag}", '"x", {etag}', " * "])
async def test_who_has_it_is_told_so(client, path, given):
    etag = (await client.get(path)).headers["etag"]
    answer = await client.get(path, headers={"if-none-match": given.format(etag=etag)})
    assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
    assert answer.headers["cache-control"] == CACHED[path] and "content-type" not in answer.headers
    for other in ("", '"x"', etag[1:-1], (await client.get(path, headers=PLAIN)).headers["etag"]):
        assert (await client.get(path, headers={"if-none-match": other})).status_code == 200


@pytest.mark.parametrize("path", CACHED)
async def test_a_head_has_the_fields_and_a_range_is_ignored(client, path):
    got, asked = await client.get(path), await client.head(path)
    assert asked.status_code == 200
    same = ("content-length", "etag", "cache-control", "content-type", "content-encoding")
    assert [asked.headers[name] for name in same] == [got.headers[name] for name in same]
    part = await client.get(path, headers={"range": "bytes=0-9"})
    assert (part.status_code, part.content) == (200, got.content)
    assert "accept-ranges" not in part.headers


@pytest.mark.parametrize(
    ("accepted", "taken"),
    [
        ("", False),
        ("gzip", True),
        ("GZIP;q=0.5, br", True),
        ("gzip; q=1.000", True),
        ("gzip;q=0", False),
        ("gzip;q=0.000, *", False),
        ("*", True),
        ("*;q=0", False),
        ("br, *;q=0.1", True),
        ("identity", False),
        ("xgzip", False),
        ("gzip" + ",gzip" * 10_000, False),
    ],
)
def test_accept_encoding(accepted, taken):
    assert takes_gzip(accepted) == taken


async def test_a_content_is_read_once_whoever_asks(app):
    read = []

    def content():
        read.append(1)
        return b"x" * 100_000

    made, readers = Content(content, "text/plain", "no-cache"), Readers()

    def request(accepted):
        return Request(Call("GET", "/x", accept_encoding=accepted).scope)

    async with asyncio.TaskGroup() as crowd:
        asked = [crowd.create_task(made.answer(request(each), readers)) for each in ("gzip", "") * 50]
    assert len(read) == 1
    tags = {each.result().headers["etag"] for each in asked}
    assert len(tags) == 2


class Reader(Call):
    """A client that reads nothing after the head until it is told to."""

    def __init__(self, path):
        super().__init__("GET", path)
        self.reads = asyncio.Event()
        self.largest = 0

    async def _send(self, message):
        await super()._send(message)
        self.largest = max(self.largest, len(message.get("body", b"")))
        if self.body:
            await self.reads.wait()


async def test_readers_are_bounded_and_others_are_served(app, client):
    readers = [Reader(SCRIPT) for _ in range(MAX_READERS)]
    async with asyncio.TaskGroup() as crowd:
        for reader in readers:
            crowd.create_task(reader.run(app))
        await eventually(lambda: all(reader.body for reader in readers))
        # What does not fit the clients' buffers is not taken from the content.
        assert max(len(reader.body) for reader in readers) <= 65_536
        for path in CACHED:
            refused = await client.get(path)
            problem(refused, 429, "overloaded")
            assert refused.headers["retry-after"] == "1"
        for path in ("/livez", "/readyz", "/docs", "/queues"):
            assert (await client.get(path)).status_code == 200
        etag = readers[0].headers["etag"]
        assert (await client.get(SCRIPT, headers={"if-none-match": etag} | PLAIN)).status_code == 304
        for reader in readers:
            reader.reads.set()
    assert {(reader.status, reader.complete, reader.largest) for reader in readers} == {(200, True, 65_536)}
    assert (await client.get(SCRIPT)).status_code == 200


class Stuck(asyncio.Transport):
    """A connection whose client reads nothing. Like asyncio's, it asks for a pause above 64 KiB."""

    def __init__(self):
        super().__init__()
        self.written = 0
        self.protocol: Any = None

    def write(self, data):
        before, self.written = self.written, self.written + len(data)
        if before <= 65_536 < self.written:
            self.protocol.pause_writing()

    def get_write_buffer_size(self):
        return self.written

    def is_closing(self):
        return False

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass

    def close(self):
        pass


@pytest.mark.parametrize("path", [SCRIPT, DOCUMENT])
async def test_a_client_that_does_not_read_keeps_little_memory(app, path):
    config = Config(app, http=GatewayProtocol, ws="none", interface="asgi3")
    config.load()
    transport = Stuck()
    transport.protocol = protocol = GatewayProtocol(config, ServerState(), {DIRECT: app.direct})
    protocol.connection_made(transport)
    try:
        protocol.data_received(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await eventually(lambda: transport.written > 65_536)
        for _ in range(100):
            await asyncio.sleep(0)
        assert transport.written <= MOST_WAITING_BYTES
    finally:
        protocol.connection_lost(None)


OPEN = [
    "/livez",
    "/readyz",
    "/startupz",
    "/metrics",
    "/openapi.json",
    "/docs",
    SCRIPT,
    "/docs/start.js",
    "/",
    "/nowhere",
]
QUEUE = ["/queues", "/brokers", "/queues/{queue}", "/queues/{queue}/messages:peek", "/queues/{queue}/dead-letters"]
HOT = ["/queues/{queue}/messages", "/queues/{queue}/messages:receive", "/queues/{queue}/messages:ack"]
LONG = {
    "many": "a=1&" * 20,
    "60 KB of them": "a=1&" * 15_000,
    "different ones": "&".join(f"a{n}=1" for n in range(7_000)),
    "without values": "&" * 60_000,
    "long": "a=" + "1" * 8_000,
    "escapes": "%41" * 20_000,
}


@pytest.mark.parametrize("path", OPEN + QUEUE + HOT)
async def test_a_query_is_bounded_on_every_path(app, queue, path):
    for query in LONG.values():
        call = Call("POST" if path in HOT else "GET", f"{path.format(queue=queue)}?{query}")
        await call.run(app)
        assert (call.status, call.json()["code"]) == (400, "invalid_parameter")
        assert "a query has at most" in call.json()["detail"]


class Steps:
    """Counts the calls of all functions in this thread."""

    def __init__(self):
        self.count = 0

    def __call__(self, *_):
        self.count += 1


async def steps(app, path, **headers):
    """The calls that a request makes, once all it needs has been made: the least of three, because what else runs in
    this thread meanwhile is counted, too."""
    await Call("GET", path, **headers).run(app)
    counts = []
    for _ in range(3):
        counted = Steps()
        sys.setprofile(counted)
        try:
            call = await Call("GET", path, **headers).run(app)
        finally:
            sys.setprofile(None)
        assert call.status in (200, 307, 400, 404)
        counts.append(counted.count)
    return min(counts)


@pytest.mark.parametrize("path", OPEN)
async def test_what_anyone_may_send_takes_no_steps(app, path):
    """Neither a parameter nor a cookie is parsed, however many there are."""
    few = await steps(app, path)
    assert await steps(app, f"{path}?{LONG['60 KB of them']}") < few + 1_000
    assert await steps(app, path, cookie="a=1; " * 12_000, accept_encoding="gzip, " * 8_000) < few + 1_000
