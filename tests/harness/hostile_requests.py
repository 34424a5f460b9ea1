"""Requests that cost the gateway much and their sender little, to measure stalls of the event loop.

A case prepares its queue, and then is one request or a few, sent over sockets as they are.
"""

from __future__ import annotations

import gzip
import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
import msgspec

MIB = 1 << 20

_LEASE_SECONDS = 120
_RETURN_SECONDS = _LEASE_SECONDS + 60
"""The longest time until messages come back that a receive without an answer has locked or leased: a third of what
test_stalls.py has, so that a message that is missing is noticed before."""

_NDJSON = {"content-type": "application/x-ndjson"}
_GZIP = {"content-encoding": "gzip"}
_JSON = {"content-type": "application/json"}
_JOB = {"content-type": "application/openjobspec+json"}


@dataclass(frozen=True)
class Sent:
    """The outcome of a case: the status of its last answer, and the bytes sent and received."""

    status: int
    sent: int
    received: int


class _Message(msgspec.Struct):
    ack_token: str


class _Received(msgspec.Struct):
    """What a client has to read of a received batch. Reading all of 24 MiB takes a second."""

    messages: list[_Message]


class _Page(msgspec.Struct):
    next_cursor: str | None


Run = Callable[[httpx.Client, str], Sent]
"""Sends the case's requests to a queue; called once for each case, with a queue of its own."""

Prepare = Callable[[httpx.Client, str], None]


@dataclass(frozen=True)
class Case:
    """One entry of the corpus. What ``prepare`` does is not measured. ``keeps``: ``run`` leaves all as it was, so that
    the next case with the same ``prepare`` can have it."""

    name: str
    run: Run
    prepare: Prepare = lambda client, queue: None
    keeps: bool = False


def _draft(data: bytes) -> bytes:
    return b'{"job":"urn:babel:a:b","data":%b}' % data


def _filled(unit: bytes, size: int, head: bytes = b"[", tail: bytes = b"]") -> bytes:
    """``head``, as many ``unit`` as fit ``size`` bytes with commas between them, and ``tail``."""
    count = (size - len(head) - len(tail)) // (len(unit) + 1)
    return head + b",".join([unit] * count) + tail


def post(path: str, body: Callable[[], bytes], headers: dict[str, str]) -> Run:
    """One POST to ``/queues/{queue}{path}``. Its body is made when it is sent: all of them take half a gigabyte."""

    def run(client: httpx.Client, queue: str) -> Sent:
        content = body()
        answer = client.post(f"/queues/{queue}{path}", content=content, headers=headers)
        return Sent(answer.status_code, len(content), len(answer.content))

    return run


def pieces(path: str, parts: Callable[[], Iterator[bytes]], headers: dict[str, str]) -> Run:
    """One POST with a chunked body."""

    def run(client: httpx.Client, queue: str) -> Sent:
        size = 0

        def counted() -> Iterator[bytes]:
            nonlocal size
            for part in parts():
                size += len(part)
                yield part

        answer = client.post(f"/queues/{queue}{path}", content=counted(), headers=headers)
        return Sent(answer.status_code, size, len(answer.content))

    return run


def get(path: str) -> Run:
    """One GET of ``path``, in which ``{queue}`` stands for the queue."""

    def run(client: httpx.Client, queue: str) -> Sent:
        answer = client.get(path.format(queue=queue))
        return Sent(answer.status_code, 0, len(answer.content))

    return run


def large_body() -> bytes:
    """A draft of just under 1 MiB with many small values."""
    # Amazon SQS needs room for the attributes of a message.
    return _draft(_filled(b'{"a":1}', MIB - 5000, b'{"list":[', b"]}"))


def nested_numbers(size: int) -> bytes:
    """A draft of about ``size`` bytes, whose lines are a hundred times as long: each number is within 90 lists."""
    return _draft(_filled(b"0", size, b'{"a":' + b"[" * 90, b"]" * 90 + b"}"))


