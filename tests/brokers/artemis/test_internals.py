"""The parts of python-qpid-proton that are not public, as the binding uses them."""

from __future__ import annotations

import asyncio
import inspect
import re

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
