"""The connections to RabbitMQ: every failure has its error, and the binding recovers by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from babelgate.brokers.binding import NativeQueue, Outcome
from babelgate.brokers.rabbitmq.binding import RabbitBinding
from babelgate.errors import BrokerUnavailable, LeaseLost, OutcomeUnknown, StorageFull
from tests.brokers.rabbitmq.harness import binding, browse
from tests.brokers.rabbitmq.server import RabbitServer
from tests.brokers.rabbitmq.wire_support import accepted, answers, kinds, message, outcomes, reserved
from tests.harness.proxy import Proxy, proxy
from tests.harness.world import until

pytestmark = pytest.mark.rabbitmq


@pytest.fixture
async def between(rabbit: RabbitServer) -> AsyncIterator[Proxy]:
    async with proxy("127.0.0.1", rabbit.port) as running:
        yield running


@pytest.fixture
async def distant(between: Proxy) -> AsyncIterator[RabbitBinding]:
    """A binding that reaches the server through the proxy."""
    async with binding(f"amqp://guest:guest@127.0.0.1:{between.port}/") as opened:
        yield opened


@pytest.fixture
def strict(rabbit: RabbitServer) -> Iterator[RabbitServer]:
    """The server, which waits for four seconds."""
    with rabbit.configured(consumer_timeout=4000, channel_tick_interval=200):
        yield rabbit


class TestOutages:
    async def test_after_a_restart_it_goes_on_by_itself(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue
    ) -> None:
        await one.publish(native, [message("held"), message("ready")])
        held = await reserved(one, native)
        await asyncio.to_thread(rabbit.stop_app)
        for call in (one.ping, lambda: one.publish(native, [message()]), lambda: one.reserve(native, 1, 0, 30)):
            with pytest.raises(BrokerUnavailable):
                await call()
        await asyncio.to_thread(rabbit.start_app)
        await answers(one)
        assert kinds(await one.ack(native, [held.handle])) == [LeaseLost]
        deliveries = [await reserved(one, native), await reserved(one, native)]
        assert [each.body for each in deliveries] == [message("held").body, message("ready").body]
        assert [each.redelivered for each in deliveries] == [True, False]
        assert kinds(await one.ack(native, [held.handle])) == [LeaseLost], "the tag is the same, the channel is not"
        assert await one.ack(native, [each.handle for each in deliveries]) == [None] * 2

    async def test_what_was_written_to_a_broker_that_dies_is_unknown(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue
    ) -> None:
        """The broker is stopped before it reads: neither the publish nor the ack takes effect, without an answer."""
        await one.publish(native, [message("kept")])
        held = await reserved(one, native)
        await asyncio.to_thread(rabbit.settle_down)
        rabbit.pause()
        publishing = asyncio.create_task(one.publish(native, [message("unknown")]))
        acking = asyncio.create_task(one.ack(native, [held.handle]))
        await asyncio.sleep(0.05)
        assert not publishing.done() and not acking.done()
        rabbit.kill()
        assert kinds(await outcomes(publishing)) == [OutcomeUnknown]
        assert kinds(await outcomes(acking)) == [OutcomeUnknown]
        await asyncio.to_thread(rabbit.start)
        await answers(one)
        again = await reserved(one, native)
        assert again.body == message("kept").body
        assert kinds(await one.ack(native, [held.handle, again.handle])) == [LeaseLost, type(None)]
        assert await one.reserve(native, 1, 0, 30) == []

    async def test_a_broker_that_hangs_does_not_hang_the_ping(self, rabbit: RabbitServer, one: RabbitBinding) -> None:
        await one.ping()
        rabbit.pause()
        try:
            async with asyncio.timeout(60):
                with pytest.raises(BrokerUnavailable):
                    await one.ping()
        finally:
            rabbit.resume()
        await answers(one)

    async def test_a_broker_that_hangs_for_a_while_keeps_the_deliveries(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue
    ) -> None:
        """It answers no new connection either, so its silent one is not given up."""
        await one.publish(native, [message()])
        held = await reserved(one, native)
        rabbit.pause()
        try:
            for _ in range(2):
                with pytest.raises(BrokerUnavailable):
                    await one.ping()
        finally:
            rabbit.resume()
        await answers(one)
        assert await one.ack(native, [held.handle]) == [None]

    async def test_a_broker_that_hangs_is_given_up_after_two_heartbeats(self, rabbit: RabbitServer, queue: str) -> None:
        async with binding(f"{rabbit.url()}?heartbeat=1") as one:
            native = one.native_queue(queue, {})
            await one.publish(native, [message()])
            waiting = asyncio.create_task(one.reserve(native, 2, 0, 30))
            assert len(await waiting) == 1
            rabbit.pause()
            try:
                async with asyncio.timeout(60):
                    assert kinds(await outcomes(one.publish(native, [message()]))) == [OutcomeUnknown]
            finally:
                rabbit.resume()
            await answers(one)

    async def test_connections_that_an_operator_closes_come_back(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue
    ) -> None:
        await one.publish(native, [message("first")])
        held = await reserved(one, native)
        await asyncio.to_thread(rabbit.evaluate, 'rabbit_networking:close_all_connections("maintenance")')
        await answers(one)
        assert kinds(await one.ack(native, [held.handle])) == [LeaseLost]
        assert await accepted(one, native, message("second"))
        deliveries = [await reserved(one, native), await reserved(one, native)]
        assert [each.body for each in deliveries] == [message("first").body, message("second").body]

    async def test_a_publish_does_not_need_the_consuming_connection(
        self, one: RabbitBinding, native: NativeQueue, queue: str
    ) -> None:
        await one.publish(native, [message("before")])
        await one._consume_connection.close()
        for name in (queue, f"{queue}.other"):
            assert await one.publish(one.native_queue(name, {}), [message("after")]) == [None]
        assert not one._consume_connection.is_open

    @pytest.mark.parametrize("cut", [True, False], ids=["cut", "silent"])
    async def test_a_purge_whose_answer_is_lost_is_unknown(
        self, between: Proxy, one: RabbitBinding, native: NativeQueue, cut: bool
    ) -> None:
        def lost(answer: bytes) -> bytes:
            # The method queue.purge.
            if b"\x00\x32\x00\x1e" not in between.sent:
                return answer
            between.hold_replies = not cut
            # The end of the connection, or a heartbeat.
            return b"" if cut else b"\x08\x00\x00\x00\x00\x00\x00\xce"

        await one.publish(native, [message(), message()])
        url = f"amqp://guest:guest@127.0.0.1:{between.port}/"
        async with binding(url, {"timeout_seconds": 5}) as distant:
            await distant.ping()
            between.alter = lost
            with pytest.raises(OutcomeUnknown):
                await distant.purge(native)

        async def is_empty() -> bool:
            return (await one.stats(native)).depth == 0

        await until(is_empty)

    async def test_a_lost_confirm_is_one_write_and_unknown(
        self, rabbit: RabbitServer, between: Proxy, distant: RabbitBinding, queue: str
    ) -> None:
        native = distant.native_queue(queue, {})
        await distant.publish(native, [message("before")])
        between.drop_replies = True
        assert kinds(await outcomes(distant.publish(native, [message("only"), message("once")]))) == [
            OutcomeUnknown,
            OutcomeUnknown,
        ]
        between.drop_replies = False
        assert (between.sent.count(message("only").body), between.sent.count(message("once").body)) == (1, 1)
        assert [body for _, body in browse(rabbit.url(), queue)] == [
            message(mark).body for mark in ("before", "only", "once")
        ]

    async def test_an_ack_whose_answer_is_lost_is_unknown(
        self, rabbit: RabbitServer, between: Proxy, distant: RabbitBinding, queue: str
    ) -> None:
        native = distant.native_queue(queue, {})
        await distant.publish(native, [message()])
        held = await reserved(distant, native)
        between.drop_replies = True
        assert kinds(await outcomes(distant.ack(native, [held.handle]))) == [OutcomeUnknown]
        between.drop_replies = False
        await answers(distant)
        assert await distant.reserve(native, 1, 0, 30) == [], "the broker had read it"

    async def test_a_close_gives_back_what_it_holds(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue, queue: str
    ) -> None:
        await one.publish(native, [message(str(n)) for n in range(3)])
        assert len(await one.reserve(native, 3, 10, 30)) > 0
        await one.close()
        assert [body for _, body in browse(rabbit.url(), queue)] == [message(str(n)).body for n in range(3)]


class TestAlarms:
    async def test_a_blocked_broker_is_unavailable_for_publishing_alone(
        self, rabbit: RabbitServer, one: RabbitBinding, native: NativeQueue
    ) -> None:
        await one.publish(native, [message("before")])
        attempts: list[asyncio.Task[Sequence[Outcome]]] = []

        async def refused() -> bool:
            # The broker tells a connection when it publishes; what it has got by then it reads later.
            attempt = asyncio.create_task(one.publish(native, [message("caught")]))
            await asyncio.wait([attempt], timeout=0.5)
            if attempt.done() and isinstance(attempt.exception(), StorageFull):
                return True
            attempts.append(attempt)
            return False

        alarm = rabbit.alarm()
        await asyncio.to_thread(alarm.__enter__)
        try:
            await until(refused)
            delivery = await reserved(one, native)
            assert delivery.body == message("before").body
            assert await one.ack(native, [delivery.handle]) == [None]
            await one.stats(native)
            await one.ping()
        finally:
            await asyncio.to_thread(alarm.__exit__, None, None, None)
        assert await asyncio.gather(*attempts) == [[None]] * len(attempts)
        assert await accepted(one, native, message("after"))
        bodies: list[bytes] = []
        while deliveries := await one.reserve(native, 10, 0, 30):
            bodies += [each.body for each in deliveries]
        assert bodies == [message("caught").body] * len(attempts) + [message("after").body]


class TestTheBrokersOwnTimeout:
    """The broker closes a channel on which something is unsettled for too long; everything on it comes back."""

    async def test_the_lease_is_lost_and_the_message_comes_again(
        self, strict: RabbitServer, queue: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with binding(strict.url()) as one:
            native = one.native_queue(queue, {})
            assert await one.publish(native, [message("slow")]) == [None]
            waiting = asyncio.create_task(one.reserve(native, 1, 10, 30))
            (held,) = await waiting
            again = await reserved(one, native)
            assert (again.body, again.redelivered) == (message("slow").body, True)
            assert kinds(await one.ack(native, [held.handle, again.handle])) == [LeaseLost, type(None)]
            assert await one.reserve(native, 1, 0, 30) == []
        (line,) = [each.msg for each in caplog.records if "consumer_timeout" in str(each.msg)]
        assert isinstance(line, dict)
        assert (line["level"], line["event"]) == ("warning", "channel closed by consumer_timeout")
        assert (line["broker"], line["queues"]) == (one.name, [queue])
        assert "4000 ms" in line["reason"] and "shorter leases" in line["advice"]
