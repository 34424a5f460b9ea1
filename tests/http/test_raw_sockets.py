"""Requests of clients of other languages, byte by byte."""

from __future__ import annotations

import json

import pytest

from babelgate.config import settings
from babelgate.server.protocol import MAX_HEAD_BYTES
from babelgate.server.server import uvicorn_config
from tests.harness.problems import MEMBERS
from tests.harness.sockets import Connection, echo, serving

H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk\r\n"
BODY = json.dumps({"job": "x", "data": {"text": "ab" * 500}}).encode()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    state = tmp_path_factory.mktemp("state")
    with serving(uvicorn_config(echo, settings.load(None, {"BABELGATE_STATE_DIR": str(state)}))) as found:
        yield found


@pytest.fixture
def connection(address):
    with Connection(*address) as opened:
        yield opened


def request(path: bytes, *headers: bytes, body: bytes = b"") -> bytes:
    lines = b"".join(header if header.endswith(b"\r\n") else header + b"\r\n" for header in headers)
    return b"POST " + path + b" HTTP/1.1\r\nHost: h\r\n" + lines + b"\r\n" + body


def sized(body: bytes) -> bytes:
    return b"Content-Length: %d" % len(body)


def chunked(body: bytes, size: int = 100) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in [*parts, b""])


def test_h2c_upgrade_keeps_the_body(connection):
    connection.send(request(b"/a", H2C, sized(BODY), body=BODY))
    reply = connection.reply()
    assert (reply.status, reply.body) == (200, b"POST /a " + BODY)
    assert "upgrade" not in reply.headers


def test_h2c_offer_is_not_passed_on_but_other_headers_are(connection):
    connection.send(request(b"/a", b"X-Custom: 1", H2C, sized(BODY), body=BODY))
    assert connection.reply().headers["saw-headers"] == "content-length,host,x-custom"


def test_h2c_upgrade_with_a_chunked_body(connection):
    connection.send(request(b"/a", H2C, b"Transfer-Encoding: chunked", body=chunked(BODY)))
    assert connection.reply().body == b"POST /a " + BODY


def test_h2c_upgrade_without_a_body(connection):
    connection.send(request(b"/a", H2C, sized(b"")))
    assert connection.reply().body == b"POST /a "


@pytest.mark.parametrize("size", [1, 7, 64])
@pytest.mark.parametrize("coding", [b"sized", b"chunked"])
def test_h2c_upgrade_split_into_packets(connection, size, coding):
    body = BODY[:150]
    if coding == b"sized":
        sent = request(b"/a", H2C, sized(body), body=body)
    else:
        sent = request(b"/a", H2C, b"Transfer-Encoding: chunked", body=chunked(body))
    connection.send(*(sent[at : at + size] for at in range(0, len(sent), size)))
    assert connection.reply().body == b"POST /a " + body


def test_h2c_upgrade_between_pipelined_requests(connection):
    connection.send(
        request(b"/1", sized(b"one"), body=b"one")
        + request(b"/2", H2C, sized(b"two"), body=b"two")
        + request(b"/3", H2C, b"Transfer-Encoding: chunked", body=chunked(b"three"))
        + request(b"/4", sized(b"four"), body=b"four")
    )
    assert [connection.reply().body for _ in range(4)] == [
        b"POST /1 one",
        b"POST /2 two",
        b"POST /3 three",
        b"POST /4 four",
    ]


def test_h2c_upgrade_on_a_connection_that_is_kept(connection):
    for path in (b"/1", b"/2", b"/3"):
        connection.send(request(path, H2C, sized(path), body=path))
        assert connection.reply().body == b"POST " + path + b" " + path


def test_h2c_upgrade_that_also_closes(connection):
    offer = H2C.replace(b"Connection: ", b"Connection: close, ")
    connection.send(request(b"/a", offer, sized(b"x"), body=b"x"))
    assert connection.reply().body == b"POST /a x"
    assert connection.ended()


