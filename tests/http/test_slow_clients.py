"""Clients that send a request byte by byte, with real sockets and short limits."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from functools import partial

import pytest

from babelgate.config import settings
from babelgate.server.overload import SHEDDER, Pacer, Shedder
from babelgate.server.server import raise_file_limit, uvicorn_config
from babelgate.server.wiring import build_app
from tests.harness.problems import MEMBERS
from tests.harness.sockets import Connection, echo, serving

SLOW = 500
SHED = b"/queues/full/messages"
HEAD = b"POST /a HTTP/1.1\r\nHost: h\r\n"
LIMITS = {"HEAD_SECONDS": "0.5", "BODY_SECONDS": "1", "BODY_BYTES_PER_SECOND": "100"}


def application():
    """Echoes; ``/late`` begins to read after 1.5 s, and the queue ``full`` has a backlog."""
    app = echo()

    async def with_delay(scope, receive, send):
        if scope["type"] == "lifespan":
            scope["state"][SHEDDER] = Shedder(Pacer(time.thread_time), lambda queue: queue == "full")
        elif scope["path"] == "/late":
            await asyncio.sleep(1.5)
        await app(scope, receive, send)

    return with_delay


def configured(state, **more):
    environ = {f"BABELGATE_{name}": value for name, value in {**LIMITS, **more, "STATE_DIR": str(state)}.items()}
    return settings.load(None, environ)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with serving(uvicorn_config(application, configured(tmp_path_factory.mktemp("state")))) as found:
        yield found


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    """The real API."""
    found = configured(tmp_path_factory.mktemp("state"))
    with serving(uvicorn_config(partial(build_app, found), found)) as where:
        yield where


def timed_out(reply):
    problem = json.loads(reply.body)
    assert (reply.status, reply.headers["content-type"]) == (408, "application/problem+json")
    assert [*problem] == MEMBERS
    assert (problem["status"], problem["code"], problem["retryable"]) == (408, "request_timeout", True)
    assert reply.headers["connection"] == "close"


def drip(connection, piece=b"a"):
    """Send ``piece`` five times a second until there is an answer, or the server hangs up."""
    with contextlib.suppress(OSError):
        while not connection.readable(0.2):
            connection.send(piece)


@pytest.mark.parametrize(
    ("begun", "piece"),
    [
        (b"GET /", b"a"),
        (HEAD + b"X-Long: ", b"a"),
        (HEAD, b"A: b\r\n"),
        (HEAD + b"Content-Length: 9999\r\n\r\n", b"a"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;x=", b"y"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: ", b"a"),
    ],
    ids=["target", "header", "headers", "sized body", "chunks", "chunk extension", "trailer"],
)
def test_who_sends_too_slowly_is_told_so(connection, begun, piece):
    connection.send(begun)
    drip(connection, piece)
    timed_out(connection.reply())
    assert connection.ended()


@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson"])
@pytest.mark.parametrize("framing", ["Content-Length: 99999", "Transfer-Encoding: chunked"])
def test_slow_uploads_are_cut_off(gateway, queue, kind, framing):
    line = b'{"job":"urn:babel:test:made","data":{}}\n'
    head = (
        f"POST /queues/{queue}/messages:batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n{framing}\r\n\r\n"
    )
    with Connection(*gateway) as upload:
        upload.send(head.encode())
        upload.send(line if "Length" in framing else b"%x\r\n%b\r\n" % (len(line), line))
        drip(upload, b" " if "Length" in framing else b"1\r\n \r\n")
        timed_out(upload.reply())
        assert upload.ended()


def test_who_sends_a_long_body_steadily_is_served(connection):
    piece, pieces = b"x" * 300, 12
    connection.send(HEAD + b"Content-Length: %d\r\n\r\n" % (len(piece) * pieces) + piece)
    for _ in range(pieces - 1):
        time.sleep(0.1)
        connection.send(piece)
    assert connection.reply().body == b"POST /a " + piece * pieces


@pytest.mark.parametrize("size", [0, 10, 1_000_000])
def test_nobody_is_slow_whom_the_server_keeps_waiting(connection, size):
    """The largest body does not fit what the server takes before the application reads."""
    for _ in range(2):
        connection.send(HEAD.replace(b"/a", b"/late") + b"Content-Length: %d\r\n\r\n" % size + bytes(size))
        assert connection.reply().body == b"POST /late " + bytes(size)


def test_a_slow_head_behind_a_request_does_not_spoil_its_answer(connection):
    connection.send(HEAD.replace(b"/a", b"/late") + b"\r\n" + HEAD + b"X-Long: ")
    drip(connection)
    assert connection.reply().body == b"POST /late "
    assert connection.ended()


def test_a_refused_request_has_its_only_answer(connection):
    connection.send(b"POST " + SHED + b" HTTP/1.1\r\nHost: h\r\nContent-Length: 9999\r\n\r\n")
    assert connection.reply().status == 429
    drip(connection)
    assert connection.ended()


def test_empty_lines_are_no_sign_of_life(tmp_path):
    config = uvicorn_config(application, configured(tmp_path, KEEP_ALIVE_SECONDS="1"))
    with serving(config) as where, Connection(*where) as connection:
        drip(connection, b"\r\n")
        assert connection.ended()


async def test_many_slow_clients_are_cut_off_while_others_are_served(address):
    raise_file_limit()
    begun = [HEAD + b"X-Long: ", HEAD + b"Content-Length: 9999\r\n\r\n"]

    async def until_reset(reader):
        # A reset that follows the answer must not take away what was read.
        answer = b""
        with contextlib.suppress(OSError):
            while part := await reader.read(65_536):
                answer += part
        return answer

    async def slow(head):
        reader, writer = await asyncio.open_connection(*address)
        answer = asyncio.ensure_future(until_reset(reader))
        writer.write(head)
        with contextlib.suppress(OSError):
            while not answer.done():
                writer.write(b"a")
                await asyncio.wait([answer], timeout=0.3)
        writer.close()
        return await answer

    crowd = [asyncio.create_task(slow(begun[number % 2])) for number in range(SLOW)]
    served = 0
    while not all(each.done() for each in crowd):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(HEAD + b"Connection: close\r\n\r\n")
        assert (await reader.read()).endswith(b"POST /a ")
        served += 1
        writer.close()
        await asyncio.sleep(0.05)
    assert served
    answers = await asyncio.gather(*crowd, return_exceptions=True)
    assert all(isinstance(answer, (bytes, OSError)) for answer in answers)
    told = [answer for answer in answers if isinstance(answer, bytes) and answer]
    assert all(answer.startswith(b"HTTP/1.1 408 ") for answer in told)
    assert len(told) > SLOW / 2
