"""Streams against long polls: CPU of the gateway for each message, and ten thousand open streams.

``python -m bench.streams redis``. The cases take turns in short rounds. A case is told by the median of its rounds, and
compared by the median of the shares of each round, because other work of the machine comes and goes.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from base64 import b64encode
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import cast

import httpx
import psutil
from websockets.frames import Frame, Opcode

from babelgate.server.server import raise_file_limit
from bench.calls import BATCH, ENVELOPE, queue
from bench.load import request
from tests.brokers.registry import HARNESSES
from tests.harness.gateway import GatewayProcess, gateway

MESSAGES, ROUNDS = 2_000, 9
STREAMS, QUEUES, SECONDS = 10_000, 100, 20.0


class Lines:
    """One connection on which requests are sent and answers read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def call(self, sent: bytes) -> bytes:
        """The body of the answer to a request."""
        self.writer.write(sent)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        if not head.startswith(b"http/1.1 2"):
            raise AssertionError(head)
        return await self.reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))


async def connected(port: int) -> Lines:
    """A connection to the gateway."""
    return Lines(*await asyncio.open_connection("127.0.0.1", port, limit=2**24))


def _tokens(body: bytes) -> list[str]:
    return [message["ack_token"] for message in json.loads(body)["messages"]]


def _ack(name: str, tokens: list[str]) -> bytes:
    return request("POST", f"/queues/{name}/messages:ack", json.dumps({"ack_tokens": tokens}).encode())


async def one_by_one(port: int, name: str) -> None:
    """Receive and ack each message by requests of its own."""
    lines = await connected(port)
    asked = request("POST", f"/queues/{name}/messages:receive")
    for _ in range(MESSAGES):
        (token,) = _tokens(await lines.call(asked))
        await lines.call(_ack(name, [token]))
    lines.writer.close()


async def in_hundreds(port: int, name: str) -> None:
    """Receive and ack a hundred messages at a time."""
    lines = await connected(port)
    asked = request("POST", f"/queues/{name}/messages:receive", b'{"max_messages":100}')
    done = 0
    while done < MESSAGES:
        tokens = _tokens(await lines.call(asked))
        await lines.call(_ack(name, tokens))
        done += len(tokens)
    lines.writer.close()


def _stream(name: str, window: int, version: str, fields: str) -> bytes:
    path = f"/queues/{name}/messages:stream?max_in_flight={window}"
    return f"GET {path} HTTP/{version}\r\nhost: localhost\r\n{fields}\r\n\r\n".encode()


def streamed(size: int, window: int, accept: str = "application/x-ndjson") -> Callable[[int, str], Awaitable[None]]:
    """A stream of NDJSON or Server-Sent Events, whose messages are acked ``size`` at a time over another connection."""

    async def run(port: int, name: str) -> None:
        stream, other = await connected(port), await connected(port)
        stream.writer.write(_stream(name, window, "1.0", f"accept: {accept}"))
        await stream.reader.readuntil(b"\r\n\r\n")
        tokens: list[str] = []
        done = 0
        while done < MESSAGES:
            _, found, token = (await stream.reader.readline()).partition(b'"ack_token":"')
            if not found:
                # The name of a Server-Sent Event, or its end.
                continue
            tokens.append(token.partition(b'"')[0].decode())
            if len(tokens) == size:
                await other.call(_ack(name, tokens))
                done += size
                tokens = []
        stream.writer.close()
        other.writer.close()

    return run


