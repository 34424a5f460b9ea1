"""Restarts, outages and shutdowns lose nothing; a queue can be inspected, purged and listed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from babelgate.brokers.binding import Binding, Peeks
from babelgate.clock import now_ms
from babelgate.errors import (
    BabelgateError,
    BrokerUnavailable,
    LeaseLost,
    OutcomeUnknown,
    PurgeInProgress,
    UnsupportedByBroker,
)
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.model import Message, Receipt, Settlement
from tests.harness.broker import opened
from tests.harness.gateway import ForkedGateway
from tests.harness.local import suspend
from tests.harness.world import LIMIT_SECONDS, PATIENCE, PATIENT, Process, World, data, draft, kinds, until

_LONG_SECONDS = 300
"""A lease that outlasts the restart of a broker on a busy machine."""


async def came_back(process: Process) -> None:
    """Wait until the broker answers again."""

    async def answers() -> bool:
        try:
            await process.stats()
        except BrokerUnavailable:
            return False
        return not process.gateway.outages.circuits[process.gateway.router.route(process.queue).broker].is_open

    await until(answers)


async def outcomes_of(call: Callable[[], Awaitable[Sequence[BabelgateError | None]]]) -> list[BabelgateError | None]:
    """The outcomes of ``call``, done again where the broker was not there yet: then nothing was written."""
    outcomes: list[BabelgateError | None] = []

    async def are_known() -> bool:
        outcomes[:] = await call()
        return BrokerUnavailable not in kinds(outcomes)

    await until(are_known)
    return outcomes


async def each_ends_once(
    process: Process, count: int, gone: Collection[int] = (), unsure: Collection[int] = ()
) -> None:
    """Ack what comes until nothing is ready or leased. Each of ``count`` numbers must have come once, be ``gone``
    before, or be a dead letter. Those that are ``unsure`` need not come: the outcome of their ack is unknown."""
    acked: list[int] = []

    async def all_came() -> bool:
        for message in await process.ready(10, lease=60):
            if await process.ack(message) == [None]:
                acked.append(data(message)["n"])
        stats = await process.stats()
        known = {*acked, *gone, *unsure}
        return len(known) + len(await process.dead()) >= count and not (stats.depth or stats.in_flight)

    await until(all_came)
    dead = [json.loads(letter.record)["data"]["n"] for letter in await process.dead()]
    ended = [*acked, *gone, *dead]
    assert sorted([*ended, *({*unsure} - {*ended})]) == list(range(count))


async def is_up(process: Process) -> str:
    """The name of the only broker, when it is up. On a busy machine a ping may take too long."""
    names = []

    async def one_is() -> bool:
        (broker,) = await process.gateway.overview.brokers(ANYONE)
        names.append(broker.broker)
        return broker.up

    await until(one_is)
    return names[-1]


class TestLife:
    async def test_a_delayed_message_is_not_early(self, world: World) -> None:
        process = await world.process()
        loop = asyncio.get_running_loop()
        started = loop.time()
        await process.publish({"n": 1}, delay_seconds=2)
        stats = await process.stats()
        # A machine that stood still has a message that is due, which is no defect.
        assert loop.time() - started > 2 or world.broker.tells(stats, depth=0, in_flight=0, delayed=1)
        message = await process.one()
        assert loop.time() - started >= 1.99
        assert (data(message), message.attempts, message.redelivered) == ({"n": 1}, 0, False)

    async def test_delayed_messages_come_in_the_order_in_which_they_fall_due(self, world: World) -> None:
        process = await world.process()
        # In one call: those that are published one by one may fall due in another order on a slow machine.
        # A delay below a second may take a second more on Kafka.
        delays = {3: 5, 1: 0.5, 2: 2, 0: 0}
        drafts = [draft({"n": n}, delay_seconds=delay) for n, delay in delays.items()]
        results = await process.gateway.publish_many(ANYONE, world.queue, drafts)
        assert all(isinstance(result, Receipt) for result in results), results
        assert [data(message)["n"] for message in await process.take(4)] == [0, 1, 2, 3]

    async def test_equal_delayed_messages_do_not_merge(self, world: World) -> None:
        if world.broker.merges_equal_bodies:
            pytest.skip("this layout holds equal bodies once")
        process = await world.process()
        body = json.dumps(
            {
                "envelope": {
                    "job": "urn:babel:test:made",
                    "trace_id": "t",
                    "data": {},
                    "meta": {"id": "m", "queue": world.queue, "lang": "go", "schema_version": 1, "created_at": 1},
                    "attempts": 0,
                },
                "delay_seconds": 0.3,
            }
        ).encode()
        for _ in range(3):
            await process.publish_body(body)
        messages = await process.take(3)
        assert len({message.body for message in messages}) == 1
        await process.ack(*messages)
        assert await process.is_empty()

    async def test_a_delay_is_kept_by_every_process(self, world: World) -> None:
        """Nobody who knows the queue needs to be alive when the message falls due."""
        publisher = await world.process()
        await publisher.publish({"n": 1}, delay_seconds=0.3)
        await publisher.gateway.close()
        stranger = await world.process(queue=f"{world.queue}-other")
        await asyncio.sleep(0.3)

        async def is_ready() -> bool:
            stats = (await stranger.gateway.overview.queue(ANYONE, world.queue)).stats
            return world.broker.tells(stats, depth=1, delayed=0)

        await until(is_ready)

    async def test_a_restart_of_the_broker_keeps_ready_delayed_leased_and_dead(self, world: World) -> None:
        """A receive that waits through it on another queue gets an error or the message."""
        process, waiter = await world.process(), await world.process(queue=f"{world.queue}-waited")
        can = process.capabilities
        keeper = can.lease_bound_to in ("connection", "partition")
        await process.publish_all([{"n": "dead"}, {"n": "leased"}, {"n": "lost"}])
        # Where a process keeps its leases, one that ran out before the broker has stopped would be a failure.
        dead, leased, lost = await process.take(3, _LONG_SECONDS if keeper else 4)
        await process.reject(dead)
        await process.extend(leased, lease=_LONG_SECONDS)
        await process.publish({"n": "ready"})
        loop = asyncio.get_running_loop()
        started = loop.time()
        await process.publish({"n": "delayed"}, delay_seconds=1.5)
        # What the broker hands to a connection that has just ended comes again after this lease.
        waiting = asyncio.create_task(waiter.receive(wait=PATIENCE, lease=5))
        try:
            await asyncio.sleep(0.05)
            await world.restart()
            # It comes while the waiting receive reconnects.
            other = await world.process(queue=waiter.queue)
            await came_back(other)
            await other.publish({"n": 1})
            await came_back(process)
            assert len(await process.dead()) == 1
            if can.lease_bound_to == "connection":
                # Its leases ended with the connection, and were no failures.
                assert kinds(await outcomes_of(lambda: process.ack(leased))) == [LeaseLost]
                expected = {"leased": 0, "lost": 0, "ready": 0, "delayed": 0}
            else:
                assert await outcomes_of(lambda: process.ack(leased)) == [None], "a lease outlives the broker's restart"
                if keeper:
                    assert await outcomes_of(lambda: process.nack(lost)) == [None]
                expected = {"ready": 0, data(lost)["n"]: 1, "delayed": 0}
            rest = await process.take(len(expected))
            assert loop.time() - started >= 1.4
            attempts = {data(message)["n"]: message.attempts for message in rest}
            if can.lease_bound_to == "connection" and can.native_release:
                # A broker that counts failed deliveries may count those that its own stop ends.
                expected |= {name: attempts[name] for name in ("leased", "lost") if attempts[name] == 1}
            assert attempts == expected
            assert await process.ack(*rest) == [None] * len(rest)
            assert await process.is_empty()
            await self._fails_or_is_served(waiter, waiting)
        finally:
            waiting.cancel()

    async def _fails_or_is_served(self, waiter: Process, waiting: asyncio.Task[Sequence[Message]]) -> None:
        try:
            messages = await waiting
        except (BrokerUnavailable, OutcomeUnknown) as error:
            # A command that the broker was reading when it went down has an unknown outcome.
            assert error.retryable
            messages = []
        if not messages:
            # It has pinged the broker meanwhile, and may wait before it connects again.
            await came_back(waiter)
            messages = await waiter.take(1)
        assert [data(message)["n"] for message in messages] == [1]

    async def test_a_killed_broker_has_all_that_it_accepted(self, world: World) -> None:
        if world.broker.embedded:
            pytest.skip("it dies with the gateway, whose death is tested with real processes")
        process = await world.process()
        accepted: list[int] = []
        running = asyncio.Event()

        async def publish() -> None:
            with contextlib.suppress(Exception):
                for n in range(100_000):
                    await process.publish({"n": n})
                    accepted.append(n)
                    if n == 200:
                        running.set()

        publishing = asyncio.create_task(publish())
        await running.wait()
        await world.broker.kill()
        publishing.cancel()
        await asyncio.wait([publishing])
        await came_back(process)
        found: list[int] = []

        async def has_all() -> bool:
            # Right after its start a broker may still be reading what it has.
            found.extend(data(message)["n"] for message in await process.receive(100))
            return set(accepted) <= set(found)

        await until(has_all)
        assert len(found) == len(set(found))

    async def test_a_ping_tells_that_the_broker_is_up(self, world: World) -> None:
        binding = world.broker.connect()
        for _ in range(2):
            await binding.open()
            await binding.ping()
        await binding.close()
        await binding.close()

    async def test_an_outage_is_seen_by_a_gateway_that_was_there_and_by_one_that_starts_in_it(
        self, world: World
    ) -> None:
        """Its errors are typed and retryable, and both gateways recover by themselves."""
        process = await world.process(broker_options=world.broker.impatient)
        await process.publish({"n": 1})
        async with opened(world.broker.connect()) as binding:
            await binding.ping()
            async with world.broker.outage():
                # The first to notice may have written to a connection that was gone already.
                with pytest.raises((BrokerUnavailable, OutcomeUnknown)) as noticed:
                    await process.publish({"n": 2})
                with pytest.raises(BrokerUnavailable) as refusal:
                    await process.publish({"n": 2})
                assert noticed.value.retryable
                assert refusal.value.retryable
                (refused,) = await process.gateway.publish_many(ANYONE, world.queue, [draft({"n": 3})])
                assert isinstance(refused, BrokerUnavailable)
                # A broker inside the process is never down on its own.
                late = None if world.broker.embedded else await self._started_in_the_outage(world, binding)

            async def accepted() -> bool:
                try:
                    await process.publish({"n": 4})
                except BrokerUnavailable:
                    return False
                return True

            await until(accepted)
            assert [data(message)["n"] for message in await process.take(2)] == [1, 4]
            if late is not None:
                await came_back(late)
                await late.publish({"n": 1})
                assert data(await late.one()) == {"n": 1}
                await is_up(late)
        await binding.close()

    async def _started_in_the_outage(self, world: World, binding: Binding) -> Process:
        with pytest.raises(BrokerUnavailable):
            await binding.ping()
        late = await world.process(queue=f"{world.queue}-late")
        assert late.gateway.started
        (broker,) = await late.gateway.overview.brokers(ANYONE)
        assert not broker.up
        assert broker.detail
        with pytest.raises(BrokerUnavailable):
            await late.publish()
        return late

    async def test_a_close_with_leases_out_leaves_them_to_whoever_has_the_token(self, world: World) -> None:
        first, second = await world.process(), await world.process()
        if first.capabilities.ack_scope != "anywhere":
            pytest.skip("here they go with the connection of the process")
        await first.publish_all([{"n": 1}, {"n": 2}])
        kept, forgotten = await first.take(2, 4)
        await first.gateway.close()
        assert await second.ack(kept) == [None]
        again = await second.one()
        assert data(again) == data(forgotten)
        assert [type(outcome) for outcome in await second.ack(forgotten)] == [LeaseLost]

    async def test_a_close_with_leases_out_gives_back_what_only_its_process_can_settle(self, world: World) -> None:
        first, second = await world.process(), await world.process()
        if first.capabilities.ack_scope == "anywhere":
            pytest.skip("here whoever has the token can settle")
        await first.publish_all([{"n": 1}, {"n": 2}])
        held = await first.take(2, 60)
        await first.gateway.close()
        assert kinds(await second.ack(*held)) == [LeaseLost] * 2
        again = await second.take(2)
        assert [(data(message)["n"], message.attempts) for message in again] == [(1, 0), (2, 0)]
        assert await second.ack(*again) == [None] * 2

    async def test_a_process_that_was_paused_beyond_its_leases_repeats_nothing(
        self, world: World, tmp_path: Path
    ) -> None:
        """Whatever its clients ask for when it goes on, each message is acked once or dead-lettered once."""
        other, name = await world.process(), world.broker.name
        await other.publish_all([{"n": n} for n in range(6)])
        config = {"brokers": {name: {"url": world.broker.url, **PATIENT}}, "default": dict(world.broker.route(name))}
        home = tmp_path / "paused"
        home.mkdir()
        paused = ForkedGateway(home, config)
        try:
            await asyncio.to_thread(paused.start)
            path = f"{paused.url}/queues/{world.queue}/messages"
            async with httpx.AsyncClient(timeout=LIMIT_SECONDS) as client:
                taken: list[Any] = []
                while len(taken) < 6:
                    asked = {"max_messages": 6 - len(taken), "wait_seconds": 20, "lease_seconds": 2}
                    taken += (await client.post(f"{path}:receive", params=asked)).json()["messages"]
                tokens = [message["ack_token"] for message in taken]
                await asyncio.to_thread(suspend, paused.pid)
                last = max(message["lease_expires_at"] for message in taken)
                await asyncio.sleep(max(last - now_ms(), 0) / 1000 + 0.5)
                os.kill(paused.pid, signal.SIGCONT)
                nacks = [{"ack_tokens": tokens[:2], "delay_seconds": 0.2}]
                await client.post(f"{path}:settle", json={"nacks": nacks, "rejects": [{"ack_tokens": tokens[2:4]}]})
            await each_ends_once(other, 6)
        finally:
            await asyncio.to_thread(paused.close)
        assert await other.is_empty()

    async def test_a_close_ends_the_waits_and_finishes_what_is_in_flight(self, world: World) -> None:
        process, other = await world.process(), await world.process()
        waits = [process.waiting() for _ in range(5)]
        await asyncio.sleep(0.05)
        publishing = [asyncio.create_task(other.publish({"n": n})) for n in range(50)]
        await asyncio.sleep(0)
        await asyncio.gather(process.gateway.close(), other.gateway.close())
        received = [data(message)["n"] for wait in waits for message in await wait]
        accepted = [task for task in publishing if task.exception() is None]
        assert len(accepted) == 50, "a publish in flight was dropped"
        if process.capabilities.ack_scope != "anywhere":
            received = []  # what was out is there again
        third = await world.process()
        rest = [data(message)["n"] for message in await third.take(len(accepted) - len(received))]
        assert sorted(received + rest) == list(range(50))
        await process.gateway.close()

    async def test_counts(self, world: World) -> None:
        process = await world.process()
        await process.publish_all([{"n": n} for n in range(6)])
        await process.publish({"n": 6}, delay_seconds=900)
        acked, nacked, rejected, _ = await process.take(4)
        await process.settle(Settlement(acks=[acked.ack_token]))
        await process.nack(nacked, delay=3600)
        await process.reject(rejected)
        stats = await process.stats()
        assert world.broker.tells(stats, depth=2, in_flight=1, delayed=2, dead=1)
        if "oldest_age_seconds" not in world.broker.reports:
            assert stats.oldest_age_seconds is None
        else:
            assert stats.oldest_age_seconds is not None and 0 <= stats.oldest_age_seconds < 600

    async def test_a_peek_shows_the_oldest_and_takes_nothing(self, world: World) -> None:
        process = await world.process()
        await process.publish({"n": 0})
        await process.one()
        await process.publish_all([{"n": n} for n in range(1, 6)])
        await process.publish({"n": 6}, delay_seconds=900)
        if not isinstance(process.gateway.bindings[world.broker.name], Peeks):
            with pytest.raises(UnsupportedByBroker):
                await process.gateway.peek(ANYONE, world.queue, 3)
            pytest.skip("this broker shows nothing without handing it out")
        # What a broker counts as ready, it shows.
        leased_too = process.capabilities.counted_as.get("in_flight") == "depth"
        for _ in range(2):
            peeked = await process.gateway.peek(ANYONE, world.queue, 3)
            first = 0 if leased_too else 1
            assert [json.loads(each.body)["data"]["n"] for each in peeked] == [first, first + 1, first + 2]
        assert len(await process.gateway.peek(ANYONE, world.queue, 100)) == 5 + leased_too
        assert [message.attempts for message in await process.take(5)] == [0] * 5

    async def test_a_purge_takes_ready_and_delayed_but_not_leased_or_dead(self, world: World) -> None:
        process = await world.process()
        await process.publish_all([{"n": n} for n in range(4)])
        leased, rejected = await process.take(2)
        await process.reject(rejected)
        await process.publish({"n": 4}, delay_seconds=900)
        purges = process.capabilities.purges
        purged = await process.gateway.purge(ANYONE, world.queue)
        assert purged == 2 + ("delayed" in purges)
        with contextlib.suppress(PurgeInProgress):
            assert await process.gateway.purge(ANYONE, world.queue) == 0
        left = {"in_flight": "in_flight" not in purges, "delayed": "delayed" not in purges}
        assert world.broker.tells(await process.stats(), depth=0, **left)
        assert len(await process.dead()) == 1
        if left["in_flight"]:
            assert await process.nack(leased) == [None]
            assert data(await process.one()) == {"n": 0}

    async def test_queues_do_not_mix(self, world: World, queue: str) -> None:
        process, other = await world.process(), await world.process(queue=f"{queue}-other")
        await process.publish({"n": 1})
        await other.publish({"n": 2})
        await other.reject(await other.one())
        await other.publish({"n": 3})
        assert await process.gateway.purge(ANYONE, other.queue) == 1
        assert await process.dead() == []
        assert data(await process.one()) == {"n": 1}

    async def test_the_overview_agrees(self, world: World) -> None:
        process = await world.process()
        await process.publish()
        info = await process.gateway.overview.queue(ANYONE, world.queue)
        assert (info.queue, info.broker, info.source) == (world.queue, world.broker.name, None)
        assert world.broker.tells(info.stats, depth=1)
        listed, cursor = await process.gateway.overview.queues(ANYONE, 1000, None)
        assert [each.queue for each in listed if each.queue == world.queue] == [world.queue]
        assert cursor is None
        assert await is_up(process) == world.broker.name
