"""Redrives in the background: polled, cancelled, resumed and interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from babelgate.brokers.binding import NativeQueue, Outcome, Outgoing
from babelgate.errors import BrokerUnavailable, Draining, RedriveRunning, UnknownRedrive
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.redrive import RedriveOrder
from babelgate.gateway.redrive_files import RedriveJob
from babelgate.gateway.redrive_jobs import PAGES_AT_ONCE
from tests.harness.passing import Passing
from tests.harness.world import Process, World, until
from tests.suites.redrive import dead_numbers, number, numbers, publish_dead_letters

SLOW = 20.0
"""Letters per second: slow enough to stop a job in the middle, fast enough to wait for its end."""


class DownAfterOne(Passing):
    """A broker that takes one batch and is gone then, until ``up`` is set."""

    batches = 0
    up = False

    async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        self.batches += 1
        if self.batches > 1 and not self.up:
            raise BrokerUnavailable(self.name, "it is down")
        return await self.inner.publish(queue, messages)


async def start(process: Process, to_queue: str | None = None, **order: Any) -> RedriveJob:
    return await process.gateway.letters.start_job(ANYONE, process.queue, RedriveOrder(**order), to_queue, None)


async def poll(process: Process, job: RedriveJob) -> RedriveJob:
    return await process.gateway.letters.job(ANYONE, process.queue, job.id)


async def resume(process: Process, job: RedriveJob) -> RedriveJob:
    return await process.gateway.letters.resume_job(ANYONE, process.queue, job.id, None)


async def ended(process: Process, job: RedriveJob) -> RedriveJob:
    """The job, once it does not run any more."""

    async def is_over() -> bool:
        return (await poll(process, job)).state != "running"

    await until(is_over)
    return await poll(process, job)


async def has_sent(process: Process, job: RedriveJob, count: int) -> None:
    async def sent() -> bool:
        return (await poll(process, job)).redriven >= count

    await until(sent)


class TestRedriveJobs:
    async def test_a_job_ends(self, world: World) -> None:
        process = await world.process()
        await publish_dead_letters(process, 150)
        job = await start(process)
        assert (job.state, job.queue, job.to_queue, job.redriven) == ("running", world.queue, world.queue, 0)
        done = await ended(process, job)
        assert (done.state, done.complete, done.error) == ("completed", True, None)
        assert (done.scanned, done.matched, done.redriven, done.failed) == (150, 150, 150, 0)
        assert done.started_at == job.started_at <= done.updated_at
        assert process.in_order(await numbers(process)) == list(range(150))
        assert await process.dead() == []
        assert (await resume(process, job)).state == "completed"
        assert [each.id for each in await process.gateway.letters.jobs_of(ANYONE, world.queue)] == [job.id]

    async def test_any_process_of_the_host_polls_and_cancels_and_resumes(self, world: World) -> None:
        first, second = await world.process(), await world.process()
        await publish_dead_letters(first, 40)
        job = await start(first, per_second=SLOW)
        await has_sent(second, job, 1)
        with pytest.raises(RedriveRunning):
            await start(second)
        with pytest.raises(RedriveRunning):
            await second.redrive()
        with pytest.raises(RedriveRunning):
            await resume(second, job)
        await second.gateway.letters.cancel_job(ANYONE, world.queue, job.id)
        stopped = await ended(second, job)
        assert stopped.state == "cancelled"
        assert 0 < stopped.redriven < 40
        assert len(await first.dead()) == 40 - stopped.redriven
        assert (await resume(second, job)).redriven == stopped.redriven
        assert (await ended(first, job)).state in ("completed", "running")
        done = await ended(first, job)
        assert (done.state, done.redriven, done.matched, done.complete) == ("completed", 40, 40, True)
        assert first.in_order(await numbers(first)) == list(range(40))

    async def test_a_process_that_stops_interrupts_its_jobs(self, world: World) -> None:
        first, second = await world.process(), await world.process()
        await publish_dead_letters(second, 30)
        job = await start(first, per_second=SLOW)
        await has_sent(second, job, 1)
        await first.gateway.drain()
        with pytest.raises(Draining):
            await start(first)
        await first.close()
        stopped = await poll(second, job)
        assert stopped.state == "interrupted"

        async def all_left_are_back() -> bool:
            return len(await second.dead()) == 30 - stopped.redriven

        await until(all_left_are_back)
        await resume(second, job)
        done = await ended(second, job)
        assert (done.state, done.redriven, done.complete) == ("completed", 30, True)
        assert sorted(await numbers(second)) == list(range(30))

    async def test_an_interrupted_job_can_be_cancelled(self, world: World) -> None:
        first, second = await world.process(), await world.process()
        await publish_dead_letters(second, 30)
        job = await start(first, per_second=SLOW)
        await first.close()
        cancelled = await second.gateway.letters.cancel_job(ANYONE, world.queue, job.id)
        assert cancelled.state == (await poll(second, job)).state == "cancelled"

    async def test_a_target_that_goes_down_half_way_loses_nothing(self, world: World) -> None:
        await publish_dead_letters(await world.process(), 150)
        wrapped: list[DownAfterOne] = []

        def wrap(binding: object) -> DownAfterOne:
            wrapped.append(DownAfterOne(binding))
            return wrapped[-1]

        process = await world.process(wrap=wrap)
        job = await ended(process, await start(process))
        assert (job.state, job.complete) == ("failed", False)
        assert job.error is not None and job.error.code == "broker_unavailable"
        assert 0 < job.redriven < 150
        assert len(await dead_numbers(process)) == min(150 - job.redriven, 100)
        wrapped[0].up = True
        await resume(process, job)
        job = await ended(process, job)
        assert (job.state, job.redriven, job.failed, job.complete, job.error) == ("completed", 150, 0, True, None)
        assert process.in_order(await numbers(process)) == list(range(150))

    async def test_a_resumed_job_keeps_to_its_ids_and_its_limit(self, world: World) -> None:
        process = await world.process()
        await publish_dead_letters(process, 40)
        listed = await process.dead()
        chosen = frozenset(letter.letter_id for letter in listed[::2])
        job = await start(process, ids=chosen, limit=15, per_second=6)
        await has_sent(process, job, 1)
        await process.gateway.letters.cancel_job(ANYONE, world.queue, job.id)
        assert (await ended(process, job)).state == "cancelled"
        await resume(process, job)
        job = await ended(process, job)
        assert (job.state, job.redriven, job.failed, job.complete) == ("completed", 15, 0, False)
        sent = await numbers(process)
        assert len(sent) == 15
        assert set(sent) <= set(map(number, listed[::2]))

    async def test_letters_that_cannot_be_sent_are_told(self, world: World) -> None:
        process = await world.process()
        await world.broker.inject(world.queue, b"poison")

        async def is_dead() -> bool:
            await process.receive()
            return await process.dead() != []

        await until(is_dead)
        job = await ended(process, await start(process))
        assert (job.state, job.complete, job.failed, job.errors_omitted) == ("completed", False, 1, 0)
        assert [error.code for error in job.errors] == ["invalid_json"]

    async def test_what_dies_while_it_runs_is_left(self, world: World) -> None:
        process = await world.process()
        await publish_dead_letters(process, 20)
        job = await start(process, per_second=4)
        await has_sent(process, job, 1)
        await process.reject(await process.one())
        job = await ended(process, job)
        assert (job.redriven, job.complete) == (20, False)
        assert len(await process.dead()) == 1

    async def test_an_unknown_job(self, world: World, queue: str) -> None:
        process, elsewhere = await world.process(), await world.process(queue=f"{queue}-other")
        job = await ended(process, await start(process))
        for unknown in ("0" * 20, "0" * 500, "..", "a/b"):
            with pytest.raises(UnknownRedrive):
                await process.gateway.letters.job(ANYONE, world.queue, unknown)
        with pytest.raises(UnknownRedrive):
            await poll(elsewhere, job)
        assert await elsewhere.gateway.letters.jobs_of(ANYONE, elsewhere.queue) == []

    async def test_a_slow_job_delays_no_other_queue(self, world: World, queue: str) -> None:
        processes = [await world.process(queue=f"{queue}-{n}") for n in range(PAGES_AT_ONCE + 2)]
        await asyncio.gather(*(publish_dead_letters(process, 3) for process in processes))
        jobs = [await start(process, per_second=0.02) for process in processes[:-1]]
        last = await start(processes[-1])
        assert (await ended(processes[-1], last)).redriven == 3
        for process, job in zip(processes, jobs, strict=False):
            await process.gateway.letters.cancel_job(ANYONE, process.queue, job.id)
            assert (await ended(process, job)).state == "cancelled"
