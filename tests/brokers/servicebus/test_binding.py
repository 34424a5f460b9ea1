"""What is special about Azure Service Bus: credit, locks, faults, native fields and both kinds of dead letters."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable
from types import FrameType
from typing import Any

import pytest

from babelgate.brokers.binding import DeadLetterRequest, LastFailure, NativeQueue, Outgoing
from babelgate.brokers.servicebus.binding import ServiceBusBinding, connect
from babelgate.clock import now_ms
from babelgate.errors import BodyTooLarge, BrokerRejected, BrokerUnavailable, LeaseLost, OutcomeUnknown, StorageFull
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.route_warnings import route_warnings
from babelgate.gateway.routing import Policy
from tests.brokers.servicebus.harness import ServiceBusBroker, binding
from tests.brokers.servicebus.server import ServiceBusEmulator
from tests.harness.broker import opened
from tests.harness.local import eventually
from tests.harness.world import PATIENT, World, data, kinds, until
from tests.suites.closing import STATES, ends_with_its_binding

pytestmark = pytest.mark.servicebus


def body(number: int = 0, identifier: str = "f1e2d3c4-b5a6-4789-90ab-cdef01234567") -> bytes:
    meta = {"id": identifier, "queue": "q", "lang": "php", "schema_version": 1, "created_at": 1749132727000}
    envelope = {"job": "urn:babel:a:b", "trace_id": "t", "data": {"n": number}, "meta": meta, "attempts": 0}
    return json.dumps(envelope, separators=(",", ":")).encode()


def outgoing(number: int = 0, **how: Any) -> Outgoing:
    return Outgoing(body(number, f"id-{number}"), **({"dedup_id": f"id-{number}"} | how))


def session_renewals(emulator: ServiceBusEmulator, native: NativeQueue) -> int:
    """How often its session's lock was to be renewed, also in vain."""
    return int(emulator.entity(native.name)["counters"].get("renew-session-lock", 0))


async def none_of(call: Awaitable[Any]) -> bool:
    """Whether the call's only outcome is None."""
    return list(await call) == [None]


@pytest.fixture
async def world(emulator: ServiceBusEmulator, queue: str) -> AsyncIterator[World]:
    made = World(ServiceBusBroker(emulator), queue)
    yield made
    await made.close()


async def detached(one: ServiceBusBinding) -> None:
    """Wait until something has arrived on each connection, which no operation reads, or its end."""
    handlers = [*one._connections._handlers.values()]
    readers = [each.client._handler._connection._transport.reader for each in handlers]
    await eventually(lambda: all(each._buffer or each.at_eof() for each in readers))


@pytest.fixture
def native(one: ServiceBusBinding, queue: str) -> NativeQueue:
    return one.native_queue(queue, {})


class TestCredit:
    async def test_a_receive_that_ends_leaves_none_behind(
        self, one: ServiceBusBinding, other: ServiceBusBinding, emulator: ServiceBusEmulator, native: NativeQueue
    ) -> None:
        """The next message goes to the next receive of another process, at once and as a first delivery."""
        for wait in (0, 0.3):
            assert await one.reserve(native, 100, wait, 60) == []
            assert emulator.credit(native.name) == 0
        waiting = asyncio.create_task(other.reserve(native, 1, 20, 60))
        await eventually(lambda: emulator.credit(native.name) == 1)
        await one.publish(native, [outgoing()])
        (delivery,) = await waiting
        assert (delivery.delivery_count, delivery.redelivered) == (0, False)
        assert emulator.entity(native.name)["counters"]["delivered"] == 1

    async def test_a_message_costs_the_same_after_many_receives(
        self, one: ServiceBusBinding, native: NativeQueue
    ) -> None:
        """Each receive once wrapped what the receive before had wrapped around the client's link."""

        async def calls() -> int:
            await one.publish(native, [outgoing()])
            count = 0

            def counted(frame: FrameType, event: str, _: object) -> None:
                nonlocal count
                count += event == "call" and "/brokers/servicebus/" in frame.f_code.co_filename

            sys.setprofile(counted)
            try:
                (delivery,) = await one.reserve(native, 1, 0, 60)
            finally:
                sys.setprofile(None)
            assert await one.ack(native, [delivery.handle]) == [None]
            return count

        assert await one.reserve(native, 1, 0, 60) == []
        before = min([await calls() for _ in range(3)])
        for _ in range(100):
            assert await one.reserve(native, 1, 0, 60) == []
        assert min([await calls() for _ in range(3)]) < before + 30

    async def test_a_receive_takes_no_more_than_it_asked_for(
        self, one: ServiceBusBinding, other: ServiceBusBinding, emulator: ServiceBusEmulator, native: NativeQueue
    ) -> None:
        await one.publish(native, [outgoing(n) for n in range(5)])
        for limit in (2, 1):
            assert len(await one.reserve(native, limit, 1, 60)) == limit
            assert emulator.credit(native.name) == 0
        assert len(await other.reserve(native, 100, 0, 60)) == 2

    async def test_one_that_does_not_wait_is_answered_while_another_waits(
        self, one: ServiceBusBinding, native: NativeQueue
    ) -> None:
        waiting = asyncio.create_task(one.reserve(native, 1, 20, 60))
        await asyncio.sleep(0)
        assert await one.reserve(native, 1, 0, 60) == []
        assert await waiting == []

    async def test_two_that_wait_do_so_one_after_the_other(self, one: ServiceBusBinding, native: NativeQueue) -> None:
        began = time.monotonic()
        for found in await asyncio.gather(*(one.reserve(native, 1, 0.5, 60) for _ in range(2))):
            assert found == []
        assert time.monotonic() - began >= 1

    async def test_a_message_that_nobody_wants_is_given_back_uncounted(
        self, one: ServiceBusBinding, other: ServiceBusBinding, native: NativeQueue
    ) -> None:
        await one.publish(native, [outgoing()])
        (delivery,) = await one.reserve(native, 1, 20, 60)
        assert await one.release(native, [delivery.handle], 0, failed=False) == [None]
        (again,) = await other.reserve(native, 1, 20, 60)
        assert again.delivery_count == 0


