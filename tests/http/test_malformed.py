"""Requests that the server refuses before any endpoint: they are counted by kind, and are in the access log."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import ssl
from functools import partial

import httpx
import pytest

from babelgate.config import settings
from babelgate.http.observers import AccessLog, MalformedRequest
from babelgate.observe.log_throttle import LINES, SECONDS
from babelgate.observe.metrics.catalogue import MALFORMED_KINDS
from babelgate.server.malformed import MALFORMED
from babelgate.server.protocol import MAX_PIPELINED
from babelgate.server.server import uvicorn_config
from babelgate.server.wiring import build_app
from tests.harness.local import certify, eventually
from tests.harness.sockets import Connection, echo, serving

SECRET = b"hunter2"
"""Part of what is sent, which must not be in a report."""
START = b"POST /" + SECRET + b" HTTP/1.1\r\nHost: h\r\n"
CHUNKED = START + b"Transfer-Encoding: chunked\r\n\r\n"

# What is sent, its kind, and the status of the answer. None: no answer.
SENT = [
    (b"hunter2 is no HTTP\r\n\r\n", "request_line", 400),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "request_line", 400),
    (b"\x1b[31mGET / HTTP/1.1\r\n\r\n", "request_line", 400),
    (b"GET hunter2 HTTP/1.1\r\n\r\n", "target", 400),
    (b"GET /hunter2\x01 HTTP/1.1\r\n\r\n", "target", 400),
    (b"GET /hunter2#hunter2 HTTP/1.1\r\nHost: h\r\n\r\n", "target", 400),
    (b"GET /hunter2%2 HTTP/1.1\r\nHost: h\r\n\r\n", "target", 400),
    (b"GET http://hunter2.example/a HTTP/1.1\r\nHost: h\r\n\r\n", "target", 400),
    (b"GET /hunter2 HTTP/9.9\r\nHost: h\r\n\r\n", "version", 400),
    (b"GET /hunter2 FTP/1.1\r\nHost: h\r\n\r\n", "version", 400),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "version", 400),
    (START + b"hunter2 hunter2: x\r\n\r\n", "header", 400),
    (START + b"X: hunter2\x00\r\n\r\n", "header", 400),
    (START + b"X: a\r\n hunter2\r\n\r\n", "header", 400),
    (START + b"Host: hunter2\r\n\r\n", "header", 400),
    (b"GET /hunter2 HTTP/1.1\r\n\r\n", "header", 400),
    (b"GET /a HTTP/1.1\r\nHost: hunter2/\r\n\r\n", "header", 400),
    (START + b"Content-Length: hunter2\r\n\r\n", "framing", 400),
    (START + b"Content-Length: 99999999999999999999999\r\n\r\n", "framing", 400),
    (START + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxy", "framing", 400),
    (START + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "framing", 400),
    (START + b"Transfer-Encoding: hunter2\r\n\r\n", "framing", 400),
    (START + b"X: hunter2", "head_timeout", 408),
    (b"CONNECT hunter2:80 HTTP/1.1\r\nHost: h\r\n\r\n", "connect", 400),
    ((START + b"\r\n") * (MAX_PIPELINED + 2), "pipelined", None),
    (CHUNKED + b"zz\r\nhunter2", "body", 400),
    (CHUNKED + b"3\r\nhunter2\r\n", "body", 400),
    (CHUNKED + b"0\r\nhunter2 hunter2: x\r\n\r\n", "body", 400),
    (START + b"Content-Length: 99\r\n\r\nhunter2", "body_timeout", 408),
    (CHUNKED + b"7\r\nhunter", "body_timeout", 408),
    (START + b"\r\n" + b"hunter2 hunter2\r\n\r\n", "request_line", None),
]
OTHER_KINDS = {"head_too_large", "tls_handshake", "tls_timeout"}
"""Those with a test of their own."""


class Reports(list):
    """An application that echoes, and what is reported to it."""

    def build(self):
        app = echo()

        async def reporting(scope, receive, send):
            if scope["type"] == "lifespan":
                scope["state"][MALFORMED] = [self.append]
            elif scope["path"] == "/wait":
                await asyncio.sleep(0.5)
            await app(scope, receive, send)

        return reporting


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    state = tmp_path_factory.mktemp("state")
    certify(state)
    return state


def configured(state, *, tls=False, **more):
    environ = {"STATE_DIR": str(state), "HEAD_SECONDS": "1", "BODY_SECONDS": "1", **more}
    if tls:
        environ |= {"TLS_CERT": f"{state}/server.crt", "TLS_KEY": f"{state}/server.key"}
    return settings.load(None, {f"BABELGATE_{name}": value for name, value in environ.items()})


@contextlib.contextmanager
def reporting(loaded):
    reports = Reports()
    with serving(uvicorn_config(reports.build, loaded)) as address:
        yield address, reports


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    with reporting(configured(tmp_path_factory.mktemp("state"))) as found:
        yield found


@pytest.fixture(scope="module")
def tls(certified):
    with reporting(configured(certified, tls=True)) as found:
        yield found


def test_every_kind_is_here():
    assert {kind for _, kind, _ in SENT} | OTHER_KINDS == set(MALFORMED_KINDS)


@pytest.mark.parametrize(("sent", "kind", "status"), SENT)
async def test_each_is_reported_once_with_its_kind(plain, sent, kind, status):
    address, reports = plain
    del reports[:]
    with Connection(address[0], address[1], 60) as connection:
        with contextlib.suppress(ConnectionError):
            connection.send(sent)
        answers = []
        with contextlib.suppress(ConnectionError):
            while True:
                answers.append(await asyncio.to_thread(connection.reply))
    await eventually(lambda: reports)
    (found,) = reports
    assert (found.kind, found.client, found.status) == (kind, "127.0.0.1", status)
    if status is not None:
        assert answers[-1].status == status
        assert answers[-1].headers["x-request-id"] == found.request_id
        assert json.loads(answers[-1].body)["detail"] == found.reason
    else:
        assert found.request_id is None
        assert {answer.status for answer in answers} == {200}
    assert SECRET.decode() not in str(found)


async def test_a_head_without_end_is_reported(plain):
    address, reports = plain
    del reports[:]
    with Connection(*address) as connection:
        connection.send(START)
        while not connection.readable(0.005):
            connection.send(b"X: " + SECRET * 1_000 + b"\r\n")
        assert connection.reply().status == 431
    await eventually(lambda: reports)
    assert [(found.kind, found.status) for found in reports] == [("head_too_large", 431)]
    assert SECRET.decode() not in str(reports)


async def test_requests_that_are_served_and_clients_that_leave_are_not_reported(plain):
    address, reports = plain
    del reports[:]
    with Connection(*address) as connection:
        connection.send(START + b"Content-Length: 1\r\n\r\nx")
        assert connection.reply().status == 200
    for begun in (b"", START, CHUNKED, b"GET"):
        with Connection(*address) as connection:
            connection.send(begun)
    with Connection(*address) as connection:
        connection.send(START + b"X-Last: 1\r\n" + START)
        assert connection.reply().status == 400
    await eventually(lambda: reports)
    assert [found.kind for found in reports] == ["header"]


async def test_a_silent_client_is_disconnected_when_its_head_is_due(tls):
    """The event loop's own limit is 60 s."""
    address, reports = tls
    del reports[:]
    with Connection(address[0], address[1], 45) as connection:
        assert await asyncio.to_thread(connection.ended)
    await eventually(lambda: reports)
    assert [(found.kind, found.client, found.status) for found in reports] == [("tls_timeout", "127.0.0.1", None)]


