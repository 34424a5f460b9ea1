"""What is measured: each case drives one server and counts messages."""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tests.bench.load import Measured, Step, drive, request
from tests.brokers.registry import KINDS

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
        at = max(body.find(b'"code"') - 200, 0)
        raise AssertionError(f"the server answered {status}: {body[at : at + 500]!r}")


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
    receive = request("POST", f"/queues/{queue}/messages:receive?max_messages={size}&wait_seconds=5")
    path = f"/queues/{queue}/messages:ack"
    messages = 0

    def make(number: int) -> Step:
        settling = True

        def step(status: int, answer: bytes) -> tuple[bytes, bool]:
            nonlocal settling, messages
            expect(status, 200, answer)
            settling = not settling
            if not settling:
                return receive, True
            tokens = _tokens(answer)
            if not tokens:
                raise AssertionError("nothing came")
            messages += len(tokens)
            return request("POST", path, b'{"ack_tokens":[' + b",".join(tokens) + b"]}"), False

        return step

    measured = await drive(port, connections, operations, make)
    measured.messages = messages
    return measured


async def fill_and_hold(port: int, queue: str, messages: int) -> None:
    """Put so many messages on the queue, and lease the first of them for the whole run."""
    await fill(port, queue, messages)
    asked = request("POST", f"/queues/{queue}/messages:receive?max_messages=1&wait_seconds=5&lease_seconds=600")

    def step(status: int, answer: bytes) -> tuple[bytes, bool]:
        expect(status, 200, answer)
        if status and not _tokens(answer):
            raise AssertionError("nothing came")
        return asked, True

    await drive(port, 1, 1, lambda number: step)


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
            self._tokens += _tokens(answer)
            return asked, True

        while len(self._tokens) < messages:
            await drive(port, 1, 1, lambda number: step)

    async def ack(self, port: int, queue: str, connections: int, operations: int) -> Measured:
        """An operation is one settle call with one token."""
        path = f"/queues/{queue}/messages:ack"
        sent = iter([request("POST", path, b'{"ack_tokens":[' + token + b"]}") for token in self._tokens])

        def step(status: int, answer: bytes) -> tuple[bytes, bool]:
            expect(status, 200, answer)
            return next(sent), True

        return await drive(port, connections, operations, lambda number: step)


@dataclass(frozen=True)
class Goal:
    """What is to be reached, in microseconds of CPU a message."""

    cpu: float
    broker_cpu: float | None = None


GOALS = {"publish": Goal(220, 150), "batch": Goal(80), "hundreds": Goal(80), "pairs": Goal(400)}
"""Of RabbitMQ; of publishing one by one at the most connections."""
LOCAL, FORWARDED = "rabbitmq: ack at the owner", "rabbitmq: ack forwarded to the owner"
AT_RECEIVER, ELSEWHERE = "servicebus: ack at the receiver", "servicebus: ack at another replica"


@dataclass(frozen=True)
class Case:
    """``run(port, queue)`` drives the server named ``server``; an operation of it moves ``messages``.

    ``prepare`` is driven the same way, at the server ``by`` where one is named.
    """

    name: str
    server: str
    messages: int
    run: Callable[[int, str], Awaitable[Measured]]
    prepare: Callable[[int, str], Awaitable[None]] = leave
    by: str | None = None
    goal: Goal | None = None


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
        for server in KINDS:
            goals = GOALS if server == "rabbitmq" else {}
            yield Case(
                f"{server}: publish, {at} connections",
                server,
                1,
                partial(publish, connections=at, operations=many),
                goal=goals.get("publish") if at == max(connections) else None,
            )
            yield Case(
                f"{server}: batch of 100, {at} connections",
                server,
                100,
                partial(batch, connections=at, operations=few),
                goal=goals.get("batch"),
            )
            yield Case(
                f"{server}: receive + ack in hundreds, {at} connections",
                server,
                100,
                partial(consume, connections=at, operations=hundreds, size=100),
                partial(fill, messages=(hundreds + at) * 100),
                goal=goals.get("hundreds"),
            )
            yield Case(
                f"{server}: receive + ack one by one, {at} connections",
                server,
                1,
                partial(consume, connections=at, operations=pairs, size=1),
                partial(fill, messages=pairs + at),
                goal=goals.get("pairs"),
            )
        # A partition hands out at most 10,000 records behind the first unacked one.
        behind = min(hundreds, 90)
        yield Case(
            f"kafka: first held, receive + ack in hundreds behind it, {at} connections",
            "kafka",
            100,
            partial(consume, connections=at, operations=behind, size=100),
            partial(fill_and_hold, messages=(behind + at) * 100),
        )
        for broker, server, how in (
            ("rabbitmq", "rabbitmq", LOCAL),
            ("rabbitmq", "rabbitmq-peer", FORWARDED),
            ("servicebus", "servicebus", AT_RECEIVER),
            ("servicebus", "servicebus-peer", ELSEWHERE),
        ):
            settling = Settling()
            yield Case(
                f"{how}, {at} connections",
                server,
                1,
                partial(settling.ack, connections=at, operations=pairs),
                partial(settling.receive, messages=pairs + at),
                by=broker,
            )