def _large_messages(count: int) -> Prepare:
    def prepare(client: httpx.Client, queue: str) -> None:
        body = large_body()
        for _ in range(count):
            assert client.post(f"/queues/{queue}/messages", content=body).status_code == 201

    return prepare


def _receive(client: httpx.Client, queue: str, count: int) -> list[str]:
    tokens: list[str] = []
    at_once, all_back_at = min(count, 100), 0.0
    while len(tokens) < count:
        asked = {"max_messages": at_once, "wait_seconds": 20, "lease_seconds": _LEASE_SECONDS}
        answer = client.post(f"/queues/{queue}/messages:receive", json=asked)
        if answer.status_code == 503:
            # On a busy machine a broker may need longer for so many than a receive waits; nothing was handed out. Until
            # these come back, the leases of the others end, too.
            tokens.clear()
            at_once = max(at_once // 2, 1)
            all_back_at = time.monotonic() + _RETURN_SECONDS
            continue
        assert answer.status_code == 200, answer.text
        received = msgspec.json.decode(answer.content, type=_Received).messages
        assert received or time.monotonic() < all_back_at, "a message is missing"
        tokens += [message.ack_token for message in received]
    return tokens


def _large_dead_letters(count: int) -> Prepare:
    def prepare(client: httpx.Client, queue: str) -> None:
        _large_messages(count)(client, queue)
        answer = client.post(f"/queues/{queue}/messages:reject", json={"ack_tokens": _receive(client, queue, count)})
        assert answer.status_code == 200, answer.text

    return prepare


_24_MESSAGES, _24_LETTERS = _large_messages(24), _large_dead_letters(24)


def _settle_large(verb: str) -> Run:
    """Receive 24 messages of 1 MiB and settle them in one call."""

    def run(client: httpx.Client, queue: str) -> Sent:
        tokens = _receive(client, queue, 24)
        answer = client.post(f"/queues/{queue}/messages:{verb}", json={"ack_tokens": tokens})
        return Sent(answer.status_code, len(answer.request.content), len(answer.content))

    return run


def _settle_many(build: Callable[[list[str]], dict[str, object]]) -> Case:
    def prepare(client: httpx.Client, queue: str) -> None:
        lines = b"\n".join([_draft(b"{}")] * 100)
        # Each call has the time-out of its broker.
        for _ in range(10):
            answer = client.post(f"/queues/{queue}/messages:batch", content=lines, headers=_NDJSON)
            assert answer.status_code == 201, answer.text

    def run(client: httpx.Client, queue: str) -> Sent:
        asked = build(_receive(client, queue, 1000))
        answer = client.post(f"/queues/{queue}/messages:settle", json=asked)
        return Sent(answer.status_code, len(answer.request.content), len(answer.content))

    return Case(f"settle: 1,000 {next(iter(asked_names(build)))}", run, prepare)


def asked_names(build: Callable[[list[str]], dict[str, object]]) -> list[str]:
    """The actions that a settle request of ``build`` names."""
    return list(build(["t"]))


def _dead_letters(client: httpx.Client, queue: str) -> Sent:
    """All pages of the dead letters."""
    received, cursor = 0, ""
    while True:
        answer = client.get(f"/queues/{queue}/dead-letters?limit=1000{cursor}")
        received += len(answer.content)
        after = msgspec.json.decode(answer.content, type=_Page).next_cursor
        if after is None:
            return Sent(answer.status_code, 0, received)
        cursor = f"&cursor={after}"


def _redrive(**asked: object) -> Run:
    return post("/dead-letters:redrive", lambda: json.dumps(asked).encode(), _JSON)


def _many_queues(client: httpx.Client, queue: str) -> None:
    """Publishes to 5,000 queues, a hundred requests at a time: a client library would take most of the time."""
    body, at_once = _draft(b"{}"), 100
    with socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=60) as connection:
        for first in range(0, 5_000, at_once):
            paths = (f"/queues/{queue}-{number}/messages" for number in range(first, first + at_once))
            heads = (
                f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n" for path in paths
            )
            connection.sendall(b"".join(head.encode() + body for head in heads))
            answers = b""
            while answers.count(b"HTTP/1.1 ") < at_once:
                received = connection.recv(65_536)
                assert received, answers
                answers += received
            assert answers.count(b"HTTP/1.1 201 ") == at_once


