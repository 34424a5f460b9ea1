"""Streams: messages as they come, leases that last, and nothing kept of a consumer that has gone."""

from __future__ import annotations

import asyncio
import time

from babelgate.errors import BrokerUnavailable
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.model import Message
from babelgate.gateway.open_streams import StreamOptions
from babelgate.gateway.streaming import Stream
from tests.harness.world import LIMIT_SECONDS, PATIENCE, Process, World, data, until


def opened(process: Process, max_in_flight: int = 10, lease: float | None = None, extend: bool = True) -> Stream:
    return Stream(process.gateway, ANYONE, process.queue, StreamOptions(max_in_flight, lease, extend))


async def came(stream: Stream, count: int) -> list[Message]:
    """The next ``count`` messages; fails if fewer come, or more."""
    messages: list[Message] = []
    limit = time.monotonic() + LIMIT_SECONDS
    while len(messages) < count:
        assert time.monotonic() < limit, f"{len(messages)} of {count} messages came"
        try:
            messages += await stream.take(PATIENCE)
        except BrokerUnavailable:
            # A busy machine may keep a broker from answering in time. The stream tries again.
            continue
    assert len(messages) == count
    return messages


def numbers(messages: list[Message]) -> list[int]:
    return [data(message)["n"] for message in messages]


class TestStreams:
    async def test_messages_come_as_far_as_the_window_is_open(self, world: World) -> None:
        process = await world.process()
        await process.publish_all([{"n": n} for n in range(5)])
        with opened(process, 3) as stream:
            messages = await came(stream, 3)
            assert await stream.take(0.3) == []
            assert await process.ack(*messages[:1]) == [None]
            messages += await came(stream, 1)
            assert [*await process.ack(*messages[1:3]), *await process.reject(messages[3])] == [None] * 3
            messages += await came(stream, 1)
            assert process.in_order(numbers(messages)) == list(range(5))
            await process.publish({"n": 5})
            messages += await came(stream, 1)
            assert await process.ack(*messages[4:]) == [None] * 2
            assert stream.in_flight == 0
        assert await process.is_empty()

    async def test_what_is_not_settled_at_the_end_is_there_at_once_and_uncounted(self, world: World) -> None:
        process = await world.process()
        await process.publish_all([{"n": n} for n in range(4)])
        with opened(process, 4) as stream:
            messages = await came(stream, 4)
            assert await process.ack(messages[0]) == [None]
        began = time.monotonic()
        again = await process.take(3)
        assert time.monotonic() - began < 30, "its lease has 60 s"
        assert sorted(numbers(again)) == sorted(numbers(messages[1:]))
        assert [message.attempts for message in again] == [0] * 3, "a give-back is no attempt"
        assert await process.ack(*again) == [None] * 3
        assert await process.is_empty()

    async def test_leases_last_while_the_stream_is_open(self, world: World) -> None:
        process = await world.process()
        lease = process.gateway.router.route(process.queue).lease_seconds(2)
        await process.publish({"n": 1})
        with opened(process, 1, lease) as stream:
            (message,) = await came(stream, 1)
            await asyncio.sleep(5)
            assert await process.ready(1) == []
            assert await process.ack(message) == [None]
        assert await process.is_empty()

    async def test_a_settle_by_another_replica_opens_the_window(self, world: World) -> None:
        process, other = await world.process(), await world.process()
        await process.publish_all([{"n": n} for n in range(6)])
        with opened(process, 2) as stream:
            seen: list[int] = []
            for _ in range(3):
                messages = await came(stream, 2)
                seen += numbers(messages)
                assert await other.ack(*messages) == [None] * 2
        assert process.in_order(seen) == list(range(6))
        assert await process.is_empty()

    async def test_a_drain_hands_out_nothing_more_and_waits_for_settles(self, world: World) -> None:
        process = await world.process()
        await process.publish_all([{"n": n} for n in range(2)])
        with opened(process, 1) as stream:
            (message,) = await came(stream, 1)
            draining = asyncio.create_task(stream.take(PATIENCE))
            await process.gateway.drain()
            assert await draining == []
            assert stream.is_draining and stream.in_flight == 1
            assert await process.ack(message) == [None]
            assert await stream.take(PATIENCE) == []
            assert stream.is_over and stream.in_flight == 0

        async def comes() -> bool:
            return len(await process.receive()) == 1

        await until(comes)
