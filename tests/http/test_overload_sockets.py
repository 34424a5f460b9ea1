"""Refusals at the end of a head, and clients that do not read, over raw sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time

import pytest

from babelgate.config import settings
from babelgate.server.overload import RESTED, SHEDDER, Pacer, Shedder
from babelgate.server.protocol import MAX_HEAD_BYTES, MAX_PIPELINED, GatewayProtocol
from babelgate.server.server import uvicorn_config
from tests.harness.problems import MEMBERS
from tests.harness.sockets import Connection, echo, serving

PUBLISH = b"/queues/full/messages"


class Impatient(GatewayProtocol):
    """Cuts off a client that does not read for a moment."""

    stall_seconds = 5


GONE = threading.Event()
"""Set when the client of ``/wait`` has hung up."""


def keep_the_loop_busy():
    time.sleep(0.3)


def application():
    """Echoes; its queue ``full`` has a backlog."""
    app = echo()

    async def with_shedder(scope, receive, send):
        if scope["type"] == "lifespan":
            scope["state"][SHEDDER] = Shedder(Pacer(time.thread_time), lambda queue: queue == "full")
        elif scope["path"] == "/large":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"100000000")]})
            for _ in range(100):
                await send({"type": "http.response.body", "body": bytes(1_000_000), "more_body": True})
            await send({"type": "http.response.body", "body": b""})
            return
        elif scope["path"] == "/wait":
            while (await receive())["type"] != "http.disconnect":
                pass
            GONE.set()
            return
        elif scope["path"] == "/busy":
            keep_the_loop_busy()
        elif scope["path"] == "/late":
            await asyncio.sleep(1.5)
        await app(scope, receive, send)

    return with_shedder


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    state = tmp_path_factory.mktemp("state")
    config = uvicorn_config(application, settings.load(None, {"BABELGATE_STATE_DIR": str(state)}))
    config.http = config.http_protocol_class = Impatient
    with serving(config) as found:
        yield found


@contextlib.contextmanager
def keeping_alive(state, seconds):
    environ = {"BABELGATE_STATE_DIR": str(state), "BABELGATE_KEEP_ALIVE_SECONDS": str(seconds)}
    with serving(uvicorn_config(application, settings.load(None, environ))) as found:
        yield found


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Keeps a connection open for a second on which nothing comes."""
    with keeping_alive(tmp_path_factory.mktemp("state"), 1) as found:
        yield found


@pytest.fixture(scope="module")
def lasting(tmp_path_factory):
    """Keeps it open for longer than a busy machine makes a client pause."""
    with keeping_alive(tmp_path_factory.mktemp("state"), 4) as found:
        yield found


def request(path: bytes, body: bytes = b"x", *headers: bytes, version: bytes = b"1.1") -> bytes:
    lines = b"".join(header + b"\r\n" for header in (b"Content-Length: %d" % len(body), *headers))
    return b"POST " + path + b" HTTP/" + version + b"\r\nHost: h\r\n" + lines + b"\r\n" + body


def refused(reply):
    assert reply.status == 429
    assert reply.headers["content-type"] == "application/problem+json"
    assert 1 <= int(reply.headers["retry-after"]) <= 3
    assert reply.headers["x-request-id"]
    problem = json.loads(reply.body)
    assert list(problem)[: len(MEMBERS)] == MEMBERS
    assert (problem["code"], problem["retryable"]) == ("overloaded", True)


@pytest.mark.parametrize(
    "path", [PUBLISH, PUBLISH + b"?delay_seconds=1", PUBLISH + b":batch", b"/mq" + PUBLISH], ids=bytes.decode
)
def test_a_publish_to_a_crowded_queue_is_refused(connection, path):
    connection.send(request(path))
    refused(connection.reply())


@pytest.mark.parametrize(
    "path",
    [b"/queues/free/messages", b"/queues/full/messages:ack", b"/queues/full/messages:receive", b"/livez", b"/"],
    ids=bytes.decode,
)
def test_everything_else_is_served(connection, path):
    connection.send(request(path))
    assert connection.reply().body == b"POST " + path + b" x"


