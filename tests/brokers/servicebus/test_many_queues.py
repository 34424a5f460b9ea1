"""What a binding keeps of queues: however many names are used, a bounded number, and all that is in use."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

import pytest

from babelgate.brokers.binding import NativeQueue, Outgoing
from babelgate.brokers.servicebus.binding import ServiceBusBinding
from babelgate.brokers.servicebus.client import MAX_OPENING
from babelgate.brokers.servicebus.locks import QueueLocks
from babelgate.brokers.servicebus.sessions import QueueSessions
from babelgate.brokers.servicebus.url import settings_of
from babelgate.clock import now_ms
from babelgate.errors import BrokerUnavailable
from tests.brokers.servicebus.harness import binding
from tests.brokers.servicebus.server import ServiceBusEmulator
from tests.harness.proxy import proxy
from tests.harness.world import kinds, until

pytestmark = pytest.mark.servicebus

_KEPT = 2
_CONNECTIONS = 3
_NAMES = 12

Kept = TypeVar("Kept", QueueLocks, QueueSessions)


@pytest.fixture
async def few(emulator: ServiceBusEmulator) -> AsyncIterator[ServiceBusBinding]:
    """A binding that keeps few queues."""
    made = ServiceBusBinding(
        "azure", settings_of(emulator.url(), {"max_handlers": _CONNECTIONS}), now_ms, 30, max_queues=_KEPT
    )
    await made.open()
    try:
        yield made
    finally:
        await made.close()


def alive(kind: type[Kept]) -> list[Kept]:
    """The objects of ``kind`` that are reachable."""
    gc.collect()
    return [each for each in gc.get_objects() if type(each) is kind]


def linked(emulator: ServiceBusEmulator, queues: Sequence[NativeQueue]) -> int:
    """The links of clients to ``queues``."""
    return sum(len(emulator.entity(each.name)["links"]) for each in queues)


async def few_links(emulator: ServiceBusEmulator, queues: Sequence[NativeQueue]) -> None:
    """Wait until the broker has as many links as a binding may have connections, each with one for management."""

    async def are_few() -> bool:
        return await asyncio.to_thread(linked, emulator, queues) <= 3 * _CONNECTIONS

    await until(are_few)


async def test_locks_of_ever_new_queues_are_forgotten_and_held_ones_are_settled(
    few: ServiceBusBinding, emulator: ServiceBusEmulator, queue: str
) -> None:
    before = len(alive(QueueLocks))
    held = few.native_queue(f"{queue}-held", {})
    assert await few.publish(held, [Outgoing(b"{}")]) == [None]
    (delivery,) = await few.reserve(held, 1, 20, 30)
    queues = [few.native_queue(f"{queue}-{number}", {}) for number in range(_NAMES)]
    for each in queues:
        assert await few.publish(each, [Outgoing(b"{}")]) == [None]
        (found,) = await few.reserve(each, 1, 20, 30)
        assert await few.ack(each, [found.handle]) == [None]
    assert len(alive(QueueLocks)) <= before + _KEPT
    await few_links(emulator, queues)
    assert few.outstanding(held, [delivery.handle]) == [True]
    assert await few.ack(held, [delivery.handle]) == [None]


async def test_few_connections_are_opened_at_once(emulator: ServiceBusEmulator, queue: str) -> None:
    """All that are wanted at once would take each other the time in which a call must be answered."""
    async with (
        proxy("127.0.0.1", emulator.port) as between,
        binding(emulator.url(between.port), {"timeout_seconds": 1}) as one,
    ):
        before = between.connections
        between.hold_replies = True
        queues = [one.native_queue(f"{queue}-{number}", {}) for number in range(3 * MAX_OPENING)]
        outcomes = await asyncio.gather(*(one.publish(each, [Outgoing(b"{}")]) for each in queues))
        assert kinds([outcome for each in outcomes for outcome in each]) == [BrokerUnavailable] * len(queues)
        assert between.connections - before <= MAX_OPENING
        between.hold_replies = False


async def test_sessions_of_ever_new_queues_are_forgotten_and_held_ones_are_settled(
    few: ServiceBusBinding, emulator: ServiceBusEmulator, queue: str
) -> None:
    before = len(alive(QueueSessions))
    queues = [few.native_queue(f"{queue}-{number}", {"sessions": True}) for number in range(_NAMES)]
    for each in queues:
        emulator.queue(each.name, requires_session=True)
    held = queues.pop()
    assert await few.publish(held, [Outgoing(b"{}", ordering_key="one")]) == [None]
    (delivery,) = await few.reserve(held, 1, 20, 30)
    for each in queues:
        assert await few.reserve(each, 1, 0, 30) == ()
    assert len(alive(QueueSessions)) <= before + _KEPT
    await few_links(emulator, queues)
    assert few.outstanding(held, [delivery.handle]) == [True]
    assert await few.ack(held, [delivery.handle]) == [None]
