"""Concurrent callers share one attempt to connect; a failed one is not repeated before its pause."""

from __future__ import annotations

import asyncio

import pytest

from babelgate.brokers.connect import ConnectPause, SharedConnect, replaced
from babelgate.errors import BrokerUnavailable


class Server:
    """Counts attempts; each waits for ``open`` and fails while ``down``."""

    def __init__(self) -> None:
        self.attempts = 0
        self.down = False
        self.open = asyncio.Event()

    async def connect(self) -> int:
        self.attempts += 1
        attempt = self.attempts
        await self.open.wait()
        if self.down:
            raise BrokerUnavailable(broker="cache", reason="connection refused")
        return attempt


@pytest.fixture
async def server() -> Server:
    return Server()


async def test_callers_share_an_attempt(server: Server) -> None:
    shared = SharedConnect("cache", server.connect)
    callers = [asyncio.ensure_future(shared.connected()) for _ in range(5)]
    await asyncio.sleep(0)
    server.open.set()
    assert await asyncio.gather(*callers) == [1] * 5
    assert await shared.connected() == 2, "an attempt that has ended is not shared any more"


async def test_callers_share_a_failure(server: Server) -> None:
    server.down = True
    server.open.set()
    shared = SharedConnect("cache", server.connect)
    results = await asyncio.gather(*(shared.connected() for _ in range(5)), return_exceptions=True)
    assert all(isinstance(result, BrokerUnavailable) for result in results) and server.attempts == 1
    server.down = False
    assert await shared.connected() == 2, "without a pause the next caller tries again at once"


async def test_a_cancelled_caller_leaves_the_attempt_to_the_others(server: Server) -> None:
    shared = SharedConnect("cache", server.connect)
    first, second = (asyncio.ensure_future(shared.connected()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    server.open.set()
    assert await second == 1


async def test_cancel_ends_the_attempt_for_all(server: Server) -> None:
    shared = SharedConnect("cache", server.connect, ConnectPause())
    caller = asyncio.ensure_future(shared.connected())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await shared.cancel(1)
    with pytest.raises(BrokerUnavailable, match="the gateway disconnects"):
        await caller
    server.open.set()
    assert await shared.connected() == 2, "a cancelled attempt begins no pause"
    await shared.cancel(1)


async def test_a_caller_that_is_cancelled_with_the_attempt_is_cancelled(server: Server) -> None:
    """As all tasks are at the end of asyncio.run(), which reports those that end with another error."""
    shared = SharedConnect("cache", server.connect)
    caller = asyncio.ensure_future(shared.connected())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    ending = asyncio.ensure_future(shared.cancel(1))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await ending


async def test_a_failed_attempt_is_not_repeated_before_its_pause(server: Server) -> None:
    pause = ConnectPause()
    publish, consume = (SharedConnect("cache", server.connect, pause) for _ in range(2))
    server.down = True
    server.open.set()
    for shared in (publish, publish, consume):
        with pytest.raises(BrokerUnavailable, match="connection refused"):
            await shared.connected()
    assert server.attempts == 1
    server.down = False
    await asyncio.sleep(0.25)
    assert await consume.connected() == 2
    assert await publish.connected() == 3


@pytest.mark.parametrize(("arrivals", "expected"), [(0, "replaced"), (1, "discarded")])
async def test_a_silent_connection_is_replaced_when_a_new_one_is_answered(arrivals: int, expected: str) -> None:
    heard = 7
    ends: list[tuple[str, str]] = []

    async def connect() -> str:
        nonlocal heard
        heard += arrivals
        return "new"

    await replaced(
        lambda: heard,
        connect,
        lambda made: ends.append(("replaced", made)),
        lambda made: ends.append(("discarded", made)),
    )
    assert ends == [(expected, "new")]


async def test_a_connection_that_is_answered_after_the_new_one_stays() -> None:
    heard = iter([7, 7, 7, 8])
    ends: list[tuple[str, str]] = []

    async def connect() -> str:
        return "new"

    await replaced(
        lambda: next(heard),
        connect,
        lambda made: ends.append(("replaced", made)),
        lambda made: ends.append(("discarded", made)),
    )
    assert ends == [("discarded", "new")]


async def test_the_new_connection_is_discarded_when_the_caller_gives_up() -> None:
    connected = asyncio.Event()
    discarded: list[str] = []

    async def connect() -> str:
        connected.set()
        return "new"

    replacing = asyncio.ensure_future(replaced(lambda: 7, connect, pytest.fail, discarded.append))
    await connected.wait()
    replacing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await replacing
    assert discarded == ["new"]


async def test_a_silent_connection_stays_when_no_new_one_is_answered() -> None:
    ends: list[str] = []

    async def connect() -> str:
        raise BrokerUnavailable("cache", "no answer")

    await replaced(lambda: 7, connect, ends.append, ends.append)
    assert ends == []
