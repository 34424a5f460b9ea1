"""One channel: getting, consuming, settling and publishing on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiormq.abc import ChannelFrame
from pamqp.commands import Basic

from babelgate.brokers.rabbitmq.channel import Channel, ChannelGone
from babelgate.brokers.rabbitmq.confirms import UNCONFIRMED, Confirmed, Confirms, Nacked, Returned
from babelgate.brokers.rabbitmq.frames import publish
from babelgate.brokers.rabbitmq.profile import AddressedMessage, NativeMessage
from babelgate.brokers.rabbitmq.receive import ConsumerEnded, QueueReceiver
from tests.brokers.rabbitmq.harness import client, count
from tests.brokers.rabbitmq.server import RabbitServer
from tests.brokers.rabbitmq.support import linked
from tests.harness.local import eventually

pytestmark = pytest.mark.rabbitmq
NOTHING = Basic.Properties()


@pytest.fixture
async def channel(rabbit: RabbitServer, queue: str) -> AsyncIterator[Channel]:
    """A channel, and ``queue`` with three messages."""
    with client(rabbit.url()) as foreign:
        foreign.queue_declare(queue, durable=True)
        for body in (b"1", b"2", b"3"):
            foreign.basic_publish("", queue, body)
    async with linked(rabbit.url()) as link:
        yield await link.channel()


def bodies(arrived: list[NativeMessage]) -> list[bytes]:
    return [each.body for each in arrived]


async def test_gets_are_answered_in_order(channel: Channel, queue: str) -> None:
    first, second, third = await asyncio.gather(*(channel.get(queue, each) for each in (1, 1, 5)))
    assert [bodies(first), bodies(second), bodies(third)] == [[b"1"], [b"2"], [b"3"]]
    assert [each.left for each in (*first, *second, *third)] == [2, 1, 0]
    assert not first[0].redelivered


async def test_what_was_acked_is_gone_and_what_was_not_comes_back(
    rabbit: RabbitServer, channel: Channel, queue: str
) -> None:
    arrived = await channel.get(queue, 3)
    channel.accept([arrived[0].tag])
    channel.give_back([arrived[1].tag])
    await channel.barrier()
    (again,) = await channel.get(queue, 3)
    assert (again.body, again.redelivered) == (b"2", True)
    await channel.close()
    assert await asyncio.to_thread(count, rabbit.url(), queue) == 2


async def test_a_get_that_nobody_awaits_any_more_is_put_back(
    rabbit: RabbitServer, channel: Channel, queue: str
) -> None:
    getting = asyncio.create_task(channel.get(queue, 3))
    await asyncio.sleep(0)
    getting.cancel()
    await asyncio.wait({getting})
    assert getting.cancelled()
    await eventually(lambda: count(rabbit.url(), queue) == 3)
    assert channel.is_open


async def test_a_consumer_gets_as_many_as_it_may_hold(channel: Channel, queue: str) -> None:
    arrived: list[NativeMessage] = []
    tag = await channel.consume(queue, 2, arrived.append)
    await eventually(lambda: len(arrived) == 2)
    await channel.barrier()
    assert bodies(arrived) == [b"1", b"2"]
    channel.accept([arrived[0].tag])
    await eventually(lambda: len(arrived) == 3)
    await channel.cancel(tag)
    channel.give_back([each.tag for each in arrived[1:]])
    await channel.barrier()
    assert len(arrived) == 3 and len(await channel.get(queue, 5)) == 2


async def test_a_consumer_hears_that_its_queue_is_gone(rabbit: RabbitServer, channel: Channel, queue: str) -> None:
    ended = asyncio.Event()
    await channel.consume(queue, 1, lambda arrived: None, ended.set)
    with client(rabbit.url()) as foreign:
        foreign.queue_delete(queue)
    await asyncio.wait_for(ended.wait(), 60)
    assert channel.is_open


async def test_a_wait_whose_consumer_the_broker_ends_says_so(
    rabbit: RabbitServer, channel: Channel, queue: str
) -> None:
    receiver = QueueReceiver(f"{queue}.empty", asyncio.get_running_loop().create_task)
    with client(rabbit.url()) as foreign:
        foreign.queue_declare(f"{queue}.empty", durable=True)
        waiting = asyncio.create_task(receiver.take(channel, 1, asyncio.get_running_loop().time() + 60))

        def consumers() -> int:
            return int(foreign.queue_declare(f"{queue}.empty", passive=True).method.consumer_count)

        await eventually(lambda: consumers() == 1)
        foreign.queue_delete(f"{queue}.empty")
    with pytest.raises(ConsumerEnded, match="the broker has ended a consumer"):
        await waiting


async def test_a_queue_that_is_missing_ends_the_channel_with_the_brokers_words(channel: Channel, queue: str) -> None:
    with pytest.raises(ChannelGone, match=f"no queue '{queue}.missing'"):
        await channel.get(f"{queue}.missing", 1)
    for call in (channel.barrier(), channel.get(queue, 1)):
        with pytest.raises(ChannelGone):
            await call
    with pytest.raises(ChannelGone):
        channel.accept([1])


async def test_close_gives_back_and_can_be_repeated(rabbit: RabbitServer, channel: Channel, queue: str) -> None:
    assert len(await channel.get(queue, 3)) == 3
    waiting = asyncio.create_task(channel.barrier())
    await channel.close()
    await channel.close()
    await asyncio.wait({waiting})
    assert await asyncio.to_thread(count, rabbit.url(), queue) == 3


async def test_a_message_that_no_library_can_decode_is_delivered(
    rabbit: RabbitServer, channel: Channel, queue: str
) -> None:
    message = AddressedMessage("", queue, Basic.Properties(message_id="m-1", message_type="latin"), b"odd")
    async with linked(rabbit.url()) as link:
        foreign = (await link.channel()).rpc
        frames = publish(message, foreign.number, 0).replace(b"latin", b"\xff\xfe\xfd\xfc\xfb")
        await foreign.write_queue.put(ChannelFrame(payload=frames, should_close=False))
        await foreign.queue_declare(queue, passive=True)
    odd = (await channel.get(queue, 4))[-1]
    assert odd.body == b"odd" and odd.properties.message_id == "m-1"
    channel.accept([odd.tag])
    await channel.barrier()


class Expected:
    """Unconfirmed messages of one write."""

    def __init__(self, *keys: str, exchange: str = "") -> None:
        self.confirms = Confirms()
        self.batch = Confirmed(len(keys), UNCONFIRMED)
        for position, key in enumerate(keys):
            message = AddressedMessage(exchange if key.isupper() else "", key.lower(), NOTHING, key.lower().encode())
            self.confirms.expect(message, self.batch, position)

    @property
    def done(self) -> list[object]:
        return [result if result in (None, UNCONFIRMED) else type(result) for result in self.batch.results]


async def test_confirms_one_by_one_and_up_to_a_tag() -> None:
    expected = Expected("a", "b", "c", "d", "e")
    expected.confirms.confirmed(2, False, taken=True)
    assert expected.done == [UNCONFIRMED, None, UNCONFIRMED, UNCONFIRMED, UNCONFIRMED]
    expected.confirms.confirmed(3, True, taken=True)
    assert expected.done == [None, None, None, UNCONFIRMED, UNCONFIRMED]
    assert not expected.batch.done.done()
    expected.confirms.confirmed(5, True, taken=False)
    assert expected.done == [None, None, None, Nacked, Nacked]
    assert expected.batch.done.done()
    expected.confirms.confirmed(5, True, taken=True)
    expected.confirms.abandon(ChannelGone("closed"))
    assert expected.done == [None, None, None, Nacked, Nacked]


async def test_of_equal_messages_the_oldest_came_back() -> None:
    expected = Expected("a", "b", "a", "a")
    for _ in range(2):
        expected.confirms.returned(Basic.Return(reply_text="NO_ROUTE", routing_key="a"), b"a")
    expected.confirms.confirmed(4, True, taken=True)
    assert expected.done == [Returned, None, Returned, None]


async def test_of_equal_messages_to_two_exchanges_the_one_that_is_named_came_back() -> None:
    expected = Expected("a", "A", exchange="e")
    expected.confirms.returned(Basic.Return(reply_text="NO_ROUTE", exchange="e", routing_key="a"), b"a")
    expected.confirms.confirmed(2, True, taken=True)
    assert expected.done == [None, Returned]


async def test_what_is_abandoned_ends_with_its_error() -> None:
    expected = Expected("a", "b")
    expected.confirms.confirmed(1, False, taken=True)
    expected.confirms.abandon(ChannelGone("closed"))
    assert expected.done == [None, ChannelGone]
    assert expected.batch.done.done()
