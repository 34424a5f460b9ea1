"""What consumers hold, or have yet to read, bounds what those that wait are given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from babelgate.brokers.binding import NativeQueue, Outgoing
from babelgate.errors import Overloaded
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.admission import Admission, Bounds
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.model import Settlement
from babelgate.gateway.routing import Router, Rule
from tests.harness.kept import body
from tests.harness.memory import OWNED, DeadLetterPublishingMemory
from tests.harness.world import KEYS

HELD = 4


class Owner:
    """A process that keeps at most so many leases."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.binding = DeadLetterPublishingMemory("memory", OWNED)
        self.admission = Admission(Bounds(max_held_leases=HELD, max_unread_bytes_in_flight=1_000))
        router = Router([], Rule("*", self.binding))
        self.gateway = Gateway({"memory": self.binding}, router, TokenSealer(KEYS), admission=self.admission)

    async def put(self, count: int) -> None:
        messages = [Outgoing(body(n)) for n in range(count)]
        assert not any(await self.binding.publish(NativeQueue(self.queue), messages))

    async def receive(self, wait_seconds: float = 0, lease_seconds: float = 30) -> list[str]:
        """The tokens of up to as many as may be held."""
        messages = await self.gateway.receive(
            ANYONE, self.queue, max_messages=HELD, wait_seconds=wait_seconds, lease_seconds=lease_seconds
        )
        return [message.ack_token for message in messages]

    async def two_waiting(self) -> list[asyncio.Task[list[str]]]:
        """Receives that different reserves serve."""
        waiting = [asyncio.create_task(self.receive(10, lease_seconds)) for lease_seconds in (30, 31)]
        for _ in range(5):
            await asyncio.sleep(0)
        return waiting


@pytest.fixture
async def owner(queue: str) -> AsyncIterator[Owner]:
    owner = Owner(queue)
    yield owner
    await owner.gateway.close()


async def test_those_that_wait_are_given_no_more_than_may_be_held(owner: Owner) -> None:
    first, second = await owner.two_waiting()
    await owner.put(3 * HELD)
    tokens = await first
    assert len(tokens) == HELD
    with pytest.raises(Overloaded, match="held"):
        await second
    with pytest.raises(Overloaded, match="held"):
        await owner.receive()
    assert all(result.error is None for result in await owner.gateway.settle(ANYONE, owner.queue, Settlement(tokens)))
    assert len(await owner.receive()) == HELD


async def test_those_that_wait_are_given_no_more_than_others_read(owner: Owner) -> None:
    (first, _) = waiting = await owner.two_waiting()
    with owner.admission.receive("memory") as slow:
        slow.hold(1_000)
        await owner.put(1)
        # The reserve that is under way still serves somebody.
        assert len(await first) == 1
        with pytest.raises(Overloaded, match="not read"):
            await waiting[1]
    await owner.put(1)
    assert len(await owner.receive()) == 1
