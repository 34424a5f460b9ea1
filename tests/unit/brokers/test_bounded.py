"""Calls end within their bounds, and are cancelled when they do not."""

from __future__ import annotations

import asyncio

import pytest

from babelgate.brokers.bounded import GRACE_SECONDS, finished, within
from babelgate.errors import BrokerRejected, BrokerUnavailable


async def late(ended: list[str], seconds: float = 60) -> str:
    try:
        await asyncio.sleep(seconds)
    finally:
        ended.append("ended")
    return "answer"


async def test_an_answer_in_time() -> None:
    assert await within(1, "cache", late([], 0.01)) == "answer"


async def test_an_error_in_time() -> None:
    async def refuse() -> None:
        raise BrokerRejected(broker="cache", reason="no")

    with pytest.raises(BrokerRejected):
        await within(1, "cache", refuse())


async def test_no_answer_cancels_the_call() -> None:
    ended: list[str] = []
    async with asyncio.timeout(30):
        with pytest.raises(BrokerUnavailable, match=r"no answer within 0\.2 s"):
            await within(0.2, "cache", late(ended))
    await asyncio.sleep(0)
    assert ended == ["ended"]


async def test_a_call_that_does_not_end_holds_nobody_up() -> None:
    let_go, ended = asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await let_go.wait()
            ended.set()
            raise ValueError("unseen") from None

    async with asyncio.timeout(30):
        with pytest.raises(BrokerUnavailable):
            await within(0.15, "cache", stubborn())
    assert not ended.is_set()
    let_go.set()
    await ended.wait()
    await asyncio.sleep(0)


async def test_a_cancelled_caller_cancels_the_call() -> None:
    ended: list[str] = []
    caller = asyncio.ensure_future(within(60, "cache", late(ended)))
    await asyncio.sleep(0.01)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await asyncio.sleep(0)
    assert ended == ["ended"]


async def test_finished_cancels_nothing_and_has_a_grace() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    assert not await finished(future, 0)
    assert not future.done()
    asyncio.get_running_loop().call_later(GRACE_SECONDS / 2, future.set_result, None)
    assert await finished(future, 0)
