"""Receiving: each message goes to one consumer at a time, in order, while consumers wait and leave."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math

import pytest

from babelgate.clock import now_ms
from babelgate.errors import BrokerUnavailable, InvalidParameter, UnsupportedByBroker
from babelgate.gateway.model import Message
from babelgate.gateway.routing import Policy
from tests.harness.world import PATIENCE, World, data, until

CLOCK_SKEW_MS = 50
"""Broker and gateway round times differently; on one host they agree within this."""


def numbers(messages: list[Message]) -> list[int]:
    return [data(message)["n"] for message in messages]


class TestReceive:
    async def test_a_hundred_in_a_hundred_out_in_order_and_none_twice(self, world: World) -> None:
        process = await world.process()
        for n in range(100):
            await process.publish({"n": n})
        assert process.in_order(numbers(await process.take(100))) == list(range(100))
        assert await process.receive(100) == []

    async def test_at_most_what_was_asked_for(self, world: World) -> None:
        process = await world.process()
        await process.publish_all([{"n": n} for n in range(5)])
        received: list[int] = []
        while len(received) < 5:
            # A broker may send a batch in parts.
            several = numbers(await process.receive(3))
            assert 1 <= len(several) <= 3
            received += several
        assert process.in_order(received) == [0, 1, 2, 3, 4]

    async def test_an_empty_queue_answers_after_the_wait(self, world: World) -> None:
        process = await world.process()
        assert await process.ready(1) == []
        loop = asyncio.get_running_loop()
        started = loop.time()
        assert await process.receive(wait=0.3) == []
        assert loop.time() - started >= 0.299

    async def test_who_waits_gets_what_its_own_process_publishes(self, world: World) -> None:
        process = await world.process()
        waiting = process.waiting()
        await asyncio.sleep(0.05)
        await process.publish({"n": 1})
        assert numbers(await waiting) == [1]

    async def test_who_waits_gets_what_another_process_publishes(self, world: World) -> None:
        consumer, producer = await world.process(), await world.process()
        waiting = consumer.waiting()
        await asyncio.sleep(0.05)
        await producer.publish({"n": 1})
        assert numbers(await waiting) == [1]

    async def test_who_waits_gets_what_a_foreign_program_puts_there(self, world: World) -> None:
        process = await world.process()
        await process.publish({"n": 1})
        message = await process.one()
        await process.ack(message)
        waiting = process.waiting()
        await asyncio.sleep(0.05)
        await world.broker.inject(world.queue, message.body)
        assert [each.body for each in await waiting] == [message.body]

    async def test_who_waits_is_woken_by_a_message_that_falls_due(self, world: World) -> None:
        process = await world.process()
        await process.publish({"n": 1}, delay_seconds=0.3)
        assert numbers(await process.receive(wait=PATIENCE)) == [1]

    async def test_who_waits_is_woken_by_a_lease_that_ends(self, world: World) -> None:
        process = await world.process()
        await process.publish({"n": 1})
        await process.one(lease=0.3)
        again = await process.one()
        assert data(again) == {"n": 1}
        assert again.redelivered

    async def test_a_leased_message_is_nobody_elses(self, world: World) -> None:
        process, other = await world.process(), await world.process()
        await process.publish({"n": 1})
        await process.one()
        assert await process.ready(1) == []
        assert await other.receive(wait=0.2) == []

    async def test_concurrent_consumers_of_two_processes_share_without_overlap(self, world: World) -> None:
        processes = [await world.process(), await world.process()]
        got: list[int] = []

        async def consume(index: int) -> None:
            while len(got) < 200:
                # A busy machine may keep a broker from answering within the second that a receive gives it.
                with contextlib.suppress(BrokerUnavailable):
                    got.extend(numbers(await processes[index % 2].receive(7, wait=0.2)))

        consumers = [asyncio.create_task(consume(index)) for index in range(8)]
        await processes[0].publish_all([{"n": n} for n in range(200)])
        await asyncio.gather(*consumers)
        assert sorted(got) == list(range(200))

    async def test_a_thousand_waiters_first_come_first_served(self, world: World) -> None:
        process = await world.process()
        waiters = []
        for _ in range(world.broker.crowd):
            waiters.append(process.waiting())
        await asyncio.sleep(0.05)
        await process.publish_all([{"n": n} for n in range(10)])
        first = [numbers(await waiter) for waiter in waiters[:10]]
        assert process.in_order(itertools.chain(*first)) == list(range(10))
        assert {len(each) for each in first} == {1}
        assert not any(waiter.done() for waiter in waiters[10:])
        # In parts, because one reserve has to serve its waiters within a second, on a busy machine too.
        for start in range(10, world.broker.crowd, 90):
            await process.publish_all([{"n": n} for n in range(start, start + 90)])
            served = [numbers(await waiter) for waiter in waiters[start : start + 90]]
            assert process.in_order(itertools.chain(*served)) == list(range(start, start + 90))
            assert not any(waiter.done() for waiter in waiters[start + 90 :])

    async def test_who_hangs_up_while_waiting_loses_nothing_and_holds_nothing(self, world: World) -> None:
        process = await world.process()
        waiting = process.waiting()
        await asyncio.sleep(0.05)
        waiting.cancel()
        await process.publish({"n": 1})

        async def is_free() -> bool:
            return world.broker.tells(await process.stats(), depth=1)

        # A reserve that was under way for the one that is gone may take it, and then gives it back.
        await asyncio.sleep(0.1)
        await until(is_free)
        message = await process.one()
        assert data(message) == {"n": 1}
        assert message.attempts == 0, "a give-back is no attempt"
        await process.ack(message)
        assert await process.is_empty()

    async def test_who_hangs_up_at_any_moment_loses_nothing(self, world: World) -> None:
        process = await world.process()
        delivered: list[int] = []
        for n in range(30):
            waiting = process.waiting()
            publishing = asyncio.create_task(process.publish({"n": n}))
            for _ in range(n):
                await asyncio.sleep(0 if n % 2 else 0.0005)
            waiting.cancel()
            await publishing
            try:
                delivered += numbers(await waiting)
            except asyncio.CancelledError:
                (message,) = await process.take(1)
                assert message.attempts == 0, "a give-back is no attempt"
                delivered += numbers([message])
        assert delivered == list(range(30))

    async def test_messages_given_back_are_there_at_once_in_order_and_uncounted(self, world: World) -> None:
        process = await world.process()
        await process.publish_all([{"n": n} for n in range(4)])
        await process.gateway.give_back(world.queue, await process.take(3))
        messages = await process.take(4)
        assert [message.attempts for message in messages] == [0] * 4
        if process.capabilities.lease_bound_to is None:
            assert not any(message.redelivered for message in messages), "nobody has seen them"
        assert sorted(numbers(messages)) == list(range(4))

    async def test_a_drained_gateway_ends_its_waits_and_loses_nothing(self, world: World) -> None:
        process = await world.process()
        waiting = process.waiting()
        await asyncio.sleep(0.05)
        await process.gateway.drain()
        assert await waiting == []
        await process.publish({"n": 1})

        async def comes() -> bool:
            return numbers(await process.receive()) == [1]

        await until(comes)

    async def test_the_lease_is_the_one_asked_for_else_the_policys(self, world: World) -> None:
        process = await world.process(policy=Policy(lease_seconds=100))
        await process.publish_all([{}] * 2)
        for lease, seconds in ((None, 100), (7.5, 7.5)):
            before = now_ms()
            message = await process.one(lease)
            expected = before + seconds * 1000
            # A broker may count whole seconds.
            latest = now_ms() + math.ceil(seconds) * 1000 + CLOCK_SKEW_MS
            assert expected - CLOCK_SKEW_MS <= message.lease_expires_at <= latest

    async def test_a_lease_beyond_the_broker_is_refused_with_its_maximum(self, world: World) -> None:
        process = await world.process()
        maximum = process.capabilities.max_lease_seconds
        with pytest.raises(UnsupportedByBroker) as refusal:
            await process.receive(lease=maximum + 1)
        assert (refusal.value.problem_code, refusal.value.maximum) == ("lease_too_long", maximum)
        with pytest.raises(InvalidParameter):
            await process.receive(lease=0)
        await process.publish({"n": 1})
        assert numbers([await process.one(lease=maximum)]) == [1]

    async def test_a_message_past_its_time_to_live_is_dead_lettered(self, world: World) -> None:
        process = await world.process(policy=Policy(ttl_seconds=3))
        await process.publish({"n": 1})
        await process.publish({"n": 2}, delay_seconds=3.1)
        await asyncio.sleep(3.05)
        # On a machine that stands still, a message with the same time to live would end, too.
        lasting = await world.process()
        await lasting.publish({"n": 3})
        assert numbers([await process.one()]) == [3]

        async def both_are_dead() -> bool:
            assert await process.ready(1) == []
            return len(await process.dead()) == 2

        await until(both_are_dead)
        assert {(letter.reason, letter.error) for letter in await process.dead()} == {("failed", "message expired")}