class TestLocks:
    async def test_any_process_settles_by_the_token_also_when_the_receiver_has_ended(
        self, emulator: ServiceBusEmulator, other: ServiceBusBinding, native: NativeQueue
    ) -> None:
        async with binding(emulator.url()) as receiver:
            await receiver.publish(native, [outgoing(n) for n in range(3)])
            acked, nacked, extended = [each.handle for each in await receiver.reserve(native, 3, 20, 60)]
            assert await other.ack(native, [acked]) == [None]
        assert await other.release(native, [nacked], 0, failed=True) == [None]
        (end,) = await other.extend(native, [extended], 60)
        assert isinstance(end, int)
        (again,) = await other.reserve(native, 3, 20, 60)
        assert (again.delivery_count, again.redelivered) == (1, True)
        assert await other.ack(native, [extended]) == [None]

    async def test_the_lock_lasts_as_long_as_the_lease(
        self, world: World, emulator: ServiceBusEmulator, other: ServiceBusBinding
    ) -> None:
        """It is renewed, in requests of many, until the message is settled."""
        emulator.queue(world.queue, lock_seconds=20)
        process = await world.process()
        await process.publish_all([{"n": n} for n in range(20)])
        messages = await process.take(20, lease=60)

        def renewals() -> int:
            return int(emulator.entity(world.queue)["counters"].get("renew-lock", 0))

        await eventually(lambda: renewals() >= 2)
        assert renewals() < 20
        assert await process.ack(*messages) == [None] * 20
        assert emulator.entity(world.queue)["counters"].get("expired_locks", 0) == 0

    async def test_a_lock_that_the_service_has_ended_is_a_lost_lease(
        self, one: ServiceBusBinding, emulator: ServiceBusEmulator, native: NativeQueue
    ) -> None:
        await one.publish(native, [outgoing()])
        (delivery,) = await one.reserve(native, 1, 20, 60)
        assert emulator.lose_lock(native.name) == 1
        assert kinds(await one.ack(native, [delivery.handle])) == [LeaseLost]
        assert one.outstanding(native, [delivery.handle]) == [False]
        for handle in ("", "no token", delivery.handle.upper() + "0", delivery.handle[:-2]):
            assert kinds(await one.ack(native, [handle])) == [LeaseLost]

    @pytest.mark.parametrize("sessions", [False, True])
    async def test_a_clock_that_is_behind_loses_no_lock(
        self, emulator: ServiceBusEmulator, queue: str, sessions: bool
    ) -> None:
        emulator.queue(queue, lock_seconds=12, requires_session=sessions)
        behind = connect("azure", emulator.url(), {"timeout_seconds": 30}, lambda: now_ms() - 45_000)
        counter = "renew-session-lock" if sessions else "renew-lock"
        async with opened(behind) as one:
            native = one.native_queue(queue, {"sessions": sessions})
            await one.publish(native, [outgoing(ordering_key="s" if sessions else None)])
            (delivery,) = await one.reserve(native, 1, 20, 60)
            await eventually(lambda: emulator.entity(queue)["counters"].get(counter, 0) > 0)
            assert await one.ack(native, [delivery.handle]) == [None]

    @pytest.mark.parametrize("verb", ["nack", "reject", "expire"])
    async def test_of_a_message_that_another_process_has_no_copy_is_written(
        self, world: World, emulator: ServiceBusEmulator, verb: str
    ) -> None:
        """The lock of the first process is over, as after a pause, and it does not know that."""
        process = await world.process(policy=Policy(max_attempts=1 if verb == "expire" else 10))
        other = await world.process()
        await process.publish({"n": 1})
        message = await process.one(3 if verb == "expire" else 60)
        assert emulator.lose_lock(world.queue) == 1
        (again,) = await other.take(1, lease=60)
        if verb == "nack":
            assert kinds(await process.nack(message, delay=0.01)) == [LeaseLost]
        elif verb == "reject":
            assert kinds(await process.reject(message)) == [LeaseLost]
        else:
            usage = process.gateway.broker_usage[world.broker.name]
            await eventually(lambda: usage.count == 0)
        assert await other.ack(again) == [None]
        assert (await other.dead(), emulator.counts(world.queue)["total"]) == ([], 0)

    async def test_an_original_beside_its_dead_letter_is_completed_as_soon_as_the_service_answers(
        self, world: World, emulator: ServiceBusEmulator
    ) -> None:
        """Its lock is renewed until then, and nobody else sees it."""
        emulator.queue(world.queue, lock_seconds=30)
        process = await world.process()
        await process.publish_all([{"n": 1}])
        message = await process.one(lease=60)
        emulator.fault("drop_before_disposition", times=1)
        assert kinds(await process.reject(message)) == [OutcomeUnknown]
        assert await process.receive() == []
        await eventually(lambda: emulator.messages(world.queue) == [])
        assert len(await process.dead()) == 1
        counters = emulator.entity(world.queue)["counters"]
        assert (counters["delivered"], counters.get("expired_locks", 0)) == (1, 0)

    async def test_one_that_is_lost_among_others_leaves_no_doubt_about_them(
        self, one: ServiceBusBinding, emulator: ServiceBusEmulator, native: NativeQueue
    ) -> None:
        """The service refuses the whole request. It does not say what became of the others, so it is asked again."""
        await one.publish(native, [outgoing(n) for n in range(3)])
        handles = [each.handle for each in await one.reserve(native, 3, 20, 60)]
        emulator.lose_lock(native.name, handles[1])
        outcomes = await one.ack(native, handles)
        assert kinds(outcomes) == [None, OutcomeUnknown, None]
        assert emulator.counts(native.name)["active"] == 1

    @pytest.mark.parametrize("applied", [False, True])
    async def test_a_settle_without_an_answer_is_unknown_until_it_is_answered(
        self, one: ServiceBusBinding, emulator: ServiceBusEmulator, native: NativeQueue, applied: bool
    ) -> None:
        await one.publish(native, [outgoing()])
        (delivery,) = await one.reserve(native, 1, 20, 60)
        emulator.fault("drop_after_disposition" if applied else "drop_before_disposition", native.name, times=1)
        assert kinds(await one.ack(native, [delivery.handle])) == [OutcomeUnknown]
        # The lock is over where the first request was applied: this says not that the message comes again.
        assert kinds(await one.ack(native, [delivery.handle])) == [OutcomeUnknown if applied else None]
        assert emulator.counts(native.name)["total"] == 0


