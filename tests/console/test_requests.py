"""Requests for pages obey the limits of the server, as those of the API do."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from tests.harness import console
from tests.harness.sockets import Connection

POST = b"POST /console/sign-out HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"


@pytest.fixture(scope="module")
def impatient(tmp_path_factory):
    """Where clients have a second for a head or a body, at 100 bytes a second."""
    limits: dict[str, Any] = {"head_seconds": 1, "body_seconds": 1, "body_bytes_per_second": 100}
    with console.console(tmp_path_factory.mktemp("impatient"), **limits) as server:
        yield server


def connected(server):
    host, _, port = server.url.removeprefix("http://").partition(":")
    return Connection(host, int(port))


@pytest.fixture
def connection(free):
    with connected(free) as opened:
        yield opened


def test_a_head_without_end_is_refused(connection):
    with contextlib.suppress(OSError):
        connection.send(b"GET /console/ HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 150_000)
    assert connection.reply().status == 431


SLOW = {
    "head": b"GET /console/ HTTP/1.1\r\nHost: localhost\r\nX: ",
    "form": POST + b"Content-Length: 5000\r\n\r\na=b",
}
LARGE = {
    "sized": b"Content-Length: 70000\r\n\r\n",
    "chunked": b"Transfer-Encoding: chunked\r\n\r\n11170\r\n",
}


@pytest.mark.parametrize("begun", SLOW.values(), ids=SLOW)
def test_who_sends_too_slowly_is_told_so(impatient, begun):
    with connected(impatient) as connection:
        connection.send(begun)
        with contextlib.suppress(OSError):
            while not connection.readable(0.2):
                connection.send(b"a")
        assert connection.reply().status == 408


@pytest.mark.parametrize("length", LARGE.values(), ids=LARGE)
def test_a_form_that_is_too_large_is_refused(connection, length):
    with contextlib.suppress(OSError):
        connection.send(POST + length + b"x" * 70_000)
    reply = connection.reply()
    assert (reply.status, reply.headers["content-type"]) == (413, "text/html; charset=utf-8")
    assert b"Body too large" in reply.body


def test_a_connection_serves_pages_and_the_api_in_turn(connection):
    for path, status in (
        (b"/console/", 200),
        (b"/queues", 200),
        (b"/console/assets/console.css", 200),
        (b"/console/x", 404),
    ):
        connection.send(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.reply().status == status
