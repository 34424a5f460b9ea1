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


_PATIENT_SECONDS = 20.0
_BOUNDS = {
    "artemis": ("binding.PING_SECONDS", "binding.WARNINGS_SECONDS", "receive.RESERVE_SECONDS"),
    "pulsar": ("binding.PING_SECONDS", "receive._PATIENCE_SECONDS"),
    "servicebus": ("binding.PING_SECONDS", "binding.WARNINGS_SECONDS", "receive.RESERVE_SECONDS"),
    "sqs": ("binding.WARNINGS_SECONDS", "receive.RESERVE_SECONDS"),
}
"""What a reserve may take beyond its wait, and a ping and a check altogether."""


@pytest.fixture(autouse=True)
def patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no broker that hangs. The contract is tested with the bounds of the gateway."""
    kind = request.path.parent.name
    if request.path.name != "test_contract.py":
        for name in _BOUNDS.get(kind, ()):
            monkeypatch.setattr(f"app.brokers.{kind}.{name}", _PATIENT_SECONDS)


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
