"""Calls that are measured, and what prepares them: each drives one server and counts messages."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Sequence

import httpx

from bench.load import Measured, Step, drive, request, wrk

ENVELOPE = json.dumps(
    {
        "job": "urn:babel:orders:created",
        "trace_id": "7b3f9c2a-e41d-4f88-9b2a-1c0d5e6f7a8b",
        "data": {"order_id": 1042, "amount": 129.5, "currency": "EUR", "note": "x" * 170, "items": [1, 2, 3]},
        "meta": {"lang": "python"},
    },
    separators=(",", ":"),
).encode()
"""A draft whose canonical envelope has about 400 bytes."""

BATCH = b"[" + b",".join([ENVELOPE] * 100) + b"]"


def queue() -> str:
    """A fresh queue."""
    return f"bench-{secrets.token_hex(4)}"


def expect(status: int, wanted: int, body: bytes) -> None:
    """Raise unless the server answered as it must: a benchmark of refusals measures nothing."""
    if status not in (0, wanted):
        at = max(body.find(b'"code"') - 200, 0)
        raise AssertionError(f"the server answered {status}: {body[at : at + 500]!r}")


async def post(url: httpx.URL, body: bytes, connections: int, operations: int, program: str | None) -> Measured:
    """POST ``body`` over and over: by wrk for a second where ``program`` is its path, else ``operations`` times."""
    sent = request("POST", url.raw_path.decode(), body)

    def step(status: int, answer: bytes) -> tuple[bytes, bool]:
        # 207: a batch that was accepted in part.
        expect(status, status if 200 <= status < 207 else 201, answer)
        return sent, True

    many = 1 if program else operations
    measured = await drive(url.port or 80, min(connections, many), many, lambda number: step, url.host)
    return await wrk(program, str(url), connections, body) if program else measured


def _url(port: int, queue: str, verb: str = "") -> httpx.URL:
    return httpx.URL(f"http://127.0.0.1:{port}/queues/{queue}/messages{verb}")


async def publish(
    port: int, queue: str, connections: int, operations: int, program: str | None = None, body: bytes = ENVELOPE
) -> Measured:
    """One request a message; the bare application takes it as well."""
    return await post(_url(port, queue), body, connections, operations, program)


async def batch(port: int, queue: str, connections: int, operations: int) -> Measured:
    """Batches of a hundred; an operation is a batch. All are awaited, which wrk does not do when its time is over."""
    return await post(_url(port, queue, ":batch"), BATCH, connections, operations, None)


async def take(port: int, queue: str, operations: int, wait: str = "") -> Measured:
    """Receive messages that wait, one by one over one connection. They stay leased. ``wait``: more of the query."""
    asked = request("POST", f"/queues/{queue}/messages:receive?lease_seconds=600{wait}")

    def step(status: int, answer: bytes) -> tuple[bytes, bool]:
        expect(status, 200, answer)
        if status and not tokens_of(answer):
            raise AssertionError("nothing came")
        return asked, True

    return await drive(port, 1, operations, lambda number: step)


async def wake(port: int, queue: str, operations: int) -> Measured:
    """Publish to a receive that waits. Timed is from the write of the publish to the answer of the receive."""
    waiter, publisher = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    asked = request("POST", f"/queues/{queue}/messages:receive?wait_seconds=20")
    sent = request("POST", f"/queues/{queue}/messages", ENVELOPE)
    measured = Measured(operations)
    for _ in range(operations):
        waiter[1].write(asked)
        await asyncio.sleep(0.005)  # until it waits
        began = time.perf_counter()
        publisher[1].write(sent)
        answer = await _answer(waiter[0], 200)
        measured.latencies.append(time.perf_counter() - began)
        await _answer(publisher[0], 201)
        waiter[1].write(_ack(queue, tokens_of(answer)))
        await _answer(waiter[0], 200)
    for _, writer in (waiter, publisher):
        writer.close()
    measured.seconds = sum(measured.latencies)
    return measured


async def _answer(reader: asyncio.StreamReader, wanted: int) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    body = await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
    expect(int(head[9:12]), wanted, body)
    return body


def _ack(queue: str, tokens: Sequence[bytes]) -> bytes:
    return request("POST", f"/queues/{queue}/messages:ack", b'{"ack_tokens":[' + b",".join(tokens) + b"]}")


async def fill(port: int, queue: str, messages: int) -> None:
    """Put so many messages on the queue; here it does no harm to be refused for a while."""
    sent = request("POST", f"/queues/{queue}/messages:batch", BATCH)

    def step(status: int, answer: bytes) -> tuple[bytes, bool]:
        if status == 429:
            return sent, False
        expect(status, 201, answer)
        return sent, True

    await drive(port, 4, (messages + 99) // 100, lambda number: step)


async def leave(port: int, queue: str) -> None:
    """Nothing to prepare."""


async def consume(port: int, queue: str, connections: int, operations: int, size: int) -> Measured:
    """Receive up to ``size`` and ack them; an operation is the pair."""
    return await consume_of(port, lambda: queue, connections, operations, size)


async def consume_of(
    port: int, next_queue: Callable[[], str], connections: int, operations: int, size: int
) -> Measured:
    """The same, where each operation asks for its queue."""
    messages = 0

    def make(number: int) -> Step:
        settling, queue = True, ""

        def step(status: int, answer: bytes) -> tuple[bytes, bool]:
            nonlocal settling, messages, queue
            expect(status, 200, answer)
            settling = not settling
            if not settling:
                queue = next_queue()
                return request("POST", f"/queues/{queue}/messages:receive?max_messages={size}&wait_seconds=5"), True
            tokens = tokens_of(answer)
            if not tokens:
                raise AssertionError("nothing came")
            messages += len(tokens)
            return _ack(queue, tokens), False

        return step

    measured = await drive(port, connections, operations, make)
    measured.messages = messages
    return measured


async def fill_and_hold(port: int, queue: str, messages: int) -> None:
    """Put so many messages on the queue, and lease the first of them for the whole run."""
    await fill(port, queue, messages)
    await take(port, queue, 1, "&wait_seconds=5")


def tokens_of(answer: bytes) -> list[bytes]:
    """The ack tokens of an answer, in quotes: parsing all of it would tell of the load generator only."""
    tokens = []
    mark = b'"ack_token":'
    at = answer.find(mark)
    while at >= 0:
        end = answer.index(b'"', at + len(mark) + 1) + 1
        tokens.append(answer[at + len(mark) : end])
        at = answer.find(mark, end)
    return tokens


class Settling:
    """Acks one by one of what was received before, so that a settle is timed by itself."""

    def __init__(self) -> None:
        self._tokens: list[bytes] = []

    async def receive(self, port: int, queue: str, messages: int) -> None:
        """Publish and take so many, with a long lease; each connection of the run wants one more than it sends."""
        await fill(port, queue, messages)
        asked = request("POST", f"/queues/{queue}/messages:receive?max_messages=100&wait_seconds=5&lease_seconds=600")
        self._tokens.clear()

        def step(status: int, answer: bytes) -> tuple[bytes, bool]:
            expect(status, 200, answer)
            self._tokens += tokens_of(answer)
            return asked, True

        while len(self._tokens) < messages:
            await drive(port, 1, 1, lambda number: step)

    async def ack(self, port: int, queue: str, connections: int, operations: int) -> Measured:
        """An operation is one settle call with one token."""
        sent = iter([_ack(queue, [token]) for token in self._tokens])

        def step(status: int, answer: bytes) -> tuple[bytes, bool]:
            expect(status, 200, answer)
            return next(sent), True

        return await drive(port, connections, operations, lambda number: step)


async def post_foreign(
    port: int, queue: str, url: str, connections: int, operations: int, program: str | None
) -> Measured:
    """A single publish to a server that has paths of its own."""
    return await post(httpx.URL(url), ENVELOPE, connections, operations, program)
