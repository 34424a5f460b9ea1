"""Redrive: dead letters return to the queue, and nothing is lost wherever it stops."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from babelgate.brokers.binding import DeadRecord, NativeQueue, Outcome, Outgoing
from babelgate.errors import BrokerUnavailable, OutcomeUnknown
from babelgate.gateway.model import DeadLetter, Message
from babelgate.gateway.routing import Policy
from tests.harness.passing import Passing
from tests.harness.world import PATIENCE, Process, World, data, draft, until

ROOT = Path(__file__).resolve().parents[2]


class StopsBeforeRemoval(Passing):
    """The broker is gone once the dead letters were published, before they are removed."""

    async def remove_dead(
        self, queue: NativeQueue, records: Sequence[DeadRecord], cursor: str | None
    ) -> tuple[Sequence[bool], str | None]:
        raise BrokerUnavailable(self.name, "it went away")


class RefusesSome(Passing):
    """A broker that fails every second message of a publish."""

    async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        taken = await self.inner.publish(queue, messages[::2])
        outcomes = [OutcomeUnknown(self.name, "no answer") if n % 2 else None for n in range(len(messages))]
        assert list(taken) == [None] * len(messages[::2])
        return outcomes


async def publish_dead_letters(process: Process, count: int) -> None:
    """``count`` dead letters whose payloads are numbered."""
    await process.publish_all([{"n": n} for n in range(count)])
    await process.reject(*await process.take(count))


async def numbers(process: Process) -> list[int]:
    """What is on the queue, taken and acked."""
    found = []
    # A receive that does not wait may come before what a busy broker has.
    while messages := await process.ready(100) or await _late(process):
        found += [data(message)["n"] for message in messages]
        await process.ack(*messages)
    return found


async def _late(process: Process) -> list[Message]:
    return await process.ready(100, PATIENCE) if (await process.stats()).depth else []


async def dead_numbers(process: Process) -> list[int]:
    return process.in_order(number(letter) for letter in await process.dead())


def number(letter: DeadLetter) -> int:
    found: int = json.loads(letter.record)["data"]["n"]
    return found


class TestRedrive:
    async def test_a_message_comes_back_as_it_was_published(self, world: World) -> None:
        process = await world.process(policy=Policy(max_attempts=2))
        await process.publish_body(draft({"b": 1.10, "a": [12345678901234567890]}, trace_id="t"))
        first = await process.one()
        await process.nack(first)
        await process.nack(await process.one())
        result = await process.redrive()
        assert (result.scanned, result.matched, result.redriven, result.failed) == (1, 1, 1, 0)
        assert result.complete
        assert await process.dead() == []
        again = await process.one()
        assert again.body == first.body
        assert (again.attempts, again.redelivered) == (0, False)

    async def test_all_come_back_in_order_page_after_page(self, world: World) -> None:
        process = await world.process()
        count = min(world.broker.crowd, 250)
        await publish_dead_letters(process, count)
        result = await process.redrive()
        assert (result.redriven, result.complete) == (count, True)
        assert process.in_order(await numbers(process)) == list(range(count))
        assert await process.dead() == []

    async def test_a_dry_run_counts_and_moves_nothing(self, world: World) -> None:
        process = await world.process()
        await publish_dead_letters(process, 3)
        result = await process.redrive(dry_run=True)
        assert (result.matched, result.redriven, result.dry_run) == (3, 0, True)
        assert await process.is_empty()
        assert process.in_order(await dead_numbers(process)) == [0, 1, 2]

    async def test_a_limit_and_then_the_rest(self, world: World) -> None:
        process = await world.process()
        await publish_dead_letters(process, 5)
        result = await process.redrive(limit=2)
        assert (result.redriven, result.complete) == (2, False)
        first = await numbers(process)
        assert len(first) == 2
        result = await process.redrive(limit=3)
        assert result.redriven == 3
        assert process.in_order(first + await numbers(process)) == [0, 1, 2, 3, 4]
        assert (await process.redrive()).complete

    async def test_a_message_past_its_time_stays_and_is_told(self, world: World) -> None:
        await publish_dead_letters(await world.process(), 2)
        await asyncio.sleep(0.25)
        process = await world.process(policy=Policy(ttl_seconds=0.2))
        result = await process.redrive()
        assert (result.matched, result.redriven, result.failed) == (2, 0, 2)
        assert {error.code for error in result.errors} == {"message_expired"}
        assert await dead_numbers(process) == [0, 1]

    async def test_a_filter_leaves_the_others_where_they_are(self, world: World) -> None:
        process = await world.process()
        for n in range(6):
            await process.publish_body(draft({"n": n}, job=f"urn:job:{n % 2}"))
        await process.reject(*await process.take(6))
        result = await process.redrive(job="urn:job:1")
        assert (result.scanned, result.matched, result.redriven, result.complete) == (6, 3, 3, True)
        assert process.in_order(await numbers(process)) == [1, 3, 5]
        left = await dead_numbers(process)
        assert process.in_order(left) == [0, 2, 4]
        result = await process.redrive(limit=1, reason="failed")
        assert result.redriven == 1
        assert await numbers(process) in ([[n] for n in left] if process.capabilities.ordering == "none" else [[0]])

    async def test_to_another_queue(self, world: World, queue: str) -> None:
        process, elsewhere = await world.process(), await world.process(queue=f"{queue}-other")
        await publish_dead_letters(process, 2)
        assert (await process.redrive(to_queue=elsewhere.queue)).redriven == 2
        assert await process.is_empty()
        assert await numbers(elsewhere) == [0, 1]
        assert await process.dead() == []

    async def test_never_to_a_queue_that_the_message_names(self, world: World, queue: str) -> None:
        process, elsewhere = await world.process(), await world.process(queue=f"{queue}-other")
        await elsewhere.publish({"n": 1})
        message = await elsewhere.one()
        await world.broker.inject(world.queue, message.body)
        await process.reject(await process.one())
        await process.redrive()
        assert (await process.one()).body == message.body

    async def test_poison_stays_and_is_told(self, world: World) -> None:
        process = await world.process()
        await world.broker.inject(world.queue, b"poison", b"[]")
        assert await process.ready(1) == []
        await publish_dead_letters(process, 2)
        result = await process.redrive()
        assert (result.scanned, result.matched, result.redriven, result.failed) == (4, 4, 2, 2)
        assert len(result.errors) == 2
        assert await numbers(process) == [0, 1]
        assert [letter.reason for letter in await process.dead()] == ["poison", "poison"]
        assert await process.is_empty()

    async def test_stopped_between_publish_and_removal_it_loses_nothing(self, world: World) -> None:
        process = await world.process(wrap=StopsBeforeRemoval)
        await publish_dead_letters(process, 5)
        with pytest.raises(BrokerUnavailable):
            await process.redrive()
        assert process.in_order(await dead_numbers(process)) == list(range(5))
        assert sum(event.count for event in process.events if event.kind == "redriven") == 5, "they were sent"
        again = await world.process()
        assert (await again.redrive()).redriven == 5
        assert set(await numbers(again)) == set(range(5))
        assert await again.dead() == []

    async def test_what_the_broker_did_not_confirm_stays_a_dead_letter(self, world: World) -> None:
        process = await world.process(wrap=RefusesSome)
        await publish_dead_letters(await world.process(), 4)
        result = await process.redrive()
        assert (result.redriven, result.failed) == (2, 2)
        assert {error.code for error in result.errors} == {"outcome_unknown"}
        left = await dead_numbers(process)
        assert len(left) == 2
        assert sorted(left + await numbers(process)) == [0, 1, 2, 3]

    async def test_two_at_once_lose_nothing(self, world: World) -> None:
        first, second = await world.process(), await world.process()
        await publish_dead_letters(first, 150)
        results = await asyncio.gather(first.redrive(), second.redrive(), first.redrive())
        assert sum(result.redriven for result in results) > 100
        # What one of them held for longer than the others wait is left for the next.
        await first.redrive()
        assert await first.dead() == []
        assert set(await numbers(first)) == set(range(150))

    async def test_killed_half_way_it_loses_nothing(self, world: World) -> None:
        process = await world.process()
        count = min(world.broker.crowd, 300)
        await publish_dead_letters(process, count)
        broker = json.dumps({"url": world.broker.url, "queue_options": world.broker.queue_options})
        victim = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.harness.victim", broker, world.queue, cwd=ROOT
        )
        assert await victim.wait() == -signal.SIGKILL
        seen = await numbers(process)
        assert 0 < len(seen) < count, "it was not killed half way"
        left = (await process.redrive()).redriven

        async def all_are_back() -> bool:
            """What was out to the killed one comes back when the broker has noticed."""
            nonlocal left
            left += (await process.redrive()).redriven
            return (await process.stats()).dead == 0

        await until(all_are_back)
        assert left > count - len(seen), "what was published and not yet removed is a dead letter still"
        assert set(seen) | set(await numbers(process)) == set(range(count))
        assert await process.dead() == []