def _tiny_chunks(client: httpx.Client, queue: str) -> Sent:
    """A body in chunks of one byte each, all of them written at once: a client library would write them one by one."""
    body = _draft(b'{"a":"%b"}' % (b"x" * (MIB - 400)))
    head = f"POST /queues/{queue}/messages HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    with socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=60) as connection:
        connection.sendall(head + chunks)
        answer = connection.recv(65_536)
    return Sent(int(answer.split()[1]), len(head + chunks), len(answer))


def _refused_job(count: int) -> bytes:
    """A valid job with ``count`` members, which is nested too deeply for an envelope."""
    members = b",".join(b'"%x":0' % number for number in range(count))
    return b'{"type":"a","args":[%b],%b}' % (b"[" * 200 + b"]" * 200, members)


def _gzip_members() -> Iterator[bytes]:
    empty = gzip.compress(b"", mtime=0)
    for _ in range(100):
        yield empty * 1000
    yield gzip.compress(_draft(b"{}"))


def _nested_message(client: httpx.Client, queue: str) -> None:
    assert client.post(f"/queues/{queue}/messages", content=nested_numbers(MIB - 5_000)).status_code == 201


def _look_at_message(client: httpx.Client, queue: str) -> Sent:
    """The page of the console about the only message."""
    (path,) = set(re.findall(rb"messages/[0-9a-f]{32}", client.get(f"/console/queues/{queue}").content))
    answer = client.get(f"/console/queues/{queue}/{path.decode()}")
    return Sent(answer.status_code, 0, len(answer.content))


def _check_message(client: httpx.Client, queue: str) -> Sent:
    """The console's check of a message that is typed."""
    page = client.get(f"/console/queues/{queue}/publish").text
    csrf = re.findall(r'name="csrf" value="([^"]+)"', page)[0]
    body = nested_numbers(MIB - 5_000).decode()
    answer = client.post(f"/console/queues/{queue}/publish/check", data={"csrf": csrf, "body": body})
    assert answer.status_code != 200 or "The gateway would accept it" in answer.text, answer.text
    return Sent(answer.status_code, len(answer.request.content), len(answer.content))


