"""What a process keeps of a queue is freed as soon as it is dropped, without the garbage collector."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable

import pytest

from babelgate.brokers.idempotency_store import KeepsKeys
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.routing import Policy
from babelgate.gateway.runtimes import KEPT
from tests.harness.garbage import set_aside, without_collector
from tests.harness.world import Process, World, draft, until


async def published(process: Process) -> None:
    await process.publish({"n": 1})
    await process.publish_all([{"n": 2}, {"n": 3}])


async def published_once(process: Process) -> None:
    """With a key, where the broker keeps keys."""
    if isinstance(process.gateway.router.route(process.queue).binding, KeepsKeys):
        await process.publish({"n": 1}, idempotency_key="a")
        await process.publish({"n": 1}, idempotency_key="a")


async def looked_at(process: Process) -> None:
    assert await process.ready(1) == []
    assert await process.ready(1, 0.05) == []


async def acked(process: Process) -> None:
    await process.publish({"n": 1})
    assert await process.ack(await process.one()) == [None]


async def acked_together(process: Process) -> None:
    await process.publish_all([{"n": 1}, {"n": 2}])
    assert await process.ack(*await process.take(2)) == [None, None]


async def nacked(process: Process) -> None:
    """The second nack is the last attempt, and dead-letters."""
    await process.publish({"n": 1})
    assert await process.nack(await process.one()) == [None]
    assert await process.nack(await process.one()) == [None]


async def rejected(process: Process) -> None:
    await process.publish({"n": 1})
    assert await process.reject(await process.one()) == [None]


async def extended(process: Process) -> None:
    await process.publish({"n": 1})
    message = await process.one()
    await process.extend(message, lease=1)
    assert await process.ack(message) == [None]


async def given_back(process: Process) -> None:
    """The receiver of a message has gone."""
    await process.publish({"n": 1})
    await process.gateway.give_back(process.queue, [await process.one()])
    assert await process.ack(await process.one()) == [None]


async def validated(process: Process) -> None:
    await process.gateway.validate(ANYONE, process.queue, draft({"n": 1}))


USES: list[Callable[[Process], Awaitable[None]]] = [
    published,
    published_once,
    looked_at,
    acked,
    acked_together,
    nacked,
    rejected,
    extended,
    given_back,
    validated,
]


CLEAN = ("sqlite", "redis")
"""Brokers whose bindings leave no garbage either. Elsewhere a queue that is missing ends a channel or a call with an
error of the client, whose frames are in a cycle."""


class TestFreed:
    @pytest.fixture(autouse=True)
    def earlier(self) -> None:
        """See :func:`set_aside`; before the gateway, whose objects may be in cycles with those that it drops."""
        set_aside()

    @pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
    async def test_a_queue_that_was_used_leaves_no_garbage(
        self, world: World, use: Callable[[Process], Awaitable[None]]
    ) -> None:
        process = await world.process(policy=Policy(max_attempts=2))
        gateway = process.gateway
        # What is made once for a broker, is made here.
        await use(process)
        process.queue += "-2"
        with without_collector() as garbage:
            await use(process)
            runtime = weakref.ref(gateway.queue_runtimes.of(gateway.router.route(process.queue)))

            async def is_idle() -> bool:
                return not gateway.queue_runtimes.of(gateway.router.route(process.queue)).busy

            await until(is_idle)
            # The first look finds that it was used.
            for number in range(2 * KEPT + 2):
                gateway.queue_runtimes.of(gateway.router.route(f"other-{number}"))
            assert gateway.queue_runtimes.get(process.queue) is None
            assert runtime() is None
        if world.broker.kind not in CLEAN:
            garbage = [
                each for each in garbage if each.startswith(("babelgate.gateway.", "babelgate.brokers.batcher."))
            ]
        assert garbage == []
