"""The pages of redrive jobs that one process reads and sends at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from babelgate.gateway.authorization import Caller, Right
from babelgate.gateway.redrive import RedriveOrder
from babelgate.gateway.redrive_files import RedriveJob
from babelgate.gateway.redrive_jobs import PAGES_AT_ONCE, PAGES_OF_ONE_CALLER
from tests.brokers import registry
from tests.harness.passing import Passing
from tests.harness.world import Process, World, until
from tests.suites.redrive import publish_dead_letters

SHOP, BLOG = (Caller(name, {"*": frozenset(Right)}) for name in ("shop", "blog"))


class Hangs(Passing):
    """A broker that answers no read of the dead letters of some queues until it is told to."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.answers = asyncio.Event()
        self.hanging = ""
        self.reading: Counter[str] = Counter()
        self.most = 0

    async def read_dead(self, queue: Any, cursor: str | None, limit: int) -> Any:
        self.reading[queue.name] += 1
        self.most = max(self.most, self.reading.total())
        try:
            if self.hanging in queue.name:
                await self.answers.wait()
            return await self.inner.read_dead(queue, cursor, limit)
        finally:
            self.reading[queue.name] -= 1


@pytest.fixture
async def world(servers: registry.Servers, tmp_path: Path, queue: str) -> AsyncIterator[World]:
    (sqlite,) = (variant for variant in registry.ORDINARY if variant.name == "sqlite")
    world = World(servers.broker(sqlite, tmp_path), queue)
    yield world
    await world.close()


async def start(process: Process, caller: Caller, queue: str, **order: Any) -> RedriveJob:
    return await process.gateway.letters.start_job(caller, queue, RedriveOrder(**order), None, None)


async def states(process: Process, jobs: list[RedriveJob]) -> set[str]:
    return {(await process.gateway.letters.job(SHOP, job.queue, job.id)).state for job in jobs}


async def test_a_caller_whose_broker_hangs_leaves_a_page_to_others(world: World) -> None:
    wrapped: list[Hangs] = []

    def wrap(binding: Any) -> Hangs:
        wrapped.append(Hangs(binding))
        return wrapped[-1]

    process = await world.process(wrap=wrap)
    (broker,) = wrapped
    broker.hanging = "hangs"
    stuck = [await start(process, SHOP, f"{world.queue}-hangs-{n}") for n in range(PAGES_AT_ONCE + 3)]

    async def hang() -> bool:
        return broker.reading.total() == PAGES_OF_ONE_CALLER

    await until(hang)
    others = [await start(process, BLOG, f"{world.queue}-{n}") for n in range(PAGES_AT_ONCE)]

    async def ended() -> bool:
        return await states(process, others) == {"completed"}

    await until(ended)
    assert await states(process, stuck) == {"running"}
    assert broker.most == PAGES_AT_ONCE
    broker.answers.set()

    async def all_ended() -> bool:
        return await states(process, stuck) == {"completed"}

    await until(all_ended)
    assert broker.most <= PAGES_AT_ONCE


async def test_errors_of_a_record_are_limited(world: World) -> None:
    """Other programs may write ids of any length, and the record is kept."""
    process = await world.process()
    long = "i" * 100_000
    body = b'{"job":"","data":{},"meta":{"id":"%s"}}' % long.encode()
    await world.broker.inject(world.queue, body)

    async def is_dead() -> bool:
        await process.receive()
        return await process.dead() != []

    await until(is_dead)
    job = await start(process, SHOP, world.queue)

    async def ended() -> bool:
        return await states(process, [job]) == {"completed"}

    await until(ended)
    (error,) = (await process.gateway.letters.job(SHOP, world.queue, job.id)).errors
    assert (error.id, len(error.detail) <= 1001) == (None, True)
    await publish_dead_letters(process, 1)
    result = await process.redrive()
    assert [each.id for each in result.errors] == [None]
