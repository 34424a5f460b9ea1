"""A running gateway gets another connection to a broker, or another native queue: what is under way goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from babelgate.brokers.binding import Binding
from babelgate.brokers.capabilities import BrokerCapabilities
from babelgate.envelope import Limits, inspect
from babelgate.errors import BrokerUnavailable, ConfigError
from babelgate.gateway.access import Access
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.authorization import ANYONE, Right
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.model import Extend, Message, Nack, Settlement
from babelgate.gateway.open_streams import StreamOptions
from babelgate.gateway.rate_limits import RateLimits
from babelgate.gateway.route_checks import check_moves
from babelgate.gateway.routing import Router, Rule
from babelgate.gateway.streaming import Stream
from babelgate.gateway.switching import GatewayParts, Switched, queues_in_use, switch
from babelgate.schemas.job_schemas import JobSchemas
from tests.harness.local import eventually
from tests.harness.memory import CAPABLE, OWNED, ConnectedMemory, MemoryBinding
from tests.harness.world import KEYS, draft
from tests.unit.gateway.test_idempotency import Deaf, settlings

SOON = 60.0
HERE, THERE = "redis://here", "redis://there"

Make = Callable[[str], MemoryBinding]


def connected(name: str) -> MemoryBinding:
    return ConnectedMemory(name, OWNED)


def keeping(name: str) -> MemoryBinding:
    return MemoryBinding(name, CAPABLE)


def again(other: MemoryBinding) -> MemoryBinding:
    """Another connection to the server of ``other``."""
    made = type(other)(other.name, other._capabilities)
    made._queues, made._handles = other._queues, other._handles
    return made


class Site:
    """A gateway with the broker ``one``."""

    limits: RateLimits | None = None
    """Those of the next load."""

    def __init__(self, make: Make) -> None:
        self.one = make("one")
        self.addresses = {"one": HERE}
        self.gateway = Gateway({"one": self.one}, Router([Rule("q", self.one, address=HERE)]), TokenSealer(KEYS))

    async def load(self, rule: Rule, *here: Binding) -> Switched:
        """``here``: other brokers, at their servers of before."""
        given = {each.name: HERE for each in here} | {rule.binding.name: rule.address}
        stayed = [name for name, address in given.items() if self.addresses.get(name) == address]
        self.addresses = given
        parts = GatewayParts(
            bindings={each.name: each for each in (*here, rule.binding)},
            router=Router([], rule) if rule.match == "*" else Router([rule]),
            required=frozenset(),
            urls={},
            rate_limits=self.limits,
            schemas=JobSchemas({}),
        )
        return switch(self.gateway, parts, await queues_in_use(self.gateway), {}, stayed)

    async def publish(self, count: int = 1) -> None:
        for number in range(count):
            await self.gateway.publish(ANYONE, "q", draft({"number": number}))

    async def receive(self, **options: Any) -> list[Message]:
        return await self.gateway.receive(ANYONE, "q", **options)

    async def settle(self, **members: Any) -> list[str]:
        """The problem code of each token; empty for none."""
        results = await self.gateway.settle(ANYONE, "q", Settlement(**members))
        return ["" if each.error is None else each.error.code for each in results]

    def begin_ack(self, message: Message) -> Any:
        return self.gateway.begin_ack(self.gateway.access(ANYONE, Right.LISTEN, "q"), message.ack_token)


@pytest.fixture(params=[connected, keeping], ids=["bound to a connection", "kept by the broker"])
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    site = Site(request.param)
    await site.gateway.start()
    yield site
    await site.gateway.close()


async def test_leases_settle_after_other_credentials_of_the_same_server(site: Site) -> None:
    await site.publish(4)
    first, second, third, fourth = await site.receive(max_messages=4)
    new = again(site.one)
    switched = await site.load(Rule("q", new, address=HERE))
    assert (switched.moved, list(switched.replaced)) == ([], [site.one])
    assert site.gateway.bindings == {"one": new}
    begun = site.begin_ack(first)
    assert (await begun is None) if begun is not None else await site.settle(acks=[first.ack_token]) == [""]
    assert await site.settle(acks=[second.ack_token], extends=[Extend([third.ack_token], 60)]) == ["", ""]
    assert await site.settle(acks=[first.ack_token, third.ack_token]) in (["", ""], ["lease_lost", ""])
    assert await site.settle(nacks=[Nack([fourth.ack_token])]) == [""]
    (back,) = await site.receive(wait_seconds=SOON)
    assert back.attempts == 1, "its queue is the same"
    assert await site.settle(acks=[back.ack_token]) == [""]
    assert not site.gateway.former.drains._tasks, "nothing has to be moved"
    assert site.one.calls["close"] == []


async def test_a_queue_follows_to_another_server_with_its_attempts(site: Site) -> None:
    await site.publish(3)
    first, second = await site.receive(max_messages=2)
    there = type(site.one)("one", site.one._capabilities)
    there._handles = site.one._handles
    switched = await site.load(Rule("q", there, address=THERE))
    assert [route.address for route in switched.moved] == [HERE]
    assert await site.settle(acks=[first.ack_token], nacks=[Nack([second.ack_token])]) == ["", ""]
    await eventually(lambda: len(there.ready("q")) == 2)
    assert sorted(inspect(each.body, Limits()).attempts for each in there.ready("q")) == [0, 1]
    assert not site.one.ready("q")


async def test_receives_wait_on_the_new_connection(site: Site) -> None:
    waiting = asyncio.create_task(site.receive(wait_seconds=SOON))
    await eventually(lambda: site.one.calls["reserve"])
    new = again(site.one)
    await site.load(Rule("q", new, address=HERE))
    await site.publish()
    (message,) = await waiting
    assert await site.settle(acks=[message.ack_token]) == [""]


@pytest.mark.parametrize("address", [HERE, THERE])
async def test_a_stream_goes_on(site: Site, address: str) -> None:
    """On another connection to the same server, and on another server."""
    await site.publish(2)
    there = again(site.one) if address == HERE else type(site.one)("one", site.one._capabilities)
    there._handles = site.one._handles
    with Stream(site.gateway, ANYONE, "q", StreamOptions(max_in_flight=2)) as stream:
        held: list[Message] = []
        while len(held) < 2:
            held += await stream.take(SOON)
        await site.load(Rule("q", there, address=address))
        await site.publish()
        assert await site.settle(acks=[held[0].ack_token]) == [""]
        (message,) = await stream.take(SOON)
        assert message.lease.is_at(Rule("q", there, address=address).route("q"))
        assert there.calls["reserve"]
        await stream._prolong(dict(stream._in_flight))
        assert (stream.in_flight, stream.is_draining) == (2, False), "both leases are prolonged where they are from"
        assert sum(site.one.calls["extend"]) + sum(there.calls["extend"]) in (0, 2)
    await eventually(lambda: len(there.ready("q")) == 2)


async def test_a_stream_without_a_route_ends_once_all_is_settled(site: Site) -> None:
    await site.publish()
    with Stream(site.gateway, ANYONE, "q", StreamOptions()) as stream:
        (message,) = await stream.take(SOON)
        await site.load(Rule("other", site.one, address=HERE))
        assert stream.is_draining and not stream.is_over
        route = Rule("q", site.one, address=HERE).route("q")
        access = Access(ANYONE, Right.LISTEN, route)
        (result,) = await site.gateway.settle(ANYONE, access, Settlement(acks=[message.ack_token]))
        assert result.error is None
        assert stream.is_over


async def test_another_native_queue_of_the_same_broker_is_filled_from_the_first(site: Site) -> None:
    await site.publish(3)
    (leased,) = await site.receive()
    await site.load(Rule("q", site.one, native_name="shop.{queue}", address=HERE))
    await eventually(lambda: len(site.one.ready("shop.q")) == 2)
    assert await site.settle(acks=[leased.ack_token]) == [""]
    (message,) = await site.receive()
    # And back, with a lease of both.
    await site.load(Rule("q", site.one, address=HERE))
    assert await site.settle(acks=[message.ack_token]) == [""]
    await eventually(lambda: len(site.one.ready("q")) == 1)


async def test_two_addresses_of_one_server_make_no_circle(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    await site.publish(5)
    (leased,) = await site.receive()
    assert await site.settle(nacks=[Nack([leased.ack_token])]) == [""]
    new = again(site.one)
    await site.load(Rule("q", new, address=THERE))
    await eventually(lambda: "queue not drained: it leads back to itself" in caplog.text)
    reserves = len(site.one.calls["reserve"])
    came: list[Message] = []
    while messages := await site.receive(max_messages=10):
        came += messages
        assert await site.settle(acks=[each.ack_token for each in messages]) == [""] * len(messages)
    assert sorted(each.attempts for each in came) == [0, 0, 0, 0, 1]
    assert len({each.lease.facts.message_id for each in came}) == 5
    assert len(site.one.calls["reserve"]) == reserves, "it rests for a minute"
    assert caplog.text.count("queue not drained: it leads back to itself") == 1


async def test_a_queue_that_goes_to_and_fro_is_drained_each_time(site: Site) -> None:
    there = type(site.one)("one", site.one._capabilities)
    await site.publish(3)
    for _ in range(4):
        await site.load(Rule("q", there, address=THERE))
        await eventually(lambda: len(there.ready("q")) == 3)
        await site.load(Rule("q", site.one, address=HERE))
        await eventually(lambda: len(site.one.ready("q")) == 3)


async def test_a_native_queue_that_was_left_is_no_other_queue(site: Site) -> None:
    """The broker lists ``shop.q``, which the first route reads as the name of a queue."""

    class Listing(type(site.one)):  # type: ignore[misc]
        lists_foreign = False

        async def queues(self) -> list[str]:
            return list(self._queues)

    broker = Listing("one", site.one._capabilities)
    plain = Rule("*", broker, address=HERE)
    shop = Rule("*", broker, native_name="shop.{queue}", address=HERE)
    await site.load(plain)
    await site.publish(3)
    for _ in range(2):
        await site.load(shop)
        await eventually(lambda: len(broker.ready("shop.q")) == 3)
        await site.load(plain)
        await eventually(lambda: len(broker.ready("q")) == 3)
    assert await queues_in_use(site.gateway) == ["q"]
    assert "shop.shop.q" not in broker._queues


async def test_an_outage_of_the_old_server_is_none_of_the_new_one(site: Site) -> None:
    await site.publish(2)
    first, second = await site.receive(max_messages=2)
    there = type(site.one)("one", site.one._capabilities)
    for verb in ("ping", "ack", "stats", "reserve"):
        site.one.fail_after(verb, 0, BrokerUnavailable("one", "it is switched off"))
    await site.load(Rule("q", there, address=THERE))
    old, outages = site.gateway.outages.of(site.one), site.gateway.outages
    assert old is not outages and outages.of(there) is outages
    assert await site.settle(acks=[first.ack_token]) == ["broker_unavailable"]
    await eventually(lambda: old.circuits["one"].is_open)
    assert [outages.circuits["one"].is_open] == [False]
    await site.publish()
    assert len(await site.receive()) == 1
    # Its circuit is its own again when it is used again.
    await site.load(Rule("q", site.one, address=HERE))
    assert outages.of(site.one) is outages and outages.circuits["one"].is_open
    site.one.faults.clear()
    await eventually(lambda: not outages.circuits["one"].is_open)
    assert await site.settle(acks=[second.ack_token]) == [""]


class Keeping(MemoryBinding):
    """KeepsKeys, at a store that takes no settlement while it is ``down``."""

    def __init__(self, name: str, capabilities: BrokerCapabilities = CAPABLE) -> None:
        super().__init__(name, capabilities)
        self.keys = Deaf()


async def test_keys_are_kept_at_the_connection_that_is_used_again() -> None:
    site = Site(Keeping)
    old, new = site.one, Keeping("one")
    assert isinstance(old, Keeping)
    route = Rule("q", old, address=HERE).route("q")
    keys, retries = site.gateway.keys.store(route)
    assert keys is old.keys
    await retries.settle(settlings(1))
    await site.load(Rule("q", new, address=THERE))
    assert site.gateway.keys.store(route)[0] is new.keys
    await site.gateway.keys.store(route)[1].settle(settlings(2))
    await site.load(Rule("q", old, address=HERE))
    assert site.gateway.keys.store(route) == (old.keys, retries)
    old.keys.down = new.keys.down = False
    await site.gateway.close()
    assert (len(old.keys.heard), len(new.keys.heard)) == (1, 2), "what both are owed is settled at the end"


async def test_all_connections_are_closed_at_the_end(site: Site) -> None:
    connections = [site.one, again(site.one), again(site.one)]
    for each in (connections[1], connections[2], site.one, connections[1]):
        await site.load(Rule("q", each, address=HERE))
    assert len(site.gateway.former.replaced) == 2
    await site.gateway.close()
    assert [each.calls["close"] for each in connections] == [[1], [1], [1]]


def test_a_native_queue_of_another_queue_is_refused() -> None:
    one = keeping("one")
    before = Router([Rule("a", one, native_name="x"), Rule("b", one, native_name="y")])
    with pytest.raises(ConfigError) as refused:
        check_moves(before, Router([Rule("a", one, native_name="y"), Rule("b", one, native_name="x")]))
    assert refused.value.facts["key"] == "queues.a.native_name"
    check_moves(before, Router([Rule("a", one, native_name="z"), Rule("b", one, native_name="y")]))
    # Of a queue that is gone.
    check_moves(before, Router([Rule("b", one, native_name="x")]))


def test_a_parking_broker_may_get_another_connection_but_no_other_name() -> None:
    one, local = keeping("one"), keeping("local")
    before = Router([Rule("a", one, parking=local)])
    check_moves(before, Router([Rule("a", one, parking=again(local))]))
    for other in (None, keeping("other")):
        with pytest.raises(ConfigError) as refused:
            check_moves(before, Router([Rule("a", one, parking=other)]))
        assert refused.value.facts["key"] == "queues.a.parking"


async def test_a_drain_leaves_what_is_another_queues_now(site: Site) -> None:
    await site.publish()
    await site.load(Rule("q", site.one, native_name="other", address=HERE))
    await eventually(lambda: len(site.one.ready("other")) == 1)
    rules = [Rule("q", site.one, native_name="other", address=HERE), Rule("r", site.one, native_name="q", address=HERE)]
    site.gateway.router.switch(Router(rules), [])
    await site.gateway.publish(ANYONE, "r", draft({}))
    former = Rule("q", site.one, address=HERE).route("q")
    assert site.gateway.former.drains._elsewhere(former, site.gateway.router) is None
