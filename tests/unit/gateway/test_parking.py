"""Messages whose delay is too long for their broker wait on another one, and come as they were published."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from babelgate.brokers.binding import Outgoing
from babelgate.brokers.capabilities import MAX_DELAY_SECONDS, BrokerCapabilities
from babelgate.brokers.parking import PREFIX, ParkedRecord, parking_queue, restored
from babelgate.errors import BabelgateError, BrokerUnavailable, OutcomeUnknown, UnsupportedByBroker
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.model import Message, Receipt, Replay, Settlement
from babelgate.gateway.parking import EMPTY_SECONDS, LIST_SECONDS, REFUSED_SECONDS
from babelgate.gateway.routing import Policy, Router, Rule
from tests.harness.memory import OWNED, ConnectedMemory
from tests.harness.parking import NOW, Site
from tests.harness.world import draft


@pytest.fixture
def site(tmp_path: Path, queue: str) -> Site:
    return Site(tmp_path, queue)


def id_of(message: Message) -> str:
    found: str = json.loads(message.body)["meta"]["id"]
    return found


def entry(**options: Any) -> bytes:
    return json.dumps({"envelope": {"job": "urn:babel:orders:created", "data": {"n": 1.10}}} | options).encode()


@pytest.mark.parametrize("option", ["delay_seconds", "deliver_at"])
async def test_a_message_comes_when_it_is_due_as_it_was_published(site: Site, option: str) -> None:
    at = 1_000.5 if option == "delay_seconds" else NOW + 1_000_500
    options = {option: at, "headers": {"tenant": "ä"}, "priority": 7, "ttl_seconds": 60}
    async with site.gateway() as replica:
        direct = await replica.publish(entry(**options | {option: 0}))
        (plain,) = site.capped.ready(site.queue)
        await replica.gateway.settle(ANYONE, site.queue, Settlement(acks=[(await replica.one()).ack_token]))
        receipt = await replica.publish(entry(**options))
        assert site.capped.ready(site.queue) == []
        assert await replica.parked() == 1
        for seconds in (999, 1):
            site.later(seconds)
            assert await replica.mover.move() == 0
        site.later(0.5)
        assert await replica.mover.move() == 1
        (moved,) = site.capped.ready(site.queue)
        assert (moved.delay_seconds, moved.dedup_id, moved.priority, moved.is_late) == (0, receipt.id, 7, True)
        assert moved.body == plain.body.replace(direct.id.encode(), receipt.id.encode()).replace(
            direct.trace_id.encode(), receipt.trace_id.encode()
        )
        # The time to live begins with the publish, and the delay comes on top.
        assert moved.headers == dict(plain.headers) | {"babelgate-expires-at": str(NOW + 1_060_500)}
        assert (await replica.one()).attempts == 0
        assert await replica.mover.move() == 0


async def test_an_ordering_key_is_kept(site: Site) -> None:
    async with site.gateway() as replica:
        await replica.publish(entry(ordering_key="a", delay_seconds=1_000))
        site.later(1_001)
        assert await replica.mover.move() == 1
        (moved,) = site.capped.ready(site.queue)
        assert moved.ordering_key == "a"


async def test_a_delay_that_the_broker_can_keep_is_not_parked(site: Site) -> None:
    async with site.gateway() as replica:
        await replica.publish(draft({}), delay_seconds=900)
        assert [each.delay_seconds for each in site.capped.ready(site.queue)] == [900]
        with pytest.raises(UnsupportedByBroker) as refusal:
            await replica.publish(draft({}), delay_seconds=MAX_DELAY_SECONDS + 1)
        assert (refusal.value.problem_code, refusal.value.maximum) == ("delay_too_long", MAX_DELAY_SECONDS)


async def test_of_a_batch_only_the_late_ones_are_parked(site: Site) -> None:
    async with site.gateway() as replica:
        bodies = [entry(delay_seconds=seconds) for seconds in (0, 901, 10, 2_000)]
        results = await replica.gateway.publish_many(ANYONE, site.queue, bodies)
        assert all(isinstance(each, Receipt) for each in results), results
        assert [each.delay_seconds for each in site.capped.ready(site.queue)] == [0, 10]
        site.later(901)
        assert await replica.mover.move() == 1
        site.capped.refused = site.capped.ready(site.queue)[0].body
        site.capped.fail_after("publish", 0)
        results = await replica.gateway.publish_many(ANYONE, site.queue, bodies)
        assert [isinstance(each, Receipt) for each in results] == [False, True, False, True]


@pytest.mark.parametrize("key", [None, "k"])
async def test_what_is_parked_is_accepted_while_the_circuit_of_its_broker_is_open(site: Site, key: str | None) -> None:
    async with site.gateway() as replica:
        circuits = replica.gateway.outages.circuits
        circuits["capped"].is_open = True
        receipt = await replica.publish(
            entry(delay_seconds=901, idempotency_key=key) if key else entry(delay_seconds=901)
        )
        with pytest.raises(BrokerUnavailable, match="capped"):
            await replica.publish(entry(delay_seconds=10))
        results = await replica.gateway.publish_many(
            ANYONE, site.queue, [entry(delay_seconds=seconds) for seconds in (0, 901, 2_000)]
        )
        assert [isinstance(each, Receipt) for each in results] == [False, True, True]
        assert await replica.parked() == 3
        site.later(901)
        assert await replica.mover.move() == 0
        circuits["local"].is_open = True
        with pytest.raises(BrokerUnavailable, match="local"):
            await replica.publish(entry(delay_seconds=901))
        circuits["capped"].is_open = circuits["local"].is_open = False
        site.later(60)
        assert await replica.mover.move() == 2
        assert receipt.id in [each.dedup_id for each in site.capped.ready(site.queue)]


class _Carried(Struct, frozen=True):
    key: bytes


class Restoring(ConnectedMemory):
    """Deliveries have native parts, which can be stored."""

    carried_type = _Carried


def capped(**abilities: Any) -> BrokerCapabilities:
    return replace(OWNED, max_delay_seconds=900, max_retry_delay_seconds=900, **abilities)


async def test_a_nack_with_a_long_delay_is_parked_as_a_counted_copy(site: Site) -> None:
    site.capped = Restoring("capped", capped(), site.clock)
    async with site.gateway(policy=Policy(backoff_seconds=(5_000,))) as replica:
        receipt = await replica.publish(entry(headers={"tenant": "a"}))
        for attempts, (delay, seconds) in enumerate([(1_000, 1_000), (None, 5_000)], start=1):
            assert await replica.nack(await replica.one(), delay) == [None]
            assert await replica.parked() == 1
            site.later(seconds - 1)
            assert await replica.mover.move() == 0
            site.later(EMPTY_SECONDS)
            assert await replica.mover.move() == 1
            (copy,) = site.capped.ready(site.queue)
            assert copy.failure is not None
            assert (copy.failure.attempts, copy.failure.error) == (attempts, "busy")
            assert copy.headers == {"tenant": "a"}
        message = await replica.one()
        assert (id_of(message), message.attempts) == (receipt.id, 2)


async def test_without_storable_parts_a_nack_is_bounded_by_the_broker(site: Site) -> None:
    site.capped = ConnectedMemory("capped", capped(), site.clock)
    async with site.gateway() as replica:
        await replica.publish(draft({}))
        with pytest.raises(UnsupportedByBroker) as refusal:
            await replica.nack(await replica.one(), 901)
        assert refusal.value.maximum == 900


@pytest.mark.parametrize("kind", [BrokerUnavailable, OutcomeUnknown])
async def test_a_broker_that_is_down_keeps_them_parked_and_uncounted(
    site: Site, kind: type[BrokerUnavailable | OutcomeUnknown]
) -> None:
    async with site.gateway(policy=Policy(max_attempts=2)) as replica:
        receipt = await replica.publish(draft({}), delay_seconds=1_000)
        site.later(1_000)
        site.capped.fail_after("publish", 0, kind("capped", "down"))
        for _ in range(5):
            assert await replica.mover.move() == 0
            calls = len(site.capped.calls["publish"])
            assert await replica.mover.move() == 0
            assert len(site.capped.calls["publish"]) == calls, "it waits before it tries again"
            site.later(60)
        site.capped.faults.clear()
        assert await replica.mover.move() == 1
        messages = await replica.gateway.receive(ANYONE, site.queue, max_messages=10)
        # Its broker may have taken a message of which it did not say so.
        assert {id_of(each) for each in messages} == {receipt.id}
        assert {each.attempts for each in messages} == {0}
        assert kind is OutcomeUnknown or len(messages) == 1
        assert await replica.mover.move() == 0


UNREADABLE = (b"no record", b'{"body":"","ordering_key":"\xff"}', b'{"properties":{"a":' + b"[" * 20_000)


async def test_what_is_refused_rests_and_lets_others_pass(site: Site) -> None:
    async with site.gateway() as replica:
        await replica.publish(draft({"n": 1}), delay_seconds=1_000)
        await replica.publish(draft({"n": 2}), delay_seconds=1_001)
        route = replica.gateway.router.route(site.queue)
        assert route.parking is not None
        native = route.parking.native
        await replica.local.publish(native, [Outgoing(body, is_envelope=False) for body in UNREADABLE])
        site.later(1_001)
        assert await replica.mover.move() == 2
        assert await replica.mover.move() == 0
        site.later(REFUSED_SECONDS)
        assert await replica.mover.move() == 0
        assert (await replica.local.stats(native)).delayed == len(UNREADABLE)


@pytest.mark.parametrize("parking", [True, False])
async def test_they_are_moved_after_a_restart_also_without_the_option(site: Site, parking: bool) -> None:
    async with site.gateway() as replica:
        await replica.publish(draft({"n": 1}), delay_seconds=1_000)
    site.later(2_000)
    async with site.gateway(parking=parking) as replica:
        assert await replica.mover.move() == 1
        assert json.loads((await replica.one()).body)["data"] == {"n": 1}


async def test_without_a_route_they_stay_and_a_line_says_so(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    async with site.gateway() as replica:
        await replica.publish(draft({}), delay_seconds=1_000)
    site.later(2_000)
    async with site.gateway(routed=False) as replica:
        assert await replica.mover.move() == 0
        lines = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
        (line,) = [line for line in lines if line["event"] == "parked messages have no route"]
        assert (line["queue"], line["broker"], line["parking"], line["count"]) == (site.queue, "capped", "local", 1)
    async with site.gateway() as replica:
        assert await replica.mover.move() == 1


async def test_a_message_that_another_gateway_moves_is_left_to_it_until_its_lease_ends(site: Site) -> None:
    async with site.gateway() as replica, site.gateway() as other:
        await replica.publish(draft({}), delay_seconds=1_000)
        site.later(1_000)
        native = parking_queue(replica.local, "capped", site.queue)
        (taken,) = await other.local.reserve(native, 10, 0, 30)
        assert await replica.mover.move() == 0
        site.later(31)
        assert await replica.mover.move() == 1
        assert isinstance((await other.local.ack(native, [taken.handle]))[0], BabelgateError)


async def test_a_queue_that_refuses_publishes_gets_none(site: Site) -> None:
    async with site.gateway() as replica:
        await replica.publish(draft({}), delay_seconds=1_000)
        site.later(1_000)
        await replica.gateway.pauses.pause(ANYONE, site.queue, "refuse", None)
        assert await replica.mover.move() == 0
        await replica.gateway.pauses.resume(ANYONE, site.queue)
        assert await replica.mover.move() == 1


async def test_a_repeated_key_gets_the_first_answer(site: Site) -> None:
    async with site.gateway() as replica:
        first = await replica.publish(draft({"n": 1}), delay_seconds=1_000, idempotency_key="k")
        again = await replica.publish(draft({"n": 1}), delay_seconds=1_000, idempotency_key="k")
        assert isinstance(again, Replay)
        assert again.id == first.id
        assert await replica.parked() == 1


async def test_a_dry_run_shows_the_record(site: Site) -> None:
    async with site.gateway() as replica:
        shown = await replica.gateway.validate(ANYONE, site.queue, draft({}), delay_seconds=1_000)
        assert [write.operation for write in shown.writes] == ["INSERT", "INSERT"]
        assert await replica.parked() == 0


async def test_a_parking_queue_is_no_queue_of_a_client(site: Site) -> None:
    async with site.gateway() as replica:
        await replica.publish(draft({}), delay_seconds=1_000)
        listed = await replica.local.queues()  # type: ignore[attr-defined]
        assert listed == [f"{PREFIX}capped:{site.queue}"]
        found, _ = await replica.gateway.overview.queues(ANYONE, 10, None)
        assert [each.queue for each in found] == [site.queue]
        assert found[0].stats.delayed == 1
        router = Router([], Rule("*", replica.local, native_name=f"{PREFIX}capped:{{queue}}"))
        with pytest.raises(UnsupportedByBroker) as refusal:
            router.route(site.queue)
        assert refusal.value.problem_code == "queue_name_unsupported"


async def test_the_mover_of_a_gateway_runs_by_itself(site: Site) -> None:
    async with site.gateway() as replica:
        await replica.gateway.start()
        await replica.publish(draft({"n": 1}), delay_seconds=1_000)
        site.later(1_000)
        (message,) = await replica.gateway.receive(ANYONE, site.queue, wait_seconds=120)
        assert json.loads(message.body)["data"] == {"n": 1}


async def test_a_new_parking_queue_of_another_gateway_is_found(site: Site) -> None:
    async with site.gateway() as replica, site.gateway() as other:
        assert await replica.mover.move() == 0
        await other.publish(draft({}), delay_seconds=1_000)
        site.later(1_000 + LIST_SECONDS)
        assert await replica.mover.move() == 1


@pytest.mark.parametrize("name", ["capped", "other"])
def test_native_parts_are_left_out_where_another_broker_has_the_queue(name: str) -> None:
    carried = msgspec.msgpack.encode(_Carried(b"k"))
    body = msgspec.json.encode(ParkedRecord(b"{}", carried=carried, properties={"a": 1}))
    message = restored(body, Restoring(name, capped()), "capped")
    is_same = name == "capped"
    assert (message.carried, message.properties) == ((_Carried(b"k"), {"a": 1}) if is_same else (None, {}))


def test_native_parts_of_another_kind_of_broker_are_left_out() -> None:
    body = msgspec.json.encode(ParkedRecord(b"{}", carried=msgspec.msgpack.encode({"other": 1})))
    assert restored(body, Restoring("capped", capped()), "capped").carried is None
