"""How many queues a process keeps ready, which of them go, and that nothing of those is left."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from babelgate.errors import BabelgateError, BrokerUnavailable
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.model import Nack, Reject, Settlement
from babelgate.gateway.routing import Policy, Router, Rule
from babelgate.gateway.runtimes import KEPT
from tests.harness.garbage import set_aside, without_collector
from tests.harness.memory import CAPABLE, OWNED, DeadLetterPublishingMemory, MemoryBinding, MovingMemory
from tests.harness.world import KEYS, draft

BROKERS = {
    "leases of the broker": lambda: MovingMemory("memory", CAPABLE),
    "leases of the gateway": lambda: DeadLetterPublishingMemory("memory", OWNED),
    "leases of the broker, letters of the receiver": lambda: DeadLetterPublishingMemory("memory", CAPABLE),
}


def gateway_of(binding: MemoryBinding, capacity: Callable[[], Awaitable[None]] | None = None) -> Gateway:
    router = Router([], Rule("*", binding, Policy(max_attempts=2)))
    return Gateway({binding.name: binding}, router, TokenSealer(KEYS), capacity=capacity)


def use_others(gateway: Gateway, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        gateway.queue_runtimes.of(gateway.router.route(f"other-{number}"))


@pytest.fixture(params=BROKERS)
async def gateway(request: pytest.FixtureRequest) -> AsyncIterator[Gateway]:
    set_aside()
    gateway = gateway_of(BROKERS[request.param]())
    yield gateway
    await gateway.close()


@pytest.fixture
async def owner() -> AsyncIterator[Gateway]:
    """It keeps the leases."""
    gateway = gateway_of(DeadLetterPublishingMemory("memory", OWNED))
    yield gateway
    await gateway.close()


async def received(gateway: Gateway, queue: str) -> str:
    (message,) = await gateway.receive(ANYONE, queue)
    return message.ack_token


async def settled(gateway: Gateway, queue: str, settlement: Settlement) -> None:
    assert [result.error for result in await gateway.settle(ANYONE, queue, settlement)] == [None]


async def use_in_every_way(gateway: Gateway, queue: str) -> None:
    for _ in range(4):
        await gateway.publish(ANYONE, queue, draft({"n": 1}))
    await gateway.publish_many(ANYONE, queue, [draft({"n": 1}), draft({"n": 2})])
    await settled(gateway, queue, Settlement(acks=[await received(gateway, queue)]))
    for _ in range(2):
        await settled(gateway, queue, Settlement(nacks=[Nack([await received(gateway, queue)], 0)]))
    await settled(gateway, queue, Settlement(rejects=[Reject([await received(gateway, queue)])]))
    (message,) = await gateway.receive(ANYONE, queue, wait_seconds=1)
    await gateway.give_back(queue, [message])
    while messages := await gateway.receive(ANYONE, queue, max_messages=10):
        await gateway.settle(ANYONE, queue, Settlement(acks=[message.ack_token for message in messages]))
    binding = gateway.bindings["memory"]
    assert isinstance(binding, MemoryBinding)
    binding.fail_after("publish", 0, BrokerUnavailable("memory", "it is away"))
    assert await failure(gateway, queue) is BrokerUnavailable
    # It would raise the same error again.
    binding.errors.clear()


async def failure(gateway: Gateway, queue: str) -> type[BabelgateError] | None:
    """The class of the error of a publish. ``pytest.raises`` would keep the error, and so its frames."""
    try:
        await gateway.publish(ANYONE, queue, draft({"n": 1}))
    except BabelgateError as error:
        return type(error)
    return None


async def test_a_queue_is_freed_at_once_when_others_take_its_place(gateway: Gateway, queue: str) -> None:
    with without_collector() as garbage:
        await use_in_every_way(gateway, queue)
        runtime = gateway.queue_runtimes.get(queue)
        assert runtime is not None
        await runtime.idle()
        # The event loop has the last future until the end of its turn.
        await asyncio.sleep(0)
        parts = [weakref.ref(each) for each in (runtime, runtime.publisher, runtime.receiver, runtime.acker)]
        del runtime
        use_others(gateway, 2 * KEPT + 2)
        assert gateway.queue_runtimes.get(queue) is None
        assert [part() for part in parts] == [None] * 4
    assert garbage == []


async def test_the_queue_used_longest_ago_goes_first(owner: Gateway) -> None:
    use_others(owner, KEPT)
    used = owner.queue_runtimes.get("other-0")
    await owner.validate(ANYONE, "other-0", draft({"n": 1}))
    use_others(owner, 2, first=KEPT)
    assert len(owner.queue_runtimes) == KEPT
    assert owner.queue_runtimes.get("other-0") is used
    assert owner.queue_runtimes.get("other-1") is owner.queue_runtimes.get("other-2") is None


async def test_the_names_of_queues_that_went_are_known(owner: Gateway) -> None:
    use_others(owner, KEPT + 3)
    use_others(owner, 1)
    names = owner.queue_runtimes.queues()
    assert sorted(names) == sorted(f"other-{number}" for number in range(KEPT + 3))


async def test_busy_queues_stay_and_the_number_falls_back_after_them(owner: Gateway) -> None:
    binding = owner.bindings["memory"]
    assert isinstance(binding, MemoryBinding)
    gate = binding.gates["publish"] = asyncio.Event()
    busy = [asyncio.create_task(owner.publish(ANYONE, f"busy-{number}", draft({"n": 1}))) for number in range(KEPT)]
    await asyncio.sleep(0)
    use_others(owner, 100)
    assert all(owner.queue_runtimes.get(f"busy-{number}") is not None for number in range(KEPT))
    gate.set()
    await asyncio.gather(*busy)
    use_others(owner, 100, first=100)
    assert len(owner.queue_runtimes) == KEPT


async def test_a_queue_with_a_lease_stays(owner: Gateway, queue: str) -> None:
    await owner.publish(ANYONE, queue, draft({"n": 1}))
    token = await received(owner, queue)
    use_others(owner, 2 * KEPT + 2)
    await settled(owner, queue, Settlement(acks=[token]))


async def test_a_receive_that_waits_for_the_journal_keeps_its_lease_where_it_is_looked_for(queue: str) -> None:
    waits, goes_on = asyncio.Event(), asyncio.Event()

    async def capacity() -> None:
        waits.set()
        await goes_on.wait()

    binding = DeadLetterPublishingMemory("memory", OWNED)
    gateway = gateway_of(binding, capacity)
    publishing = asyncio.create_task(gateway.publish(ANYONE, queue, draft({"n": 1})))
    goes_on.set()
    await publishing
    waits.clear()
    goes_on.clear()
    receiving = asyncio.create_task(received(gateway, queue))
    await waits.wait()
    use_others(gateway, 2 * KEPT + 2)
    goes_on.set()
    await settled(gateway, queue, Settlement(acks=[await receiving]))
    await gateway.close()


async def test_after_a_drain_the_receives_of_new_queues_do_not_wait(owner: Gateway, queue: str) -> None:
    await owner.drain()
    assert await asyncio.wait_for(owner.receive(ANYONE, queue, wait_seconds=300), 60) == []
