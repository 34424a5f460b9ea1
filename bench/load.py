"""Closed-loop HTTP load generators: N keep-alive connections, each with one request in flight."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast


@dataclass
class Measured:
    """What one run of a case showed. Latencies in seconds, one an operation; ``messages`` where they were counted."""

    operations: int = 0
    messages: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0


def request(
    method: str, path: str, body: bytes = b"", content_type: str = "application/json", token: str = ""
) -> bytes:
    """One HTTP/1.1 request, with a bearer token if one is given."""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}"
    if token:
        head += f"\r\nAuthorization: Bearer {token}"
    return head.encode() + b"\r\n\r\n" + body


class _Connection(asyncio.Protocol):
    def __init__(self, step: Callable[[int, bytes], bytes | None], done: asyncio.Future[None]) -> None:
        self._step = step
        self._done = done
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._next(0, b"")

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while True:
            head_end = self._buffer.find(b"\r\n\r\n")
            if head_end < 0:
                return
            head = self._buffer[:head_end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 : (head + b"\r\n").find(b"\r\n", at)]) if at >= 0 else 0
            end = head_end + 4 + length
            if len(self._buffer) < end:
                return
            body, self._buffer = self._buffer[head_end + 4 : end], self._buffer[end:]
            self._next(int(head[9:12]), body)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(error or ConnectionError("the server closed the connection"))

    def _next(self, status: int, body: bytes) -> None:
        try:
            following = self._step(status, body)
        except Exception as error:
            if not self._done.done():
                self._done.set_exception(error)
            self._transport.close()
            return
        if following is None:
            if not self._done.done():
                self._done.set_result(None)
            self._transport.close()
        else:
            self._transport.write(following)


Step = Callable[[int, bytes], tuple[bytes, bool]]
"""``(status, body)`` of the last response (0 at first) to the next request, and whether an operation has just ended."""


async def drive(
    port: int,
    connections: int,
    operations: int,
    make_step: Callable[[int], Step],
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
) -> Measured:
    """Run ``operations`` over ``connections``; each speaks through a step of its own, from ``make_step(number)``."""
    measured = Measured()
    loop = asyncio.get_running_loop()
    started_operations = 0

    def stepper(number: int) -> Callable[[int, bytes], bytes | None]:
        step = make_step(number)
        began = 0.0

        def advance(status: int, body: bytes) -> bytes | None:
            nonlocal began, started_operations
            now = time.perf_counter()
            following, ended = step(status, body)
            if status and ended:
                measured.latencies.append(now - began)
                measured.operations += 1
            if ended:
                if started_operations >= operations:
                    return None
                started_operations += 1
                began = time.perf_counter()
            return following

        return advance

    started = time.perf_counter()
    done = []
    for number in range(connections):
        future: asyncio.Future[None] = loop.create_future()
        advance = stepper(number)
        await loop.create_connection(partial(_Connection, advance, future), host, port, ssl=tls)
        done.append(future)
    await asyncio.gather(*done)
    measured.seconds = time.perf_counter() - started
    return measured


async def wrk(program: str, url: str, connections: int, body: bytes) -> Measured:
    """POST ``body`` for a second by wrk (https://github.com/wg/wrk), which takes a tenth of the CPU of :func:`drive`.

    Raises AssertionError for an answer above 399 and for a failed connection.
    """
    script = str(Path(__file__).with_name("wrk.lua"))
    command = (program, "-t1", f"-c{connections}", "-d1s", "-s", script, url)
    environ = {**os.environ, "BODY": body.decode()}
    process = await asyncio.create_subprocess_exec(*command, env=environ, stdout=asyncio.subprocess.PIPE)
    printed = (await process.communicate())[0].decode()
    requests, duration, failed, *latencies = printed.rpartition("measured ")[2].split()
    assert failed == "0" != requests, printed
    return Measured(int(requests), seconds=int(duration) / 1e6, latencies=[float(each) / 1e6 for each in latencies])