@pytest.mark.parametrize("field", [b"Host: h", b"Authorization: Bearer b"], ids=["host", "authorization"])
def test_a_head_that_is_ambiguous_is_not_refused_for_load(connection, field):
    connection.send(request(PUBLISH, b"x", b"Authorization: Bearer a", field))
    reply = connection.reply()
    assert (reply.status, json.loads(reply.body)["code"]) == (400, "malformed_http")
    assert connection.ended()


def test_a_refused_connection_is_kept_and_served(connection):
    for _ in range(5):
        connection.send(request(PUBLISH))
        refused(connection.reply())
        connection.send(request(b"/a"))
        assert connection.reply().body == b"POST /a x"


def test_request_ids_differ_and_clients_are_not_called_back_together(connection):
    connection.send(request(PUBLISH) * 30)
    replies = [connection.reply() for _ in range(30)]
    assert len({reply.headers["x-request-id"] for reply in replies}) == 30
    assert len({reply.headers["retry-after"] for reply in replies}) == 3


def test_refused_and_served_requests_are_answered_in_their_order(connection):
    connection.send(request(PUBLISH) + request(b"/1") + request(b"/2") + request(PUBLISH) + request(b"/3"))
    refused(connection.reply())
    assert [connection.reply().body for _ in range(2)] == [b"POST /1 x", b"POST /2 x"]
    # Behind one that is being served, a request takes the ordinary way: its answer must wait for the other.
    assert connection.reply().body == b"POST " + PUBLISH + b" x"
    assert connection.reply().body == b"POST /3 x"


def test_requests_behind_the_one_served_are_bounded(connection):
    sent = MAX_PIPELINED + 100
    connection.send(b"".join(request(b"/%d" % number) for number in range(sent)))
    replies = 0
    with contextlib.suppress(ConnectionError):
        while replies < sent:
            assert connection.reply().body == b"POST /%d x" % replies
            replies += 1
    assert MAX_PIPELINED <= replies < sent


def test_a_large_body_is_told_first_and_then_dropped(connection):
    head, _, _ = request(PUBLISH, bytes(5_000_000)).partition(b"\r\n\r\n")
    connection.send(head + b"\r\n\r\n")
    refused(connection.reply())
    connection.send(bytes(5_000_000))
    connection.send(request(b"/a"))
    assert connection.reply().body == b"POST /a x"


