"""What every suite asks for. Each list of suites provides the fixture ``broker``."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.harness.broker import Broker
from tests.harness.world import World

SUITES = (
    "attempts",
    "dead_letters",
    "hung",
    "idempotency",
    "idempotency_calls",
    "life",
    "publish",
    "receive",
    "redrive",
    "settle",
)
pytest.register_assert_rewrite(*(f"tests.suites.{suite}" for suite in SUITES))


@pytest.fixture
async def world(broker: Broker, queue: str) -> AsyncIterator[World]:
    """Gateways over the broker, and a queue of the test's own."""
    world = World(broker, queue)
    yield world
    await world.close()
