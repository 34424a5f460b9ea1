"""Every binding's broker as a real server, for what must hold over all of them. A new binding adds one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.brokers.rabbitmq.harness import RabbitBroker, rabbit_server
from tests.brokers.redis.harness import RedisBroker, redis_server
from tests.brokers.sqlite.harness import SqliteBroker
from tests.harness.broker import Broker

Start = Callable[[Path], AbstractContextManager[Broker]]
"""Starts a broker of a test's own, which it may stop and start; the directory is for what it keeps."""


@contextmanager
def _sqlite(directory: Path) -> Iterator[Broker]:
    yield SqliteBroker(directory)


@contextmanager
def _redis(directory: Path) -> Iterator[Broker]:
    with redis_server() as server:
        yield RedisBroker(server)


@contextmanager
def _rabbitmq(directory: Path) -> Iterator[Broker]:
    with rabbit_server() as server:
        yield RabbitBroker(server)


@contextmanager
def _rabbitmq_ojs(directory: Path) -> Iterator[Broker]:
    with rabbit_server() as server:
        yield RabbitBroker(server, {"profile": "ojs"})


BROKERS = [
    pytest.param(_sqlite, id="sqlite"),
    pytest.param(_redis, id="redis", marks=pytest.mark.redis),
    pytest.param(_rabbitmq, id="rabbitmq", marks=pytest.mark.rabbitmq),
    pytest.param(_rabbitmq_ojs, id="rabbitmq-ojs", marks=pytest.mark.rabbitmq),
]
"""As parameters of a test, each a :data:`Start`."""
