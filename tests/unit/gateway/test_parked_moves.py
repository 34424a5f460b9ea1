"""Parked messages follow their queues, whatever a reload of the configuration has removed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from babelgate.brokers.binding import Binding, Delivery, Outgoing
from babelgate.brokers.sqlite.binding import connect
from babelgate.errors import BrokerUnavailable
from babelgate.gateway.routing import Router, Rule
from babelgate.gateway.switching import GatewayParts, queues_in_use, switch
from babelgate.schemas.job_schemas import JobSchemas
from tests.harness.memory import OWNED, ConnectedMemory, MemoryBinding
from tests.harness.parking import Replica, Site
from tests.harness.world import draft


class _Carried(Struct, frozen=True):
    key: bytes


class Restoring(ConnectedMemory):
    """Nacks with long delays are parked, too."""

    carried_type = _Carried


@pytest.fixture(params=[(), ("local",), ("capped",), ("capped", "local")], ids=lambda kept: "+".join(kept) or "none")
def kept(request: pytest.FixtureRequest) -> Sequence[str]:
    """The brokers that the new configuration still has."""
    names: Sequence[str] = request.param
    return names


@pytest.fixture
async def replica(tmp_path: Path, queue: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Replica]:
    site = Site(tmp_path, queue)
    capabilities = replace(OWNED, max_delay_seconds=900, max_retry_delay_seconds=900)
    site.capped = Restoring("capped", capabilities, site.clock)
    async with site.gateway() as replica:
        # This mover has the clock of the test, and moves when it is told to.
        replica.gateway.mover = replica.mover
        monkeypatch.setattr(replica.mover, "start", lambda: None)
        yield replica


async def moved(replica: Replica, kept: Sequence[str]) -> MemoryBinding:
    """Route the queue to another broker, which is returned."""
    gateway = replica.gateway
    other = MemoryBinding("other", clock=replica.site.clock)
    parts = GatewayParts(
        bindings={"other": other, **{name: gateway.bindings[name] for name in kept}},
        router=Router([], Rule("*", other)),
        required=frozenset(),
        urls={},
        rate_limits=None,
        schemas=JobSchemas({}),
    )
    switch(gateway, parts, await queues_in_use(gateway), {})
    return other


@asynccontextmanager
async def parking_elsewhere(replica: Replica, directory: Path) -> AsyncIterator[Callable[[], Awaitable[MemoryBinding]]]:
    """A load that gives both brokers another connection, that of the parking broker to another file. It returns the
    new one of the queue's broker."""
    gateway, site = replica.gateway, replica.site
    local = connect("local", f"sqlite:///{directory}/other.db", {}, site.clock)
    await local.open()

    async def load() -> MemoryBinding:
        capped = Restoring("capped", site.capped._capabilities, site.clock)
        capped._queues, capped._handles = site.capped._queues, site.capped._handles
        bindings: dict[str, Binding] = {"capped": capped, "local": local}
        parts = GatewayParts(
            bindings=bindings,
            router=Router([], Rule("*", capped, parking=local)),
            required=frozenset(),
            urls={},
            rate_limits=None,
            schemas=JobSchemas({}),
        )
        switch(gateway, parts, await queues_in_use(gateway), {})
        return capped

    try:
        yield load
    finally:
        await local.close()


async def test_a_load_in_the_middle_of_a_move_moves_nothing_twice(
    replica: Replica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await replica.publish(draft({}), delay_seconds=1_000)
    replica.site.later(1_000)
    reserve = replica.local.reserve
    async with parking_elsewhere(replica, tmp_path) as load:

        async def reserved(*given: Any) -> Sequence[Delivery]:
            deliveries = await reserve(*given)
            if deliveries:
                await load()
            return deliveries

        monkeypatch.setattr(replica.local, "reserve", reserved)
        assert await replica.mover.move() == 1
        replica.site.later(1_000)
        assert await replica.mover.move() == 0
        assert len(replica.site.capped.ready(replica.site.queue)) == 1


async def test_a_lease_of_a_former_connection_parks_where_it_is_looked_for(replica: Replica, tmp_path: Path) -> None:
    await replica.publish(draft({}))
    leased = await replica.one()
    async with parking_elsewhere(replica, tmp_path) as load:
        capped = await load()
        assert await replica.mover.move() == 0, "nothing is parked there by now"
        assert await replica.nack(leased, 1_000) == [None]
        replica.site.later(1_000)
        assert await replica.mover.move() == 1
        (message,) = capped.ready(replica.site.queue)
        assert b'"attempts":1' in message.body


async def test_a_former_connection_that_is_lost_still_parks(replica: Replica, tmp_path: Path) -> None:
    """A publish that its batcher has sends over it."""
    await replica.publish(draft({}))
    gateway = replica.gateway
    calls = gateway.queue_runtimes.of(gateway.router.route(replica.site.queue)).calls
    async with parking_elsewhere(replica, tmp_path) as load:
        await load()
        calls.circuit.is_open = True
        late, soon = await calls.send([Outgoing(draft({}), delay_seconds=1_000), Outgoing(draft({}))])
        assert late is None
        assert isinstance(soon, BrokerUnavailable)


async def test_what_was_parked_follows_its_queue(replica: Replica, kept: Sequence[str]) -> None:
    await replica.publish(draft({}), delay_seconds=1_000)
    other = await moved(replica, kept)
    assert await replica.mover.move() == 0
    replica.site.later(1_000)
    assert await replica.mover.move() == 1
    assert len(other.ready(replica.site.queue)) == 1


async def test_what_a_former_lease_parks_follows_its_queue(replica: Replica, kept: Sequence[str]) -> None:
    await replica.publish(draft({}))
    leased = await replica.one()
    other = await moved(replica, kept)
    # By now it is known that nothing is parked.
    assert await replica.mover.move() == 0
    assert await replica.nack(leased, 1_000) == [None]
    replica.site.later(1_000)
    assert await replica.mover.move() == 1
    (message,) = other.ready(replica.site.queue)
    assert b'"attempts":1' in message.body
