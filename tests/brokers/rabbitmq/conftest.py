"""A RabbitMQ binding and a queue for the tests of a module."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from babelgate.brokers.binding import NativeQueue
from babelgate.brokers.rabbitmq.binding import RabbitBinding
from tests.brokers.rabbitmq.harness import RabbitBroker, binding
from tests.brokers.rabbitmq.server import RabbitServer
from tests.brokers.registry import Servers
from tests.harness.sharing import Lent

_OF_A_SERVER = {"broker", "managed", "rabbit"}


@pytest.fixture(autouse=True)
def swept(request: pytest.FixtureRequest, servers: Servers) -> Iterator[None]:
    """Delete the queues that a test leaves: each start would recover them, and an idle quorum queue works every five
    seconds. On a server that others share, those of this test."""
    if _OF_A_SERVER.isdisjoint(request.fixturenames):
        yield
        return
    queue: str = request.getfixturevalue("queue")
    yield
    server: RabbitServer | Lent | None = servers.running(RabbitBroker)
    if isinstance(server, Lent):
        server.delete_queues(queue)
    elif server is not None and server.is_running and server.answers():
        server.delete_queues("test-")


@pytest.fixture(scope="module")
def managed(servers: Servers) -> Iterator[RabbitServer]:
    """The server, with the management plugin."""
    server: RabbitServer = servers.server(RabbitBroker)
    with server.management():
        yield server


@pytest.fixture
async def one(rabbit: RabbitServer) -> AsyncIterator[RabbitBinding]:
    # The first delayed message of a server waits for all queues of delays.
    async with binding(rabbit.url(), {"timeout_seconds": 30}) as opened:
        yield opened


@pytest.fixture
def native(one: RabbitBinding, queue: str) -> NativeQueue:
    return one.native_queue(queue, {})
