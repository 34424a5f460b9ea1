"""Restarts, stalls and half-open connections in random order, round after round: all that was accepted is received."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from contextlib import AsyncExitStack

import pytest

from babelgate.brokers.binding import NativeQueue, Outgoing
from babelgate.brokers.kafka.binding import KafkaBinding
from babelgate.errors import BabelgateError
from tests.brokers.kafka.harness import STANDARD, binding
from tests.brokers.kafka.server import KafkaServer, kafka
from tests.harness.local import eventually
from tests.harness.proxy import Proxy, proxy

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PROCESSES = 2
PER_SECOND = 100
"""Messages that are published."""

ROUNDS_TOGETHER = 5
"""After so many rounds everything is received before the next ones begin."""

QUIET_SECONDS = 180.0
"""How long it may take after the last fault of several rounds until everything is received: sessions, re-joins."""

FEW, MANY = 3, 100
"""Rounds. Many take half an hour."""

PATIENT = {"timeout_seconds": 5}
"""A busy machine is no hung broker."""


class Ledger:
    """What was accepted and what was received, by number."""

    def __init__(self) -> None:
        self.accepted: set[int] = set()
        self.received: set[int] = set()
        self.came = asyncio.Event()
        self.publishing = True

    def missing(self) -> set[int]:
        """What was accepted and has not come yet."""
        return self.accepted - self.received

    async def settle_down(self) -> None:
        """Wait until all that was accepted is received, for at most QUIET_SECONDS."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(QUIET_SECONDS):
                while self.missing():
                    self.came.clear()
                    await self.came.wait()


async def publish(process: KafkaBinding, queue: NativeQueue, ledger: Ledger) -> None:
    """Publish ten messages each tenth of a second, for ever."""
    number = 0
    while True:
        await asyncio.sleep(10 / PER_SECOND)
        if not ledger.publishing:
            continue
        numbers = range(number, number + 10)
        number += 10
        messages = [Outgoing(json.dumps({"n": each}).encode(), dedup_id=str(each)) for each in numbers]
        try:
            outcomes = await process.publish(queue, messages)
        except BabelgateError:
            continue
        ledger.accepted.update(each for each, outcome in zip(numbers, outcomes, strict=True) if outcome is None)


async def consume(process: KafkaBinding, queue: NativeQueue, ledger: Ledger) -> None:
    """Receive and ack, for ever."""
    while True:
        try:
            found = await process.reserve(queue, 50, 1, 60)
            ledger.received.update(json.loads(each.body)["n"] for each in found)
            ledger.came.set()
            if found:
                await process.ack(queue, [each.handle for each in found])
        except BabelgateError:
            await asyncio.sleep(0.1)


async def disturb(chance: random.Random, server: KafkaServer, between: Proxy) -> str:
    """One round; returns what it was."""
    kind = chance.choice(["restart", "stop 5", "stop 15", "half open", "restart, stop 5"])
    if kind.startswith("restart"):
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        if kind != "restart":
            await asyncio.sleep(chance.uniform(0, 2))
    if "stop" in kind:
        server.pause()
        await asyncio.sleep(int(kind.rpartition(" ")[2]))
        server.resume()
    if kind == "half open":
        between.vanish(end_at_broker=chance.random() < 0.5)
    await asyncio.sleep(chance.uniform(0, 4))
    return kind


async def play(rounds: int, queue: str) -> None:
    """Disturb the cluster so many times, at random, and fail unless all is received in the end."""
    seed = random.randrange(2**32)
    chance, ledger, history = random.Random(seed), Ledger(), list[str]()
    async with AsyncExitStack() as stack:
        server = stack.enter_context(kafka())
        between = await stack.enter_async_context(proxy("127.0.0.1", server.ports["PROXIED"], server.proxy_port))
        url = f"kafka://127.0.0.1:{server.proxy_port}"
        processes = [await stack.enter_async_context(binding(url, PATIENT)) for _ in range(PROCESSES)]
        native = processes[0].native_queue(queue, STANDARD)
        tasks = [asyncio.create_task(publish(processes[0], native, ledger))]
        tasks += [asyncio.create_task(consume(each, native, ledger)) for each in processes]
        try:
            # A fault before the first message tells nothing, and on a busy machine some rounds may end before it.
            await eventually(lambda: ledger.received, QUIET_SECONDS)
            for number in range(1, rounds + 1):
                history.append(await disturb(chance, server, between))
                if number % ROUNDS_TOGETHER and number < rounds:
                    continue
                ledger.publishing = False
                await ledger.settle_down()
                lost = f"{len(ledger.missing())} of {len(ledger.accepted)} messages did not come"
                assert not ledger.missing(), f"{lost} after {history}; seed {seed}"
                ledger.publishing = True
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    assert ledger.received


async def test_all_is_received_after_a_few_rounds(queue: str) -> None:
    await play(FEW, queue)


@pytest.mark.repeated
@pytest.mark.timeout(3 * 3600)
async def test_all_is_received_after_many_rounds(queue: str) -> None:
    """Two of a hundred stalls left a client of librdkafka without its group for good, before it was replaced."""
    await play(MANY, queue)