def over_websocket(window: int) -> Callable[[int, str], Awaitable[None]]:
    """A stream over a WebSocket, whose messages are acked one by one in band."""

    async def run(port: int, name: str) -> None:
        stream = await connected(port)
        key = b64encode(bytes(16)).decode()
        fields = ("upgrade: websocket", "connection: upgrade", f"sec-websocket-key: {key}", "sec-websocket-version: 13")
        stream.writer.write(_stream(name, window, "1.1", "\r\n".join(fields)))
        await stream.reader.readuntil(b"\r\n\r\n")
        waiting: deque[str] = deque()
        done = 0
        is_free = True
        while done < MESSAGES:
            if waiting and is_free:
                text = json.dumps({"acks": [waiting.popleft()]}).encode()
                stream.writer.write(Frame(Opcode.TEXT, text).serialize(mask=True))
                is_free = False
            _, length = await stream.reader.readexactly(2)
            if length == 126:
                length = int.from_bytes(await stream.reader.readexactly(2), "big")
            event = json.loads(await stream.reader.readexactly(length))
            if event["event"] == "message":
                waiting.append(event["data"]["ack_token"])
            else:
                is_free, done = True, done + event["data"]["settled"]
        stream.writer.close()

    return run


CASES: dict[str, Callable[[int, str], Awaitable[None]]] = {
    "long polls, one by one": one_by_one,
    "long polls, in hundreds": in_hundreds,
    "stream, acks one by one": streamed(1, 100),
    "stream of Server-Sent Events, acks one by one": streamed(1, 100, "text/event-stream"),
    "stream over a WebSocket, acks in band one by one": over_websocket(100),
    "stream, acks in hundreds": streamed(100, 1_000),
}


class Open(asyncio.Protocol):
    """An open stream of ``queue``. ``ended``: what came instead."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self.ended: bytes | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(f"GET /queues/{self._queue}/messages:stream HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = b"the connection was closed"


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def _measure(port: int, pid: int) -> None:
    process = psutil.Process(pid)
    took: dict[str, list[float]] = {case: [] for case in CASES}
    for _ in range(ROUNDS):
        for case, run in CASES.items():
            name = queue()
            lines = await connected(port)
            for _ in range(MESSAGES // 100):
                await lines.call(request("POST", f"/queues/{name}/messages:batch", BATCH))
            lines.writer.close()
            began = _cpu(process)
            await run(port, name)
            took[case].append((_cpu(process) - began) / MESSAGES * 1e6)
    base = took["long polls, one by one"]
    for case, each in took.items():
        share = median(mine / its for mine, its in zip(each, base, strict=True))
        print(f"{case}: {median(each):.1f} µs of CPU a message, {share:.2f} of receive and ack one by one")


async def _idle(port: int, pid: int) -> None:
    process = psutil.Process(pid)
    names = [queue() for _ in range(QUEUES)]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        for name in names:
            (await client.post(f"/queues/{name}/messages", content=ENVELOPE)).raise_for_status()
            (await client.post(f"/queues/{name}:purge")).raise_for_status()
    opened = []
    for number in range(STREAMS):
        make = partial(Open, names[number % QUEUES])
        opened.append((await asyncio.get_running_loop().create_connection(make, "127.0.0.1", port))[1])
        if number % 200 == 0:
            await asyncio.sleep(0.02)
    await asyncio.sleep(3)
    before, began = _cpu(process), time.perf_counter()
    await asyncio.sleep(SECONDS)
    share = (_cpu(process) - before) / (time.perf_counter() - began) * 100
    resident = process.memory_info().rss / 2**20
    if ended := [each.ended for each in opened if each.ended is not None]:
        raise AssertionError(f"{len(ended)} of {len(opened)} ended")
    print(f"{STREAMS} open streams on {QUEUES} queues: {resident:.0f} MiB resident, {share:.1f} % of one core")
    for each in opened:
        each.transport.close()


def main(broker: str) -> None:
    """Print a line for each case, and one for open streams, for the broker of this kind."""
    raise_file_limit()
    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        started = stack.enter_context(HARNESSES[broker][0].start(Path(home)))
        config = {"brokers": {"main": started.url}, "default": started.route()}
        process = stack.enter_context(gateway(Path(home), config, kind=GatewayProcess))
        port = httpx.URL(process.url).port or 0
        asyncio.run(_measure(port, process.pid))
        asyncio.run(_idle(port, process.pid))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sqlite")
