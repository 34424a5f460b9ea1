"""Topologies: what is declared, checked and remembered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from babelgate.brokers.rabbitmq.binding import connect
from babelgate.brokers.rabbitmq.channel import Channel
from babelgate.brokers.rabbitmq.connection import AmqpConnection
from babelgate.brokers.rabbitmq.delays import DELAY_TOPOLOGY, delayed_topology
from babelgate.brokers.rabbitmq.options import queue_of
from babelgate.brokers.rabbitmq.profile import BindingDeclaration, ExchangeDeclaration, QueueDeclaration, Topology
from babelgate.brokers.rabbitmq.topology import Declarer
from babelgate.brokers.rabbitmq.url import parameters_of
from babelgate.clock import now_ms
from babelgate.errors import BrokerRejected, BrokerUnavailable
from tests.brokers.rabbitmq.harness import client
from tests.brokers.rabbitmq.server import RabbitServer
from tests.brokers.rabbitmq.support import BODY, Arrivals, lined, linked, virtual_host

pytestmark = pytest.mark.rabbitmq


def exists(channel: BlockingChannel, queue: str) -> bool:
    import pika.exceptions

    try:
        channel.queue_declare(queue, passive=True)
    except pika.exceptions.ChannelClosedByBroker:
        return False
    return True


async def test_a_topology_is_declared_whole(rabbit: RabbitServer, queue: str) -> None:
    wanted = Topology(
        exchanges=(
            ExchangeDeclaration(f"{queue}.lost", "fanout"),
            ExchangeDeclaration(queue, "topic", alternate=f"{queue}.lost"),
        ),
        queues=(QueueDeclaration(queue), QueueDeclaration(f"{queue}.rest")),
        bindings=(BindingDeclaration(queue, queue, "a.*"), BindingDeclaration(f"{queue}.lost", f"{queue}.rest", "")),
    )
    async with linked(rabbit.url()) as link:
        await Declarer(link).ensure(wanted, "active")
    with client(rabbit.url()) as channel:
        channel.basic_publish(queue, "a.b", b"routed", mandatory=True)
        channel.basic_publish(queue, "b", b"lost", mandatory=True)
        assert [channel.basic_get(name)[2] for name in (queue, f"{queue}.rest")] == [b"routed", b"lost"]
        # Durable, and without arguments, as the SDKs declare it.
        channel.queue_declare(queue, durable=True)
        for name in (queue, f"{queue}.lost"):
            channel.exchange_delete(name)


async def test_passive_looks_and_makes_nothing(rabbit: RabbitServer, queue: str) -> None:
    async with linked(rabbit.url()) as link:
        declarer = Declarer(link)
        with pytest.raises(BrokerRejected, match=f"no queue '{queue}'.*declare: active"):
            await declarer.ensure(Topology(queues=(QueueDeclaration(queue),)), "passive")
        with pytest.raises(BrokerRejected, match=f"no exchange '{queue}'"):
            await declarer.ensure(Topology(exchanges=(ExchangeDeclaration(queue, "topic"),)), "passive")
        with client(rabbit.url()) as channel:
            channel.queue_declare(queue, durable=True, arguments={"x-max-length": 5})
        # However it was made.
        await declarer.ensure(Topology(queues=(QueueDeclaration(queue, {"x-queue-type": "quorum"}),)), "passive")


async def test_none_asks_nothing(rabbit: RabbitServer, queue: str) -> None:
    async with linked(rabbit.url()) as link:
        await Declarer(link).ensure(Topology(queues=(QueueDeclaration(queue),)), "none")
        assert not link.is_open


async def test_a_queue_that_was_made_otherwise_is_explained(rabbit: RabbitServer, queue: str) -> None:
    with client(rabbit.url()) as channel:
        channel.queue_declare(queue, durable=True, arguments={"x-max-length": 5})
    async with linked(rabbit.url()) as link:
        declarer = Declarer(link)
        for _ in range(2):
            with pytest.raises(BrokerRejected, match=r"x-max-length.*declare: passive"):
                await declarer.ensure(queue_of(queue, {}).profile.topology, "active")


class Counting(AmqpConnection):
    """Counts the channels it opened."""

    opened = 0

    async def channel(self, *, confirms: bool = False) -> Channel:
        self.opened += 1
        return await super().channel(confirms=confirms)


async def test_callers_at_the_same_time_share_one_declaration(rabbit: RabbitServer, queue: str) -> None:
    link = Counting("rabbit", parameters_of(rabbit.url(), {}), "publish")
    declarer, wanted = Declarer(link), Topology(queues=(QueueDeclaration(queue),))
    await asyncio.gather(*(declarer.ensure(wanted, "active") for _ in range(50)))
    assert link.opened == 1
    await link.close()


async def test_close_ends_what_is_begun_and_its_callers(rabbit: RabbitServer, queue: str) -> None:
    async with linked(rabbit.url()) as link:
        declarer, wanted = Declarer(link), Topology(queues=(QueueDeclaration(queue),))
        await declarer._turns.acquire()
        await declarer._turns.acquire()
        waiting = [asyncio.create_task(declarer.ensure(wanted, "active")) for _ in range(2)]
        await link.open()
        (begun,) = declarer._running.values()
        await declarer.close()
        assert begun.cancelled() and not declarer._running
        for each in waiting:
            with pytest.raises(BrokerUnavailable, match="the gateway disconnects"):
                await each


async def test_it_is_remembered_until_it_is_forgotten(rabbit: RabbitServer, queue: str) -> None:
    async with linked(rabbit.url()) as link:
        declarer, wanted = Declarer(link), Topology(queues=(QueueDeclaration(queue),))
        await declarer.ensure(wanted, "active")
        with client(rabbit.url()) as channel:
            channel.queue_delete(queue)
            await declarer.ensure(wanted, "active")
            # Another object of the same content, as a profile made anew for the same route has it.
            await declarer.ensure(Topology(queues=(QueueDeclaration(queue),)), "active")
            assert not exists(channel, queue)
        declarer.forget(wanted)
        await declarer.ensure(wanted, "active")
        with client(rabbit.url()) as channel:
            assert exists(channel, queue)


async def test_of_ever_new_queues_the_oldest_are_forgotten(rabbit: RabbitServer, queue: str) -> None:
    async with linked(rabbit.url()) as link:
        declarer = Declarer(link, max_parts=2)
        names = [f"{queue}.{number}" for number in range(5)]
        for name in names:
            await declarer.ensure(Topology(queues=(QueueDeclaration(name),)), "active")
        with client(rabbit.url()) as channel:
            for name in (names[0], names[-1]):
                channel.queue_delete(name)
                await declarer.ensure(Topology(queues=(QueueDeclaration(name),)), "active")
            assert exists(channel, names[0])
            assert not exists(channel, names[-1])


async def test_on_a_new_connection_all_is_declared_again(rabbit: RabbitServer, queue: str) -> None:
    async with linked(rabbit.url()) as link:
        declarer, wanted = Declarer(link), Topology(queues=(QueueDeclaration(queue),))
        await declarer.ensure(wanted, "active")
        with client(rabbit.url()) as channel:
            channel.queue_delete(queue)
        await link.close()
        await link.open()
        await declarer.ensure(wanted, "active")
        with client(rabbit.url()) as channel:
            assert exists(channel, queue)


async def test_nothing_is_remembered_of_a_failure(rabbit: RabbitServer, queue: str) -> None:
    async with linked(rabbit.url()) as link:
        declarer, wanted = (
            Declarer(link),
            Topology(queues=(QueueDeclaration(f"{queue}.first"), QueueDeclaration(queue))),
        )
        with client(rabbit.url()) as channel:
            channel.queue_declare(queue, durable=True, arguments={"x-max-length": 5})
            with pytest.raises(BrokerRejected):
                await declarer.ensure(wanted, "active")
            channel.queue_delete(queue)
        await declarer.ensure(wanted, "active")


async def test_without_a_server_it_is_unavailable(queue: str) -> None:
    async with linked("amqp://127.0.0.1:1") as link:
        with pytest.raises(BrokerUnavailable):
            await Declarer(link).ensure(Topology(queues=(QueueDeclaration(queue),)), "active")


class Slow:
    """A connection, its only channel and what that calls: each declaration takes ``seconds``."""

    broker, generation, is_open, server_version = "rabbit", 1, True, (4,)

    def __init__(self, seconds: float) -> None:
        self.rpc = self
        self.declared = 0
        self._seconds = seconds

    async def connected(self) -> None: ...

    async def close(self) -> None: ...

    async def channel(self) -> Slow:
        return self

    async def exchange_declare(self, *_: object, **__: object) -> None:
        await asyncio.sleep(self._seconds)
        self.declared += 1

    queue_declare = queue_bind = exchange_bind = exchange_declare


async def test_many_declarations_take_their_time_while_each_is_answered() -> None:
    slow: Any = Slow(0.05)
    # All together take longer than the answer to one may.
    await Declarer(slow, answer_seconds=4).ensure(DELAY_TOPOLOGY, "active")
    assert slow.declared == len(DELAY_TOPOLOGY.exchanges) + len(DELAY_TOPOLOGY.queues) + len(DELAY_TOPOLOGY.bindings)


async def test_topologies_that_wait_for_their_turn_leave_out_what_another_has_declared() -> None:
    slow: Any = Slow(0.001)
    declarer, queues = Declarer(slow), 6
    wanted = [delayed_topology(f"orders.{number}") for number in range(queues)]
    await asyncio.gather(*(declarer.ensure(each, "active") for each in wanted))
    shared = len(DELAY_TOPOLOGY.exchanges) + len(DELAY_TOPOLOGY.queues) + len(DELAY_TOPOLOGY.bindings)
    # Two at a time declare everything; each of the others only the binding of its own queue.
    assert slow.declared <= 2 * shared + queues


async def test_a_declaration_without_an_answer_is_unavailable() -> None:
    slow: Any = Slow(1000)
    with pytest.raises(BrokerUnavailable, match=r"no answer to a declaration within 0\.1 s"):
        await Declarer(slow, answer_seconds=0.1).ensure(DELAY_TOPOLOGY, "active")
    assert slow.declared == 0


@pytest.mark.parametrize(("seconds", "bound"), [(2, 10), (30, 30)])
async def test_a_declaration_may_take_as_long_as_a_call(seconds: float, bound: float) -> None:
    binding = connect("rabbit", "amqp://127.0.0.1:1/", {"timeout_seconds": seconds}, now_ms)
    assert {each._answer_seconds for each in binding._declarers} == {bound}


@pytest.mark.parametrize("limit", [2, None])
async def test_a_quorum_queue_keeps_its_limit(rabbit: RabbitServer, queue: str, limit: int | None) -> None:
    async with lined(rabbit.url(), queue, queue_type="quorum", delivery_limit=limit) as line:
        assert await line.publish(BODY) == [None]
        channel = await line.link.channel()
        given = 0
        for _ in range(6):
            for arrived in await channel.get(queue, 1):
                given += 1
                channel.give_back([arrived.tag])
                await channel.barrier()
            # Without a limit it comes back each time, with one it has moved after the third: 2 times again.
            if limit is not None and given == 3:
                break
        assert given == (6 if limit is None else 3)
        dead: list[bytes] = []
        while limit is not None and not dead:
            dead = await line.bodies(f"{queue}.dlq")
        assert dead == ([BODY] if limit is not None else [])


@pytest.mark.parametrize("mode", ["passive", "none"])
@pytest.mark.parametrize("ladder", [False, True], ids=["no ladder", "a ladder for others"])
async def test_a_queue_of_another_program_is_delayed_to_all_the_same(
    rabbit: RabbitServer, queue: str, mode: str, ladder: bool
) -> None:
    with virtual_host(rabbit) as vhost, client(rabbit.url(vhost)) as channel:
        channel.queue_declare(queue, durable=True, arguments={"x-max-length": 5})
        async with lined(rabbit.url(vhost), queue, declare=mode) as line:
            if ladder:
                await Declarer(line.link).ensure(DELAY_TOPOLOGY, "active")
            assert await line.publish(BODY, delay=0.1) == [None]
            assert (await (await Arrivals.of(line.link, queue)).next()).body == BODY


@pytest.mark.parametrize("mode", ["passive", "none"])
async def test_an_account_that_may_make_nothing_delays_where_all_is_there(
    rabbit: RabbitServer, queue: str, mode: str
) -> None:
    with virtual_host(rabbit) as vhost, client(rabbit.url(vhost)) as channel:
        channel.queue_declare(queue, durable=True)
        rabbit.add_user(queue, "secret")
        try:
            rabbit.permit(queue, vhost, "^$", ".*", ".*")
            async with lined(rabbit.url(vhost, user=queue, password="secret"), queue, declare=mode) as line:
                assert await line.publish(BODY) == [None]
                with pytest.raises(BrokerRejected, match="ACCESS_REFUSED"):
                    await line.publish(BODY, delay=0.1)
                async with linked(rabbit.url(vhost)) as link:
                    await Declarer(link).ensure(DELAY_TOPOLOGY, "active")
                assert await line.publish(BODY, delay=0.1) == [None]
                arrivals = await Arrivals.of(line.link, queue)
                assert [(await arrivals.next()).body for _ in range(2)] == [BODY, BODY]
        finally:
            rabbit.delete_user(queue)
