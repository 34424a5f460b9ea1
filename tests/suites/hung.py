"""A broker that hangs: it accepts connections and never answers. Calls fail in time, and no receive is empty."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from typing import Any

from babelgate.brokers.bounded import PING_SECONDS, WARNINGS_SECONDS
from babelgate.clock import now_ms
from babelgate.errors import BabelgateError, BrokerUnavailable, LeaseLost, OutcomeUnknown
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.model import Message
from babelgate.gateway.routing import Policy
from tests.harness.world import Process, World, data, draft, until
from tests.suites.life import came_back, each_ends_once

SHORT = {"timeout_seconds": 1}
ENOUGH = 60.0
"""Seconds in which all that takes a second has ended, also on a machine with much else to do."""

NO_ANSWER = (BrokerUnavailable, OutcomeUnknown)


async def ended(calls: Sequence[Awaitable[Any]]) -> list[Any]:
    """The results of ``calls``; fails unless all end in time."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    _, late = await asyncio.wait(tasks, timeout=ENOUGH)
    for task in late:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert not late, f"{len(late)} of {len(tasks)} calls waited longer than {ENOUGH} s: {results}"
    return results


async def warm(world: World) -> Process:
    """A process that is connected and has used the queue. Its leases are short.

    A busy machine may keep a broker from answering within the second, so that what was not answered is done again.
    """
    process = await world.process(broker_options=SHORT, policy=Policy(lease_seconds=3))
    await answered(process, {"n": "first"})
    await answered(process, {"n": "later"}, delay_seconds=900)
    acked = 0

    async def has_used_the_queue() -> bool:
        nonlocal acked
        for message in await process.receive(wait=0.01):
            acked += await process.ack(message) == [None]
        stats = await process.stats()
        return acked > 0 and not (stats.depth or stats.in_flight)

    await until(has_used_the_queue)
    return process


async def answered(process: Process, data: Any, **how: Any) -> None:
    """Publish ``data`` until the broker has accepted it, at least once."""

    async def is_accepted() -> bool:
        try:
            await process.publish(data, **how)
        except NO_ANSWER:
            return False
        return True

    await until(is_accepted)


