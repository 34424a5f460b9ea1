"""A connection that another one to the same server has replaced is closed by a later load, once nothing rests on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from babelgate.brokers.binding import Binding, Outcome, Outgoing
from babelgate.brokers.capabilities import BrokerCapabilities
from babelgate.brokers.idempotency_store import ClaimResult, KeyClaim, KeyStore, Terms
from babelgate.errors import BrokerUnavailable
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.depths import QueueFull
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.idempotency import IdempotentPublisher, KeyPolicy, MaybeKeyed
from babelgate.gateway.limit_terms import QueueTerms
from babelgate.gateway.open_streams import StreamOptions
from babelgate.gateway.rate_limits import RateLimits
from babelgate.gateway.routing import Policy, Router, Rule
from babelgate.gateway.streaming import Stream
from babelgate.gateway.superseded import REST_SECONDS, let_go
from babelgate.gateway.switching import MANY_FORMER, log_left
from tests.harness.local import eventually
from tests.harness.memory import CAPABLE
from tests.harness.world import KEYS, draft
from tests.unit.gateway.test_idempotency import Deaf, settlings
from tests.unit.gateway.test_replaced_brokers import HERE, SOON, THERE, Keeping, Site, again, connected, keeping


class Rotating(Site):
    """A site whose broker gets other credentials, and where time passes."""

    passed = 0.0

    async def rotate(self, **rule: Any) -> Any:
        """Another connection."""
        new = again(self.one)
        await self.load(Rule("q", new, **{"address": HERE, **rule}))
        return new

    async def later(self) -> list[Binding]:
        """What the next load lets go. Tasks that were cancelled have ended before it."""
        self.passed += REST_SECONDS
        for _ in range(50):
            await asyncio.sleep(0)
        return let_go(self.gateway)

    def watch(self) -> None:
        self.gateway.former.clock = lambda: self.passed


@pytest.fixture(params=[connected, keeping], ids=["bound to a connection", "kept by the broker"])
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Rotating]:
    site = Rotating(request.param)
    site.watch()
    await site.gateway.start()
    yield site
    await site.gateway.close()


async def test_one_that_was_used_is_let_go_some_time_later(site: Rotating) -> None:
    await site.publish(2)
    (first,) = await site.receive()
    assert await site.settle(acks=[first.ack_token]) == [""]
    second = await site.rotate()
    assert let_go(site.gateway) == [], "requests that have begun before may still use it"
    assert await site.later() == [site.one]
    assert await site.later() == [] and not site.gateway.former.open_bindings
    (left,) = await site.receive()
    assert await site.settle(acks=[left.ack_token]) == [""]
    third = await site.rotate()
    fourth = await site.rotate()
    assert await site.later() == [second, third]
    assert site.gateway.bindings == {"one": fourth}


async def test_one_with_leases_is_not_let_go_before_they_are_settled(site: Rotating) -> None:
    await site.publish(2)
    first, second = await site.receive(max_messages=2)
    new = await site.rotate()
    is_kept_here = site.gateway.queue_runtimes.of(site.gateway.router.route("q")).held is not None
    assert await site.later() == ([] if is_kept_here else [site.one])
    assert await site.settle(acks=[first.ack_token]) == [""]
    assert await site.later() == []
    assert await site.settle(acks=[second.ack_token]) == [""]
    assert await site.later() == ([site.one] if is_kept_here else [])
    assert not new.calls["close"]


async def test_one_that_a_drain_uses_stays(site: Rotating) -> None:
    await site.publish()
    new = await site.rotate(native_name="other")
    await eventually(lambda: len(new.ready("other")) == 1)
    assert await site.later() == []
    await site.rotate(native_name="other")
    assert await site.later() == [new]
    assert site.gateway.former.replaced == [site.one]


async def test_one_to_another_server_stays(site: Rotating) -> None:
    await site.rotate(address=THERE)
    assert await site.later() == []


async def test_one_without_a_route_is_let_go() -> None:
    """Such as one on which messages are parked."""
    site = Rotating(keeping)
    two, second = keeping("two"), again(site.one)
    router = Router([Rule("q", two, address=THERE, parking=site.one)])
    site.gateway = Gateway({"one": site.one, "two": two}, router, TokenSealer(KEYS))
    site.watch()
    await site.publish()
    await site.load(Rule("q", two, address=THERE, parking=second), second)
    assert await site.later() == [site.one]
    await site.gateway.close()


async def test_each_left_route_is_remembered_once(site: Rotating) -> None:
    await site.publish()
    await site.rotate(address=THERE)
    for _ in range(5):
        await site.load(site.gateway.router.rules[0])
    routes = [each() for each in site.gateway.former.left_routes]
    assert len(routes) == len({id(each) for each in routes})


async def test_those_that_are_let_go_later_are_not_warned_of(site: Rotating, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(MANY_FORMER):
        log_left(site.gateway, await site.load(Rule("q", again(site.one), address=HERE)))
    assert len(site.gateway.former.open_bindings) == MANY_FORMER
    assert "many connections that are not in use" not in caplog.text


async def test_one_that_is_used_again_stays(site: Rotating) -> None:
    second = await site.rotate()
    await site.load(Rule("q", site.one, address=HERE))
    assert await site.later() == [second]
    assert site.gateway.bindings == {"one": site.one}


async def test_one_that_a_redrive_or_a_stream_uses_is_not_let_go(site: Rotating) -> None:
    await site.publish()
    with Stream(site.gateway, ANYONE, "q", StreamOptions()) as stream:
        (message,) = await stream.take(SOON)
        route = site.gateway.router.route("q")
        await site.rotate()
        assert await site.later() == []
        del route
        assert await site.settle(acks=[message.ack_token]) == [""]
        assert await site.later() == [site.one]
        await site.publish()
        (message,) = await stream.take(SOON)
        assert await site.settle(acks=[message.ack_token]) == [""]


async def test_the_depth_of_a_queue_keeps_no_connection(site: Rotating) -> None:
    policy = Policy(limits=QueueTerms(max_depth=2))
    site.limits = RateLimits(site.gateway.router)
    second = await site.rotate(policy=policy)
    await site.publish()
    await site.rotate(policy=policy)
    assert await site.later() == [site.one, second]
    await site.publish()
    with pytest.raises(QueueFull):
        await site.publish()


async def test_a_lease_of_a_route_before_is_settled_over_the_successor() -> None:
    """Another replica has handed it out, by the first configuration."""
    site = Rotating(keeping)
    site.watch()
    await site.gateway.start()
    try:
        await site.publish()
        (lease,) = await site.receive()
        second = await site.rotate()
        third = await site.rotate()
        assert await site.later() == [site.one, second]
        await site.load(Rule("q", keeping("two"), address=THERE))
        # What this process knows of the queue's runtimes, another one would not.
        site.gateway.queue_runtimes._former.clear()
        assert await site.settle(acks=[lease.ack_token]) == [""]
        assert third.calls["ack"] and not site.one.calls["ack"] and not second.calls["ack"]
    finally:
        await site.gateway.close()


async def test_one_that_is_lost_is_asked_no_more(site: Rotating) -> None:
    site.one.fail_after("ping", 0, BrokerUnavailable("one", "the password is another one"))
    site.gateway.outages.lost("one", BrokerUnavailable("one", "the password is another one"))
    site.gateway.maintenance.reopen(site.one)
    await site.rotate()
    watching = [*site.gateway.outages.of(site.one)._watching, *site.gateway.maintenance._opening.values()]
    assert len(watching) == 2
    assert await site.later() == [site.one]
    await eventually(lambda: all(task.cancelled() for task in watching))
    assert site.gateway.outages.of(site.one) is site.gateway.outages


class Granting(Deaf):
    """A store that grants all keys."""

    async def reserve(self, claims: Sequence[KeyClaim], token: bytes, terms: Terms) -> Sequence[ClaimResult]:
        return [None] * len(claims)


class GrantingBroker(Keeping):
    def __init__(self, name: str, capabilities: BrokerCapabilities = CAPABLE) -> None:
        super().__init__(name, capabilities)
        self.keys = Granting()
        self.keys.down = False


async def test_one_at_which_a_publish_under_way_settles_its_keys_is_not_let_go() -> None:
    """The queue is on another broker, so no route leads over the connection."""
    site = Rotating(GrantingBroker)
    site.watch()
    old, keys, answers = site.one, site.gateway.keys, asyncio.Event()
    keys.policy = KeyPolicy("one")

    async def send(messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        await answers.wait()
        return [None] * len(messages)

    async def send_once(store: KeyStore, messages: Sequence[MaybeKeyed], terms: Terms) -> Sequence[ClaimResult]:
        raise AssertionError("the queue is on another broker")

    publisher = IdempotentPublisher(Rule("*", keeping("two")).route("p"), keys, send, send_once)
    publishing = asyncio.create_task(publisher.publish([(Outgoing(b"0"), settlings(1)[0].claim)]))
    await asyncio.sleep(0)
    await site.rotate()
    assert await site.later() == []
    answers.set()
    assert await publishing == [None]
    assert await site.later() == [old]
    await site.gateway.close()


async def test_one_whose_keys_are_owed_a_settlement_is_not_let_go() -> None:
    site = Rotating(Keeping)
    site.watch()
    old = site.one
    assert isinstance(old, Keeping)
    await site.gateway.keys.store(site.gateway.router.route("q"))[1].settle(settlings(1))
    await site.rotate()
    assert await site.later() == []
    old.keys.down = False
    await eventually(lambda: not site.gateway.keys.owes(old))
    assert await site.later() == [old]
    await site.gateway.publish(ANYONE, "q", draft({}))
    await site.gateway.close()
