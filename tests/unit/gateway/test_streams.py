"""What a stream calls the broker for, and what it does not."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import Any

from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.model import Extend, Message, Settlement
from babelgate.gateway.open_streams import StreamOptions
from babelgate.gateway.routing import Router, Rule
from babelgate.gateway.streaming import Stream
from tests.harness.memory import CAPABLE, MovingMemory
from tests.harness.world import KEYS, LIMIT_SECONDS, draft, until

QUEUE = "q"


def gateway_of(binding: MovingMemory) -> Gateway:
    return Gateway({binding.name: binding}, Router([], Rule("*", binding)), TokenSealer(KEYS))


async def came(stream: Stream, count: int) -> list[Message]:
    messages: list[Message] = []
    async with asyncio.timeout(LIMIT_SECONDS):
        while len(messages) < count:
            messages += await stream.take(1)
    return messages


async def test_the_end_of_a_stream_takes_one_time_out_of_a_broker_that_is_silent() -> None:
    binding = MovingMemory("memory", dataclasses.replace(CAPABLE, max_batch=2))
    gateway = gateway_of(binding)
    for number in range(6):
        await gateway.publish(ANYONE, QUEUE, draft({"n": number}))
    with Stream(gateway, ANYONE, QUEUE, StreamOptions(6)) as stream:
        await came(stream, 6)
        binding.fail_after("release", 1)
    await gateway.streams.close()
    assert binding.calls["release"] == [2, 2]
    assert len(binding.ready(QUEUE)) == 2
    await gateway.close()


class Late(MovingMemory):
    """An extend has ``begun``, and reaches it when it ``goes_on``."""

    def __init__(self) -> None:
        super().__init__("memory", CAPABLE)
        self.begun, self.goes_on = asyncio.Event(), asyncio.Event()

    async def extend(self, *given: Any) -> Any:
        self.begun.set()
        await self.goes_on.wait()
        return await super().extend(*given)


async def test_the_end_of_a_stream_gives_back_after_an_extend_that_is_in_flight() -> None:
    binding = Late()
    gateway = gateway_of(binding)
    await gateway.publish(ANYONE, QUEUE, draft({}))
    with Stream(gateway, ANYONE, QUEUE, StreamOptions(1, lease_seconds=30)) as stream:
        await came(stream, 1)
        async with asyncio.timeout(LIMIT_SECONDS):
            await binding.begun.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not binding.calls.get("release")
    binding.goes_on.set()
    await gateway.streams.close()
    assert binding.calls["release"] == [1]
    assert len(binding.ready(QUEUE)) == 1
    await gateway.close()


async def test_what_a_silent_broker_was_not_asked_for_is_not_prolonged() -> None:
    binding = MovingMemory("memory", dataclasses.replace(CAPABLE, max_batch=2))
    gateway = gateway_of(binding)
    binding.fail_after("extend", 0)
    runtime = gateway.queue_runtimes.of(gateway.router.route(QUEUE))
    outcomes = await runtime.prolong(["1", "2", "3"], 30)
    assert [type(outcome).__name__ for outcome in outcomes] == ["BrokerUnavailable"] * 3
    assert binding.calls["extend"] == [2]
    await gateway.close()


async def test_a_look_at_a_full_window_leaves_a_lease_as_long_as_its_consumer_made_it() -> None:
    binding = MovingMemory("memory", CAPABLE)
    gateway = gateway_of(binding)
    await gateway.publish(ANYONE, QUEUE, draft({}))
    with Stream(gateway, ANYONE, QUEUE, StreamOptions(1, lease_seconds=30)) as stream:
        (message,) = await came(stream, 1)
        extends = [Extend([message.ack_token], 600)]
        (result,) = await gateway.settle(ANYONE, QUEUE, Settlement(extends=extends))
        asked = len(binding.calls["extend"])

        async def has_looked() -> bool:
            return len(binding.calls["extend"]) >= asked + 2

        await until(has_looked)
        ((deadline, _),) = binding._queues[QUEUE].leased.values()
        assert result.lease_expires_at is not None
        assert result.lease_expires_at <= deadline < (time.time() + 602) * 1000
    await gateway.close()


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time only the test moves, by :meth:`pass_on`."""

    now = 0.0

    def time(self) -> float:
        return self.now

    async def pass_on(self, seconds: float) -> None:
        self.now += seconds
        for _ in range(20):
            await asyncio.sleep(0)


def test_a_full_window_whose_oldest_message_leaves_is_not_looked_through() -> None:
    loop = Clock()

    async def scenario() -> None:
        binding = MovingMemory("memory", CAPABLE)
        gateway = gateway_of(binding)
        for number in range(4):
            await gateway.publish(ANYONE, QUEUE, draft({"n": number}))
        with Stream(gateway, ANYONE, QUEUE, StreamOptions(3, lease_seconds=30)) as stream:
            oldest, *_ = await came(stream, 3)
            waiting = loop.create_task(came(stream, 1))
            await loop.pass_on(0.0)
            await gateway.settle(ANYONE, QUEUE, Settlement(acks=[oldest.ack_token]))
            await loop.pass_on(0.03)
            await waiting
            await loop.pass_on(0.06)
            assert stream.in_flight == 3
            assert not binding.calls["extend"], "the oldest message has left since the window was full"
            await loop.pass_on(0.06)
            assert binding.calls["extend"] == [3], "none has left since the last look: others may have settled it"
        await gateway.close()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(scenario())


def test_a_lease_is_prolonged_no_longer_than_the_broker_leases_at_most() -> None:
    """A consumer that hangs on an open connection loses its messages then."""
    loop = Clock()

    async def scenario() -> None:
        binding = MovingMemory("memory", dataclasses.replace(CAPABLE, max_lease_seconds=90))
        gateway = gateway_of(binding)
        await gateway.publish(ANYONE, QUEUE, draft({}))
        with Stream(gateway, ANYONE, QUEUE, StreamOptions(2, lease_seconds=30)) as stream:
            await came(stream, 1)
            held = []
            for _ in range(12):
                await loop.pass_on(10)
                held.append(stream.in_flight)
            assert held == [1] * 8 + [0] * 4
            prolonged = list(binding.calls["extend"])
            assert len(prolonged) >= 3
            await loop.pass_on(60)
            assert binding.calls["extend"] == prolonged
        await gateway.close()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(scenario())


async def test_a_settle_of_several_messages_is_one_receive_for_the_room_of_all() -> None:
    binding = MovingMemory("memory", CAPABLE)
    gateway = gateway_of(binding)
    for number in range(20):
        await gateway.publish(ANYONE, QUEUE, draft({"n": number}))
    with Stream(gateway, ANYONE, QUEUE, StreamOptions(10, lease_seconds=30)) as stream:
        first = await came(stream, 10)
        waiting = asyncio.create_task(came(stream, 10))
        await asyncio.sleep(0)
        before = len(binding.calls["reserve"])
        await gateway.settle(ANYONE, QUEUE, Settlement(acks=[each.ack_token for each in first]))
        assert len(await waiting) == 10
        assert len(binding.calls["reserve"]) == before + 1
    await gateway.close()
