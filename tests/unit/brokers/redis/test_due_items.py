"""When the look for due messages and leases happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from babelgate.brokers.redis.due_items import DueItems
from tests.harness.local import eventually


class Server:
    """Counts the looks; nothing is due."""

    def __init__(self) -> None:
        self.looks = 0

    async def make_due_ready(self, *_: object) -> int:
        self.looks += 1
        return -1


@pytest.mark.parametrize("make_loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def test_what_is_added_right_before_a_look_fails_nothing(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def run() -> None:
        server: Any = Server()
        items = DueItems(server)
        items.start()
        await eventually(lambda: items._timer is not None)
        # A look that is due at once, as after a call that took longer than the pause before it.
        assert items._timer is not None
        items._timer.cancel()
        items._timer = asyncio.get_running_loop().call_later(0, items._wake.set)
        items.due_in(0.01)
        await eventually(lambda: server.looks >= 2)
        await items.stop()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(run())
