"""The server, and bindings of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from babelgate.brokers.artemis.binding import ArtemisBinding
from tests.brokers.artemis.harness import ArtemisBroker, binding
from tests.brokers.artemis.server import ArtemisServer
from tests.brokers.registry import Servers


@pytest.fixture
def artemis(servers: Servers) -> ArtemisServer:
    """The running server."""
    running: ArtemisServer = servers.server(ArtemisBroker)
    return running


@pytest.fixture
async def one(artemis: ArtemisServer) -> AsyncIterator[ArtemisBinding]:
    """An open binding."""
    async with binding(artemis.url()) as opened:
        yield opened


@pytest.fixture
async def other(artemis: ArtemisServer) -> AsyncIterator[ArtemisBinding]:
    """The binding of another process."""
    async with binding(artemis.url()) as opened:
        yield opened
