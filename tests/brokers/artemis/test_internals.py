"""The parts of python-qpid-proton that are not public, as the binding uses them."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable

import pytest

from babelgate.brokers.artemis import client, connection, dead_letters, engine, links, management
from babelgate.brokers.artemis.errors import ConnectionLost
from babelgate.brokers.artemis.url import settings_of


def test_the_engine_has_all_functions_that_are_used() -> None:
    used = {
        name
        for module in (client, connection, dead_letters, engine, links, management)
        for name in re.findall(r"\blib\.(pn_\w+)", inspect.getsource(module))
    }
    assert len(used) > 50
    assert [name for name in sorted(used) if not hasattr(engine.lib, name)] == []


def test_the_outcomes_are_those_of_the_specification() -> None:
    """https://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-messaging-v1.0-os.html#section-delivery-state"""
    outcomes = (engine.ACCEPTED, engine.REJECTED, engine.RELEASED, engine.MODIFIED)
    assert outcomes == (0x24, 0x25, 0x26, 0x27)


async def test_a_connection_that_has_ended_attaches_no_link() -> None:
    """Its engine is freed, and may not be used."""
    ended = connection.ArtemisConnection(settings_of("artemis://one", {}), "one", lambda *_: None)
    ended.abort("it is over")
    await asyncio.sleep(0)
    for attach in (ended.sender, ended.receiver):
        with pytest.raises(ConnectionLost, match="it is over"):
            attach("q")


class Idle(links.ReceiverLink):
    """A link of a queue without messages, which has received a large one; counts its ``drains``."""

    impl = None
    ended = None

    def __init__(self) -> None:
        self.arrived, self.received, self.given, self.drains = [], 1, 0, 0
        self._last_was_large, self._late_end = True, False
        self._timed_out = asyncio.Event()

    @property
    def credit(self) -> int:
        return self.given

    def give(self, credit: int) -> None:
        self.given += credit

    def wake(self) -> None:
        self._timed_out.set()

    async def _changed(self, until: float, late: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_at(until, late)
        await self._timed_out.wait()

    async def _drain(self, credit: int) -> None:
        self.drains += 1
        self.given = 0


async def test_a_queue_that_is_empty_behind_a_large_message_is_drained_twice_a_pull() -> None:
    link = Idle()
    assert await link.pull(1, asyncio.get_running_loop().time() + 0.2) == []
    assert link.drains == 2
