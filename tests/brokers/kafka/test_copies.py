"""Copies whose confirm is late: the client goes on with the write, and the original waits for its outcome."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from babelgate.brokers.binding import NativeQueue, Outcome, Outgoing
from babelgate.errors import OutcomeUnknown
from tests.brokers.kafka.harness import KafkaBroker, read
from tests.brokers.kafka.server import KafkaServer
from tests.harness.passing import Passing
from tests.harness.world import World, until
from tests.suites.life import each_ends_once, outcomes_of

pytestmark = pytest.mark.kafka

COUNT = 3


@pytest.fixture
async def world(server: KafkaServer, queue: str) -> AsyncIterator[World]:
    """Gateways on the server."""
    made = World(KafkaBroker(server), queue)
    yield made
    await made.close()


@pytest.mark.parametrize("verb", ["nack", "reject", "expire"])
async def test_a_message_whose_copy_is_confirmed_late_comes_once(
    world: World, server: KafkaServer, queue: str, verb: str
) -> None:
    """The broker stalls when the copies are written, for longer than the call."""
    unknown: list[bool] = []
    more = itertools.count(COUNT)

    class StallsAtCopies(Passing):
        async def write(self, queue: NativeQueue, messages: Sequence[Outgoing], *, dead: bool) -> Sequence[Outcome]:
            write = self.inner.publish_dead_letters if dead else self.inner.publish
            if unknown or messages[0].failure is None:
                outcomes: Sequence[Outcome] = await write(queue, messages)
            else:
                # Without a connection and the topic the client would write nothing while the broker stalls.
                while not await confirms(write, queue, messages[0]):
                    pass
                async with world.broker.hung():
                    outcomes = await write(queue, messages)
                unknown.extend(isinstance(each, OutcomeUnknown) for each in outcomes)
            return outcomes

        async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
            return await self.write(queue, messages, dead=False)

        async def publish_dead_letters(self, queue: NativeQueue, records: Sequence[Outgoing]) -> Sequence[Outcome]:
            return await self.write(queue, records, dead=True)

    async def confirms(write: Any, queue: NativeQueue, copy: Outgoing) -> bool:
        """Write one more message, in the form of ``copy``; return whether it was confirmed in time."""
        body = json.loads(copy.body)
        body["data"]["n"] = next(more)
        (outcome,) = await outcomes_of(lambda: write(queue, [replace(copy, body=json.dumps(body).encode())]))
        if isinstance(outcome, OutcomeUnknown) and outcome.later is not None:
            assert await outcome.later is None
        return outcome is None

    patient = await world.process()
    await patient.publish_all([{"n": n} for n in range(COUNT)])
    process = await world.process(wrap=StallsAtCopies, broker_options={"timeout_seconds": 1})
    end = process.reject if verb == "reject" else process.nack
    messages = await process.take(COUNT, 3 if verb == "expire" else 60)

    async def has_stalled() -> bool:
        # On a busy machine a call may end before anything is written.
        if verb != "expire" and not unknown:
            await end(*messages)
        return bool(unknown)

    async def has_ended_all() -> bool:
        return (await process.stats()).in_flight == 0

    await until(has_stalled)
    assert all(unknown)
    await until(has_ended_all)
    copies = next(more)
    await each_ends_once(patient, copies)
    topic, count = (f"{queue}.dlq", copies) if verb == "reject" else (queue, COUNT + copies)
    assert len(await asyncio.to_thread(read, server.port, topic)) == count
