"""A round trip on a real account, where BABELGATE_LIVE_SQS names a region: what no local server shows."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator

import pytest

from babelgate.brokers.binding import NativeQueue, Outgoing
from babelgate.brokers.sqs.binding import SqsBinding
from babelgate.errors import BrokerRejected, LeaseLost
from tests.brokers.sqs.harness import binding
from tests.brokers.sqs.test_binding import body, number, taken

REGION = os.environ.get("BABELGATE_LIVE_SQS", "")

pytestmark = pytest.mark.skipif(not REGION, reason="BABELGATE_LIVE_SQS names no region of a real account")


@pytest.fixture
async def live() -> AsyncIterator[SqsBinding]:
    async with binding(f"sqs://{REGION}") as opened:
        yield opened


@pytest.fixture(params=["", ".fifo"], ids=["standard", "fifo"])
async def native(request: pytest.FixtureRequest, live: SqsBinding) -> AsyncIterator[NativeQueue]:
    """A queue, deleted in the end with that of its dead letters."""
    name = f"babelgate-live-{uuid.uuid4().hex}{request.param}"
    made = live.native_queue(name, {"create": "missing"})
    yield made
    for queue in (made.options, made.options.dead):
        url = await live._client.existing_url(queue)
        if url is not None:
            await live._client.call("DeleteQueue", QueueUrl=url)


async def test_a_message_is_published_extended_and_acked_elsewhere(live: SqsBinding, native: NativeQueue) -> None:
    assert await live.publish(native, [Outgoing(body(n), dedup_id=f"{n}") for n in range(3)]) == [None] * 3
    (delivery, *_) = await live.reserve(native, 1, 20, 30)
    assert isinstance((await live.extend(native, [delivery.handle], 60))[0], int)
    async with binding(f"sqs://{REGION}") as other:
        assert await other.ack(native, [delivery.handle]) == [None]
        assert await other.ack(native, [delivery.handle]) == [None], "a repeated ack is done"
    assert sorted([number(delivery.body), *await taken(live, native, 2)]) == [0, 1, 2]


async def test_a_lease_that_is_over_is_lost(live: SqsBinding, native: NativeQueue) -> None:
    await live.publish(native, [Outgoing(body(1))])
    (delivery, *_) = await live.reserve(native, 1, 20, 2)
    await asyncio.sleep(4)
    assert [type(each) for each in await live.ack(native, [delivery.handle])] == [LeaseLost]
    (again, *_) = await live.reserve(native, 1, 20, 30)
    assert again.delivery_count == 2


async def test_dead_letters_are_listed_and_removed(live: SqsBinding, native: NativeQueue) -> None:
    await live.publish_dead_letters(native, [Outgoing(body(n)) for n in range(12)])
    records, _ = await live.read_dead(native, None, 12)
    assert sorted(number(each.body) for each in records) == list(range(12))
    removed, _ = await live.remove_dead(native, records, None)
    assert removed == [True] * 12


async def test_a_missing_queue(live: SqsBinding) -> None:
    missing = live.native_queue(f"babelgate-live-{uuid.uuid4().hex}", {})
    with pytest.raises(BrokerRejected, match="create: missing"):
        await live.publish(missing, [Outgoing(body())])
