"""``python -m bench.push``: CPU of a pushed message, against a bare loop of httpx that posts the same bodies.

Both run in this process, on uvloop, and post to a receiver in another one that reads and answers 204. A push receives
from SQLite, signs, posts and acks. Each try measures the loop and then the pushes; the least ratio counts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

import httpx
import uvloop

from babelgate.brokers import registry
from babelgate.clock import now_ms
from babelgate.errors import BabelgateError
from babelgate.gateway.ack_tokens import TokenKey, TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.routing import Router, Rule
from babelgate.push.addresses import AddressGuard
from babelgate.push.pushes import Pushes
from babelgate.push.targets import PushTarget

QUEUE = "pushed"
ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"
BODY = b'{"job":"urn:babel:bench:made","data":{"text":"%s"}}' % (b"x" * 200)


class _Accepting(asyncio.Protocol):
    """Answers each request, whose head and body may come in several pieces."""

    def __init__(self) -> None:
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._got += data
        while (end := self._got.find(b"\r\n\r\n")) >= 0:
            length = int(self._got[:end].lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            if len(self._got) < end + 4 + length:
                return
            self._got = self._got[end + 4 + length :]
            self._transport.write(ANSWER)


def _serve(told: Connection) -> None:
    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(_Accepting, "127.0.0.1", 0)
        told.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(run())


@contextlib.asynccontextmanager
async def _gateway(directory: Path) -> AsyncIterator[Gateway]:
    binding = registry.connect("local", f"sqlite:///{directory}/queues.db", {"timeout_seconds": 30}, now_ms)
    made = Gateway({"local": binding}, Router([], Rule("*", binding)), TokenSealer([TokenKey("a", bytes(32))]))
    await made.start()
    try:
        yield made
    finally:
        await made.close()


async def _loop(url: str, bodies: list[bytes], concurrency: int) -> None:
    """A bare loop: ``concurrency`` posts at a time."""
    left = iter(bodies)
    async with httpx.AsyncClient(trust_env=False) as client:

        async def post() -> None:
            for body in left:
                answer = await client.post(url, content=body, headers={"content-type": "application/json"})
                answer.raise_for_status()

        await asyncio.gather(*(post() for _ in range(concurrency)))


async def _push(gateway: Gateway, url: str, count: int, concurrency: int) -> None:
    ended = asyncio.Event()
    left = count

    def report(queue: str, broker: str, outcome: str, seconds: float) -> None:
        nonlocal left
        assert outcome == "acked", outcome
        left -= 1
        if not left:
            ended.set()

    target = PushTarget(url, [bytes(32)], concurrency=concurrency)
    pushes = Pushes(gateway, {QUEUE: target}, AddressGuard(allow_http=True, allow_private=True), report)
    await pushes.start()
    await ended.wait()
    await pushes.close()


async def _cpu(work: Callable[[], Awaitable[None]]) -> float:
    """CPU seconds of this process for ``work``."""
    began = time.process_time()
    await work()
    return time.process_time() - began


async def _measure(url: str, count: int, concurrency: int, tries: int) -> None:
    ratios = []
    with tempfile.TemporaryDirectory() as directory:
        async with _gateway(Path(directory)) as gateway:
            for number in range(tries + 1):
                for _ in range(count // 500):
                    results = await gateway.publish_many(ANYONE, QUEUE, [BODY] * 500)
                    assert not any(isinstance(result, BabelgateError) for result in results)
                bodies = [each.body for each in await gateway.peek(ANYONE, QUEUE, 1)] * count
                bare = await _cpu(lambda given=bodies: _loop(url, given, concurrency))  # type: ignore[misc]
                pushed = await _cpu(lambda: _push(gateway, url, count, concurrency))
                if number:  # the first round warms up
                    ratios.append(pushed / bare)
                    print(f"httpx {bare / count * 1e6:.0f} µs, push {pushed / count * 1e6:.0f} µs, {ratios[-1]:.2f}")
    print(f"a push costs {min(ratios):.2f} times the CPU of a post in a bare loop of httpx")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.push", description=__doc__)
    parser.add_argument("--count", type=int, default=2_000, help="messages a try, in five hundreds")
    parser.add_argument("--concurrency", type=int, default=10)
    parser.add_argument("--tries", type=int, default=5)
    asked = parser.parse_args()
    here, there = multiprocessing.Pipe()
    receiver = multiprocessing.Process(target=_serve, args=(there,), daemon=True)
    receiver.start()
    url = f"http://127.0.0.1:{here.recv()}/"
    try:
        uvloop.run(_measure(url, asked.count, asked.concurrency, asked.tries))
    finally:
        receiver.kill()


if __name__ == "__main__":
    main()
