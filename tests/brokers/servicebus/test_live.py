"""A round trip on a real namespace, where BABELGATE_LIVE_SERVICEBUS has a connection string: what no emulator shows."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest

from babelgate.brokers.binding import NativeQueue, Outgoing
from babelgate.brokers.servicebus.binding import ServiceBusBinding
from babelgate.errors import BrokerRejected
from tests.brokers.servicebus.harness import binding
from tests.brokers.servicebus.test_binding import outgoing

CONNECTION = os.environ.get("BABELGATE_LIVE_SERVICEBUS", "")
QUEUE = os.environ.get("BABELGATE_LIVE_SERVICEBUS_QUEUE", "babelgate-live")
URL = f"servicebus://?connection_string={quote(CONNECTION, safe='')}"

pytestmark = pytest.mark.skipif(not CONNECTION, reason="BABELGATE_LIVE_SERVICEBUS has no connection string")


@pytest.fixture
async def live() -> AsyncIterator[ServiceBusBinding]:
    async with binding(URL) as opened:
        yield opened


@pytest.fixture
async def native(live: ServiceBusBinding) -> AsyncIterator[NativeQueue]:
    """The queue, without sessions; it and its dead letters are empty before and after."""
    made = live.native_queue(QUEUE, {"dead_letters": "native"})
    await live.purge(made)
    await live.purge_dead(made)
    yield made
    await live.purge(made)
    await live.purge_dead(made)


async def test_another_connection_settles_by_the_token(live: ServiceBusBinding, native: NativeQueue) -> None:
    assert await live.publish(native, [outgoing(n) for n in range(3)]) == [None] * 3
    found = await live.reserve(native, 3, 30, 30)
    async with binding(URL) as other:
        assert await other.ack(native, [found[0].handle]) == [None]
        assert isinstance((await other.extend(native, [each.handle for each in found[1:]], 30))[0], int)
        assert await other.ack(native, [each.handle for each in found[1:]]) == [None] * len(found[1:])


async def test_a_drained_link_keeps_no_credit(live: ServiceBusBinding, native: NativeQueue) -> None:
    assert await live.reserve(native, 10, 1, 30) == []
    async with binding(URL) as other:
        await other.publish(native, [outgoing()])
        (delivery,) = await other.reserve(native, 1, 30, 30)
        assert delivery.delivery_count == 0
        assert await other.ack(native, [delivery.handle]) == [None]


async def test_give_back_abandon_and_dead_letter(live: ServiceBusBinding, native: NativeQueue) -> None:
    await live.publish(native, [outgoing()])
    (delivery,) = await live.reserve(native, 1, 30, 30)
    assert await live.release(native, [delivery.handle], 0, failed=False) == [None]
    (delivery,) = await live.reserve(native, 1, 30, 30)
    assert delivery.delivery_count == 0
    assert await live.release(native, [delivery.handle], 0, failed=True) == [None]
    (delivery,) = await live.reserve(native, 1, 30, 30)
    assert delivery.delivery_count == 1
    await live.ack(native, [delivery.handle])


async def test_a_missing_queue(live: ServiceBusBinding) -> None:
    missing = live.native_queue("babelgate-live-missing", {})
    (outcome,) = await live.publish(missing, [Outgoing(b"{}")])
    assert isinstance(outcome, BrokerRejected)
