"""How long a client may take to read an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from babelgate.server.transport import READ_BYTES_PER_SECOND, BufferedTransport, ReadWatch
from tests.harness.local import eventually

SECONDS = 30
LEAST = SECONDS * READ_BYTES_PER_SECOND


class Client(asyncio.Transport):
    """``unread``: what it has not read. ``ended``: what happened to its connection."""

    def __init__(self, unread: int) -> None:
        super().__init__()
        self.unread = unread
        self.ended: list[str] = []

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return bool(self.ended)

    def close(self) -> None:
        self.ended.append("closed")

    def abort(self) -> None:
        self.ended.append("aborted")


class Timers:
    """Those of an event loop, whose time the test lets pass."""

    def __init__(self) -> None:
        self.due: list[tuple[float, Callable[[], object]]] = []

    def call_later(self, seconds: float, call: Callable[..., object], *arguments: Any) -> Timers:
        self.due.append((seconds, lambda: call(*arguments)))
        return self

    def cancel(self) -> None:
        self.due.clear()

    def fire(self) -> float:
        """Fire the only timer; the time that has passed."""
        ((seconds, call),) = self.due
        self.due.clear()
        call()
        return seconds


@pytest.fixture
def timers() -> Timers:
    return Timers()


def watch(client: Client, timers: Timers) -> ReadWatch:
    return ReadWatch(client, cast(asyncio.AbstractEventLoop, timers), SECONDS)


@pytest.mark.parametrize("read", [0, 1, LEAST - 1])
def test_who_reads_a_little_now_and_then_is_disconnected(timers: Timers, read: int) -> None:
    client = Client(10 * LEAST)
    watch(client, timers).start()
    client.unread -= read
    assert (timers.fire(), client.ended, timers.due) == (SECONDS, ["aborted"], [])


def test_who_reads_slowly_is_watched_until_the_end(timers: Timers) -> None:
    client = Client(10 * LEAST)
    watching = watch(client, timers)
    watching.start()
    for _ in range(9):
        client.unread -= LEAST
        assert (timers.fire(), client.ended) == (SECONDS, [])
    watching.stop()
    watching.stop()
    assert timers.due == []


@pytest.mark.parametrize("unread", [1, 60_000])
def test_who_never_reads_the_end_is_disconnected(timers: Timers, unread: int) -> None:
    client = Client(unread)
    watch(client, timers).finish()
    assert (timers.fire(), client.ended) == (SECONDS + unread / READ_BYTES_PER_SECOND, ["aborted"])


def test_who_has_read_all_is_not_watched(timers: Timers) -> None:
    watch(Client(0), timers).finish()
    assert timers.due == []


def test_the_watch_of_a_large_answer_goes_on_when_the_connection_closes(timers: Timers) -> None:
    watching = watch(Client(10 * LEAST), timers)
    watching.start()
    watching.finish()
    assert [seconds for seconds, _ in timers.due] == [SECONDS]


async def test_a_connection_that_closes_is_aborted_when_its_client_does_not_read() -> None:
    client = Client(20)
    transport = BufferedTransport(client, 0)
    transport.close()
    assert client.ended == ["closed"]
    await eventually(lambda: client.ended == ["closed", "aborted"])
    transport.reading.stop()


async def test_a_connection_that_is_lost_needs_no_watch() -> None:
    client = Client(20)
    transport = BufferedTransport(client, 0)
    transport.close()
    transport.reading.stop()
    await asyncio.sleep(0.1)
    assert client.ended == ["closed"]