def test_a_websocket_handshake_is_an_ordinary_request(connection):
    connection.send(b"GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    assert connection.reply().body == b"GET /ws "


@pytest.mark.parametrize("offer", [b"", H2C], ids=["plain", "h2c"])
def test_expect_100_continue_is_answered_before_the_body_is_sent(connection, offer):
    connection.send(request(b"/a", *filter(None, [offer]), b"Expect: 100-continue", sized(BODY)))
    assert connection.head()[0] == 100
    connection.send(BODY)
    reply = connection.reply()
    assert (reply.body, reply.interim) == (b"POST /a " + BODY, ())


def test_chunked_body(connection):
    connection.send(request(b"/a", b"Transfer-Encoding: chunked", body=chunked(BODY, 13)))
    assert connection.reply().body == b"POST /a " + BODY


def test_keep_alive_serves_many_requests(connection):
    for number in range(20):
        body = b"%d" % number
        connection.send(request(b"/a", sized(body), body=body))
        assert connection.reply().body == b"POST /a " + body


def test_pipelined_requests_are_answered_in_order(connection):
    connection.send(b"".join(request(b"/%d" % n, sized(BODY), body=BODY) for n in range(50)))
    assert [connection.reply().body for _ in range(50)] == [b"POST /%d " % n + BODY for n in range(50)]


def test_http_1_0_is_answered_and_closed(connection):
    connection.send(b"GET /old HTTP/1.0\r\n\r\n")
    assert connection.reply().body == b"GET /old "
    assert connection.ended()


@pytest.mark.parametrize(
    "sent",
    [
        b"this is no HTTP\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /a HTTP/1.1\r\nBad Header: x\r\n\r\n",
        b"GET /a HTTP/9.9\r\nHost: h\r\n\r\n",
        request(b"/a", b"Content-Length: x"),
        request(b"/a", b"Content-Length: 3", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
        request(b"/a", b"Transfer-Encoding: chunked", body=b"zz\r\nabc"),
        request(b"/a", H2C, b"Transfer-Encoding: chunked", body=b"zz\r\nabc"),
        b"CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /a HTTP/1.1\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: h\r\nX-Between: 1\r\nhOST: evil\r\n\r\n",
        b"GET /a HTTP/1.0\r\nHost: h\r\nHost: h\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: h/a\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: a b\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: a@b\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: h:http\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: \xe9\r\n\r\n",
        b"GET http://evil.example/a HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET http://evil.example/a HTTP/1.0\r\n\r\n",
        request(b"/a", b"Authorization: Bearer a", b"Authorization: Bearer b"),
        request(b"/a", b"Origin: http://h", b"Origin: http://evil.example"),
        request(b"/a", b"Sec-Fetch-Site: cross-site", b"Sec-Fetch-Site: none"),
        request(b"/a", b"Content-Type: application/json", b"Content-Type: application/x-ndjson"),
        request(b"/a", b"Content-Encoding: gzip", b"Content-Encoding: identity"),
        request(b"/a", b"Content-Length: 1", b"Content-Length: 2", body=b"xy"),
        request(b"/a", b"Content-Length: 1", b"Content-Length: 1", body=b"x"),
        request(b"/a", b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"),
        request(b"/a", b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
        b"POST /a HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        request(b"/a", H2C, b"Host: h"),
    ],
)
def test_malformed_http_is_a_problem(connection, sent):
    connection.send(sent)
    reply = connection.reply()
    problem = json.loads(reply.body)
    assert (reply.status, reply.headers["content-type"]) == (400, "application/problem+json")
    assert [*problem] == MEMBERS
    assert (problem["status"], problem["code"], problem["retryable"]) == (400, "malformed_http", False)
    assert connection.ended()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /a HTTP/1.1\r\nHost:\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: mq.example:8080 \t\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
        b"GET http://MQ.example:80/a?x HTTP/1.1\r\nHost: mq.example:80\r\n\r\n",
        b"GET /a HTTP/1.0\r\n\r\n",
        request(
            b"/a",
            b"Accept: a/b",
            b"Accept: c/d",
            b"Cookie: a=1",
            b"Cookie: b=2",
            b"X-Request-Id: 1",
            b"X-Request-Id: 2",
        ),
        request(b"/a", b"Transfer-Encoding: Chunked", body=b"0\r\n\r\n"),
    ],
)
def test_unusual_heads_that_can_be_read_in_one_way_only_are_served(connection, sent):
    connection.send(sent)
    assert connection.reply().body.endswith(b" /a ")


TRAILED = request(b"/a", b"Transfer-Encoding: chunked", body=b"2\r\nxy\r\n0\r\n")


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_trailers_are_read_and_dropped(connection, size):
    sent = TRAILED + b"Authorization: Bearer good\r\nHost: evil\r\nExpect: 100-continue\r\n\r\n"
    for _ in range(2):
        connection.send(*(sent[at : at + size] for at in range(0, len(sent), size)))
        reply = connection.reply()
        assert (reply.status, reply.body, reply.headers["saw-headers"]) == (
            200,
            b"POST /a xy",
            "host,transfer-encoding",
        )


@pytest.mark.parametrize("between", [b"\r\n", b""], ids=["many fields", "one field"])
def test_trailers_without_end_are_refused(connection, between):
    connection.send(TRAILED + b"X-Trailer: ")
    sent = 0
    while not connection.readable(0.005):
        sent += connection.send(b"x" * 8000 + (between and b"\r\nX-Trailer: "))
        assert sent < 10 * MAX_HEAD_BYTES or connection.readable(30)
    reply = connection.reply()
    assert (reply.status, json.loads(reply.body)["code"]) == (431, "head_too_large")


def test_malformed_http_behind_a_good_request_does_not_spoil_its_answer(connection):
    connection.send(request(b"/1", sized(b"one"), body=b"one") + b"garbage garbage\r\n\r\n")
    assert connection.reply().body == b"POST /1 one"
    assert connection.ended()


def test_a_head_without_end_is_refused(connection):
    connection.send(b"GET /a HTTP/1.1\r\n")
    sent = 0
    while not connection.readable(0.005):
        sent += connection.send(b"X-Filler: " + b"x" * 8000 + b"\r\n")
        assert sent < 10 * MAX_HEAD_BYTES or connection.readable(30)
    reply = connection.reply()
    problem = json.loads(reply.body)
    assert (reply.status, problem["status"], problem["code"]) == (431, 431, "head_too_large")
    assert [*problem][: len(MEMBERS)] == MEMBERS


def test_a_large_body_is_no_large_head(connection):
    body = b"x" * (4 * MAX_HEAD_BYTES)
    connection.send(request(b"/a", sized(body)), *(body[at : at + 1000] for at in range(0, len(body), 1000)))
    connection.send(request(b"/b", sized(b"y"), body=b"y"))
    assert len(connection.reply().body) == len(body) + len(b"POST /a ")
    assert connection.reply().body == b"POST /b y"
