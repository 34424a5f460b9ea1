"""Parked messages follow their queues, whatever a reload of the configuration has removed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import Struct

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
