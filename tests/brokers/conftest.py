"""Fixtures of the behaviour suites, which run on every variant of a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.brokers import registry
from tests.harness.broker import Broker
from tests.harness.world import World

pytest.register_assert_rewrite("tests.suites")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that takes ``broker`` on every variant of the broker that its folder is named after."""
    if "broker" in metafunc.fixturenames:
        variants = registry.HARNESSES[metafunc.definition.path.parent.name]
        metafunc.parametrize("broker", registry.params(variants), indirect=True)


@pytest.fixture
def broker(request: pytest.FixtureRequest, servers: registry.Servers, tmp_path: Path) -> Broker:
    """A running broker."""
    return servers.broker(request.param, tmp_path)


@pytest.fixture
async def world(broker: Broker, queue: str) -> AsyncIterator[World]:
    """Gateways over the broker, and a queue of the test's own."""
    world = World(broker, queue)
    yield world
    await world.close()
