"""A call that is under way while its binding is closed. No server answers here."""

from __future__ import annotations

from typing import Any

import pytest

from babelgate.brokers.redis.binding import connect
from babelgate.brokers.redis.layouts.layout import RedisQueue
from babelgate.brokers.redis.server import Server
from babelgate.clock import now_ms
from babelgate.errors import BrokerUnavailable, OutcomeUnknown


async def test_a_wait_gets_no_dead_connection_where_the_binding_is_opened_again_meanwhile() -> None:
    class Dead:
        async def close(self) -> None:
            server.closed = False

    class Closing(Server):
        async def _dial(self, reply_seconds: float) -> Any:
            self.closed = True
            return Dead()

    def unused() -> Any:
        raise AssertionError

    server = Closing("cache", unused)
    with pytest.raises(BrokerUnavailable, match="the gateway disconnects"):
        await server.wait(b"q", 1)


async def test_a_reserve_whose_reply_is_lost_in_a_close_names_the_cause() -> None:
    binding = connect("cache", "redis://127.0.0.1:1", {}, now_ms)

    class Lost:
        async def reserve(self, *_: object) -> None:
            binding.server.closed = True
            raise OutcomeUnknown("cache", "the connection was closed")

    layout: Any = Lost()
    with pytest.raises(BrokerUnavailable, match="the gateway disconnects") as raised:
        await binding._reserve(RedisQueue(layout, b"q"), 1, 30)
    assert isinstance(raised.value.__cause__, OutcomeUnknown)


async def test_an_open_that_ends_after_a_close_looks_for_nothing_due() -> None:
    binding = connect("cache", "redis://127.0.0.1:1", {}, now_ms)

    async def closed_meanwhile() -> None:
        await binding.close()

    server: Any = binding.server
    server.open = closed_meanwhile
    with pytest.raises(BrokerUnavailable, match="the gateway disconnects"):
        await binding.open()
    assert binding._due_items._task is None
