"""A server of Kafka, and bindings of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from babelgate.brokers.kafka.binding import KafkaBinding
from tests.brokers.kafka.harness import KafkaBroker, binding
from tests.brokers.kafka.server import KafkaServer
from tests.brokers.registry import Servers


@pytest.fixture
def server(servers: Servers) -> KafkaServer:
    """The running server."""
    running: KafkaServer = servers.server(KafkaBroker)
    return running


@pytest.fixture
async def one(server: KafkaServer) -> AsyncIterator[KafkaBinding]:
    """An open binding."""
    async with binding(server.url()) as opened:
        yield opened


@pytest.fixture
async def other(server: KafkaServer) -> AsyncIterator[KafkaBinding]:
    """The binding of another process."""
    async with binding(server.url()) as opened:
        yield opened
