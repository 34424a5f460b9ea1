"""Fixtures of the behaviour suites, which run on every variant of a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.brokers import registry
from tests.harness.broker import Broker, ServerBroker, Variant
from tests.harness.proxy import Proxy
from tests.harness.world import World

pytest.register_assert_rewrite("tests.suites")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that takes ``broker`` on every variant of the broker that its folder is named after."""
    if "broker" in metafunc.fixturenames:
        variants = registry.HARNESSES[metafunc.definition.path.parent.name]
        metafunc.parametrize("broker", registry.params(variants), indirect=True)


_PATIENT_SECONDS = 20.0
_BOUNDS = {
    "artemis": ("binding.PING_SECONDS", "binding.WARNINGS_SECONDS"),
    "pulsar": ("binding.PING_SECONDS",),
    "servicebus": ("binding.PING_SECONDS", "binding.WARNINGS_SECONDS"),
    "sqlite": ("binding.OPEN_SECONDS", "binding.PING_SECONDS"),
    "sqs": ("binding.WARNINGS_SECONDS", "client.CONNECT_SECONDS", "client.OPEN_SECONDS"),
}
"""What a ping, a check and a start may take."""


@pytest.fixture(autouse=True)
def patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no broker that hangs. The contract is tested with the bounds of the gateway."""
    kind = request.path.parent.name
    if request.path.name != "test_contract.py":
        for name in _BOUNDS.get(kind, ()):
            monkeypatch.setattr(f"babelgate.brokers.{kind}.{name}", _PATIENT_SECONDS)


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


@pytest.fixture
def direct(variant: Variant, servers: registry.Servers) -> ServerBroker:
    """The broker of the test's ``variant``, without a proxy."""
    broker = variant.on(servers.server(variant.broker))
    assert isinstance(broker, ServerBroker)
    return broker


@pytest.fixture
async def between(direct: ServerBroker) -> AsyncIterator[Proxy]:
    """A proxy in front of the broker."""
    async with direct.between() as running:
        yield running


@pytest.fixture
def proxied(direct: ServerBroker, between: Proxy) -> Broker:
    """The broker, reached through the proxy."""
    return direct.behind(between)


@pytest.fixture
async def distant(proxied: Broker, queue: str) -> AsyncIterator[World]:
    """Gateways behind the proxy."""
    distant = World(proxied, queue)
    yield distant
    await distant.close()