def test_a_body_without_end_is_cut_off(connection):
    connection.send(b"POST " + PUBLISH + b" HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
    refused(connection.reply())
    chunk = b"%x\r\n" % 1_000_000 + bytes(1_000_000) + b"\r\n"
    with pytest.raises(OSError):
        for _ in range(300):
            connection.send(chunk)


def test_a_chunked_body_is_dropped(connection):
    connection.send(
        b"POST "
        + PUBLISH
        + b" HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    )
    refused(connection.reply())
    connection.send(request(b"/a"))
    assert connection.reply().body == b"POST /a x"


@pytest.mark.parametrize("how", [{"version": b"1.0"}, {"headers": [b"Connection: close"]}], ids=["1.0", "close"])
def test_who_would_close_is_closed(connection, how):
    connection.send(request(PUBLISH, b"x", *how.get("headers", []), version=how.get("version", b"1.1")))
    reply = connection.reply()
    refused(reply)
    assert reply.headers["connection"] == "close"
    assert connection.ended()


def test_who_asks_before_sending_need_not_send(connection):
    head, _, _ = request(PUBLISH, bytes(1000), b"Expect: 100-continue").partition(b"\r\n\r\n")
    connection.send(head + b"\r\n\r\n")
    reply = connection.reply()
    refused(reply)
    assert (reply.interim, reply.headers["connection"]) == ((), "close")
    assert connection.ended()


def test_an_upgrade_offered_with_it_changes_nothing(connection):
    connection.send(request(PUBLISH, b"x", b"Connection: Upgrade", b"Upgrade: h2c"))
    refused(connection.reply())
    connection.send(request(b"/a"))
    assert connection.reply().body == b"POST /a x"


def test_connections_that_were_refused_are_read_again_all_of_them(address):
    opened = [Connection(*address) for _ in range(2 * RESTED + 10)]
    try:
        for _ in range(2):
            for each in opened:
                each.send(request(PUBLISH))
            for each in opened:
                refused(each.reply())
    finally:
        for each in opened:
            each.__exit__()


def test_who_hangs_up_while_it_rests_harms_nobody(address):
    for _ in range(20):
        with Connection(*address) as gone:
            gone.send(request(PUBLISH))
            refused(gone.reply())
    with Connection(*address) as other:
        other.send(request(PUBLISH))
        refused(other.reply())
        other.send(request(b"/a"))
        assert other.reply().body == b"POST /a x"


def test_a_client_that_does_not_read_is_cut_off(connection):
    connection.send(request(b"/large"))
    assert connection.head()[0] == 200
    time.sleep(8)
    got = 0
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.read(1_000_000):
            got += len(piece)
    assert got < 100_000_000


def test_a_client_that_reads_slowly_gets_all_of_it(connection):
    connection.send(request(b"/large"))
    connection.head()
    total = 0
    for _ in range(10):
        total += len(connection.read(10_000_000))
        time.sleep(0.05)
    assert total == 100_000_000


def test_refusals_that_nobody_waits_for_are_bounded(connection):
    sent = MAX_PIPELINED + 100
    connection.send(request(PUBLISH) * sent)
    replies = [connection.reply()]
    with contextlib.suppress(ConnectionError):
        while True:
            replies.append(connection.reply())
    *refusals, last = replies
    assert len(refusals) == MAX_PIPELINED
    for each in refusals:
        refused(each)
    assert (last.status, last.headers["connection"]) == (400, "close")
    assert str(MAX_PIPELINED) in json.loads(last.body)["detail"]


def test_who_goes_on_asking_without_reading_refusals_is_cut_off(connection):
    asked = request(PUBLISH) * 100
    with pytest.raises(OSError):
        for _ in range(500):
            connection.send(asked)
            time.sleep(0.03)


def test_who_reads_refusals_late_is_served_on(connection):
    for _ in range(40):
        connection.send(request(PUBLISH) * 100)
        time.sleep(0.03)
    for _ in range(4000):
        refused(connection.reply())
    connection.send(request(b"/a"))
    assert connection.reply().body == b"POST /a x"


def test_a_head_in_two_parts_may_have_a_large_body(address, connection):
    body = bytes(4 * MAX_HEAD_BYTES)
    # The kernel learns that much may come at once.
    for _ in range(20):
        connection.send(request(b"/a", body))
        assert connection.reply().status == 200
    head, _, rest = request(b"/a", body).partition(b"\r\n")
    connection.send(head + b"\r\n")
    with Connection(*address) as other:
        time.sleep(0.1)
        other.send(request(b"/busy"))
        connection.send(rest)
        assert connection.reply().body == b"POST /a " + body


def test_a_hang_up_is_noticed_while_another_request_waits(connection):
    GONE.clear()
    connection.send(request(b"/wait") + request(b"/a"))
    time.sleep(0.1)
    connection.__exit__()
    assert GONE.wait(60)


@pytest.mark.parametrize(
    "part", [b"", b"POST /a HTT", request(b"/a")[:-20], request(b"/a", b"xy")[:-1], request(PUBLISH, b"xy")[:-1]]
)
def test_who_does_not_go_on_with_a_request_is_cut_off(quick, part):
    with Connection(*quick) as stalled:
        stalled.send(part)
        if PUBLISH in part:
            refused(stalled.reply())
        elif part:
            reply = stalled.reply()
            assert (reply.status, json.loads(reply.body)["code"]) == (408, "request_timeout")
        assert stalled.ended()


@pytest.mark.parametrize("path", [b"/a", PUBLISH])
def test_who_goes_on_slowly_is_served(lasting, path):
    with Connection(*lasting) as slow:
        *first, last = [bytes([byte]) for byte in request(path, b"xyz")[-6:]]
        slow.send(request(path, b"xyz")[:-6])
        for each in first:
            time.sleep(0.9)
            slow.send(each)
        slow.send(last)
        assert slow.reply().status == (429 if path == PUBLISH else 200)


@pytest.mark.parametrize("size", [1, 1_000_000])
def test_nobody_is_cut_off_while_the_server_takes_its_time(quick, size):
    with Connection(*quick) as patient:
        patient.send(request(b"/late", bytes(size)))
        assert patient.reply().body == b"POST /late " + bytes(size)
