"""Lost replies: a write without a reply is reported as unknown and is never repeated by the gateway."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from babelgate.brokers.binding import Outcome
from babelgate.errors import BrokerUnavailable, IdempotencyInProgress, LeaseLost, OutcomeUnknown
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.model import Message, Receipt, Replay
from tests.brokers import registry
from tests.harness.broker import Broker, ServerBroker, Variant
from tests.harness.proxy import Proxy
from tests.harness.world import PATIENCE, Process, World, data, draft, kinds, until
from tests.suites.network import told


@pytest.fixture(params=registry.params(each for each in registry.ALL if each.lost_replies and not each.broker.embedded))
def variant(request: pytest.FixtureRequest) -> Variant:
    chosen: Variant = request.param
    return chosen


@pytest.fixture
def world(distant: World) -> World:
    """Gateways behind the proxy."""
    return distant


CALL_SECONDS = 6
"""Seconds that a call waits for an answer. The client of Kafka waits so long for a reply that is lost, and connects
again and again meanwhile."""


async def warm(world: World) -> Process:
    """A process that is connected and has used every verb and delay, so that what follows is one write.

    On a busy machine a broker may take longer than a call: what was not answered is done again.
    """
    process = await world.process(broker_options={**world.broker.impatient, "timeout_seconds": CALL_SECONDS})

    async def has_used_all() -> bool:
        await process.publish(delay_seconds=0.2)
        settled = await process.ack(await process.one())
        for settle in (process.ack, process.nack, process.reject):
            await process.publish()
            settled += await settle(await process.one())
        await process.publish(delay_seconds=900)
        await process.gateway.purge(ANYONE, world.queue)
        await process.gateway.letters.purge(ANYONE, world.queue)
        return kinds(settled) == [None] * 4

    await until(lambda: told(has_used_all))
    return process


async def recovered(process: Process) -> None:
    async def answers() -> bool:
        try:
            await process.stats()
        except (BrokerUnavailable, OutcomeUnknown):
            return False
        return True

    await until(answers)


@pytest.mark.parametrize("delay", [0, 0.2], ids=["now", "delayed"])
async def test_a_publish(world: World, between: Proxy, delay: float) -> None:
    process = await warm(world)
    between.drop_replies = True
    with pytest.raises(OutcomeUnknown) as unknown:
        await process.publish({"mark": "only once"}, delay_seconds=delay)
    between.drop_replies = False
    assert unknown.value.retryable
    assert between.sent.count(b"only once") == 1
    await recovered(process)
    message = await process.one()
    assert data(message) == {"mark": "only once"}
    await process.ack(message)
    assert await process.is_empty()


@pytest.mark.parametrize("delay", [0, 0.2], ids=["now", "delayed"])
async def test_a_publish_with_a_key_is_sent_again(variant: Variant, world: World, between: Proxy, delay: float) -> None:
    if not variant.keeps_keys:
        pytest.skip("keeps no keys")
    process = await warm(world)

    async def publish() -> Receipt:
        body = draft({"mark": "only once"})
        return await process.gateway.publish(ANYONE, world.queue, body, delay_seconds=delay, idempotency_key="k")

    await process.gateway.publish(ANYONE, world.queue, draft({}), delay_seconds=3600, idempotency_key="warm")
    await process.gateway.purge(ANYONE, world.queue)
    between.drop_replies = True
    with pytest.raises(OutcomeUnknown):
        await publish()
    between.drop_replies = False
    await recovered(process)
    assert type(await publish()) is Replay
    await process.ack(await process.one())
    assert await process.is_empty()


async def test_a_reservation_whose_reply_is_lost_is_given_back(
    variant: Variant, proxied: Broker, between: Proxy, queue: str, tmp_path: Path
) -> None:
    if not variant.keeps_keys or variant not in registry.ORDINARY:
        pytest.skip("only the store's broker matters, and only its ordinary variant")
    embedded = next(each for each in registry.ORDINARY if each.broker.embedded)
    world = World(embedded.on(tmp_path), queue, proxied)
    process = await world.process()
    await process.gateway.publish(ANYONE, queue, draft({"n": 0}), idempotency_key="warm")
    between.drop_replies = True
    with pytest.raises(BrokerUnavailable):
        await process.gateway.publish(ANYONE, queue, draft({"n": 1}), idempotency_key="k")
    between.drop_replies = False

    async def published() -> bool:
        try:
            await process.gateway.publish(ANYONE, queue, draft({"n": 1}), idempotency_key="k")
        except (BrokerUnavailable, IdempotencyInProgress):
            return False
        return True

    await until(published)
    assert [data(message)["n"] for message in await process.take(2)] == [0, 1]
    assert await process.receive() == []
    await world.close()


async def test_a_batch(world: World, between: Proxy) -> None:
    process = await warm(world)
    between.drop_replies = True
    results = await process.gateway.publish_many(ANYONE, world.queue, [draft({"mark": f"no {n}."}) for n in range(3)])
    between.drop_replies = False
    assert [type(result) for result in results] == [OutcomeUnknown] * 3
    assert [between.sent.count(b"no %d." % n) for n in range(3)] == [1] * 3
    await recovered(process)
    messages = await process.take(3)
    assert sorted(data(message)["mark"] for message in messages) == ["no 0.", "no 1.", "no 2."]
    await process.ack(*messages)
    assert await process.is_empty()


@pytest.mark.parametrize("verb", ["ack", "nack", "reject"])
async def test_a_settle_that_is_repeated_by_its_client_acts_once(world: World, between: Proxy, verb: str) -> None:
    process = await warm(world)
    await process.publish({"n": 1})
    message = await process.one()

    async def settle(message: Message) -> list[Outcome]:
        return await getattr(process, verb)(message)

    natively = {
        "ack": True,
        "nack": process.capabilities.native_release,
        "reject": process.gateway.router.route(world.queue).dead_letters_natively,
    }[verb]
    between.drop_replies = True
    (lost,) = kinds(await settle(message))
    between.drop_replies = False
    # Before a copy the broker is asked whether the delivery is still out: without that answer nothing is written.
    assert lost is OutcomeUnknown or (lost is BrokerUnavailable and not natively)
    await recovered(process)
    outcomes = await settle(message)
    if process.capabilities.lease_bound_to != "partition":
        # A connection without replies ends, and its leases with it, some time later on a busy machine. What was not
        # settled before is there again.
        while kinds(outcomes) == [LeaseLost] and (messages := await process.ready(1, 2)):
            outcomes = await settle(messages[0])
            assert kinds(outcomes)[0] in (None, LeaseLost)
    # Where a retry or a dead letter is a copy, the copy whose confirm was lost may exist beside the repeated one.
    count = (1,) if natively or lost is BrokerUnavailable else (1, 2)
    again, dead = await process.ready(10, PATIENCE if verb == "nack" else 0), await process.dead()
    assert len(again) in count if verb == "nack" else again == []
    assert len(dead) in count if verb == "reject" else dead == []
    assert all(json.loads(letter.record)["data"] == {"n": 1} for letter in dead)


async def test_a_receive_that_failed_holds_the_message_no_longer_than_its_lease(
    direct: ServerBroker, world: World, between: Proxy, queue: str
) -> None:
    process = await warm(world)
    elsewhere = World(direct, queue)
    publisher = await elsewhere.process()
    between.drop_replies = True
    # It comes from another process, so that it has not arrived before.
    await publisher.publish({"n": 1})
    await elsewhere.close()
    # Where a delivery belongs to its connection, one that did not arrive is back on the queue: its outcome is known.
    with pytest.raises(BrokerUnavailable if process.capabilities.lease_bound_to is not None else OutcomeUnknown):
        await process.receive(lease=0.5)
    between.drop_replies = False
    await recovered(process)
    assert data(await process.one()) == {"n": 1}


async def test_a_gateway_goes_on_after_its_connections_were_cut(world: World, between: Proxy) -> None:
    process = await warm(world)
    waiting = process.waiting()
    await process.publish({"n": 1})
    await process.ack(*await waiting)
    between.cut()
    await recovered(process)
    await process.publish({"n": 2})
    message = await process.one()
    assert data(message) == {"n": 2}
    assert await process.ack(message) == [None]
