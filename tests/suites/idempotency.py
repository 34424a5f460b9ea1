"""Idempotency keys: a call repeated under its key gets the first answer and writes nothing.

The suite runs on pairs of a store for the keys and a broker for the queue.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from babelgate.brokers.binding import NativeQueue, Outcome, Outgoing
from babelgate.brokers.idempotency_store import RESERVED_SECONDS, TOKEN_BYTES, KeyClaim, KeySettlement, Terms
from babelgate.errors import (
    BabelgateError,
    BodyTooLarge,
    BrokerUnavailable,
    EnvelopeError,
    IdempotencyInProgress,
    IdempotencyKeyReused,
    IdempotencyUnresolved,
    KeysFull,
    KeyShareFull,
    OutcomeUnknown,
    UnsupportedByBroker,
)
from babelgate.gateway.authorization import ANYONE, Caller, Right
from babelgate.gateway.model import Receipt, Replay
from tests.harness.passing import Passing
from tests.harness.world import Process, World, draft, until
from tests.suites.idempotency_calls import TOKEN, claim_of, entry, numbers, once, same, store_of
from tests.suites.publish import envelope_of


def holder(name: str) -> Caller:
    """A caller who may do everything."""
    return Caller(name, {"*": frozenset(Right)})


class LosesTheReply(Passing):
    """Publishes, and raises OutcomeUnknown."""

    async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        await self.inner.publish(queue, messages)
        raise OutcomeUnknown(self.name, "the reply was lost")


class Slow(Passing):
    """Takes its time to publish."""

    async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        await asyncio.sleep(0.1)
        return await self.inner.publish(queue, messages)


class TestIdempotency:
    async def test_a_repeated_call_gets_the_first_answer_and_writes_nothing(self, world: World) -> None:
        process = await world.process()
        first = await once(process, "k", {"n": 1})
        assert type(first) is Receipt
        for _ in range(2):
            assert same(await once(process, "k", {"n": 1}), first)
        (message,) = await process.take(1)
        assert json.loads(message.body)["meta"]["id"] == first.id
        assert await process.ready(1) == []
        await process.ack(message)
        assert same(await once(process, "k", {"n": 1}), first)
        assert await process.is_empty(), "a message that was acked came back"

    async def test_only_what_was_published_is_reported(self, world: World) -> None:
        process = await world.process()
        for _ in range(3):
            await once(process, "k")
        assert [event.count for event in process.events if event.kind == "accepted"] == [1]

    async def test_another_message_under_the_key_is_refused(self, world: World) -> None:
        process = await world.process()
        first = await once(process, "k", {"n": 1})
        others: list[tuple[bytes, dict[str, Any]]] = [
            (draft({"n": 2}), {}),
            (draft({"n": 1}), {"delay_seconds": 3}),
            (b" " + draft({"n": 1}, trace_id="t"), {}),
        ]
        if process.capabilities.ordering != "none":
            others.append((draft({"n": 1}), {"ordering_key": "o"}))
        for body, how in others:
            with pytest.raises(IdempotencyKeyReused):
                await process.gateway.publish(ANYONE, world.queue, body, idempotency_key="k", **how)
        assert same(await once(process, "k", {"n": 1}), first)
        assert await numbers(process, 1) == [1]

    async def test_a_key_is_of_one_queue(self, world: World) -> None:
        process = await world.process()
        await once(process, "k", {"n": 1})
        receipt = await process.gateway.publish(ANYONE, f"{world.queue}-other", draft({"n": 2}), idempotency_key="k")
        assert type(receipt) is Receipt

    async def test_entries_have_keys_of_their_own(self, world: World) -> None:
        process = await world.process()
        bodies = [
            entry("a", {"n": 0}),
            draft({"n": 1}),
            entry("b", {"n": 2}),
            entry("a", {"n": 0}),
            entry("b", {"n": 3}),
            entry(None, {"n": 4}),
            entry("c", {"n": 5}),
        ]
        results = await process.gateway.publish_many(ANYONE, world.queue, bodies)
        kinds = [Receipt, Receipt, Receipt, Replay, IdempotencyKeyReused, Receipt, Receipt]
        assert [type(result) for result in results] == kinds
        first, again = results[0], results[3]
        assert isinstance(first, Receipt) and isinstance(again, Receipt) and same(again, first)
        assert process.in_order(await numbers(process, 5)) == [0, 1, 2, 4, 5]
        repeated = await process.gateway.publish_many(ANYONE, world.queue, [b"\t" + bodies[0] + b" ", bodies[6]])
        assert [type(result) for result in repeated] == [Replay, Replay]
        with pytest.raises(EnvelopeError) as refusal:
            await process.gateway.publish(ANYONE, world.queue, bodies[0], idempotency_key="other")
        assert refusal.value.problem_code == "idempotency_key_mismatch"
        assert isinstance(await process.gateway.publish(ANYONE, world.queue, bodies[0], idempotency_key="a"), Replay)
        assert await process.is_empty()

    async def test_concurrent_publishes_with_keys_share_batches(self, world: World) -> None:
        process = await world.process()
        receipts = await asyncio.gather(*(once(process, f"k{n % 100}", {"n": n % 100}) for n in range(300)))
        assert [type(receipt) for receipt in receipts].count(Receipt) == 100
        assert all(receipts[n].id == receipts[n % 100].id for n in range(300))
        assert sorted(await numbers(process, 100)) == list(range(100))

    async def test_two_gateways_that_race_publish_once(self, world: World) -> None:
        one, other = await world.process(), await world.process()
        keys = [f"k{n}" for n in range(30)]

        async def insist(process: Process, key: str, n: int) -> Receipt:
            while True:
                try:
                    return await once(process, key, {"n": n})
                except IdempotencyInProgress:
                    await asyncio.sleep(0.01)

        answers = await asyncio.gather(*(insist(p, key, n) for n, key in enumerate(keys) for p in (one, other)))
        for first, second in zip(answers[::2], answers[1::2], strict=True):
            assert first.id == second.id
            assert {type(first), type(second)} == {Receipt, Replay}
        assert sorted(await numbers(one, 30)) == list(range(30))

    async def test_a_delayed_message_is_delayed_once(self, world: World) -> None:
        process = await world.process()
        first = await once(process, "k", {"n": 1}, delay_seconds=3)
        assert same(await once(process, "k", {"n": 1}, delay_seconds=3), first)
        assert world.broker.tells(await process.stats(), depth=0, delayed=1)
        assert await numbers(process, 1) == [1]

    async def test_a_refused_message_leaves_its_key_free(self, world: World) -> None:
        process = await world.process()
        for body in (draft([1]), envelope_of(process.gateway.limits.max_message_bytes + 1, world.queue)):
            with pytest.raises((EnvelopeError, BodyTooLarge)):
                await process.gateway.publish(ANYONE, world.queue, body, idempotency_key="k")
        assert type(await once(process, "k", {"n": 1})) is Receipt
        assert await numbers(process, 1) == [1]

    async def test_an_answer_beyond_all_measure_is_refused(self, world: World) -> None:
        process = await world.process()
        body = draft({"n": 1}, trace_id="t" * 1000)
        with pytest.raises((EnvelopeError, UnsupportedByBroker)) as refusal:
            await process.gateway.publish(ANYONE, world.queue, body, idempotency_key="k")
        bounded = process.capabilities.max_property_bytes is not None
        assert refusal.value.problem_code == ("trace_id_too_long" if bounded else "answer_too_large")
        assert await process.is_empty()

    async def test_while_the_broker_is_down_nothing_is_lost_and_the_key_stays_free(self, world: World) -> None:
        process = await world.process(broker_options=world.broker.impatient)
        await once(process, "before", {"n": 0})
        async with world.broker.outage():
            # The first to notice may have written to a connection that was gone already.
            with pytest.raises((BrokerUnavailable, OutcomeUnknown)):
                await once(process, "noticed", {"n": 2})
            with pytest.raises(BrokerUnavailable) as refusal:
                await once(process, "free", {"n": 1})
            assert refusal.value.retryable

        async def published() -> bool:
            try:
                return type(await once(process, "free", {"n": 1})) is Receipt
            except BrokerUnavailable:
                return False

        await until(published)
        assert process.in_order(await numbers(process, 2)) == [0, 1]

    async def test_while_the_store_is_down_nothing_is_published(self, world: World) -> None:
        if world.store is None:
            pytest.skip("it is the queue's broker")
        process = await world.process(broker_options=world.broker.impatient)
        await once(process, "before", {"n": 0})
        async with world.store.outage():
            with pytest.raises(BrokerUnavailable) as refusal:
                await once(process, "during", {"n": 1})
            assert refusal.value.broker == world.store.name
            bodies = [entry("during", {"n": 1}), draft({"n": 1})]
            results = await process.gateway.publish_many(ANYONE, world.queue, bodies)
            assert [type(result) for result in results] == [BrokerUnavailable, Receipt]

        async def published() -> bool:
            try:
                await once(process, "during", {"n": 2})
            except (BrokerUnavailable, IdempotencyInProgress, IdempotencyKeyReused):
                return False
            return True

        await until(published)
        assert process.in_order(await numbers(process, 3)) == [0, 1, 2]

    async def test_the_store_hears_later_of_what_was_published_while_it_was_down(self, world: World) -> None:
        store = world.store
        if store is None:
            pytest.skip("it is the queue's broker")

        class DuringAnOutage(Passing):
            """Publishes, and its confirm comes when the store is down."""

            async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
                outcomes = await self.inner.publish(queue, messages)
                await outage.__aenter__()
                return outcomes

        process = await world.process(wrap=DuringAnOutage, broker_options=world.broker.impatient)
        outage = store.outage()
        first = await once(process, "k", {"n": 1})
        await outage.__aexit__(None, None, None)

        async def answered() -> bool:
            try:
                return same(await once(process, "k", {"n": 1}), first)
            except (IdempotencyInProgress, BrokerUnavailable):
                return False

        await until(answered)
        assert await numbers(process, 1) == [1]

    async def test_a_key_ends_with_its_retention(self, world: World) -> None:
        process = await world.process(terms=Terms(retention_seconds=2))
        loop = asyncio.get_running_loop()
        started = loop.time()
        first = await once(process, "k", {"n": 1})
        again = await once(process, "k", {"n": 1})
        # On a machine that stood still the key may have ended.
        assert same(again, first) or loop.time() - started > 2
        await asyncio.sleep(2.05)
        second = await once(process, "k", {"n": 1})
        assert type(second) is Receipt
        assert second.id != first.id
        await asyncio.sleep(2.05)
        assert await store_of(process, world).sweep() >= 1
        assert await store_of(process, world).sweep() == 0

    async def test_a_full_store_takes_no_new_keys_and_forgets_none(self, world: World) -> None:
        process = await world.process(terms=Terms(retention_seconds=60, max_keys=4))
        callers = [holder(f"caller-{n}") for n in range(5)]

        async def publish(caller: Caller, n: int) -> Receipt:
            return await process.gateway.publish(caller, world.queue, entry(f"k{n}", {"n": n}))

        for n, caller in enumerate(callers[:4]):
            assert type(await publish(caller, n)) is Receipt
        with pytest.raises(KeysFull) as refusal:
            await publish(callers[4], 4)
        assert refusal.value.retryable
        assert type(await publish(callers[4], 0)) is Replay
        await process.publish({"n": 4})
        assert process.in_order(await numbers(process, 5)) == [0, 1, 2, 3, 4]

    async def test_a_sender_leaves_keys_to_other_callers_and_queues(self, world: World) -> None:
        process = await world.process(terms=Terms(retention_seconds=60, max_keys=16))
        shop, blog = holder("shop"), holder("blog")

        async def publish(caller: Caller, queue: str, keys: str) -> list[BabelgateError | Receipt]:
            bodies = [entry(key, {"n": n}) for n, key in enumerate(keys)]
            return list(await process.gateway.publish_many(caller, queue, bodies))

        mine, other = world.queue, f"{world.queue}-other"
        results = await publish(shop, mine, "abcdefghijkl")
        # The caller's share is 12, three quarters of 16; that of its queue is 9.
        assert [type(result) for result in results] == [Receipt] * 9 + [KeyShareFull] * 3
        error = results[-1]
        assert isinstance(error, KeyShareFull) and error.retryable
        assert error.whose == f"The queue {mine!r} of the caller 'shop'"
        assert (error.held, error.limit) == (9, 9)
        # Of the 3 that are left of the caller's share, 2 are for another queue, and the last for a third one.
        assert [type(each) for each in await publish(shop, other, "abc")] == [Receipt, Receipt, KeyShareFull]
        assert [type(each) for each in await publish(shop, f"{mine}-third", "ab")] == [Receipt, KeyShareFull]
        (refused,) = await publish(shop, f"{mine}-fourth", "a")
        assert isinstance(refused, KeyShareFull)
        assert (refused.whose, refused.held, refused.limit) == ("The caller 'shop'", 12, 12)
        # Of the 4 that the caller leaves, 3 are for another caller, and 2 of these for one queue.
        assert [type(each) for each in await publish(blog, mine, "xyz")] == [Receipt, Receipt, KeyShareFull]
        assert type(await process.gateway.publish(blog, other, entry("x", {"n": 0}))) is Receipt
        with pytest.raises(KeyShareFull, match="The caller 'blog'"):
            await process.gateway.publish(blog, f"{mine}-third", entry("x", {"n": 0}))
        # What exists is answered, whoever asks.
        assert {type(each) for each in await publish(blog, mine, "abcdefghi")} == {Replay}
        assert type(await process.gateway.publish(shop, mine, draft({"n": 12}))) is Receipt

    async def test_a_share_is_free_again_when_its_keys_end(self, world: World) -> None:
        process = await world.process(terms=Terms(retention_seconds=2, max_keys=4))
        assert type(await once(process, "first")) is Receipt
        assert type(await once(process, "second")) is Receipt
        with pytest.raises(KeyShareFull):
            await once(process, "third")

        async def published() -> bool:
            try:
                return type(await once(process, "third")) is Receipt
            except KeyShareFull:
                return False

        await until(published)

    async def test_shares_survive_a_restart_of_everything(self, world: World) -> None:
        process = await world.process(terms=Terms(max_keys=4))
        await once(process, "first")
        await once(process, "second")
        await (world.store or world.broker).kill()
        await process.reopen()

        async def refused() -> bool:
            try:
                await once(process, "third")
            except KeyShareFull:
                return True
            except BabelgateError:
                pass
            return False

        await until(refused)
        assert type(await process.gateway.publish(holder("blog"), world.queue, entry("k", {"n": 1}))) is Receipt

    async def test_a_reserved_key_is_in_progress_and_then_unresolved(self, world: World) -> None:
        process = await world.process()
        store = store_of(process, world)
        claims = [claim_of(world, key, {"n": 1}) for key in ("a", "b", "c")]
        assert list(await store.reserve(claims, TOKEN, Terms())) == [None] * 3
        (found,) = await store.reserve(claims[:1], b"1" * TOKEN_BYTES, Terms())
        assert getattr(found, "answer", b"") is None
        assert 0 < getattr(found, "seconds", 0) <= RESERVED_SECONDS
        with pytest.raises(IdempotencyInProgress) as refusal:
            await once(process, "a", {"n": 1})
        assert refusal.value.retryable
        with pytest.raises(IdempotencyKeyReused):
            await once(process, "a", {"n": 2})
        fates = [KeySettlement(claims[0], TOKEN, "unknown"), KeySettlement(claims[1], TOKEN, "free")]
        await store.settle([*fates, KeySettlement(claims[2], b"1" * TOKEN_BYTES, "free")], Terms())
        with pytest.raises(IdempotencyUnresolved) as unresolved:
            await once(process, "a", {"n": 1})
        assert (unresolved.value.problem_code, unresolved.value.retryable) == ("outcome_unknown", False)
        assert type(await once(process, "b", {"n": 1})) is Receipt
        with pytest.raises(IdempotencyInProgress):
            await once(process, "c", {"n": 1})
        # A publish that took long is heard of all the same.
        answer = b'{"id":"i","trace_id":"t","queue":"q","broker":"b","attempts":0,"created_at":1}'
        late = KeyClaim(world.queue, "a", claims[0].fingerprint, answer, ANYONE.name)
        await store.settle([KeySettlement(late, TOKEN, "done")], Terms())
        assert (await once(process, "a", {"n": 1})).id == "i"
        assert await numbers(process, 1) == [1]

    async def test_what_a_broker_does_not_know_is_never_published_again(self, world: World) -> None:
        if world.store is None:
            pytest.skip("key and message are one")
        unlucky = await world.process(wrap=LosesTheReply)
        with pytest.raises(OutcomeUnknown):
            await once(unlucky, "k", {"n": 1})
        process = await world.process()
        for _ in range(2):
            with pytest.raises(IdempotencyUnresolved):
                await once(process, "k", {"n": 1})
        assert type(await once(process, "another key", {"n": 2})) is Receipt
        assert process.in_order(await numbers(process, 2)) == [1, 2]

    @pytest.mark.parametrize("count", [1, 3], ids=["one", "a batch"])
    async def test_a_client_that_leaves_leaves_no_key_behind(self, world: World, count: int) -> None:
        if world.store is None:
            pytest.skip("key and message are one")
        process = await world.process(wrap=Slow)
        bodies = [entry(f"k{n}", {"n": n}) for n in range(count)]
        if count == 1:
            leaving: asyncio.Future[Any] = asyncio.ensure_future(
                process.gateway.publish(ANYONE, world.queue, bodies[0])
            )
        else:
            leaving = asyncio.ensure_future(process.gateway.publish_many(ANYONE, world.queue, bodies))
        await asyncio.sleep(0.03)
        leaving.cancel()
        await process.reopen()
        results = await process.gateway.publish_many(ANYONE, world.queue, bodies)
        assert [type(result) for result in results] == [Replay] * count
        assert process.in_order(await numbers(process, count)) == list(range(count))

    async def test_keys_survive_a_restart_of_everything(self, world: World) -> None:
        process = await world.process()
        first = await once(process, "k", {"n": 1})
        await (world.store or world.broker).kill()
        await process.reopen()

        async def answered() -> bool:
            try:
                return same(await once(process, "k", {"n": 1}), first)
            except BabelgateError:
                return False

        await until(answered)
        assert await numbers(process, 1) == [1]