class TestHung:
    async def test_a_receive_without_an_answer_is_no_empty_queue(self, world: World) -> None:
        process = await warm(world)
        begun = [asyncio.create_task(process.receive(wait=wait)) for wait in (2, 3)]
        await asyncio.sleep(0.1)
        async with world.broker.hung():
            receives = [process.receive(wait=wait) for wait in (0, 0.3, 2) for _ in range(5)]
            publishes = [process.publish({"n": n}, delay_seconds=0) for n in range(5)]
            results = await ended([*begun, *receives, *publishes])
            assert [result for result in results if not isinstance(result, NO_ANSWER)] == []
            assert isinstance((await ended([process.receive()]))[0], NO_ANSWER)
        await answered(process, {"n": "recovered"})
        await answered(process, {"n": "last"})
        seen: list[Any] = []
        patient = await world.process(policy=Policy(lease_seconds=3))
        while not {"recovered", "last"} <= set(seen):
            (message,) = await patient.take(1)
            seen.append(data(message)["n"])
            assert await patient.ack(message) == [None], "it was leased to nobody else"

        async def is_empty() -> bool:
            # What was written and reserved for a call that had ended comes once its lease is over.
            for message in await process.receive(10):
                if await process.ack(message) == [None]:
                    seen.append(data(message)["n"])
            stats = await process.stats()
            return not (stats.depth or stats.in_flight)

        await until(is_empty)
        numbers = [n for n in seen if isinstance(n, int)]
        assert len(set(numbers)) == len(numbers), "a publish was repeated"

    async def test_a_call_ends_in_its_time(self, world: World) -> None:
        process = await warm(world)
        patient = await world.process()
        await patient.publish_all([{"n": n} for n in range(4)])
        acked, nacked, rejected, extended = await process.take(4, lease=30)

        async def publishes() -> list[Any]:
            """One after the other, so that most wait for the batch of those before."""
            calls = []
            for n in range(50):
                calls.append(asyncio.ensure_future(process.publish({"n": n}, delay_seconds=n % 2 * 60)))
                await asyncio.sleep(0.01)
            return await ended(calls)

        async with world.broker.hung():
            hung_at = now_ms()
            waiting, batch, *settled = await ended(
                [
                    publishes(),
                    process.gateway.publish_many(ANYONE, world.queue, [draft({"n": n}) for n in range(3)]),
                    process.ack(acked),
                    process.nack(nacked),
                    process.reject(rejected),
                ]
            )
            reads = await ended([process.stats(), process.dead(), process.gateway.purge(ANYONE, world.queue)])
            ended_leases = await ended([process.ack(extended)])
        assert [result for result in (*waiting, *batch) if not isinstance(result, NO_ANSWER)] == []
        is_over = now_ms()

        def has_no_answer(message: Message, outcome: object) -> bool:
            """A busy machine may take longer than the lease, or than its lock, which nobody could renew."""
            ends_at = min(message.lease_expires_at, hung_at + world.broker.unrenewed_seconds * 1_000)
            return isinstance(outcome, NO_ANSWER) or (isinstance(outcome, LeaseLost) and ends_at <= is_over)

        outcomes = [outcome for outcomes in (*settled, *ended_leases) for outcome in outcomes]
        settling = zip((acked, nacked, rejected, extended), outcomes, strict=True)
        assert [outcome for message, outcome in settling if not has_no_answer(message, outcome)] == []
        assert [read for read in reads if isinstance(read, Exception) and not isinstance(read, BabelgateError)] == []
        await answered(process, {"n": "recovered"})

    async def test_leases_that_end_meanwhile_come_again_once(self, world: World) -> None:
        """Another process has acked half of the messages, of which their receiver knows nothing. One is leased on."""
        process, other = await warm(world), await world.process()
        await other.publish_all([{"n": n} for n in range(7)])
        (longer,) = await process.take(1, 300)
        messages = await process.take(6, 2)
        outcomes = await other.ack(*messages[:3])
        async with world.broker.hung():
            last = max(message.lease_expires_at for message in messages)
            await asyncio.sleep(max(last - now_ms(), 0) / 1000 + 1.5)
        acked = [data(each)["n"] for each, outcome in zip(messages, outcomes, strict=False) if outcome is None]

        async def has_ended() -> bool:
            (outcome,) = await process.ack(longer)
            acked.extend([data(longer)["n"]] if outcome is None else ())
            return not isinstance(outcome, NO_ANSWER)

        await until(has_ended)
        await each_ends_once(other, 7, acked)

    async def test_calls_are_refused_unsent_while_no_ping_is_answered(self, world: World) -> None:
        """A broker that answers pings meanwhile, as an embedded one may, gets the calls."""
        process = await warm(world)
        await answered(process, {"n": "acked"})
        (message,) = await process.take(1, lease=30)
        binding = process.gateway.router.route(world.queue).binding

        async def is_refused() -> bool:
            await ended([process.publish({"n": "hung"})])
            return process.gateway.outages.circuits[binding.name].is_open

        async with world.broker.hung():
            (pinged,) = await ended([binding.ping()])
            if isinstance(pinged, BrokerUnavailable):
                await until(is_refused)
                calls = [process.publish({"n": "refused"}), process.receive(), process.receive(wait=20)]
                *results, acks = await ended([*calls, process.ack(message)])
                refusals = [*results, *acks]
                assert all("the circuit is open" in str(refusal) for refusal in refusals), refusals
        await came_back(process)
        await answered(process, {"n": "recovered"})

    async def test_warnings_and_a_ping_end_within_their_bound(self, world: World) -> None:
        """Both have a bound of their own, which ``timeout_seconds`` does not prolong."""
        binding = world.broker.connect({"timeout_seconds": 20})
        try:
            await binding.open()
            async with world.broker.hung():
                for call, bound in ((binding.warnings, WARNINGS_SECONDS), (binding.ping, PING_SECONDS)):
                    began = time.monotonic()
                    (result,) = await ended([call()])
                    assert time.monotonic() - began < bound + 10
                    assert isinstance(result, BrokerUnavailable) or not isinstance(result, BaseException), result
        finally:
            await binding.close()
