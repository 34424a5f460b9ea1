"""The emulator, and bindings of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from babelgate.brokers.servicebus.binding import ServiceBusBinding
from tests.brokers.registry import Servers
from tests.brokers.servicebus.harness import ServiceBusBroker, binding
from tests.brokers.servicebus.server import ServiceBusEmulator


@pytest.fixture
def emulator(servers: Servers) -> ServiceBusEmulator:
    """The running emulator."""
    running: ServiceBusEmulator = servers.server(ServiceBusBroker)
    running.clear_faults()
    return running


@pytest.fixture
async def one(emulator: ServiceBusEmulator) -> AsyncIterator[ServiceBusBinding]:
    """An open binding."""
    async with binding(emulator.url()) as opened:
        yield opened


@pytest.fixture
async def other(emulator: ServiceBusEmulator) -> AsyncIterator[ServiceBusBinding]:
    """The binding of another process."""
    async with binding(emulator.url()) as opened:
        yield opened
