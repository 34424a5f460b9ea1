"""A binding that is closed: calls end, and nothing of them is left."""

from __future__ import annotations

import asyncio
from typing import Any

import psutil
import pytest

from babelgate.brokers.binding import Binding, NativeQueue
from babelgate.errors import BrokerUnavailable
from tests.harness.world import LIMIT_SECONDS, PATIENT, World, until

_WAIT_SECONDS = 300

STATES = {"connecting": (False, 0.0), "begun": (True, 0.0), "waiting": (True, 0.3)}
"""What a reserve does when its binding is closed: whether the binding is open, and after how many seconds."""


def connections() -> set[tuple[Any, Any]]:
    """The ends of the TCP connections of this process that are open, or about to be."""
    found = psutil.Process().net_connections("tcp")
    states = psutil.CONN_ESTABLISHED, psutil.CONN_SYN_SENT
    return {(each.laddr, each.raddr) for each in found if each.status in states}


async def ends_with_its_binding(binding: Binding, queue: NativeQueue, state: str) -> None:
    """Close ``binding``, which is not open yet, in one of STATES: the reserve ends, and leaves neither a connection nor
    a task. ``binding`` refuses calls until it is opened again.
    """
    is_open, seconds = STATES[state]
    before, tasks = connections(), asyncio.all_tasks()

    async def is_opened() -> bool:
        # A busy machine may need longer than the bound of one call.
        await binding.open()
        return True

    async def is_empty() -> bool:
        return not await binding.reserve(queue, 1, 0, 30)

    async def is_gone() -> bool:
        return connections() <= before and asyncio.all_tasks() <= tasks

    if is_open:
        await until(is_opened)
        await until(is_empty)
    waiting = asyncio.create_task(binding.reserve(queue, 1, _WAIT_SECONDS, 30))
    await asyncio.sleep(seconds)
    await binding.close()
    async with asyncio.timeout(LIMIT_SECONDS):
        (result,) = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(result, BrokerUnavailable) or result in ([], ()), result
    await until(is_gone)
    with pytest.raises(BrokerUnavailable, match="the gateway disconnects"):
        await binding.reserve(queue, 1, 0, 30)
    assert connections() <= before
    await until(is_opened)
    await until(is_empty)
    await binding.close()
    await until(is_gone)


class TestClosing:
    @pytest.mark.parametrize("state", STATES)
    async def test_a_reserve_ends_with_its_binding(self, world: World, state: str) -> None:
        binding = world.broker.connect(PATIENT)
        queue = binding.native_queue(world.queue, world.broker.queue_options)
        await ends_with_its_binding(binding, queue, state)
