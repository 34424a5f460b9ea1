"""Every binding's broker as a real server, for what must hold over all of them. A new binding adds one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.harness.broker import Broker
from tests.harness.redis import RedisBroker, redis_server
from tests.harness.sqlite import SqliteBroker

Start = Callable[[Path], AbstractContextManager[Broker]]
"""Starts a broker of a test's own, which it may stop and start; the directory is for what it keeps."""


@contextmanager
def _sqlite(directory: Path) -> Iterator[Broker]:
    yield SqliteBroker(directory)


@contextmanager
def _redis(directory: Path) -> Iterator[Broker]:
    with redis_server() as server:
        yield RedisBroker(server)


BROKERS = [
    pytest.param(_sqlite, id="sqlite"),
    pytest.param(_redis, id="redis", marks=pytest.mark.redis),
]
"""As parameters of a test, each a :data:`Start`."""
