"""The server, and bindings of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from babelgate.brokers.pulsar.binding import PulsarBinding
from tests.brokers.pulsar.harness import PulsarBroker, binding
from tests.brokers.pulsar.server import PulsarServer
from tests.brokers.registry import Servers


@pytest.fixture
def server(servers: Servers) -> PulsarServer:
    """The running server."""
    running: PulsarServer = servers.server(PulsarBroker)
    return running


@pytest.fixture
async def one(server: PulsarServer) -> AsyncIterator[PulsarBinding]:
    """An open binding."""
    async with binding(server.url()) as opened:
        yield opened


@pytest.fixture
async def other(server: PulsarServer) -> AsyncIterator[PulsarBinding]:
    """The binding of another process."""
    async with binding(server.url()) as opened:
        yield opened