_LISTS = _filled(b"[]", MIB - 400, b'{"a":[1e999,', b"]}")
_LONG_KEY = b'{"%b":%b}' % (b"k" * (MIB // 2), _filled(b"0", MIB // 2 - 400, b"[1e999,", b"]"))
_JOB_BODY = b'{"type":"a","args":%b}'

CASES = [
    Case(
        "NDJSON: 8 MiB of line feeds, gzip",
        post("/messages:batch", lambda: gzip.compress(b"\n" * 8 * MIB), _NDJSON | _GZIP),
    ),
    Case(
        "NDJSON: 64 MiB of line feeds, gzip",
        post("/messages:batch", lambda: gzip.compress(b"\n" * 64 * MIB), _NDJSON | _GZIP),
    ),
    Case(
        "NDJSON: 8 MiB of lines x, gzip",
        post("/messages:batch", lambda: gzip.compress(b"x\n" * 4 * MIB), _NDJSON | _GZIP),
    ),
    Case(
        "NDJSON: 64 MiB of zeros, gzip",
        post("/messages:batch", lambda: gzip.compress(bytes(64 * MIB)), _NDJSON | _GZIP),
    ),
    Case("NDJSON: 100,000 empty gzip members", pieces("/messages:batch", _gzip_members, _NDJSON | _GZIP)),
    Case("NDJSON: 900 KB of lines {}", post("/messages:batch", lambda: b"{}\n" * 300_000, _NDJSON)),
    Case("NDJSON: 900 KB of lines x", post("/messages:batch", lambda: b"x\n" * 450_000, _NDJSON)),
    Case("NDJSON: 900 KB of line feeds", post("/messages:batch", lambda: b"\n" * 900_000, _NDJSON)),
    Case(
        "NDJSON: 4 MiB of good small lines", post("/messages:batch", lambda: (_draft(b"{}") + b"\n") * 100_000, _NDJSON)
    ),
    Case(
        "NDJSON: a line of 10 MB of digits",
        post("/messages:batch", lambda: _draft(b'{"n":%b}' % (b"1" * 10_000_000)), _NDJSON),
    ),
    Case(
        "NDJSON: 4 lines of 1 MiB, small values",
        post("/messages:batch", lambda: b"\n".join([_draft(_LISTS)] * 4), _NDJSON),
    ),
    Case("array: 10,000 entries {}", post("/messages:batch", lambda: _filled(b"{}", 30_001), _JSON)),
    Case("array: 5 million entries 0", post("/messages:batch", lambda: _filled(b"0", 10_000_000), _JSON)),
    Case(
        "array: 16 MiB of nested lists",
        post("/messages:batch", lambda: _filled(_filled(b"[]", 90_000), 16 * MIB), _JSON),
    ),
    Case(
        "array: 16 MiB of lists of numbers",
        post("/messages:batch", lambda: _filled(_filled(b"0", 90_000), 16 * MIB), _JSON),
    ),
    Case("array: a number of 10 MB of digits", post("/messages:batch", lambda: b"[" + b"1" * 10_000_000 + b"]", _JSON)),
    Case("array: 16 MiB of white space", post("/messages:batch", lambda: b"[" + b" " * (16 * MIB - 2) + b"]", _JSON)),
    Case(
        "array: 4 entries of 1 MiB, small values",
        post("/messages:batch", lambda: _filled(_draft(_LISTS), 4 * MIB + 100), _JSON),
    ),
    Case(
        "array: 15 OJS jobs of 1 MiB",
        post("/messages:batch", lambda: _filled(_JOB_BODY % _filled(b"[]", MIB - 400), 15 * MIB), _JOB),
    ),
    Case(
        "publish: 1 MiB of empty lists",
        post("/messages", lambda: _draft(_filled(b"[]", MIB - 400, b'{"a":[', b"]}")), _JSON),
    ),
    Case("publish: 1 MiB, small values and 1e999", post("/messages", lambda: _draft(_LISTS), _JSON)),
    Case("publish: a key of 512 KiB above 1e999", post("/messages", lambda: _draft(_LONG_KEY), _JSON)),
    Case(
        "publish: 1 MiB of members",
        post("/messages", lambda: _filled(b'"":0', MIB, b'{"job":"a","data":{},', b"}"), _JSON),
    ),
    Case("publish: 1 MiB nested", post("/messages", lambda: _draft(b'{"a":' + b"[" * MIB), _JSON)),
    Case(
        "publish: a number of 1 MB of digits",
        post("/messages", lambda: _draft(b'{"n":%b}' % (b"1" * 1_000_000)), _JSON),
    ),
    Case(
        "publish: 1 MiB of escapes",
        post("/messages", lambda: _draft(b'{"n":"%b"}' % (rb"\u00e9" * (MIB // 6 - 20))), _JSON),
    ),
    Case(
        "publish: 1 MiB of lone surrogates",
        post("/messages", lambda: _draft(_filled(rb'"\ud800"', MIB - 400, b'{"a":[', b"]}")), _JSON),
    ),
    Case(
        "publish: an entry of 1 MiB",
        post("/messages", lambda: b'{"envelope":%b}' % _draft(_filled(b"[]", MIB - 900, b'{"a":[', b"]}")), _JSON),
    ),
    Case("publish: 1 MiB in chunks of 1 byte", _tiny_chunks),
    Case("publish: an OJS job of 1 MiB", post("/messages", lambda: _JOB_BODY % _filled(b"[]", MIB - 400), _JOB)),
    Case("publish: a refused OJS job of 80,000 members", post("/messages", lambda: _refused_job(80_000), _JOB)),
    Case("validate: 1 MiB, small values and 1e999", post("/messages:validate", lambda: _draft(_LISTS), _JSON)),
    Case("validate, consume: 1 MiB of small values", post("/messages:validate?mode=consume", lambda: _LISTS, _JSON)),
    Case("receive: 16 MiB of white space", post("/messages:receive", lambda: b" " * 16 * MIB, _JSON)),
    Case(
        "ack: 100,000 tokens",
        post("/messages:ack", lambda: _filled(b'"%b"' % (b"t" * 120), 12_300_000, b'{"ack_tokens":[', b"]}"), _JSON),
    ),
    Case(
        "ack: 16 MiB of tokens of 2 characters",
        post("/messages:ack", lambda: _filled(b'"ab"', 16 * MIB, b'{"ack_tokens":[', b"]}"), _JSON),
    ),
    Case(
        "nack: a delay of 10 MB of digits",
        post("/messages:nack", lambda: b'{"ack_tokens":["t"],"delay_seconds":0.%b}' % (b"1" * 10_000_000), _JSON),
    ),
    Case("ack: an unknown member of 10 MB", post("/messages:ack", lambda: b'{"%b":1}' % (b"k" * 10_000_000), _JSON)),
    _settle_many(lambda tokens: {"acks": tokens}),
    _settle_many(lambda tokens: {"nacks": [{"ack_tokens": [token]} for token in tokens]}),
    _settle_many(lambda tokens: {"rejects": [{"ack_tokens": tokens, "error": {"message": "x" * 60_000}}]}),
    _settle_many(lambda tokens: {"extends": [{"ack_tokens": tokens}]}),
    Case("peek: 24 messages of 1 MiB", get("/queues/{queue}/messages:peek?limit=100"), _24_MESSAGES, keeps=True),
    Case("receive: 24 messages of 1 MiB, nack", _settle_large("nack"), _24_MESSAGES),
    Case("receive: 24 messages of 1 MiB, reject", _settle_large("reject"), _24_MESSAGES),
    Case("dead letters: 24 of 1 MiB", _dead_letters, _24_LETTERS, keeps=True),
    Case("redrive: 24 of 1 MiB, dry run", _redrive(dry_run=True), _24_LETTERS, keeps=True),
    Case("redrive: 24 of 1 MiB", _redrive(), _24_LETTERS),
    Case("redrive: a body of 1 MiB, nested", post("/dead-letters:redrive", lambda: b'{"filter":' + b"[" * MIB, _JSON)),
    Case(
        "redrive: a body of 1 MiB of small values",
        post("/dead-letters:redrive", lambda: _filled(b"[]", MIB, b'{"filter":[', b"]}"), _JSON),
    ),
    Case(
        "redrive: 100,000 unknown members",
        post("/dead-letters:redrive", lambda: b"{%b}" % b",".join(b'"%x":0' % n for n in range(100_000)), _JSON),
    ),
    Case("any: a head of 60 KB in 10,000 fields", lambda client, queue: _with_head(client)),
    Case("console: a message of 1 MiB within 90 lists", _look_at_message, _nested_message, keeps=True),
    Case("console: a check of 1 MiB within 90 lists", _check_message),
    Case("queues: 5,000", get("/queues"), _many_queues, keeps=True),
    Case("metrics: 5,000 queues", get("/metrics"), _many_queues, keeps=True),
]


def _with_head(client: httpx.Client) -> Sent:
    fields = [(f"x{number}", "") for number in range(7_000)]
    answer = client.get("/queues", headers=fields)
    return Sent(answer.status_code, 60_000, len(answer.content))
