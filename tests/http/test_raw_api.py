"""Publishes and receives over raw sockets, with the requests of clients of other languages."""

from __future__ import annotations

import json
from functools import partial

import pytest
import yaml

from babelgate.config import settings
from babelgate.server.server import uvicorn_config
from babelgate.server.wiring import build_app
from tests.harness.sockets import Connection, serving

H2C = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk\r\n"
LIMIT = 4_096


@pytest.fixture(scope="module", params=[True, False], ids=["direct", "application"])
def address(request, tmp_path_factory):
    """A server that serves ordinary requests directly, and one whose application serves all."""
    state = str(tmp_path_factory.mktemp("state"))
    found = settings.load(None, {"BABELGATE_STATE_DIR": state, "BABELGATE_LIMITS__MAX_MESSAGE_BYTES": str(LIMIT)})

    def build():
        app = build_app(found)
        if not request.param:
            app.direct = None
        return app

    with serving(uvicorn_config(build, found)) as where:
        yield where


@pytest.fixture
def guarded(tmp_path, token_config):
    """An API that asks for the token ``good``."""
    config = {"state_dir": str(tmp_path), "auth": token_config(good={"*": ["send", "listen", "manage"]})}
    path = tmp_path / "babelgate.yaml"
    path.write_text(yaml.safe_dump(config))
    found = settings.load(path, {})
    with serving(uvicorn_config(partial(build_app, found), found)) as where:
        yield where


def draft(n: int) -> bytes:
    return json.dumps({"job": "count", "data": {"n": n}}).encode()


def post(queue: str, action: str, body: bytes = b"", headers: str = "", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = f"POST /queues/{queue}/{action} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}Content-Length: {size}\r\n\r\n"
    return head.encode() + body


def received(connection: Connection, queue: str) -> list[int]:
    connection.send(post(queue, "messages:receive?max_messages=100"))
    return [message["envelope"]["data"]["n"] for message in json.loads(connection.reply().body)["messages"]]


def test_publish_with_an_h2c_offer(connection, queue):
    connection.send(post(queue, "messages", draft(1), H2C))
    assert connection.reply().status == 201
    assert received(connection, queue) == [1]


def test_publish_that_asks_before_it_sends(connection, queue):
    connection.send(post(queue, "messages", length=len(draft(2)), headers="Expect: 100-continue\r\n"))
    assert connection.head()[0] == 100
    connection.send(draft(2))
    assert connection.reply().status == 201
    assert received(connection, queue) == [2]


def test_a_body_that_is_announced_too_large_is_not_asked_for(connection, queue):
    connection.send(post(queue, "messages", length=100 * LIMIT * 1_000, headers="Expect: 100-continue\r\n"))
    reply = connection.reply()
    assert (reply.status, reply.interim) == (413, ())
    assert json.loads(reply.body)["code"] == "body_too_large"


def test_pipelined_publishes_are_answered_in_order(connection, queue):
    connection.send(b"".join(post(queue, "messages", draft(n), H2C if n % 3 else "") for n in range(30)))
    assert [connection.reply().status for _ in range(30)] == [201] * 30
    assert received(connection, queue) == [*range(30)]


def test_a_chunked_batch(connection, queue):
    lines = [draft(n) + b"\n" for n in range(10)]
    head = f"POST /queues/{queue}/messages:batch HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-ndjson\r\n"
    connection.send((head + H2C + "Transfer-Encoding: chunked\r\n\r\n").encode())
    connection.send(*(b"%x\r\n%s\r\n" % (len(line), line) for line in [*lines, b""]))
    reply = connection.reply()
    assert (reply.status, json.loads(reply.body)["accepted"]) == (201, 10)
    assert received(connection, queue) == [*range(10)]


def test_a_failed_request_leaves_the_connection_usable(connection, queue):
    connection.send(post(queue, "messages", b"{", H2C) + post(queue, "messages", draft(1)))
    assert [connection.reply().status for _ in range(2)] == [400, 201]


def test_a_head_is_a_get_without_its_body(connection):
    connection.send(
        b"HEAD /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    )
    status, headers = connection.head()[:2]
    reply = connection.reply()
    assert (status, headers["content-length"]) == (200, str(len(reply.body)))
    assert json.loads(reply.body) == {"status": "ok"}


@pytest.mark.parametrize(("path", "served"), [("messages", 201), ("messages:validate", 200)])
def test_a_trailer_is_no_credential(guarded, queue, path, served):
    head = f"POST /queues/{queue}/{path} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n"
    body = b"%x\r\n%b\r\n0\r\n" % (len(draft(1)), draft(1))
    good, bad = "Authorization: Bearer good\r\n", "Authorization: Bearer bad\r\n"
    for before, behind, status in (("", good, 401), (good, bad, served)):
        with Connection(*guarded) as connection:
            connection.send(f"{head}{before}\r\n".encode() + body + f"{behind}\r\n".encode())
            assert connection.reply().status == status


@pytest.mark.parametrize("path", ["queues/q/messages:receive", "queues", "livez", "readyz", "openapi.json", "nowhere"])
@pytest.mark.parametrize("field", ["Host: h", "Authorization: Bearer good"])
def test_two_of_a_field_that_decides_are_refused_everywhere(guarded, path, field):
    with Connection(*guarded) as connection:
        connection.send(f"GET /{path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer good\r\n{field}\r\n\r\n".encode())
        reply = connection.reply()
        assert (reply.status, json.loads(reply.body)["code"]) == (400, "malformed_http")
        assert connection.ended()
