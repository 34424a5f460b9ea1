"""Servers of the protocol of Amazon SQS, and clients of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from babelgate.brokers.sqs.binding import SqsBinding
from tests.brokers.registry import Servers
from tests.brokers.sqs.harness import MotoBroker, SqsBroker, binding, client
from tests.harness.broker import Server


@pytest.fixture
def elastic(servers: Servers) -> Server:
    """ElasticMQ."""
    running: Server = servers.server(SqsBroker)
    return running


@pytest.fixture
def moto(servers: Servers) -> Server:
    """moto."""
    running: Server = servers.server(MotoBroker)
    return running


@pytest.fixture(params=["elastic", "moto"])
def either(request: pytest.FixtureRequest) -> Server:
    """Each of them."""
    running: Server = request.getfixturevalue(request.param)
    return running


@pytest.fixture
def plain(either: Server) -> Any:
    """A plain client."""
    return client(either.port)


@pytest.fixture
async def one(either: Server) -> AsyncIterator[SqsBinding]:
    """An open binding."""
    async with binding(either.url()) as opened:
        yield opened
