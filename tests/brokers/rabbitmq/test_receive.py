"""Receiving from RabbitMQ: only while a client waits, and without losing a message."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Sequence
from weakref import WeakSet

import pytest

from babelgate.brokers.binding import Delivery, NativeQueue
from babelgate.brokers.held import HandleSettler
from babelgate.brokers.rabbitmq.binding import RabbitBinding
from babelgate.brokers.rabbitmq.channel_pool import ChannelPool
from babelgate.brokers.rabbitmq.connection import AmqpConnection
from babelgate.brokers.rabbitmq.frames import acks
from babelgate.brokers.rabbitmq.receive import QueueReceivers
from babelgate.brokers.rabbitmq.topology import Declarer
from babelgate.brokers.rabbitmq.url import parameters_of
from babelgate.errors import BrokerUnavailable, LeaseLost
from tests.brokers.rabbitmq.harness import binding, count
from tests.brokers.rabbitmq.server import RabbitServer
from tests.brokers.rabbitmq.wire_support import kinds, message
from tests.harness.world import LIMIT_SECONDS, PATIENCE, until

pytestmark = pytest.mark.rabbitmq

LINGERED = 0.3
"""Seconds after which no lingering consumer is left."""


@pytest.fixture(params=["classic", "quorum"])
def native(request: pytest.FixtureRequest, one: RabbitBinding, queue: str) -> NativeQueue:
    return one.native_queue(queue, {"queue_type": request.param})


def marks(deliveries: Sequence[Delivery]) -> list[str]:
    return [delivery.body.split(b'"mark":"')[1].split(b'"')[0].decode() for delivery in deliveries]


def handles(deliveries: Sequence[Delivery]) -> list[str]:
    return [delivery.handle for delivery in deliveries]


async def put(one: RabbitBinding, native: NativeQueue, *wanted: int) -> None:
    assert set(await one.publish(native, [message(str(mark)) for mark in wanted])) == {None}


async def put_in_pieces(one: RabbitBinding, native: NativeQueue, wanted: range, piece: int) -> None:
    for start in range(0, len(wanted), piece):
        await put(one, native, *wanted[start : start + piece])


async def taken(one: RabbitBinding, native: NativeQueue, limit: int, wait: float = 0) -> Sequence[Delivery]:
    return await one.reserve(native, limit, wait, 30)


async def drained(one: RabbitBinding, native: NativeQueue, number: int) -> list[str]:
    """The marks of ``number`` messages that must come, acked."""
    found: list[str] = []
    async with asyncio.timeout(LIMIT_SECONDS):
        while len(found) < number:
            deliveries = await taken(one, native, 100, 0.2)
            assert set(await one.ack(native, handles(deliveries))) <= {None}
            found += marks(deliveries)
    return found


async def ready(rabbit: RabbitServer, queue: str, number: int) -> None:
    """Wait until ``number`` messages are with the broker."""

    async def are() -> bool:
        return await asyncio.to_thread(count, rabbit.url(), queue) == number

    await until(are)


class TestReceiving:
    @pytest.mark.parametrize("limit", [1, 7, 8, 9, 30, 100])
    async def test_at_most_the_limit_in_order_and_the_rest_stays(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue, queue: str, limit: int
    ) -> None:
        await put(one, native, *range(40))
        found: list[str] = []
        while deliveries := await taken(one, native, limit):
            assert len(deliveries) <= limit
            await ready(rabbit, queue, 40 - len(found) - len(deliveries))
            found += marks(deliveries)
            await one.ack(native, handles(deliveries))
        assert found == [str(n) for n in range(40)]

    async def test_who_waits_gets_no_more_than_he_wants(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue, queue: str
    ) -> None:
        waiting = asyncio.create_task(taken(one, native, 2, PATIENCE))
        await asyncio.sleep(0.1)
        await put(one, native, *range(6))
        got = await waiting
        assert 1 <= len(got) <= 2
        await ready(rabbit, queue, 6 - len(got))

    async def test_nothing_is_taken_when_nobody_waits_any_more(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue, queue: str
    ) -> None:
        assert await taken(one, native, 5, 0.1) == []
        await asyncio.sleep(LINGERED)
        await put(one, native, 1, 2)
        await ready(rabbit, queue, 2)

    async def test_what_comes_between_two_waits_is_not_held_up(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue, queue: str
    ) -> None:
        for wait in (0.0, PATIENCE):
            assert await taken(one, native, 5, 0.1) == []
            await put(one, native, 1)
            await asyncio.sleep(0.02)
            (delivery,) = await taken(one, native, 5, wait)
            assert await one.ack(native, [delivery.handle]) == [None]

    async def test_what_came_for_nobody_goes_back(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue, queue: str
    ) -> None:
        assert await taken(one, native, 5, 0.1) == []
        await put(one, native, *range(5))
        await ready(rabbit, queue, 5)
        assert sorted(await drained(one, native, 5)) == [str(n) for n in range(5)]

    async def test_a_smaller_wish_after_a_larger_one(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue, queue: str
    ) -> None:
        assert await taken(one, native, 5, 0.1) == []
        await put(one, native, *range(4))
        assert len(await taken(one, native, 1, PATIENCE)) == 1
        await ready(rabbit, queue, 3)

    @pytest.mark.parametrize(("limit", "piece"), [(256, 500), (256, 50), (20, 500), (1, 7)])
    async def test_many_that_come_to_one_who_waits_come_in_order_and_once(
        self, one: RabbitBinding, native: NativeQueue, limit: int, piece: int
    ) -> None:
        """With any number of messages in flight while the consumer that received the first one ends."""
        for start in range(0, 1500, 500) if limit > 1 else [0]:
            wanted = range(start, start + min(500, 10 * piece))
            waiting = asyncio.create_task(taken(one, native, limit, PATIENCE))
            await asyncio.sleep(0.02)
            publishing = asyncio.create_task(put_in_pieces(one, native, wanted, piece))
            got = list(await waiting)
            while len(got) < len(wanted):
                got += await taken(one, native, min(limit, len(wanted) - len(got)), PATIENCE)
            await publishing
            assert marks(got) == [str(n) for n in wanted]
            assert not any(delivery.redelivered for delivery in got)
            assert set(await one.ack(native, handles(got))) == {None}

    async def test_what_came_when_a_wait_was_over_comes_first(
        self, one: RabbitBinding, native: NativeQueue, queue: str
    ) -> None:
        """While the consumer lingers, and while it ends."""
        for ends in (False, True):
            assert await taken(one, native, 5, 0.01) == []
            await put(one, native, *range(12))
            intake = one._receivers._receivers[queue]
            if ends:
                intake.close()
            got = [*await taken(one, native, 12), *await taken(one, native, 12)]
            assert marks(got)[:2] == ["0", "1"]
            got += await taken(one, native, 12)
            assert marks(got) == [str(n) for n in range(12)]
            assert await one.ack(native, handles(got)) == [None] * 12

    async def test_a_wait_and_polls_at_once_share_without_overlap(
        self, one: RabbitBinding, native: NativeQueue
    ) -> None:
        got: list[str] = []

        async def consume(limit: int, wait: float) -> None:
            while len(got) < 300:
                try:
                    deliveries = await taken(one, native, limit, wait)
                except BrokerUnavailable:
                    continue  # A busy machine keeps the broker from answering within a second; nothing is lost by it.
                assert set(await one.ack(native, handles(deliveries))) <= {None}
                got.extend(marks(deliveries))
                await asyncio.sleep(0)

        consumers = [asyncio.create_task(consume(limit, wait)) for limit, wait in ((3, 0.1), (20, 0.0), (50, 0.1))]
        for start in range(0, 300, 30):
            await put(one, native, *range(start, start + 30))
        async with asyncio.timeout(LIMIT_SECONDS):
            await asyncio.gather(*consumers)
        assert sorted(map(int, got)) == list(range(300))

    async def test_whoever_is_cancelled_loses_nothing(self, one: RabbitBinding, native: NativeQueue) -> None:
        got: list[str] = []
        for n in range(40):
            reserving = asyncio.create_task(taken(one, native, 20, 0.5 if n % 2 else 0))
            publishing = asyncio.create_task(put(one, native, n))
            for _ in range(n):
                await asyncio.sleep(0.0005)
            reserving.cancel()
            await publishing
            with contextlib.suppress(asyncio.CancelledError):
                deliveries = await reserving
                await one.ack(native, handles(deliveries))
                got += marks(deliveries)
        got += await drained(one, native, 40 - len(got))
        assert sorted(map(int, got)) == list(range(40))

    async def test_a_broker_that_hangs_is_unavailable_in_time_and_keeps_all(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue
    ) -> None:
        await put(one, native, *range(20))
        async with binding(rabbit.url(), {"timeout_seconds": 5}) as other:
            await drained(other, native, 20)
            await put(one, native, *range(20))
            loop = asyncio.get_running_loop()
            rabbit.pause()
            try:
                started = loop.time()
                calls = [taken(other, native, 20), taken(other, native, 1, 0.3)]
                for outcome in await asyncio.gather(*calls, return_exceptions=True):
                    assert isinstance(outcome, BrokerUnavailable)
                # Without its bound a receive would wait as long as the broker hangs.
                assert loop.time() - started < 30
            finally:
                rabbit.resume()
        assert sorted(map(int, await drained(one, native, 20))) == list(range(20))


class TestSettling:
    async def test_a_settle_that_is_repeated(self, one: RabbitBinding, native: NativeQueue) -> None:
        await put(one, native, *range(4))
        acked, released, _, _ = handles(await taken(one, native, 4))
        assert await one.ack(native, [acked, acked]) == [None, None]
        assert await one.ack(native, [acked]) == [None]
        assert kinds(await one.release(native, [acked], 0, False)) == [LeaseLost]
        assert await one.release(native, [released], 0, False) == [None]
        assert kinds(await one.release(native, [released], 0, False)) == [LeaseLost]
        assert kinds(await one.ack(native, [released])) == [LeaseLost]
        assert len(await drained(one, native, 1)) == 1, "the channel goes on"

    async def test_a_handle_of_another_life(self, one: RabbitBinding, native: NativeQueue) -> None:
        await put(one, native, 1)
        (handle,) = handles(await taken(one, native, 1))
        generation, tag = handle.split(".")
        unknown = [f"00000000.{tag}", f"{generation}.{int(tag) + 1}"]
        assert kinds(await one.ack(native, unknown)) == [LeaseLost, LeaseLost]
        assert await one.ack(native, [handle]) == [None]

    async def test_an_error_on_the_channel_gives_back_what_was_out_on_it(
        self, one: RabbitBinding, native: NativeQueue
    ) -> None:
        await put(one, native, 1)
        (lost,) = handles(await taken(one, native, 1))
        held = one._channels.of_generation(lost.split(".")[0])
        assert held is not None
        waiting = asyncio.create_task(taken(one, native, 1, PATIENCE))
        await asyncio.sleep(0.1)
        held._write(acks([(999, False)], held.rpc.number))
        (again,) = await waiting
        assert again.redelivered
        assert kinds(await one.ack(native, [lost])) == [LeaseLost]
        assert list(one.outstanding(native, [lost, again.handle])) == [False, True]
        assert await one.ack(native, [again.handle]) == [None]

    async def test_acks_in_any_order_settle_only_themselves(self, one: RabbitBinding, native: NativeQueue) -> None:
        await put(one, native, *range(200))
        deliveries: list[Delivery] = []
        while len(deliveries) < 200:
            deliveries += await taken(one, native, 7 if len(deliveries) % 3 else 60)
        kept = set(marks(deliveries[::17]))
        acked = [delivery for delivery in deliveries if marks([delivery])[0] not in kept]
        for part in (acked[150:], acked[:40], acked[40:150:2], acked[41:150:2]):
            assert set(await one.ack(native, handles(part))) == {None}
        await one.close()
        await one.open()
        assert set(await drained(one, native, len(kept))) == kept

    async def test_a_close_right_after_many_acks_undoes_none(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue, queue: str
    ) -> None:
        await put(one, native, *range(100))
        deliveries: list[Delivery] = []
        while len(deliveries) < 100:
            deliveries += await taken(one, native, 1)
        assert set(await one.ack(native, handles(deliveries[1:]))) == {None}
        await one.close()
        await ready(rabbit, queue, 1)

    async def test_what_amqp_cannot_do_is_misuse(self, one: RabbitBinding, native: NativeQueue) -> None:
        for delay, failed in ((1.0, False), (0.0, True)):
            with pytest.raises(ValueError, match="copy"):
                await one.release(native, ["0.1"], delay, failed)


class FewChannels(AmqpConnection):
    """A connection whose server allows ten channels, of which two are for queues."""

    channel_max = 10


class TestChannels:
    @pytest.fixture
    async def link(self, rabbit: RabbitServer) -> AsyncIterator[AmqpConnection]:
        link = FewChannels("rabbit", parameters_of(rabbit.url(), {}), "consume")
        yield link
        await link.close()

    async def test_past_the_bound_queues_share(self, one: RabbitBinding, link: AmqpConnection, queue: str) -> None:
        channels = ChannelPool(link)
        reserving = QueueReceivers(link, Declarer(link), channels, asyncio.get_running_loop().create_task)
        natives = [one.native_queue(f"{queue}.{n}", {}) for n in range(6)]
        got: list[Delivery] = []
        for native in natives:
            await put(one, native, 1)
            got += await reserving.reserve(native.options, 5, 0)
        assert len({delivery.handle.split(".")[0] for delivery in got}) == 2
        assert await HandleSettler("rabbit", 10, channels.of_generation).ack(handles(got)) == [None] * 6
        await channels.close()

    async def test_of_ever_new_queues_few_are_remembered(self, link: AmqpConnection, queue: str) -> None:
        class Name(str):
            """The name of a queue, which can be referenced weakly."""

        channels = ChannelPool(link, max_queues=3)
        names: WeakSet[str] = WeakSet()
        for number in range(30):
            name = Name(f"{queue}.{number}")
            names.add(name)
            assert (await channels.of_queue(name)).is_open
            await channels.of_queue(queue)
        del name
        await asyncio.sleep(0)
        gc.collect()
        assert sorted(names) == [f"{queue}.28", f"{queue}.29"]
        await channels.close()

    async def test_of_ever_new_queues_few_receivers_are_kept_and_all_that_are_busy(
        self, one: RabbitBinding, link: AmqpConnection, queue: str
    ) -> None:
        channels = ChannelPool(link)
        spawn = asyncio.get_running_loop().create_task
        reserving = QueueReceivers(link, Declarer(link), channels, spawn, max_receivers=2)
        waited, *others = (one.native_queue(f"{queue}.{n}", {}) for n in range(6))
        waiting = asyncio.create_task(reserving.reserve(waited.options, 1, 60))

        async def is_waiting() -> bool:
            return waited.name in reserving._receivers

        await until(is_waiting)
        receiver = reserving._receivers[waited.name]
        for other in others:
            assert await reserving.reserve(other.options, 1, 0) == []
        assert reserving._receivers[waited.name] is receiver
        assert sorted(reserving._receivers) == [waited.name, others[-1].name]
        await put(one, waited, 1)
        (delivery,) = await waiting
        assert await HandleSettler("rabbit", 10, channels.of_generation).ack([delivery.handle]) == [None]
        # Not busy any more, it is forgotten.
        for other in others[:2]:
            assert await reserving.reserve(other.options, 1, 0) == []
        assert sorted(reserving._receivers) == [each.name for each in others[:2]]
        await channels.close()

    async def test_an_idle_channel_is_closed_unless_something_is_out_on_it(
        self, one: RabbitBinding, link: AmqpConnection, queue: str
    ) -> None:
        channels = ChannelPool(link, idle_seconds=0.1)
        reserving = QueueReceivers(link, Declarer(link), channels, asyncio.get_running_loop().create_task)
        busy, idle = (one.native_queue(f"{queue}.{n}", {}) for n in range(2))
        await put(one, busy, 1)
        (delivery,) = await reserving.reserve(busy.options, 1, 0)
        assert await reserving.reserve(idle.options, 1, 0) == []
        gone = await channels.of_queue(idle.name)
        kept = channels.of_generation(delivery.handle.split(".")[0])
        assert kept is not None

        async def is_closed() -> bool:
            return not gone.is_open

        await until(is_closed)
        assert kept.is_open
        assert await HandleSettler("rabbit", 10, channels.of_generation).ack([delivery.handle]) == [None]
        assert await reserving.reserve(idle.options, 1, 0) == []
        await channels.close()
