"""Publishing: an outcome for each message, independent of the others."""

from __future__ import annotations

import asyncio

import pytest

from babelgate.brokers.binding import LastFailure, Outgoing
from babelgate.brokers.rabbitmq.binding import RabbitBinding
from babelgate.brokers.rabbitmq.options import queue_of
from babelgate.brokers.rabbitmq.profile import AddressedMessage, Topology
from babelgate.errors import (
    BabelgateError,
    BodyTooLarge,
    BrokerRejected,
    BrokerUnavailable,
    OutcomeUnknown,
    StorageFull,
    UnsupportedByBroker,
)
from tests.brokers.rabbitmq.harness import client
from tests.brokers.rabbitmq.server import RabbitServer
from tests.brokers.rabbitmq.support import BODY, Line, lined, virtual_host
from tests.harness.local import eventually
from tests.harness.proxy import proxy
from tests.harness.world import until

pytestmark = pytest.mark.rabbitmq


async def test_a_batch_is_written_in_order(rabbit: RabbitServer, queue: str) -> None:
    bodies = [b"%d" % number for number in range(500)]
    async with lined(rabbit.url(), queue) as line:
        assert await line.publish(*bodies) == [None] * 500
        assert await line.bodies(count=501) == bodies


async def test_an_empty_batch_is_no_error(rabbit: RabbitServer, queue: str) -> None:
    async with lined(rabbit.url(), queue) as line:
        assert await line.publish() == []


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 1_000_000])
async def test_bodies_of_any_size(rabbit: RabbitServer, queue: str, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    async with lined(rabbit.url(), queue) as line:
        assert await line.publish(body, b"next") == [None, None]
        assert await line.bodies() == [body, b"next"]


async def test_many_at_once_share_a_channel(rabbit: RabbitServer, queue: str) -> None:
    async with lined(rabbit.url(), queue) as line:
        outcomes = await asyncio.gather(*(line.publish(b"%d" % number) for number in range(200)))
        assert outcomes == [[None]] * 200
        assert len(await line.bodies(count=300)) == 200
        # One for the default exchange; the next free number is the second.
        assert (await line.link.channel()).rpc.number == 2


@pytest.mark.parametrize(
    ("headers", "error"),
    [({"CC": "x"}, BrokerRejected), ({"large": "x" * 131_072}, UnsupportedByBroker)],
    ids=["CC", "larger than a frame"],
)
async def test_one_that_cannot_be_carried_costs_only_itself(
    rabbit: RabbitServer, queue: str, headers: dict[str, str], error: type[BabelgateError]
) -> None:
    async with lined(rabbit.url(), queue) as line:
        good, bad = line.profile.message(Outgoing(BODY)), line.profile.message(Outgoing(b"bad", headers))
        outcomes = await line.publisher.publish([good, bad, good], line.profile.topology, "active")
        assert [type(outcome) for outcome in outcomes] == [type(None), error, type(None)]
        assert await line.bodies() == [BODY, BODY]


async def test_a_queue_that_was_deleted_is_an_error_once_and_then_made_again(rabbit: RabbitServer, queue: str) -> None:
    async with lined(rabbit.url(), queue) as line:
        assert await line.publish(BODY) == [None]
        await line.delete()
        (outcome,) = await line.publish(BODY)
        assert isinstance(outcome, BrokerUnavailable) and queue in outcome.reason and outcome.retryable
        assert await line.publish(BODY) == [None]
        assert await line.bodies() == [BODY]


async def test_where_nothing_is_declared_a_missing_queue_is_a_refusal(rabbit: RabbitServer, queue: str) -> None:
    async with lined(rabbit.url(), queue, declare="none") as line:
        (outcome,) = await line.publish(BODY)
        assert isinstance(outcome, BrokerRejected) and "NO_ROUTE" in outcome.reason


async def test_only_what_came_back_is_an_error(rabbit: RabbitServer, queue: str) -> None:
    async with lined(rabbit.url(), queue) as line:
        there, gone = (
            line.profile.message(Outgoing(BODY)),
            AddressedMessage("", f"{queue}.gone", _properties(line), BODY),
        )
        outcomes = await line.publisher.publish([there, gone, there, gone], line.profile.topology, "none")
        # Nobody declared the queue.
        assert [type(outcome) for outcome in outcomes] == [BrokerRejected] * 4
        outcomes = await line.publisher.publish([there, gone, there, gone], line.profile.topology, "active")
        assert [outcome is None for outcome in outcomes] == [True, False, True, False]
        assert await line.bodies() == [BODY, BODY]


def _properties(line):
    return line.profile.message(Outgoing(BODY)).given


async def test_an_exchange_that_is_missing_does_not_harm_the_default_exchange(rabbit: RabbitServer, queue: str) -> None:
    async with lined(rabbit.url(), queue) as line:
        there = line.profile.message(Outgoing(BODY))
        gone = AddressedMessage(f"{queue}.gone", "x", there.given, BODY)
        outcomes = await line.publisher.publish([there, gone, there], line.profile.topology, "active")
        assert outcomes[0] is None and outcomes[2] is None
        assert isinstance(outcomes[1], BrokerRejected) and "no exchange" in outcomes[1].reason
        outcomes = await line.publisher.publish([there, gone], line.profile.topology, "active")
        assert outcomes[0] is None and isinstance(outcomes[1], BrokerRejected)


async def test_a_message_above_the_brokers_limit_is_the_only_one_refused(rabbit: RabbitServer, queue: str) -> None:
    with rabbit.configured(max_message_size=65_536):
        async with lined(rabbit.url(), queue) as line:
            small = [line.publish(b"%d" % number) for number in range(100)]
            sizes = [20_000, 65_537, 65_536, 1_000, 65_538, 65_535]
            mixed = line.publish(*(b"x" * size for size in sizes))
            large = [line.publish(b"y" * 70_000) for _ in range(10)]
            *stored, outcomes = await asyncio.gather(*small, mixed)
            refused = await asyncio.gather(*large)
            assert stored == [[None]] * 100
            errors = [found for found in (*outcomes, *(outcome for (outcome,) in refused)) if found is not None]
            assert [outcome is None for outcome in outcomes] == [True, False, True, True, False, True]
            assert all(isinstance(error, BodyTooLarge) and error.limit == 65_536 for error in errors)
            assert [error.actual for error in errors] == [65_537, 65_538] + [70_000] * 10
            bodies = await line.bodies(count=200)
            assert len(bodies) == 104
            # One message is behind another of its call.
            assert [len(body) for body in bodies if body.startswith(b"x")] == [20_000, 65_536, 1_000, 65_535]


async def test_the_limit_is_learned_once_for_each_connection(rabbit: RabbitServer, queue: str) -> None:
    async with proxy("127.0.0.1", rabbit.port) as between:
        with rabbit.configured(max_message_size=65_536):
            async with lined(f"amqp://guest:guest@127.0.0.1:{between.port}/", queue) as line:
                for _ in range(3):
                    (refused,) = await line.publish(b"y" * 70_000)
                    assert isinstance(refused, BodyTooLarge)
                assert between.sent.count(b"y" * 60_000) == 1
                between.cut()
                await eventually(lambda: not line.link.is_open)
                with rabbit.configured(max_message_size=80_000):
                    assert await line.publish(b"y" * 70_000) == [None]


async def test_large_messages_at_the_same_time_try_a_size_once(rabbit: RabbitServer, queue: str) -> None:
    async with proxy("127.0.0.1", rabbit.port) as between:
        with rabbit.configured(max_message_size=65_536):
            async with lined(f"amqp://guest:guest@127.0.0.1:{between.port}/", queue) as line:
                assert await asyncio.gather(*(line.publish(b"x" * 20_000) for _ in range(50))) == [[None]] * 50
                # The method channel.open: to declare, to try the size, and for the others.
                assert between.sent.count(b"\x00\x14\x00\x0a") == 3
                refused = await asyncio.gather(*(line.publish(b"y" * 70_000) for _ in range(10)))
                assert [type(outcome) for (outcome,) in refused] == [BodyTooLarge] * 10
                assert between.sent.count(b"y" * 60_000) == 1


async def test_a_large_message_that_is_not_confirmed_keeps_no_other_queue_waiting(
    rabbit: RabbitServer, queue: str
) -> None:
    async with lined(rabbit.url(), queue) as line:
        other = Line(line.link, queue_of(f"{queue}.other", {}), publisher=line.publisher)
        assert await line.publish(BODY) == [None]
        rabbit.queue_eval(queue, "sys:suspend(Pid)")
        hanging = asyncio.create_task(line.publish(b"x" * 100_000))
        try:
            assert await other.publish(b"y" * 100_000, b"z") == [None, None]
            assert not hanging.done()
        finally:
            rabbit.queue_eval(queue, "sys:resume(Pid)")
        assert await hanging == [None]


async def test_without_the_right_to_write_it_is_a_refusal(rabbit: RabbitServer, queue: str) -> None:
    with virtual_host(rabbit) as vhost:
        with client(rabbit.url(vhost)) as channel:
            channel.queue_declare(queue, durable=True)
        rabbit.permit("guest", vhost, ".*", "nothing", ".*")
        async with lined(rabbit.url(vhost), queue) as line:
            (outcome,) = await line.publish(BODY)
            assert isinstance(outcome, BrokerRejected) and "ACCESS_REFUSED" in outcome.reason


async def test_a_refusal_by_a_queue_of_which_nothing_is_known_is_an_unknown_outcome(
    rabbit: RabbitServer, queue: str
) -> None:
    with client(rabbit.url()) as channel:
        channel.queue_declare(queue, durable=True, arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    async with lined(rabbit.url(), queue, declare="passive") as line:
        outcomes = [(await line.publish(BODY))[0] for _ in range(4)]
        assert [type(outcome) for outcome in outcomes] == [type(None)] * 2 + [OutcomeUnknown] * 2
        assert all(outcome.retryable and "basic.nack" in outcome.reason for outcome in outcomes if outcome)
        assert len(await line.bodies()) == 2


async def test_a_quorum_queue_without_a_leader_has_written_nothing(rabbit: RabbitServer, queue: str) -> None:
    async with lined(rabbit.url(), queue, queue_type="quorum") as line:
        await line.declarer.ensure(line.profile.topology, "active")
        rabbit.queue_eval(queue, "ra:stop_server(quorum_queues, Pid)")
        refused = await line.publish(b"refused", b"too")
        rabbit.queue_eval(queue, "ra:restart_server(quorum_queues, Pid)")
        assert [type(outcome) for outcome in refused] == [BrokerUnavailable] * 2
        assert all(outcome.retryable and "no leader" in outcome.reason for outcome in refused if outcome)

        async def taken() -> bool:
            return await line.publish(b"after") == [None]

        await until(taken)
        assert await line.bodies() == [b"after"]


async def test_a_classic_queue_that_fails_may_have_written_it(rabbit: RabbitServer, queue: str) -> None:
    async with lined(rabbit.url(), queue) as line:
        assert await line.publish(BODY) == [None]
        rabbit.queue_eval(queue, "sys:suspend(Pid)")
        publishing = asyncio.create_task(line.publish(b"in flight"))

        async def is_in_flight() -> bool:
            told = await asyncio.to_thread(rabbit.evaluate, "rabbit_channel:info_all([messages_unconfirmed])")
            return "{messages_unconfirmed,1}" in told.replace(" ", "")

        await until(is_in_flight)
        rabbit.queue_eval(queue, "exit(Pid, kill)")
        (outcome,) = await publishing
        assert isinstance(outcome, OutcomeUnknown) and outcome.retryable and "basic.nack" in outcome.reason


async def test_a_blocked_broker_is_unavailable_at_once_and_for_no_longer(rabbit: RabbitServer, queue: str) -> None:
    async with lined(rabbit.url(), queue, timeout_seconds=2) as line:
        assert await line.publish(BODY) == [None]
        with rabbit.alarm():
            # The broker tells a connection when it publishes: this one is in flight for as long as it lasts.
            (first,) = await line.publish(b"in flight")
            assert isinstance(first, OutcomeUnknown)
            assert line.link.blocked == "low on memory"
            for _ in range(3):
                with pytest.raises(StorageFull, match="low on memory"):
                    await line.publish(b"refused")
        await eventually(lambda: line.link.blocked is None)
        assert await line.publish(b"after") == [None]
        assert await line.bodies() == [BODY, b"in flight", b"after"]
        assert line.link.generation == 1


async def test_a_broker_that_dies_leaves_no_outcome_open(rabbit: RabbitServer, queue: str) -> None:
    async with lined(rabbit.url(), queue) as line:
        assert await line.publish(BODY) == [None]
        rabbit.pause()
        published = asyncio.create_task(line.publish(b"1", b"2"))
        # Written, since nothing has to be asked before; what is paused answers nothing.
        await asyncio.sleep(0.2)
        assert not published.done()
        rabbit.kill()
        assert [type(outcome) for outcome in await published] == [OutcomeUnknown] * 2
        with pytest.raises(BrokerUnavailable):
            await line.publish(b"3")


async def test_a_confirm_that_does_not_come_is_an_unknown_outcome(rabbit: RabbitServer, queue: str) -> None:
    async with lined(rabbit.url(), queue, timeout_seconds=5) as line:
        assert await line.publish(BODY) == [None]
        rabbit.pause()
        try:
            (outcome,) = await line.publish(b"late")
            assert isinstance(outcome, OutcomeUnknown) and "no confirm within 5 s" in outcome.reason
        finally:
            rabbit.resume()
        outcomes = await line.publish(b"after")
        assert outcomes == [None]


async def test_needs_are_declared_before(rabbit: RabbitServer, queue: str) -> None:
    async with lined(rabbit.url(), queue) as line:
        other = line.profile.message(Outgoing(BODY))
        needing = AddressedMessage("", queue, other.given, BODY, line.profile.topology)
        assert await line.publisher.publish([needing], Topology(), "active") == [None]


async def test_a_copy_that_fits_into_no_frame_is_no_mistake_of_the_caller(one: RabbitBinding, queue: str) -> None:
    """Its headers are those of the delivery. The others of the call are published."""
    native = one.native_queue(queue, {})
    large = {"a": "v" * 131_072}
    copy = Outgoing(b"{}", large, failure=LastFailure(1))
    outcomes = await one.publish(native, [Outgoing(b"{}"), copy, Outgoing(b"{}", large), Outgoing(b"{}")])
    assert [type(each) for each in outcomes] == [type(None), BrokerRejected, UnsupportedByBroker, type(None)]
    assert "fit into a frame" in str(outcomes[1])
