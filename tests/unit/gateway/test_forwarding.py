"""Who gets which tokens of a settle call, and the one answer made of all their answers."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

import pytest

from babelgate.brokers.binding import NativeQueue, Outcome
from babelgate.errors import (
    BabelgateError,
    InvalidAckToken,
    LeaseLost,
    OutcomeUnknown,
    OwnerUnreachable,
    UnsupportedByBroker,
)
from babelgate.gateway.ack_tokens import Lease, TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.forwarding import Request, merge, split
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.limit_terms import QueueTerms
from babelgate.gateway.model import Extend, Nack, Reject, Settlement, SettleResult
from babelgate.gateway.rate_limits import RateLimits
from babelgate.gateway.routing import Policy, Route, Router, Rule
from babelgate.observe.events import Event
from babelgate.observe.metrics.exposition import exposition
from babelgate.observe.metrics.recorder import Metrics
from tests.harness.memory import OWNED, DeadLetterPublishingMemory, MemoryBinding, lacking
from tests.harness.observed import events_into
from tests.harness.world import KEYS, draft, kinds

QUEUE = "q"


def first(token: str, request: Request) -> str:
    """The owner of a token of these tests: its first letter."""
    return token[0]


class TestSplit:
    def test_each_owner_gets_its_own_in_order(self) -> None:
        settlement = Settlement(
            acks=["a1", "b1", "a2"],
            nacks=[Nack(["b2", "a3"], 5, "why", "Error"), Nack(["a4"])],
            rejects=[Reject(["b3"], "bad")],
            extends=[Extend(["a5", "b4"], 60)],
        )
        parts, _ = split(settlement, first)
        assert parts == {
            "a": Settlement(["a1", "a2"], [Nack(["a3"], 5, "why", "Error"), Nack(["a4"])], [], [Extend(["a5"], 60)]),
            "b": Settlement(["b1"], [Nack(["b2"], 5, "why", "Error")], [Reject(["b3"], "bad")], [Extend(["b4"], 60)]),
        }

    def test_the_merged_answer_is_as_one_gateway_would_give_it(self) -> None:
        settlement = Settlement(
            ["a1", "b1", "a2"], [Nack(["b2", "a3"]), Nack(["a4"])], [Reject(["b3"])], [Extend(["a5"])]
        )
        parts, owners = split(settlement, first)
        answers = {owner: answer(part, owner) for owner, part in parts.items()}
        assert [(each.index, each.action, each.lease_expires_at) for each in merge(owners, answers)] == [
            (0, "ack", ord("a")),
            (1, "ack", ord("b")),
            (2, "ack", ord("a")),
            (0, "nack", ord("b")),
            (1, "nack", ord("a")),
            (2, "nack", ord("a")),
            (0, "reject", ord("b")),
            (0, "extend", ord("a")),
        ]

    def test_what_is_wrong_with_one_owner_is_wrong_with_its_tokens_only(self) -> None:
        parts, owners = split(Settlement(["a1", "b1"], rejects=[Reject(["b2"])]), first)
        lost = LeaseLost()
        results = merge(owners, {"a": answer(parts["a"], "a"), "b": lost})
        assert results == [
            SettleResult(0, "ack", None, ord("a")),
            SettleResult(1, "ack", lost),
            SettleResult(0, "reject", lost),
        ]

    def test_nothing_asks_nobody(self) -> None:
        parts, owners = split(Settlement(), first)
        assert (parts, merge(owners, {})) == ({}, [])


def answer(part: Settlement, owner: str) -> list[SettleResult]:
    """What ``owner`` answers: its letter stands in the deadline."""
    nacked, rejected, extended = (
        sum(len(ask.ack_tokens) for ask in several) for several in (part.nacks, part.rejects, part.extends)
    )
    counts = (("ack", len(part.acks)), ("nack", nacked), ("reject", rejected), ("extend", extended))
    return [SettleResult(i, action, None, ord(owner)) for action, count in counts for i in range(count)]  # type: ignore[arg-type]


class Others:
    """A way to other gateways, which all answer with ``error``."""

    def __init__(self, error: BabelgateError | None = None) -> None:
        self.error = error
        self.asked: list[tuple[str, Settlement]] = []

    async def settle(
        self, owner: str, route: Route, settlement: Settlement, traceparent: str | None = None
    ) -> Sequence[SettleResult]:
        self.asked.append((owner, settlement))
        if self.error is not None:
            raise self.error
        return answer(settlement, "x")


class Here:
    """A gateway on a broker where only the receiver settles (unless ``scope`` says otherwise), and a foreign token."""

    def __init__(self, others: Others, scope: str = "owner") -> None:
        binding = MemoryBinding(capabilities=lacking(ack_scope=scope))
        self.events: list[Event] = []
        sealer = TokenSealer(KEYS)
        self.gateway = Gateway(
            {binding.name: binding},
            Router([], Rule("*", binding)),
            sealer,
            observe=events_into(self.events),
            forwarder=others,
        )
        self.foreign = sealer.seal(Lease(QUEUE, binding.name, "1", "feedfeedfeedfeed", 0, 0))

    async def token(self) -> str:
        await self.gateway.publish(ANYONE, QUEUE, draft({}))
        (message,) = await self.gateway.receive(ANYONE, QUEUE)
        return message.ack_token

    async def settle(self, settlement: Settlement) -> list[BabelgateError | None]:
        return [each.error for each in await self.gateway.settle(ANYONE, QUEUE, settlement)]

    def counted(self) -> dict[str, float]:
        """The settles that were counted here and as forwarded."""
        metrics = Metrics()
        for event in self.events:
            metrics.observe(event)
        lines = [
            line
            for line in b"".join(exposition(metrics.snapshot())[0]).decode().splitlines()
            if "_settles_total{" in line
        ]
        return {line.partition("{")[2].rpartition("}")[0].split('"')[-2]: float(line.split()[-1]) for line in lines}


class TestForwarding:
    async def test_what_was_handed_out_here_is_settled_here(self) -> None:
        others = Others()
        here = Here(others)
        assert await here.settle(Settlement([await here.token()])) == [None]
        assert others.asked == []
        assert [(e.kind, e.count) for e in here.events if e.kind == "settled_here"] == [("settled_here", 1)]

    async def test_the_rest_goes_to_its_owner(self) -> None:
        others = Others()
        here = Here(others)
        own = await here.token()
        assert await here.settle(Settlement([here.foreign, own], [Nack([here.foreign], 1)])) == [None, None, None]
        assert others.asked == [("feedfeedfeedfeed", Settlement([here.foreign], [Nack([here.foreign], 1)], [], []))]
        assert [e.count for e in here.events if e.kind == "acked"] == [1], (
            "what another settled was counted here as well"
        )

    @pytest.mark.parametrize(
        ("error", "outcome"),
        [
            (None, "settled"),
            (LeaseLost(), "lease_lost"),
            (OwnerUnreachable(reason="x"), "unreachable"),
            (OutcomeUnknown("x", "y"), "unknown"),
            (InvalidAckToken(), "failed"),
        ],
    )
    async def test_what_became_of_it_is_counted(self, error: BabelgateError | None, outcome: str) -> None:
        here = Here(Others(error))
        assert await here.settle(Settlement([here.foreign] * 2)) == [error, error]
        assert here.counted() == {outcome: 2.0}

    @pytest.mark.parametrize(
        ("error", "lost"),
        [(None, 0), (LeaseLost(), 3), (OwnerUnreachable(reason="x"), 0), (OutcomeUnknown("x", "y"), 0)],
    )
    async def test_a_lease_of_an_owner_that_is_no_more_is_reported_by_who_asked(
        self, error: BabelgateError | None, lost: int
    ) -> None:
        here = Here(Others(error))
        own = await here.token()
        await here.settle(Settlement([here.foreign, own, here.foreign], rejects=[Reject([here.foreign])]))
        assert sum(event.count for event in here.events if event.kind == "lease_lost") == lost

    async def test_an_owner_that_is_out_of_reach_holds_no_lease_for_ever(self) -> None:
        """The longest lease and the difference of two clocks after its first deadline, a lease has certainly ended."""
        now = 1_700_000_000_000
        longest = round(OWNED.max_lease_seconds * 1000)
        binding = DeadLetterPublishingMemory("memory", OWNED, lambda: now)
        sealer, events = TokenSealer(KEYS), list[Event]()
        gateway = Gateway(
            {"memory": binding},
            Router([], Rule("*", binding)),
            sealer,
            clock=lambda: now,
            observe=events_into(events),
            forwarder=Others(OwnerUnreachable(reason="x")),
        )
        over, may_live = (
            sealer.seal(Lease(QUEUE, "memory", "1", "feedfeedfeedfeed", now - longest - late, 0))
            for late in (60_001, 60_000)
        )
        settlement = Settlement([over, may_live], [Nack([may_live]), Nack([over])], [Reject([over])])
        results = await gateway.settle(ANYONE, QUEUE, settlement)
        assert kinds([result.error for result in results]) == [
            LeaseLost,
            OwnerUnreachable,
            OwnerUnreachable,
            LeaseLost,
            LeaseLost,
        ]
        forwarded = {event.reason: event.count for event in events if event.kind == "forwarded"}
        assert forwarded == {"lease_lost": 3, "unreachable": 2}
        assert [event.count for event in events if event.kind == "lease_lost"] == [3]

    async def test_all_are_asked_at_once(self) -> None:
        together = asyncio.Barrier(2)

        class Slow(Others):
            async def settle(
                self, owner: str, route: Route, settlement: Settlement, traceparent: str | None = None
            ) -> Sequence[SettleResult]:
                await together.wait()
                return await super().settle(owner, route, settlement)

        here = Here(Slow())
        other = TokenSealer(KEYS).seal(Lease(QUEUE, "memory", "1", "beefbeefbeefbeef", 0, 0))
        assert await here.settle(Settlement([here.foreign, other])) == [None, None]

    async def test_where_anybody_can_settle_nobody_is_asked(self) -> None:
        others = Others()
        here = Here(others, scope="anywhere")
        own = await here.token()
        lease = TokenSealer(KEYS).open(own, QUEUE)
        elsewhere = TokenSealer(KEYS).seal(Lease(QUEUE, lease.broker, lease.handle, "feedfeedfeedfeed", 0, 0))
        assert await here.settle(Settlement([elsewhere])) == [None]
        assert others.asked == []
        assert here.counted() == {}

    @pytest.mark.parametrize("seconds", [0, 4])
    async def test_what_is_acked_too_late_has_an_unknown_outcome(self, seconds: int) -> None:
        """The receiver may have published it again, between the end of the lease and the ack."""
        now = 1_700_000_000_000

        class Slow(DeadLetterPublishingMemory):
            async def ack(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
                nonlocal now
                now += seconds * 1000
                return [None] * len(handles)

        binding = Slow("memory", dataclasses.replace(OWNED, ack_scope="anywhere"), lambda: now)
        sealer, others = TokenSealer(KEYS), Others()
        gateway = Gateway(
            {"memory": binding}, Router([], Rule("*", binding)), sealer, clock=lambda: now, forwarder=others
        )
        late, soon = (
            sealer.seal(Lease(QUEUE, "memory", f"{lasts}", "feedfeedfeedfeed", now + lasts, 0))
            for lasts in (3000, 5000)
        )
        extend = Extend([soon], 60)
        results = await gateway.settle(ANYONE, QUEUE, Settlement([late, soon], extends=[extend]))
        assert [(result.index, result.action) for result in results] == [(0, "ack"), (1, "ack"), (0, "extend")]
        assert kinds([result.error for result in results]) == [OutcomeUnknown if seconds else None, None, None]
        assert others.asked == [("feedfeedfeedfeed", Settlement([], [], [], [extend]))]

    @pytest.mark.parametrize("is_refusal", [False, True])
    async def test_an_ack_that_its_owner_does_not_see_has_an_unknown_outcome_once_its_lease_may_have_ended(
        self, is_refusal: bool
    ) -> None:
        now = 1_700_000_000_000
        binding = DeadLetterPublishingMemory("memory", dataclasses.replace(OWNED, ack_scope="anywhere"), lambda: now)
        sealer, others = TokenSealer(KEYS), Others(OwnerUnreachable(reason="x", is_refusal=is_refusal))
        gateway = Gateway(
            {"memory": binding}, Router([], Rule("*", binding)), sealer, clock=lambda: now, forwarder=others
        )
        for _ in range(2):
            await gateway.publish(ANYONE, QUEUE, draft({}))
        late, soon = (
            sealer.seal(Lease(QUEUE, "memory", delivery.handle, "feedfeedfeedfeed", now + lasts, 0, sticky=True))
            for delivery, lasts in zip(await binding.reserve(NativeQueue(QUEUE), 2, 0, 60), (0, 1), strict=True)
        )
        results = await gateway.settle(ANYONE, QUEUE, Settlement([late, soon]))
        told = [OwnerUnreachable] * 2 if is_refusal else [OutcomeUnknown, None]
        assert kinds([result.error for result in results]) == told
        assert len(binding.calls["ack"]) == (0 if is_refusal else 1)

    @pytest.mark.parametrize("is_refusal", [False, True])
    async def test_a_receiver_that_only_counts_a_lease_is_not_needed(self, is_refusal: bool) -> None:
        binding = MemoryBinding("memory")
        router = Router([Rule(QUEUE, binding, Policy(limits=QueueTerms(max_leases=9)))])
        sealer, others = TokenSealer(KEYS), Others(OwnerUnreachable(reason="x", is_refusal=is_refusal))
        gateway = Gateway({"memory": binding}, router, sealer, forwarder=others, rate_limits=RateLimits(router))
        for _ in range(2):
            await gateway.publish(ANYONE, QUEUE, draft({}))
        one, two = (
            sealer.seal(Lease(QUEUE, "memory", each.handle, "feedfeedfeedfeed", each.lease_expires_at, 0, sticky=True))
            for each in await binding.reserve(NativeQueue(QUEUE), 2, 0, 60)
        )
        results = await gateway.settle(ANYONE, QUEUE, Settlement([one], [Nack([two])]))
        assert [result.error for result in results] == [None, None]
        assert len(others.asked) == 1

    @pytest.mark.parametrize("error", [LeaseLost(), OwnerUnreachable(reason="x")])
    async def test_a_lease_at_a_place_that_is_not_known_here_is_settled_by_its_receiver(
        self, error: BabelgateError
    ) -> None:
        """Its receiver has loaded a configuration that this gateway has not loaded yet."""
        binding, sealer = MemoryBinding("memory"), TokenSealer(KEYS)
        moved = Router([Rule("*", binding, native_name="moved-{queue}")])
        there = Gateway({"memory": binding}, moved, sealer)

        class Peer(Others):
            async def settle(
                self, owner: str, route: Route, settlement: Settlement, traceparent: str | None = None
            ) -> Sequence[SettleResult]:
                await super().settle(owner, route, settlement)
                return await there.settle_here(route.queue, settlement)

        peer = Peer()
        here = Gateway({"memory": binding}, Router([Rule("*", binding)]), TokenSealer(KEYS), forwarder=peer)
        for number in range(4):
            await there.publish(ANYONE, QUEUE, draft({"number": number}))
        one, two, three, four = [
            each.ack_token for each in await there.receive(ANYONE, QUEUE, max_messages=4, lease_seconds=60)
        ]
        results = await here.settle(ANYONE, QUEUE, Settlement([one], [Nack([two])], extends=[Extend([three], 90)]))
        assert [(each.action, each.error) for each in results] == [("ack", None), ("nack", None), ("extend", None)]
        assert [owner for owner, _ in peer.asked] == [there.incarnation]
        peer.error = error
        (result,) = await here.settle(ANYONE, QUEUE, Settlement([four]))
        assert type(result.error) is type(error), "what is not known is not told as lost"
        peer.error = None
        assert [each.error for each in await here.settle(ANYONE, QUEUE, Settlement([four, three]))] == [None, None]

    async def test_what_a_peer_sends_is_not_sent_on(self) -> None:
        others = Others()
        here = Here(others)
        own = await here.token()
        results = await here.gateway.settle_here(QUEUE, Settlement([own, here.foreign]))
        assert [type(each.error) for each in results] == [type(None), LeaseLost]
        assert others.asked == []
        assert here.counted() == {}, "the one that forwarded it counts it"
        assert [event.count for event in here.events if event.kind == "lease_lost"] == [1], "there is nobody else"

    async def test_a_bad_token_is_nobodys(self) -> None:
        others = Others()
        here = Here(others)
        (error,) = await here.settle(Settlement(["nonsense"]))
        assert (type(error), others.asked) == (InvalidAckToken, [])

    async def test_what_is_wrong_for_all_is_told_before_anything_is_done(self) -> None:
        others = Others()
        here = Here(others)
        own = await here.token()
        with pytest.raises(UnsupportedByBroker):
            await here.gateway.settle(ANYONE, QUEUE, Settlement([own], extends=[Extend([here.foreign], 10**6)]))
        assert others.asked == []
        assert await here.settle(Settlement([own])) == [None]