class TestFaults:
    async def test_a_send_without_an_answer_is_written_once(
        self, one: ServiceBusBinding, emulator: ServiceBusEmulator, native: NativeQueue
    ) -> None:
        emulator.fault("drop_after_send", native.name, times=1)
        assert kinds(await one.publish(native, [outgoing()])) == [OutcomeUnknown]
        assert len(emulator.messages(native.name)) == 1
        emulator.fault("drop_before_send", native.name, times=1)
        assert kinds(await one.publish(native, [outgoing()])) == [OutcomeUnknown]
        assert await one.publish(native, [outgoing()]) == [None]
        assert len(emulator.messages(native.name)) == 2

    async def test_throttling_is_a_broker_that_is_not_available(
        self, one: ServiceBusBinding, emulator: ServiceBusEmulator, native: NativeQueue
    ) -> None:
        await one.publish(native, [outgoing()])
        (delivery,) = await one.reserve(native, 1, 20, 60)
        emulator.fault("throttle", native.name)
        assert kinds(await one.publish(native, [outgoing()])) == [BrokerUnavailable]
        assert kinds(await one.ack(native, [delivery.handle])) == [BrokerUnavailable]
        emulator.clear_faults()
        await until(lambda: none_of(one.publish(native, [outgoing()])))
        await until(lambda: none_of(one.ack(native, [delivery.handle])))
        assert len(emulator.messages(native.name)) == 1

    async def test_credentials_that_are_refused(
        self, one: ServiceBusBinding, emulator: ServiceBusEmulator, native: NativeQueue
    ) -> None:
        emulator.fault("refuse_tokens")
        assert kinds(await one.publish(native, [outgoing()])) == [BrokerUnavailable]
        with pytest.raises(BrokerUnavailable):
            await one.reserve(native, 1, 0, 60)
        emulator.clear_faults()

    async def test_a_missing_right_is_named(
        self, one: ServiceBusBinding, emulator: ServiceBusEmulator, native: NativeQueue
    ) -> None:
        emulator.fault("unauthorized", native.name)
        (outcome,) = await one.publish(native, [outgoing()])
        assert isinstance(outcome, BrokerRejected)
        assert "right Send or Listen" in str(outcome)
        emulator.clear_faults()

    async def test_a_queue_that_does_not_exist(
        self, one: ServiceBusBinding, emulator: ServiceBusEmulator, native: NativeQueue
    ) -> None:
        emulator.options(auto_create=False)
        try:
            assert kinds(await one.publish(native, [outgoing()])) == [BrokerRejected]
            with pytest.raises(BrokerRejected):
                await one.reserve(native, 1, 0, 60)
            assert (await one.stats(native)).depth == 0
        finally:
            emulator.options(auto_create=True)

    async def test_a_link_that_is_detached_is_opened_again(
        self, one: ServiceBusBinding, emulator: ServiceBusEmulator, native: NativeQueue
    ) -> None:
        await one.publish(native, [outgoing()])
        (delivery,) = await one.reserve(native, 1, 20, 60)
        emulator.detach(native.name)

        async def is_empty() -> bool:
            return await one.reserve(native, 1, 0, 60) == []

        await until(is_empty)
        assert await one.ack(native, [delivery.handle]) == [None]

    async def test_an_idle_link_that_was_detached_is_replaced_before_the_next_call(
        self, one: ServiceBusBinding, emulator: ServiceBusEmulator, native: NativeQueue
    ) -> None:
        """The service detaches links that are idle, and all links when it is updated."""
        for n in range(3):
            await one.publish(native, [outgoing(n)])
            (delivery,) = await one.reserve(native, 1, 20, 60)
            assert await asyncio.to_thread(emulator.detach, native.name) >= 2
            await detached(one)
            publishing = [one.publish(native, [outgoing(10 * n + other)]) for other in (3, 4)]
            for outcomes in await asyncio.gather(*publishing):
                assert outcomes == [None]
            assert await one.ack(native, [delivery.handle]) == [None]
            for _ in range(2):
                (delivery,) = await one.reserve(native, 1, 20, 60)
                assert await one.ack(native, [delivery.handle]) == [None]

    async def test_an_idle_connection_that_was_closed_is_replaced_before_the_next_call(
        self, one: ServiceBusBinding, emulator: ServiceBusEmulator, native: NativeQueue
    ) -> None:
        await one.publish(native, [outgoing()])
        await one.reserve(native, 1, 20, 60)
        assert await asyncio.to_thread(emulator.disconnect) >= 2
        await detached(one)
        assert await one.publish(native, [outgoing(1)]) == [None]
        (second,) = await one.reserve(native, 1, 20, 60)
        assert await one.ack(native, [second.handle]) == [None]

    async def test_the_link_of_a_session_that_was_detached_is_replaced(
        self, one: ServiceBusBinding, emulator: ServiceBusEmulator, queue: str
    ) -> None:
        emulator.queue(queue, requires_session=True)
        native = one.native_queue(queue, {"sessions": True})
        await one.publish(native, [outgoing(n, ordering_key="a") for n in range(2)])
        (held,) = await one.reserve(native, 1, 20, 60)
        assert await asyncio.to_thread(emulator.detach, native.name) >= 1
        (again,) = await one.reserve(native, 1, 20, 60)
        assert again.body == held.body

    async def test_a_queue_that_is_full_or_disabled(
        self, one: ServiceBusBinding, emulator: ServiceBusEmulator, native: NativeQueue
    ) -> None:
        emulator.queue(native.name, max_size=10)
        assert kinds(await one.publish(native, [outgoing()])) == [StorageFull]
        emulator.queue(native.name, max_size=0, disabled=True)
        assert kinds(await one.publish(native, [outgoing()])) == [BrokerUnavailable]

    async def test_a_message_that_is_too_large_is_refused_alone(
        self, one: ServiceBusBinding, emulator: ServiceBusEmulator, native: NativeQueue
    ) -> None:
        emulator.queue(native.name, max_message_size=20_000, max_batch_size=20_000)
        large = Outgoing(body().replace(b'{"n":0}', b'{"n":"%s"}' % (b"x" * 30_000)), dedup_id="large")
        outcomes = await one.publish(native, [*(outgoing(n) for n in range(60)), large, outgoing(60)])
        assert kinds(outcomes) == [*([None] * 60), BodyTooLarge, None]
        refusal = outcomes[60]
        assert isinstance(refusal, BodyTooLarge)
        assert (refusal.actual > 30_000, refusal.limit) == (True, 20_000)
        assert len(emulator.messages(native.name)) == 61


