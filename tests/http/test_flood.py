"""A flood of names, tokens, hosts, keys and ids fills one real process no further than the documentation says."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

import psutil
import pytest

from tests.harness.caches import CACHES, bounds
from tests.harness.gateway import GatewayProcess, gateway

MIB = 1 << 20
CONNECTIONS = 32
MARGIN = 48 * MIB
"""Beside what is remembered: the series of 1,000 queues, their runtimes, and free memory between what is used."""
REFUSED_MARGIN = 32 * MIB
"""For what is refused as a whole, which leaves nothing: buffers of connections, and free memory."""
LONG = 60_000
"""Bytes of a name in a head, which has at most 65,536."""
_SCOPES = ("process", "broker", "kind of warning", "SQLite broker")

Statuses = Counter[int]


class Part(NamedTuple):
    """A part of the flood: the n-th of ``times`` requests, and the statuses of their answers."""

    times: int
    request: Callable[[int], bytes]
    statuses: set[int]


def request(
    path: str,
    body: bytes = b"",
    *,
    method: str = "POST",
    token: str = "shop",
    host: str = "localhost",
    headers: str = "",
) -> bytes:
    """A request in one piece."""
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n{headers}"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def draft(number: int = 0, **members: object) -> bytes:
    return json.dumps({"job": f"job.{number}", "data": {"n": number}} | members).encode()


def text(number: int, length: int) -> str:
    return f"{number:08}-".ljust(length, "x")


REFUSED = {
    "long names": Part(1_000, lambda n: request(f"/queues/{text(n, LONG)}/messages", draft(), token="nobody"), {400}),
    "long names to receive": Part(
        500, lambda n: request(f"/queues/{text(n + 10_000, LONG)}/messages:receive", token="nobody"), {400}
    ),
    "long names of queues": Part(
        300, lambda n: request(f"/queues/{text(n + 20_000, LONG)}", method="GET", token="nobody"), {400}
    ),
    "names without rights": Part(
        2_000, lambda n: request(f"/queues/{text(n, 120)}/messages", draft(), token="nobody"), {403}
    ),
    "queues without rights": Part(
        300, lambda n: request(f"/queues/{text(n, 120)}", method="GET", token="nobody"), {403}
    ),
    "names as targets": Part(
        300,
        lambda n: request("/queues/q/dead-letters:redrive", json.dumps({"to_queue": text(n, 50_000)}).encode()),
        {400},
    ),
    "short tokens": Part(1_500, lambda n: request("/queues/q/messages", draft(), token=text(n, 40)), {401}),
    "long tokens": Part(500, lambda n: request("/queues/q/messages", draft(), token=text(n, LONG)), {401}),
    "ids of letters": Part(500, lambda n: request(f"/queues/q/dead-letters/{text(n, 1_000)}", method="GET"), {404}),
    "ids of jobs": Part(500, lambda n: request(f"/queues/q/redrives/{text(n, 1_000)}", method="GET"), {404}),
    "ack tokens": Part(
        1_000, lambda n: request("/queues/q/messages:ack", json.dumps({"ack_tokens": [text(n, 5_000)]}).encode()), {400}
    ),
}
ACCEPTED = {
    "names": Part(2_000, lambda n: request(f"/queues/{text(n, 120)}/messages", draft()), {201}),
    "names to receive": Part(1_000, lambda n: request(f"/queues/r.{text(n, 118)}/messages:receive"), {200}),
    "hosts": Part(1_000, lambda n: request("/queues/q/messages", draft(), host=text(n, 250)), {201}),
    "long hosts": Part(300, lambda n: request("/queues/q/messages", draft(), host=text(n, LONG)), {201}),
    "idempotency keys": Part(
        1_000, lambda n: request("/queues/q/messages", draft(), headers=f"Idempotency-Key: {text(n, 255)}\r\n"), {201}
    ),
    "jobs and trace ids": Part(
        1_500, lambda n: request("/queues/q/messages", draft(job=text(n, 2_000), trace_id=text(n, 2_000))), {201}
    ),
    "parents of traces": Part(
        500,
        lambda n: request("/queues/q/messages", draft(), headers=f"traceparent: 00-{n + 1:032x}-{n + 1:016x}-01\r\n"),
        {201},
    ),
    "queries": Part(
        1_000, lambda n: request(f"/queues/empty/messages:receive?lease_seconds=1.{n:08}", method="POST"), {200}
    ),
    "ids of requests": Part(
        500, lambda n: request("/queues/q/messages", draft(), headers=f"X-Request-Id: {text(n, 128)}\r\n"), {201}
    ),
}


@pytest.fixture
def process(tmp_path):
    rights = {"shop": {"*": ["send", "listen", "manage"]}, "nobody": {}}
    tokens = [
        {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "rights": granted}
        for name, granted in rights.items()
    ]
    # Not the time of the disk is measured.
    local = {"url": f"sqlite:///{tmp_path}/local.db", "synchronous": "normal", "timeout_seconds": 30}
    config = {"auth": {"tokens": tokens}, "brokers": {"local": local}, "default": {"broker": "local"}}
    with gateway(tmp_path, config) as running:
        yield running


async def _flood(url: str, parts: list[Part], first: int) -> list[Statuses]:
    """The statuses of each part's answers. The numbers of its requests begin with ``first``."""
    address = urlsplit(url)
    statuses: list[Statuses] = [Counter() for _ in parts]
    work = ((index, part.request(first + n)) for index, part in enumerate(parts) for n in range(part.times))

    async def worker(work: Iterator[tuple[int, bytes]]) -> None:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        for index, data in work:
            writer.write(data)
            head = await reader.readuntil(b"\r\n\r\n")
            fields = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:-2])
            await reader.readexactly(int(fields[b"content-length"]))
            statuses[index][int(head[9:12])] += 1
            if fields.get(b"connection") == b"close":
                writer.close()
                reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.close()

    await asyncio.gather(*(worker(work) for _ in range(CONNECTIONS)))
    return statuses


async def _growth(process: GatewayProcess, parts: dict[str, Part]) -> int:
    """How much the resident memory grows by ``parts``, once all code they need has been used."""
    warm = [part._replace(times=CONNECTIONS) for part in parts.values()]
    resident = psutil.Process(process.pid).memory_info
    await _flood(process.url, warm, 10_000_000)
    before = resident().rss
    found = await _flood(process.url, list(parts.values()), 0)
    # What the gateway and its machine had no room for is refused in words of its own.
    overloaded = {429, 503}
    assert [
        name
        for (name, part), statuses in zip(parts.items(), found, strict=True)
        if not part.statuses <= set(statuses) <= part.statuses | overloaded
    ] == [], found
    return resident().rss - before


async def test_what_is_refused_leaves_nothing(process):
    assert await _growth(process, REFUSED) < REFUSED_MARGIN


async def test_what_is_accepted_leaves_what_the_documentation_says(process):
    found = bounds()
    most = sum(found[each.place].max_bytes(each.entry_bytes) for each in CACHES if each.scope in _SCOPES)
    assert await _growth(process, ACCEPTED) < most + MARGIN
