"""Two receives of one queue at a time share one permit of each partition, and the ends of its consumers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from babelgate.brokers.binding import Delivery, NativeQueue, Outcome, Outgoing
from babelgate.brokers.pulsar import receive
from babelgate.brokers.pulsar.binding import PulsarBinding
from babelgate.brokers.pulsar.consumer import TopicConsumer
from babelgate.brokers.pulsar.consumers import QueueConsumers
from babelgate.errors import BrokerUnavailable
from tests.harness.local import eventually

pytestmark = pytest.mark.pulsar


@pytest.fixture
async def native(
    one: PulsarBinding, other: PulsarBinding, queue: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[NativeQueue]:
    """A queue with a message that another process holds. It was proven that its broker can read it."""
    monkeypatch.setattr(receive, "_BELIEVED_SECONDS", 3600.0)
    made = one.native_queue(queue, {})
    assert await other.publish(made, [Outgoing(b"held")]) == [None]
    (held,) = await other.reserve(made, 1, 60, 30)
    assert await one.reserve(made, 1, 0, 30) == []
    yield made
    assert await other.ack(made, [held.handle]) == [None]


async def begun(binding: PulsarBinding, queue: NativeQueue, wait_seconds: float) -> asyncio.Task[Sequence[Delivery]]:
    """A receive that waits, for which the broker has a permit."""
    waiting = asyncio.create_task(binding.reserve(queue, 1, wait_seconds, 30))

    def has_permit() -> bool:
        consumers = [each._consumers for each in binding._queues.values()]
        return [(each.waiting, [one.permits for one in each.by_topic.values()]) for each in consumers] == [(1, [1])]

    await eventually(has_permit)
    return waiting


def end_at_first_wait(monkeypatch: pytest.MonkeyPatch, publish: Callable[[], Awaitable[Sequence[Outcome]]]) -> None:
    """When a receive waits for the first time, its consumer ends, and messages are published."""
    wait = QueueConsumers.wait

    async def ended_first(consumers: QueueConsumers, until: float) -> None:
        monkeypatch.setattr(QueueConsumers, "wait", wait)
        (consumer,) = consumers.by_topic.values()
        consumers.forget(consumer)
        await consumer.close()
        assert not any(await publish())
        await wait(consumers, until)

    monkeypatch.setattr(QueueConsumers, "wait", ended_first)


async def test_a_message_is_there_for_each_of_two_receives(
    one: PulsarBinding, other: PulsarBinding, native: NativeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that waits takes what comes for the permit, after the other one has seen that there is a permit."""
    monkeypatch.setattr(receive, "_QUIET_SECONDS", 2.0)
    waiting = await begun(one, native, 60)
    undelivered = QueueConsumers.undelivered
    taken: list[Delivery] = []

    async def after_the_first(consumers: QueueConsumers) -> list[tuple[TopicConsumer, int]]:
        monkeypatch.setattr(QueueConsumers, "undelivered", undelivered)
        assert await other.publish(native, [Outgoing(b"1"), Outgoing(b"2")]) == [None, None]
        taken.extend(await waiting)
        return await undelivered(consumers)

    monkeypatch.setattr(QueueConsumers, "undelivered", after_the_first)
    taken += await one.reserve(native, 1, 0, 30)
    assert sorted(each.body for each in taken) == [b"1", b"2"]
    assert await one.ack(native, [each.handle for each in taken]) == [None, None]


@pytest.mark.parametrize("wait_seconds", [0, 0.2])
async def test_a_consumer_that_ends_meanwhile_is_replaced_by_one_with_a_permit(
    one: PulsarBinding,
    other: PulsarBinding,
    native: NativeQueue,
    wait_seconds: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receive, "_QUIET_SECONDS", 2.0)
    end_at_first_wait(monkeypatch, lambda: other.publish(native, [Outgoing(b"1")]))
    (taken,) = await one.reserve(native, 1, wait_seconds, 30)
    assert taken.body == b"1"
    assert await one.ack(native, [taken.handle]) == [None]


async def test_the_broker_is_asked_several_times_after_a_permit(
    one: PulsarBinding, native: NativeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a receive that has waited: the permits that it gave have ended with their consumer."""
    undelivered, calls = QueueConsumers.undelivered, 0

    async def counted(consumers: QueueConsumers) -> list[tuple[TopicConsumer, int]]:
        nonlocal calls
        calls += 1
        return await undelivered(consumers)

    async def nothing() -> Sequence[Outcome]:
        return []

    monkeypatch.setattr(QueueConsumers, "undelivered", counted)
    assert (await one.reserve(native, 1, 0.2, 30), calls) == ([], 1)
    end_at_first_wait(monkeypatch, nothing)
    assert (await one.reserve(native, 1, 0.2, 30), calls) == ([], 1 + receive._PROBES)


async def test_what_is_given_back_is_for_the_receive_that_waits(one: PulsarBinding, queue: str) -> None:
    """The consumer ends with that; the receive makes another one."""
    native = one.native_queue(queue, {})
    assert await one.publish(native, [Outgoing(b"1")]) == [None]
    (held,) = await one.reserve(native, 1, 60, 30)
    waiting = await begun(one, native, 300)
    assert await one.release(native, [held.handle], 0, False) == [None]
    async with asyncio.timeout(60):
        (again,) = await waiting
    assert (again.body, again.delivery_count) == (b"1", 0)
    assert await one.ack(native, [again.handle]) == [None]


async def test_a_receive_that_waits_has_an_error_when_the_queue_is_closed(one: PulsarBinding, queue: str) -> None:
    waiting = await begun(one, one.native_queue(queue, {}), 300)
    (receiving,) = one._queues.values()
    await receiving.close()
    async with asyncio.timeout(60):
        with pytest.raises(BrokerUnavailable, match="the gateway disconnects"):
            await waiting