class TestConnections:
    async def test_no_more_than_the_limit_is_kept(self, emulator: ServiceBusEmulator, queue: str) -> None:
        before = emulator.state()["connections"]
        async with binding(emulator.url(), {"max_handlers": 3}) as few:
            for n in range(6):
                target = few.native_queue(f"{queue}-{n}", {})
                await few.publish(target, [outgoing(n)])
                (delivery,) = await few.reserve(target, 1, 20, 60)
                assert await few.ack(target, [delivery.handle]) == [None]
            await eventually(lambda: emulator.state()["connections"] - before <= 3)
        await eventually(lambda: emulator.state()["connections"] == before)

    async def test_counts_need_a_right(self, emulator: ServiceBusEmulator, queue: str) -> None:
        url = emulator.url().replace(f"{emulator.control_port}%2F", f"{emulator.control_port}%2Fnowhere%2F")
        async with binding(url) as plain:
            target = plain.native_queue(queue, {})
            await plain.publish(target, [outgoing()])
            emulator.fault("unauthorized")
            assert (await plain.stats(target)).depth in (None, 0)
            emulator.clear_faults()


class TestNativeFields:
    async def test_a_queue_that_detects_duplicates_loses_no_copy(
        self, world: World, emulator: ServiceBusEmulator
    ) -> None:
        """A delayed nack, a dead letter and a redrive write the envelope again: with message ids of their own."""
        emulator.queue(world.queue, duplicate_detection_seconds=600)
        emulator.queue(f"{world.queue}.dlq", duplicate_detection_seconds=600)
        process = await world.process()
        await process.publish({"n": 1})
        for _ in range(2):
            await process.nack(await process.one(), delay=0.01)
            message = await process.one()
            await process.reject(message)
            assert (await process.redrive()).redriven == 1
        assert data(await process.one()) == {"n": 1}
        assert emulator.entity(world.queue)["counters"].get("duplicates", 0) == 0
        twice = message.body
        await process.publish_body(twice)
        await process.publish_body(twice)
        assert emulator.entity(world.queue)["counters"]["duplicates"] >= 1

    async def test_broker_properties_out_and_in(
        self, one: ServiceBusBinding, emulator: ServiceBusEmulator, native: NativeQueue
    ) -> None:
        given = {
            "TimeToLive": 90.5,
            "ReplyTo": "answers",
            "ReplyToSessionId": "s-1",
            "To": "there",
            "PartitionKey": "p",
        }
        assert await one.publish(native, [outgoing(properties=given)]) == [None]
        (stored,) = emulator.messages(native.name)
        assert stored["header"]["ttl"] == 90_500
        (delivery,) = await one.reserve(native, 1, 20, 60)
        shown = delivery.properties
        assert {name: shown[name] for name in given} == given
        assert (shown["Label"], shown["CorrelationId"], shown["MessageId"]) == ("urn:babel:a:b", "t", "id-0")
        assert (shown["ContentType"], shown["DeliveryCount"]) == ("application/json", 1)
        assert shown["SequenceNumber"] == stored["sequence_number"]
        assert shown["LockToken"].replace("-", "") == delivery.handle
        assert shown["EnqueuedTimeUtc"].endswith(" GMT")
        assert shown["LockedUntilUtc"].endswith(" GMT")

    async def test_a_time_to_enqueue(
        self, one: ServiceBusBinding, emulator: ServiceBusEmulator, native: NativeQueue
    ) -> None:
        due = emulator.state()["now"] + 3_600_000
        assert await one.publish(native, [outgoing(properties={"ScheduledEnqueueTimeUtc": due})]) == [None]
        assert emulator.counts(native.name)["scheduled"] == 1
        (stored,) = emulator.messages(native.name)
        assert stored["scheduled_enqueue_time"] == due

    async def test_a_copy_keeps_what_the_body_does_not_have(
        self, one: ServiceBusBinding, emulator: ServiceBusEmulator, native: NativeQueue
    ) -> None:
        others = {
            "flag": {"type": "boolean", "value": True},
            "count": {"type": "long", "value": 2**40},
            "ratio": {"type": "double", "value": 0.5},
            "text": {"type": "string", "value": "ä"},
        }
        encoded = base64.b64encode(body()).decode()
        emulator.inject_fields(
            native.name, [{"body": encoded, "reply_to": "answers", "group_id": "g", "application_properties": others}]
        )
        (delivery,) = await one.reserve(native, 1, 20, 60)
        shown = {"flag": "true", "count": str(2**40), "ratio": "0.5", "text": "ä"}
        assert delivery.headers == shown
        copy = Outgoing(
            delivery.body, delivery.headers, failure=LastFailure(1), carried=delivery.carried, delay_seconds=0.01
        )
        assert await one.publish(native, [copy]) == [None]
        original, copied = emulator.messages(native.name)
        assert copied["body"] == original["body"]
        assert {"reply_to", "group_id", "subject", "message_id"} <= copied["properties"].keys()
        for name, value in others.items():
            assert copied["application_properties"][name] == value

    async def test_a_body_that_is_no_data_is_poison(self, world: World, emulator: ServiceBusEmulator) -> None:
        process = await world.process()
        emulator.inject(world.queue, b"\x00\x53\x77\xa1\x05hello", raw=True)
        assert await process.receive() == []
        (letter,) = await process.dead()
        assert (letter.reason, json.loads(letter.record)["raw"]) == ("poison", "hello")


