"""Slow, half-open and reset connections, on every broker that has a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import registry
from tests.harness.broker import Broker, Variant
from tests.suites.network import TestHalfOpen, TestReset, TestSlow, end_at_broker, place

__all__ = ["TestHalfOpen", "TestReset", "TestSlow", "end_at_broker", "place"]


@pytest.fixture(params=registry.params(registry.WITH_SERVER))
def variant(request: pytest.FixtureRequest) -> Variant:
    chosen: Variant = request.param
    return chosen


@pytest.fixture(autouse=True)
def all_handled(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No exception is left to the event loop, which would log it."""
    yield
    assert [record for record in caplog.get_records("call") if record.name == "asyncio"] == []


@pytest.fixture
def neighbour(tmp_path: Path) -> Broker:
    """A broker in the process."""
    return next(each for each in registry.ORDINARY if each.broker.embedded).on(tmp_path)
