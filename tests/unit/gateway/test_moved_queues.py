"""A running gateway is switched to other brokers and routes: what is under way goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from babelgate.brokers.binding import Delivery, NativeQueue, Outcome, Outgoing
from babelgate.errors import BrokerRejected, BrokerUnavailable, QueueNotFound
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.authorization import ANYONE, Right
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.model import Message, Settlement
from babelgate.gateway.routing import Router, Rule
from babelgate.gateway.switching import GatewayParts, queues_in_use, switch, unlisted, warn_of_unused
from babelgate.schemas.job_schemas import JobSchemas
from tests.harness.local import eventually
from tests.harness.memory import OWNED, ConnectedMemory
from tests.harness.world import KEYS, draft

SOON = 60.0


class Memory(ConnectedMemory):
    """Its blocking reserves hang until the test releases them."""

    def __init__(self, name: str) -> None:
        super().__init__(name, replace(OWNED, max_batch=2))
        self.blocked = asyncio.Event()
        self.fails = False
        self.refuses: set[bytes] = set()
        self.hold = asyncio.Event()

    async def reserve(
        self, queue: NativeQueue, limit: int, wait_seconds: float, lease_seconds: float
    ) -> Sequence[Delivery]:
        if wait_seconds:
            self.blocked.set()
        if self.fails and wait_seconds:
            await self.hold.wait()
            raise BrokerUnavailable(self.name, "no answer in time")
        return await super().reserve(queue, limit, wait_seconds, lease_seconds)

    def _refusal(self, message: Outgoing) -> Outcome:
        return BrokerRejected(self.name, "not this one") if message.body in self.refuses else None

    async def release(
        self, queue: NativeQueue, handles: Sequence[str], delay_seconds: float, failed: bool
    ) -> Sequence[Outcome]:
        """They go back to the head of the queue."""
        outcomes = await super().release(queue, handles, delay_seconds, failed)
        held = self._queues[queue.name]
        held.ready = held.ready[len(held.ready) - len(handles) :] + held.ready[: len(held.ready) - len(handles)]
        return outcomes


class Site:
    def __init__(self) -> None:
        self.one, self.two = Memory("one"), Memory("two")
        self.gateway = Gateway({"one": self.one}, Router([Rule("q", self.one)]), TokenSealer(KEYS))

    async def load(self, *rules: Rule, brokers: Sequence[Memory]) -> None:
        parts = GatewayParts(
            bindings={each.name: each for each in brokers},
            router=Router(rules),
            required=frozenset(),
            urls={},
            rate_limits=None,
            schemas=JobSchemas({}),
        )
        switch(self.gateway, parts, await queues_in_use(self.gateway), {})

    async def move(self, to: Memory, *, only: bool = False) -> None:
        """Route the queue to ``to``. ``only``: there is no other broker any more."""
        await self.load(Rule("q", to), brokers=[to] if only else [self.one, self.two])

    async def publish(self) -> None:
        await self.gateway.publish(ANYONE, "q", draft({}))

    async def receive(self, wait_seconds: float = 0) -> list[Message]:
        return await self.gateway.receive(ANYONE, "q", wait_seconds=wait_seconds)

    def waiting(self) -> asyncio.Task[list[Message]]:
        return asyncio.create_task(self.receive(SOON))


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    yield site
    await site.gateway.close()


async def test_receives_wait_again_on_a_route_that_was_removed_and_put_back(site: Site) -> None:
    waiting = site.waiting()
    await asyncio.wait_for(site.one.blocked.wait(), SOON)
    await site.load(brokers=[site.one])
    assert await asyncio.wait_for(waiting, SOON) == []
    with pytest.raises(QueueNotFound):
        await site.receive()
    await site.load(Rule("q", site.one), brokers=[site.one])
    site.one.blocked.clear()
    again = site.waiting()
    await asyncio.wait_for(site.one.blocked.wait(), SOON)
    await site.publish()
    assert len(await asyncio.wait_for(again, SOON)) == 1


async def test_a_receive_that_was_handed_over_does_not_get_the_error_of_the_old_broker(site: Site) -> None:
    site.one.fails = True
    waiting = site.waiting()
    await asyncio.wait_for(site.one.blocked.wait(), SOON)
    await site.move(site.two)
    site.one.hold.set()
    await site.gateway.queue_runtimes.former(Router([Rule("q", site.one)]).route("q")).receiver.idle()
    await site.publish()
    (message,) = await asyncio.wait_for(waiting, SOON)
    assert message.lease.broker == "two"


async def test_messages_go_back_to_the_broker_that_they_are_from(site: Site) -> None:
    await site.publish()
    leased = await site.receive()
    await site.move(site.two)
    receiver, waiter = site.gateway.begin_receive(site.gateway.access(ANYONE, Right.LISTEN, "q"), 1, SOON, None) or (
        None,
        None,
    )
    assert receiver is not None
    assert waiter is not None
    await site.gateway.give_back("q", leased)
    assert site.one.calls["release"] == [1]
    # It follows, and its receive waits on another broker than the one that began it.
    await site.move(site.one)
    assert waiter.receiver is not receiver
    await site.publish()
    messages = await asyncio.wait_for(waiter.future, SOON)
    waiter.receiver.return_later(messages)
    await waiter.receiver.idle()
    assert {each.lease.broker for each in messages} == {"one"}
    assert len(site.one.ready("q")) >= 1


async def test_a_cancelled_receive_gives_back_where_it_was_served(site: Site) -> None:
    access = site.gateway.access(ANYONE, Right.LISTEN, "q")
    begun = site.gateway.begin_receive(access, 1, SOON, None)
    assert begun is not None
    waiting = site.waiting()
    # Both are served by one reserve: the second one ends while its messages are on the way.
    begun[1].future.add_done_callback(lambda _: waiting.cancel())
    await asyncio.wait_for(site.one.blocked.wait(), SOON)
    await site.move(site.two)
    await asyncio.wait_for(site.two.blocked.wait(), SOON)
    await site.gateway.publish_many(ANYONE, "q", [draft({}), draft({})])
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(waiting, SOON)
    assert site.two.calls["release"] == [1]
    assert len(site.two.ready("q")) == 1


async def test_a_removed_broker_stays_open_and_is_the_same_when_it_is_put_back(site: Site) -> None:
    await site.publish()
    (message,) = await site.receive()
    await site.move(site.two, only=True)
    assert list(site.gateway.bindings) == ["two"]
    await site.move(site.two)
    (result,) = await site.gateway.settle(ANYONE, "q", Settlement(acks=[message.ack_token]))
    assert result.error is None
    assert site.gateway.former.brokers == {}
    await site.move(site.two, only=True)
    assert site.one.calls["close"] == []
    await site.gateway.close()
    assert (site.one.calls["close"], site.two.calls["close"]) == ([1], [1])


async def test_messages_that_the_new_broker_refuses_do_not_stop_the_others(site: Site) -> None:
    for _ in range(4):
        await site.publish()
    bodies = [each.body for each in site.one.ready("q")]
    # As many as one look takes.
    refused = set(bodies[:2])
    site.two.refuses = refused
    await site.move(site.two)
    await eventually(lambda: {each.body for each in site.two.ready("q")} == set(bodies[2:]))
    await site.gateway.close()
    assert {each.body for each in site.one.ready("q")} == refused, "the end of the process gives them back"


async def test_a_former_broker_that_does_not_answer_holds_up_no_other(site: Site) -> None:
    other = Memory("three")
    hung = [f"h{number}" for number in range(20)]
    brokers = [site.one, site.two, other]
    site.one.gates["stats"] = asyncio.Event()
    await site.load(*(Rule(name, site.one) for name in hung), Rule("q", other), brokers=brokers)
    await site.publish()
    left = [Rule(name, site.two) for name in hung]
    await site.load(*left, Rule("q", other), brokers=brokers)
    await eventually(lambda: len(site.one.calls["stats"]) == 8)
    await site.load(*left, Rule("q", site.two), brokers=brokers)
    await eventually(lambda: site.two.ready("q"))
    assert len(site.one.calls["stats"]) == 8


async def test_a_former_broker_is_not_asked_while_its_circuit_is_open(site: Site) -> None:
    other = Memory("three")
    brokers = [site.one, site.two, other]
    site.gateway.outages.circuits["one"].is_open = True
    await site.load(Rule("a", site.one), Rule("q", other), brokers=brokers)
    await site.publish()
    await site.load(Rule("a", site.two), Rule("q", site.two), brokers=[site.two])
    await eventually(lambda: site.two.ready("q"))
    assert site.one.calls["stats"] == []


async def test_a_look_that_fails_opens_the_circuit_of_the_former_broker(site: Site) -> None:
    for verb in ("stats", "ping"):
        site.one.fail_after(verb, 0)
    await site.move(site.two, only=True)
    await eventually(lambda: site.gateway.outages.circuits["one"].is_open)


async def test_a_broker_whose_unused_queues_are_unknown_is_named(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    brokers = await unlisted(site.gateway)
    assert brokers == ["one"], "it lists no queues"
    named, default = Router([Rule("q", site.one)]), Router([], Rule("*", site.one))
    warn_of_unused(named, Router([Rule("q", site.two)]), brokers)
    warn_of_unused(default, default, brokers)
    warn_of_unused(default, Router([], Rule("*", site.two)), [])
    assert not caplog.records
    warn_of_unused(default, Router([], Rule("*", site.two)), brokers)
    warn_of_unused(Router([Rule("a*", site.one)]), Router([], Rule("*", site.two)), brokers)
    assert len(caplog.records) == 2
