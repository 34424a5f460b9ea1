"""Settling: a lease ends once, by any holder of its token; an old token does not settle a new delivery."""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64decode

import pytest

from babelgate.clock import now_ms
from babelgate.errors import InvalidAckToken, LeaseLost
from babelgate.gateway.ack_tokens import TokenKey, TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.model import Extend, Message, Nack, Reject, Settlement
from tests.harness.world import KEYS, Process, World, data, kinds, until

SHORT = 0.4
"""A lease that a test lets expire: long enough for a call on a busy machine, short enough to wait for."""

AFTER = SHORT + 0.3

KEPT = 3
"""A lease that lasts until a busy machine has settled it, and whose end a test waits for."""

ENDS = frozenset({"acked", "nacked", "rejected", "extended", "lease_lost", "lease_expired", "dead_lettered"})


async def redelivered(process: Process) -> tuple[Message, Message]:
    """A message whose first lease expired, as it was delivered then and as it is delivered now."""
    await process.publish({"n": 1})
    return await process.one(SHORT), await process.one()


class TestSettle:
    async def test_an_ack_removes(self, world: World) -> None:
        process = await world.process()
        await process.publish_all([{"n": n} for n in range(3)])
        messages = await process.take(3, KEPT)
        assert await process.ack(*messages) == [None] * 3
        assert await process.is_empty()
        await asyncio.sleep(KEPT + 0.3)
        assert await process.is_empty(), "an acked message came back with its lease"

    async def test_acks_one_by_one_and_at_once(self, world: World) -> None:
        process = await world.process()
        await process.publish_all([{"n": n} for n in range(40)])
        messages = await process.take(40)
        assert await asyncio.gather(*(process.ack(message) for message in messages)) == [[None]] * 40
        assert await process.is_empty()

    async def test_many_acks_in_one_call(self, world: World) -> None:
        process = await world.process()
        size = process.capabilities.max_batch + 1
        await process.publish_all([{}] * size)
        assert await process.ack(*await process.take(size, 600)) == [None] * size
        assert await process.is_empty()

    async def test_an_ack_of_a_few_leaves_the_rest(self, world: World) -> None:
        process = await world.process()
        await process.publish_all([{"n": n} for n in range(4)])
        messages = await process.take(4, KEPT)
        assert await process.ack(messages[2], messages[0]) == [None, None]
        rest = [data(messages[1])["n"], data(messages[3])["n"]]
        assert process.in_order(data(message)["n"] for message in await process.take(2)) == process.in_order(rest)

    async def test_equal_bodies_are_settled_one_by_one(self, world: World) -> None:
        if world.broker.merges_equal_bodies:
            pytest.skip("this layout holds equal bodies once")
        process = await world.process()
        await process.publish({"n": 1})
        original = await process.one()
        body = original.body
        await world.broker.inject(world.queue, body, body, body)
        first, second, third = await process.take(3)
        assert await process.ack(second) == [None]
        assert await process.nack(first) == [None]
        assert await process.extend(third, lease=60) == [None]
        again = await process.one()
        assert again.attempts == 1
        assert await process.ack(again, third) == [None, None]
        assert world.broker.tells(await process.stats(), depth=0, in_flight=1), "the first one is leased still"
        assert await process.ack(original) == [None]
        assert await process.is_empty()

    async def test_a_double_ack_is_no_error(self, world: World) -> None:
        process = await world.process()
        await process.publish({"n": 1})
        message = await process.one()
        assert await process.ack(message) == [None]
        assert await process.ack(message) == [None]
        assert await process.ack(message, message) == [None, None]
        assert await asyncio.gather(*(process.ack(message) for _ in range(2))) == [[None], [None]]

    async def test_a_token_twice_in_one_call(self, world: World) -> None:
        process = await world.process()
        await process.publish_all([{"n": 1}, {"n": 2}])
        first, second = await process.take(2)
        assert await process.ack(first, second, first) == [None] * 3
        assert await process.is_empty()

    async def test_what_was_handed_out_again_is_lost_to_the_past(self, world: World) -> None:
        process = await world.process()
        past, present = await redelivered(process)
        for verb in (process.ack, process.nack, process.reject):
            assert kinds(await verb(past)) == [LeaseLost]
        assert kinds(await process.extend(past, lease=60)) == [LeaseLost]
        assert world.broker.tells(await process.stats(), depth=0, in_flight=1), "the past touched the present lease"
        assert await process.ack(present) == [None]
        assert await process.is_empty()
        assert await process.dead() == []

    @pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
    @pytest.mark.parametrize("verb", ["ack", "nack", "reject", "extend"])
    async def test_a_lease_ends_at_its_deadline(self, world: World, verb: str, elsewhere: bool) -> None:
        if "ended_leases" not in world.broker.reports:
            pytest.skip("this server does not say that a lease is over")
        process = await world.process()
        other = await world.process() if elsewhere else process
        receipt = await process.publish({"n": 1})
        message = await process.one(SHORT)
        await asyncio.sleep((message.lease_expires_at - now_ms()) / 1000 + 0.002)
        how = {"lease": 60.0} if verb == "extend" else {}
        # At once, so that where nobody looks after deadlines in between, nobody has looked.
        assert kinds(await getattr(other, verb)(message, **how)) == [LeaseLost]
        again = await process.one()
        assert (again.attempts, data(again)) == (1, {"n": 1})
        assert kinds(await getattr(other, verb)(message, **how)) == [LeaseLost]
        assert await process.ack(again) == [None]
        assert await process.is_empty()
        assert await process.dead() == []

        def ends() -> list[tuple[str, str | None]]:
            told = [event for each in {process, other} for event in each.events]
            return sorted(
                (event.kind, facts.message_id) for event in told if event.kind in ENDS for facts in event.messages
            )

        async def are_told() -> bool:
            kinds = ["acked", "lease_expired", "lease_lost", "lease_lost"]
            if "expiries" not in world.broker.reports:
                kinds.remove("lease_expired")
            return ends() == [(kind, receipt.id) for kind in kinds]

        await until(are_told)

    async def test_what_was_acked_in_time_stays_acked(self, world: World) -> None:
        process = await world.process()
        await process.publish({"n": 1})
        message = await process.one(KEPT)
        assert await process.ack(message) == [None]
        await asyncio.sleep(KEPT + 0.3)
        assert await process.ack(message) == [None]
        assert kinds(await process.nack(message)) == [LeaseLost]
        assert await process.is_empty()
        assert not [event for event in process.events if event.kind == "lease_expired"]

    async def test_an_extend_moves_the_deadline_of_every_verb(self, world: World) -> None:
        process = await world.process()
        await process.publish_all([{"n": 1}, {"n": 2}])
        if "ended_leases" not in world.broker.reports:
            pytest.skip("this server does not say that a lease is over")
        longer, shorter = await process.take(2, 60)
        assert await process.extend(shorter, lease=SHORT) == [None]
        await asyncio.sleep(AFTER)
        assert kinds(await process.ack(shorter, longer)) == [LeaseLost, None]
        assert data(await process.one()) == {"n": 2}

    async def test_a_token_is_short_and_shows_nothing_of_the_message(self, world: World, queue: str) -> None:
        process = await world.process()
        await process.publish({"n": 1})
        message = await process.one()
        token, sent = message.ack_token, json.loads(message.body)
        handle = TokenSealer(KEYS).open(token, queue).handle
        assert len(token) <= max(300, 250 + len(handle) * 4 // 3)
        content = urlsafe_b64decode(token + "=" * (-len(token) % 4))
        assert [
            text for text in (queue, sent["job"], sent["meta"]["id"], sent["trace_id"]) if text.encode() in content
        ] == []

    @pytest.mark.parametrize("verb", ["ack", "nack", "reject", "extend"])
    async def test_a_token_that_is_not_ours_is_refused_alone(self, world: World, verb: str, queue: str) -> None:
        process, elsewhere = await world.process(), await world.process(queue=f"{queue}-other")
        await process.publish({"n": 1})
        await elsewhere.publish({"n": 2})
        message, foreign = await process.one(), await elsewhere.one()
        lease = TokenSealer(KEYS).open(message.ack_token, queue)
        forged = TokenSealer([TokenKey(KEYS[0].id, b"a secret of somebody else's, as long")]).seal(lease)
        bad = [forged, "no token at all", "", foreign.ack_token, message.ack_token[:-2]]
        settlements = {
            "ack": Settlement(acks=[*bad, message.ack_token]),
            "nack": Settlement(nacks=[Nack([*bad, message.ack_token], 0)]),
            "reject": Settlement(rejects=[Reject([*bad, message.ack_token])]),
            "extend": Settlement(extends=[Extend([*bad, message.ack_token], 60)]),
        }
        assert kinds(await process.settle(settlements[verb])) == [InvalidAckToken] * 5 + [None]
        assert world.broker.tells(await elsewhere.stats(), in_flight=1)
        assert await elsewhere.ack(foreign) == [None]

    @pytest.mark.parametrize("verb", ["ack", "nack", "reject", "extend"])
    async def test_nothing_but_bad_tokens(self, world: World, verb: str) -> None:
        process = await world.process()
        settlements = {
            "ack": Settlement(acks=["x", "y"]),
            "nack": Settlement(nacks=[Nack(["x", "y"])]),
            "reject": Settlement(rejects=[Reject(["x", "y"])]),
            "extend": Settlement(extends=[Extend(["x", "y"])]),
        }
        assert kinds(await process.settle(settlements[verb])) == [InvalidAckToken] * 2

    async def test_an_ack_of_what_was_nacked_does_not_remove_it(self, world: World) -> None:
        process = await world.process()
        await process.publish({"n": 1})
        message = await process.one()
        await process.nack(message)
        assert kinds(await process.ack(message)) == [LeaseLost]
        assert data(await process.one()) == {"n": 1}

    async def test_an_ack_of_what_was_rejected_leaves_the_dead_letter(self, world: World) -> None:
        process = await world.process()
        await process.publish({"n": 1})
        message = await process.one()
        await process.reject(message)
        assert kinds(await process.ack(message)) == [LeaseLost]
        assert len(await process.dead()) == 1

    async def test_what_was_acked_cannot_be_raised_again(self, world: World) -> None:
        process = await world.process()
        await process.publish({"n": 1})
        message = await process.one()
        await process.ack(message)
        for verb in (process.nack, process.reject):
            assert kinds(await verb(message)) == [LeaseLost]
        assert kinds(await process.extend(message, lease=60)) == [LeaseLost]
        assert await process.is_empty()
        assert await process.dead() == []

    async def test_a_settle_that_is_repeated_acts_once(self, world: World) -> None:
        process = await world.process()
        await process.publish_all([{"n": 1}, {"n": 2}])
        nacked, rejected = await process.take(2)
        for _ in range(2):
            await process.nack(nacked)
            await process.reject(rejected)
        await process.take(1)
        assert await process.ready(10) == []
        assert len(await process.dead()) == 1

    @pytest.mark.parametrize("verb", ["ack", "nack", "reject", "extend"])
    async def test_another_process_settles(self, world: World, verb: str) -> None:
        receiver, other = await world.process(), await world.process()
        await receiver.publish({"n": 1})
        message = await receiver.one(5)
        how = {"lease": 60.0} if verb == "extend" else {}
        assert await getattr(other, verb)(message, **how) == [None]
        depth, in_flight, dead = {"ack": (0, 0, 0), "nack": (1, 0, 0), "reject": (0, 0, 1), "extend": (0, 1, 0)}[verb]
        assert world.broker.tells(await receiver.stats(), depth=depth, in_flight=in_flight)
        assert len(await receiver.dead()) == dead

    async def test_all_verbs_in_one_call_each_counting_for_itself(self, world: World) -> None:
        process = await world.process()
        await process.publish_all([{"n": n} for n in range(6)])
        messages = sorted(await process.take(6), key=lambda message: int(data(message)["n"]))
        tokens = [message.ack_token for message in messages]
        settlement = Settlement(
            acks=[tokens[0], "bad", tokens[1]],
            nacks=[Nack([tokens[2]], 0), Nack([tokens[3]], 3600)],
            rejects=[Reject([tokens[4]], "no stock")],
            extends=[Extend([tokens[5]], 60)],
        )
        results = await process.gateway.settle(ANYONE, world.queue, settlement)
        assert [(result.action, result.index) for result in results] == [
            ("ack", 0),
            ("ack", 1),
            ("ack", 2),
            ("nack", 0),
            ("nack", 1),
            ("reject", 0),
            ("extend", 0),
        ]
        assert [type(result.error) for result in results if result.error] == [InvalidAckToken]
        assert [data(message)["n"] for message in await process.take(1)] == [2]
        assert await process.ready(10) == []
        assert [letter.error for letter in await process.dead()] == ["no stock"]

    async def test_events_tell_what_happened(self, world: World) -> None:
        process = await world.process()
        await process.publish_all([{"n": n} for n in range(3)])
        acked, nacked, rejected = await process.take(3)
        await process.settle(
            Settlement([acked.ack_token], [Nack([nacked.ack_token], 0)], [Reject([rejected.ack_token])])
        )
        await process.nack(rejected)
        counted: dict[str, int] = {}
        for event in process.events:
            if event.kind in ("settled_here", "forwarded"):
                continue
            assert (event.queue, event.broker) == (world.queue, world.broker.name)
            counted[event.kind] = counted.get(event.kind, 0) + event.count
        assert counted == {
            "accepted": 3,
            "delivered": 3,
            "acked": 1,
            "nacked": 1,
            "rejected": 1,
            "dead_lettered": 1,
            "lease_lost": 1,
        }

    async def test_order_goes_on_behind_a_settled_head(self, world: World) -> None:
        process = await world.process()
        await process.publish_all([{"n": n} for n in range(3)])
        seen: list[int] = []
        for _ in range(3):
            message = await process.one()
            seen.append(data(message)["n"])
            await process.ack(message)
        assert process.in_order(seen) == [0, 1, 2]