class TestNativeDeadLetters:
    @pytest.fixture
    def options(self) -> dict[str, Any]:
        return {"dead_letters": "native"}

    async def test_reason_description_list_redrive(
        self, world: World, emulator: ServiceBusEmulator, options: dict[str, Any]
    ) -> None:
        process = await world.process(queue_options=options)
        await process.publish_all([{"n": n} for n in range(3)])
        first, second, third = await process.take(3)
        await process.reject(first, error="no stock", exception="shop.NoStock")
        await process.reject(second, third, error="x" * 5000)
        stored = emulator.messages(f"{world.queue}/$DeadLetterQueue")
        properties = [each["application_properties"] for each in stored]
        assert properties[0]["DeadLetterReason"]["value"] == "failed"
        described = json.loads(properties[0]["DeadLetterErrorDescription"]["value"])
        assert (described["error"], described["exception"]) == ("no stock", "shop.NoStock")
        assert all(len(each["DeadLetterErrorDescription"]["value"]) <= 4096 for each in properties)
        letters = await process.dead()
        assert [letter.error for letter in letters[:1]] == ["no stock"]
        assert letters[1].error is not None and letters[1].error.startswith("xxx") and letters[1].error.endswith("…")
        assert (letters[0].reason, letters[0].attempts) == ("failed", 0)
        assert (await process.redrive(ids={letters[2].letter_id})).redriven == 1
        assert data(await process.one()) == {"n": 2}
        assert len(await process.dead()) == 2
        assert await process.gateway.letters.purge(ANYONE, world.queue) == 2
        assert await process.dead() == []

    async def test_any_process_dead_letters(self, world: World, options: dict[str, Any]) -> None:
        receiver, other = [await world.process(queue_options=options) for _ in range(2)]
        await receiver.publish({"n": 1})
        message = await receiver.one()
        await receiver.close()
        assert await other.reject(message, error="elsewhere") == [None]
        assert [letter.error for letter in await other.dead()] == ["elsewhere"]

    async def test_the_body_stays_byte_for_byte(
        self, one: ServiceBusBinding, emulator: ServiceBusEmulator, queue: str
    ) -> None:
        target = one.native_queue(queue, {"dead_letters": "native"})
        odd = b'{ "job":"urn:x:a" , "poison" : 1 }'
        emulator.inject(queue, odd)
        (delivery,) = await one.reserve(target, 1, 20, 60)
        block = {"reason": "poison", "error": "it is", "exception": None, "attempts": 0}
        assert await one.dead_letter(target, [DeadLetterRequest(delivery.handle, block)]) == [None]
        (stored,) = emulator.messages(f"{queue}/$DeadLetterQueue")
        assert base64.b64decode(stored["body"]) == odd

    async def test_what_the_service_itself_gives_up_is_listed_and_warned_of(
        self, world: World, emulator: ServiceBusEmulator
    ) -> None:
        emulator.queue(world.queue, max_delivery_count=2)
        process = await world.process(policy=Policy(max_attempts=5))
        await process.publish({"n": 1})
        for _ in range(2):
            await process.nack(await process.one())
        (letter,) = await process.dead()
        assert (letter.reason, letter.attempts) == ("failed", 2)
        assert letter.error is not None and letter.error.startswith("MaxDeliveryCountExceeded")
        (warning,) = await route_warnings([process.gateway.router.route(world.queue)])
        assert f"{world.queue}/$DeadLetterQueue' after 2 deliveries" in warning
        assert (await process.redrive()).redriven == 1
        assert (await process.one()).attempts == 0


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"default_ttl_seconds": 59}, "drops messages after 59 s (DefaultMessageTimeToLive)"),
        ({"auto_delete_seconds": 59}, "is deleted with its messages when it was not used for 59 s (AutoDeleteOnIdle)"),
        ({"default_ttl_seconds": 59, "dead_letter_on_expiration": True}, None),
        ({"default_ttl_seconds": 60, "auto_delete_seconds": 60}, None),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".dlq"])
