"""The contract of idempotency keys, for pairs of a store and a queue."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from babelgate.errors import IdempotencyUnsupported
from babelgate.gateway.authorization import ANYONE
from tests.brokers import registry
from tests.harness.broker import Variant
from tests.harness.world import World, draft
from tests.suites.idempotency import TestIdempotency

__all__ = ["TestIdempotency"]


def pairs() -> Iterator[object]:
    """Every variant that keeps its own keys, then every broker with another broker's keys."""
    for variant in registry.ALL:
        if variant.keeps_keys:
            yield pytest.param((variant, None), id=variant.name, marks=registry.marks(variant))
    for variant in registry.ORDINARY:
        *_, store = (other for other in registry.ORDINARY if other.keeps_keys and other is not variant)
        name = f"keys-in-{store.name}-queue-in-{variant.name}"
        yield pytest.param((variant, store), id=name, marks=registry.marks(variant, store))


@pytest.fixture(params=pairs())
async def world(
    request: pytest.FixtureRequest, servers: registry.Servers, queue: str, tmp_path: Path
) -> AsyncIterator[World]:
    """Gateways over a queue's broker and, where it is another, the one that keeps the keys."""
    of_queue, of_keys = request.param
    store = None if of_keys is None else servers.broker(of_keys, tmp_path)
    world = World(servers.broker(of_queue, tmp_path), queue, store)
    yield world
    await world.close()


KEYLESS = [variant for variant in registry.ORDINARY if not variant.keeps_keys]


@pytest.mark.parametrize("variant", registry.params(KEYLESS))
async def test_a_broker_that_keeps_no_keys_refuses_them(
    variant: Variant, servers: registry.Servers, queue: str, tmp_path: Path
) -> None:
    world = World(servers.broker(variant, tmp_path), queue)
    process = await world.process()
    with pytest.raises(IdempotencyUnsupported, match=r"idempotency\.store"):
        await process.gateway.publish(ANYONE, queue, draft({}), idempotency_key="k")
    assert await process.is_empty()
    await world.close()
