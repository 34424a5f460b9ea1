"""What is measured: each case drives one server and counts messages."""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tests.bench.load import Measured, Step, drive, request

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


def expect(status: int, wanted: int, body: bytes) -> None:
    """Raise unless the server answered as it must: a benchmark of refusals measures nothing."""
    if status not in (0, wanted):
        raise AssertionError(f"the server answered {status}: {body[:300]!r}")


def _repeat(path: str, body: bytes, wanted: int) -> Callable[[int], Step]:
    sent = request("POST", path, body)

    def make(number: int) -> Step:
        def step(status: int, answer: bytes) -> tuple[bytes, bool]:
            expect(status, wanted, answer)
            return sent, True

        return step

    return make


async def publish(port: int, queue: str, connections: int, operations: int) -> Measured:
    """One request a message; the bare application takes it as well."""
    return await drive(port, connections, operations, _repeat(f"/queues/{queue}/messages", ENVELOPE, 201))


async def batch(port: int, queue: str, connections: int, operations: int) -> Measured:
    """Batches of a hundred; an operation is a batch."""
    return await drive(port, connections, operations, _repeat(f"/queues/{queue}/messages:batch", BATCH, 201))


async def fill(port: int, queue: str, messages: int) -> None:
    """Put so many messages on the queue."""
    await batch(port, queue, 4, (messages + 99) // 100)


async def leave(port: int, queue: str) -> None:
    """Nothing to prepare."""


async def consume(port: int, queue: str, connections: int, operations: int, size: int) -> Measured:
    """Receive ``size`` and ack them; an operation is the pair."""
    receive = request("POST", f"/queues/{queue}/messages:receive?max_messages={size}&wait_seconds=5")
    path = f"/queues/{queue}/messages:ack"

    def make(number: int) -> Step:
        settling = True

        def step(status: int, answer: bytes) -> tuple[bytes, bool]:
            nonlocal settling
            expect(status, 200, answer)
            settling = not settling
            if not settling:
                return receive, True
            tokens = _tokens(answer)
            if len(tokens) != size:
                raise AssertionError(f"{len(tokens)} messages came, not {size}")
            return request("POST", path, b'{"ack_tokens":[' + b",".join(tokens) + b"]}"), False

        return step

    return await drive(port, connections, operations, make)


def _tokens(answer: bytes) -> list[bytes]:
    """The ack tokens of an answer, in quotes: parsing all of it would tell of the load generator only."""
    tokens = []
    mark = b'"ack_token":'
    at = answer.find(mark)
    while at >= 0:
        end = answer.index(b'"', at + len(mark) + 1) + 1
        tokens.append(answer[at + len(mark) : end])
        at = answer.find(mark, end)
    return tokens


@dataclass(frozen=True)
class Case:
    """``run(port, queue)`` drives the server named ``server``; an operation of it moves ``messages``."""

    name: str
    server: str
    messages: int
    run: Callable[[int, str], Awaitable[Measured]]
    prepare: Callable[[int, str], Awaitable[None]] = leave


def queue() -> str:
    """A fresh queue."""
    return f"bench-{secrets.token_hex(4)}"


def all_cases(connections: Sequence[int], scale: float) -> Iterator[Case]:
    """Bare, then each of the gateway's, for every number of connections."""

    def operations(count: int, at: int) -> int:
        """Fewer where only one is in flight, so that a round takes seconds."""
        return max(round(count * scale / (4 if at == 1 else 1)), at)

    for at in connections:
        many, few, pairs = operations(8000, at), operations(200, at), operations(3000, at)
        hundreds = operations(100, at)
        yield Case(f"bare application, {at} connections", "bare", 1, partial(publish, connections=at, operations=many))
        for server in ("sqlite", "redis"):
            yield Case(
                f"{server}: publish, {at} connections",
                server,
                1,
                partial(publish, connections=at, operations=many),
            )
            yield Case(
                f"{server}: batch of 100, {at} connections",
                server,
                100,
                partial(batch, connections=at, operations=few),
            )
            yield Case(
                f"{server}: receive + ack in hundreds, {at} connections",
                server,
                100,
                partial(consume, connections=at, operations=hundreds, size=100),
                partial(fill, messages=(hundreds + at) * 100),
            )
            yield Case(
                f"{server}: receive + ack one by one, {at} connections",
                server,
                1,
                partial(consume, connections=at, operations=pairs, size=1),
                partial(fill, messages=pairs + at),
            )