async def test_settings_that_lose_messages_are_warned_of(
    one: ServiceBusBinding,
    emulator: ServiceBusEmulator,
    queue: str,
    suffix: str,
    settings: dict[str, Any],
    text: str | None,
) -> None:
    native = one.native_queue(queue, {})
    assert await one.queue_warnings(native, 60) == []
    emulator.queue(queue + suffix, **settings)
    found = [each.partition(f"The queue {queue}{suffix} ")[2] for each in await one.queue_warnings(native, 60)]
    assert [each.startswith(text or "nothing") for each in found] == [True] * (text is not None)


class TestPurges:
    async def test_scheduled_ones_are_cancelled(
        self, one: ServiceBusBinding, emulator: ServiceBusEmulator, native: NativeQueue
    ) -> None:
        await one.publish(native, [outgoing(n, delay_seconds=900 if n % 2 else 0) for n in range(6)])
        (leased,) = await one.reserve(native, 1, 20, 60)
        assert await one.purge(native) == 5
        assert emulator.counts(native.name) == {"active": 1, "scheduled": 0, "dead_letter": 0, "total": 1}
        assert await one.ack(native, [leased.handle]) == [None]


class TestSessions:
    @pytest.fixture
    def target(self, one: ServiceBusBinding, emulator: ServiceBusEmulator, queue: str) -> NativeQueue:
        emulator.queue(queue, requires_session=True)
        return one.native_queue(queue, {"sessions": True})

    async def test_the_ordering_key_is_the_session(
        self, one: ServiceBusBinding, emulator: ServiceBusEmulator, target: NativeQueue
    ) -> None:
        messages = [outgoing(n, ordering_key="even" if n % 2 == 0 else "odd") for n in range(6)]
        assert await one.publish(target, messages) == [None] * 6
        sessions = [each["properties"]["group_id"]["value"] for each in emulator.messages(target.name)]
        assert sorted(sessions) == ["even"] * 3 + ["odd"] * 3
        found = await one.reserve(target, 10, 20, 60)
        assert len({each.properties["SessionId"] for each in found}) == 1, "one session at a time"
        assert [json.loads(each.body)["data"]["n"] for each in found] in ([0, 2, 4], [1, 3, 5])

    async def test_a_session_is_one_process_s_until_it_is_done(
        self, one: ServiceBusBinding, other: ServiceBusBinding, target: NativeQueue
    ) -> None:
        await one.publish(target, [outgoing(n, ordering_key="s") for n in range(3)])
        found = await one.reserve(target, 2, 20, 60)
        assert not await other.reserve(target, 2, 0, 60)
        assert kinds(await other.ack(target, [found[0].handle])) == [LeaseLost]
        assert one.outstanding(target, [each.handle for each in found]) == [True, True]
        assert await one.ack(target, [each.handle for each in found]) == [None, None]
        (third,) = await one.reserve(target, 2, 20, 60)
        assert await one.release(target, [third.handle], 0, failed=True) == [None]
        (again,) = await one.reserve(target, 2, 20, 60)
        assert again.delivery_count == 1
        assert await one.release(target, [again.handle], 0, failed=False) == [None]
        (last,) = await one.reserve(target, 2, 20, 60)
        assert last.delivery_count == 1
        assert await one.ack(target, [last.handle]) == [None]
        assert not await one.reserve(target, 2, 0, 60)
        await one.publish(target, [outgoing(7, ordering_key="s")])
        assert len(await other.reserve(target, 2, 20, 60)) == 1, "a session that is done is anybody's"

    @pytest.mark.parametrize("state", STATES)
    async def test_a_reserve_ends_with_its_binding(self, world: World, target: NativeQueue, state: str) -> None:
        await ends_with_its_binding(world.broker.connect(PATIENT), target, state)

    async def test_the_end_of_one_lock_ends_no_other(
        self, one: ServiceBusBinding, emulator: ServiceBusEmulator, target: NativeQueue
    ) -> None:
        await one.publish(target, [outgoing(n, ordering_key="s") for n in range(2)])
        lost, kept = [each.handle for each in await one.reserve(target, 2, 20, 60)]
        emulator.lose_lock(target.name, lost)
        assert kinds(await one.ack(target, [lost])) == [LeaseLost]
        assert one.outstanding(target, [lost, kept]) == [False, True]
        assert await one.ack(target, [kept]) == [None]

    async def test_the_end_of_a_session_ends_all_its_locks(
        self, one: ServiceBusBinding, emulator: ServiceBusEmulator, target: NativeQueue
    ) -> None:
        await one.publish(target, [outgoing(n, ordering_key="s") for n in range(2)])
        handles = [each.handle for each in await one.reserve(target, 2, 20, 60)]
        emulator.detach(target.name, "com.microsoft:session-lock-lost", kind="receiver")
        assert kinds(await one.ack(target, handles[:1])) == [LeaseLost]
        assert one.outstanding(target, handles) == [False, False]
        assert len(await one.reserve(target, 2, 20, 60)) == 2, "the session is there again"

    async def test_another_gateway_forwards(self, world: World, emulator: ServiceBusEmulator) -> None:
        emulator.queue(world.queue, requires_session=True)
        receiver, settler = [await world.process(queue_options={"sessions": True}) for _ in range(2)]
        for n in range(4):
            await receiver.gateway.publish(
                ANYONE, world.queue, json.dumps({"job": "urn:a:b", "data": {"n": n}}).encode(), ordering_key="s"
            )
        acked, nacked, delayed, rejected = await receiver.take(4)
        assert await settler.ack(acked) == [None]
        assert await settler.nack(nacked) == [None]
        assert await settler.nack(delayed, delay=0.01) == [None]
        assert await settler.reject(rejected) == [None]
        again = await receiver.take(2)
        assert sorted((data(each)["n"], each.attempts) for each in again) == [(1, 1), (2, 1)]
        assert len(await settler.dead()) == 1

    async def test_a_lock_of_a_session_is_renewed(
        self, one: ServiceBusBinding, emulator: ServiceBusEmulator, target: NativeQueue
    ) -> None:
        emulator.queue(target.name, lock_seconds=14)
        await one.publish(target, [outgoing(ordering_key="s")])
        (delivery,) = await one.reserve(target, 1, 20, 60)
        await eventually(lambda: session_renewals(emulator, target) >= 2)
        assert await one.ack(target, [delivery.handle]) == [None]

    async def test_a_failed_renewal_is_repeated_while_the_lock_lasts(
        self,
        one: ServiceBusBinding,
        emulator: ServiceBusEmulator,
        target: NativeQueue,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        emulator.queue(target.name, lock_seconds=30)
        emulator.fault("throttle", target.name, operation="management", times=1)
        await one.publish(target, [outgoing(ordering_key="s")])
        (delivery,) = await one.reserve(target, 1, 20, 60)
        await eventually(lambda: session_renewals(emulator, target) >= 2)
        assert caplog.text.count("the lock of a session was not renewed") == 1
        assert await one.ack(target, [delivery.handle]) == [None]

    async def test_a_queue_of_the_other_kind_is_refused(
        self, one: ServiceBusBinding, target: NativeQueue, queue: str
    ) -> None:
        plain = one.native_queue(queue, {})
        assert kinds(await one.publish(plain, [outgoing()])) == [BrokerRejected]
        with pytest.raises(BrokerRejected):
            await one.reserve(plain, 1, 0, 60)

    async def test_a_purge(self, one: ServiceBusBinding, emulator: ServiceBusEmulator, target: NativeQueue) -> None:
        await one.publish(target, [outgoing(n, ordering_key=f"s-{n % 2}") for n in range(6)])
        assert await one.purge(target) == 6
        assert emulator.counts(target.name)["total"] == 0