@pytest.mark.parametrize("sent", [START + b"\r\n", bytes(100), b"\x16\x03\x01\x00\x05hunter2"])
async def test_what_is_no_handshake_is_reported(tls, sent):
    address, reports = tls
    del reports[:]
    with Connection(address[0], address[1], 45) as connection:
        connection.send(sent)
        with contextlib.suppress(ConnectionResetError):
            while await asyncio.to_thread(connection.read, 1_000):
                pass
    await eventually(lambda: reports)
    (found,) = reports
    assert (found.kind, found.client, found.status) == ("tls_handshake", "127.0.0.1", None)
    assert found.reason and SECRET.decode() not in found.reason


async def test_nor_is_a_client_that_leaves_before_its_handshake(tls, certified):
    address, reports = tls
    del reports[:]
    for _ in range(5):
        Connection(*address).__exit__()
    context = ssl.create_default_context(cafile=str(certified / "ca.crt"))
    async with httpx.AsyncClient(verify=context, timeout=60) as client:
        for _ in range(3):
            assert (await client.get(f"https://127.0.0.1:{address[1]}/a")).status_code == 200
    assert reports == []


async def test_with_tls_requests_are_reported_as_without(tls, certified):
    address, reports = tls
    del reports[:]
    context = ssl.create_default_context(cafile=str(certified / "ca.crt"))
    reader, writer = await asyncio.open_connection(*address, ssl=context)
    writer.write(b"GET /a HTTP/1.1\r\n\r\n")
    assert b" 400 " in await reader.readline()
    writer.close()
    await eventually(lambda: reports)
    assert [(found.kind, found.status) for found in reports] == [("header", 400)]


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "access log"])
def test_the_gateway_counts_and_logs_them(tmp_path, capsys, direct):
    loaded = configured(tmp_path, ACCESS_LOG=str(not direct).lower(), LOG_FORMAT="json")
    with serving(uvicorn_config(partial(build_app, loaded), loaded)) as address:
        url = f"http://{address[0]}:{address[1]}"
        before = httpx.get(f"{url}/metrics", timeout=60).text
        for kind in MALFORMED_KINDS:
            assert f'babelgate_malformed_requests_total{{kind="{kind}"}} 0.0' in before
        for sent in (b"hunter2 \x1b[31m\r\n\r\n", b"GET /hunter2 HTTP/1.1\r\n\r\n", b"GET /hunter2 HTTP/1.1\r\n\r\n"):
            with Connection(*address) as connection:
                connection.send(sent)
                assert connection.reply().status == 400
        after = httpx.get(f"{url}/metrics", timeout=60).text
    assert 'babelgate_malformed_requests_total{kind="request_line"} 1.0' in after
    assert 'babelgate_malformed_requests_total{kind="header"} 2.0' in after
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "malformed request" in line]
    found = [(line["logger"], line["kind"], line["client"], line["status"], line["count"]) for line in lines]
    once = ("babelgate.access", "header", "127.0.0.1", 400, 1)
    assert found == ([] if direct else [("babelgate.access", "request_line", "127.0.0.1", 400, 1), once, once])
    assert all(line["request_id"] and line["reason"] for line in lines)
    assert "hunter2" not in str(lines)


FORGED = MalformedRequest("header", "127.0.0.1", 400, 'no "host"\r\n{"event":"forged"}\x1b[31m', "id")


def test_a_flood_writes_few_lines_and_loses_no_count():
    now, stream = [0.0], io.StringIO()
    log = AccessLog("json", stream, lambda: now[0])
    for _ in range(10 * LINES):
        log.malformed(FORGED)
    assert stream.getvalue().count("\n") == LINES
    now[0] += SECONDS
    log.malformed(FORGED)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["count"] for line in lines] == [1] * LINES + [9 * LINES + 1]
    assert sum(line["count"] for line in lines) == 10 * LINES + 1
    assert max(len(line) for line in stream.getvalue().splitlines()) < 500
    assert stream.getvalue().isascii() and "\x1b" not in stream.getvalue()
