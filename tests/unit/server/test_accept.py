"""Who accepts connections, and when."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from babelgate.server.accept import MOST, Acceptor, ServerLoop
from tests.harness.world import until

CLIENTS = 200


class Accepted(asyncio.Protocol):
    """Keeps the transport of its connection in ``found``."""

    def __init__(self, found: list[asyncio.Transport]) -> None:
        self._found = found

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._found.append(cast(asyncio.Transport, transport))


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=2 * MOST) as found:
        yield found


@pytest.fixture
def clients(listening: socket.socket) -> Iterator[list[socket.socket]]:
    """Clients whose connections nobody has accepted."""
    made = [socket.create_connection(listening.getsockname()) for _ in range(CLIENTS)]
    yield made
    for each in made:
        each.close()


@asynccontextmanager
async def acceptor(listening: socket.socket, shared: bool = False) -> AsyncIterator[list[asyncio.Transport]]:
    """The connections that an acceptor has accepted."""
    found: list[asyncio.Transport] = []
    made = Acceptor(listening, lambda: Accepted(found), shared=shared)
    try:
        yield found
    finally:
        made.close()
        for each in found:
            each.abort()
        await asyncio.sleep(0.01)


async def grown(count: int, *lists: list[asyncio.Transport]) -> None:
    """Wait until the lists have so many together."""

    async def reached() -> bool:
        return sum(map(len, lists)) >= count

    await until(reached)


def test_the_only_process_accepts_all_in_a_turn(listening: socket.socket, clients: list[socket.socket]) -> None:
    async def accept() -> int:
        async with acceptor(listening) as found:
            # The first turn begins to watch the socket, and a later one tells the protocols.
            for _ in range(5):
                await asyncio.sleep(0)
            return len(found)

    with asyncio.Runner(loop_factory=ServerLoop) as runner:
        assert runner.run(accept()) == CLIENTS


def test_two_processes_share_evenly(listening: socket.socket, clients: list[socket.socket]) -> None:
    async def accept() -> tuple[int, int]:
        async with acceptor(listening.dup(), shared=True) as one, acceptor(listening.dup(), shared=True) as two:
            await grown(CLIENTS, one, two)
            return len(one), len(two)

    with asyncio.Runner(loop_factory=ServerLoop) as runner:
        assert min(runner.run(accept())) > CLIENTS // 3


def test_a_worker_accepts_again_after_it_has_left_connections_to_others(listening: socket.socket) -> None:
    async def accept() -> None:
        async with acceptor(listening, shared=True) as found:
            for count in range(1, 4):
                with socket.create_connection(listening.getsockname()):
                    await grown(count, found)

    with asyncio.Runner(loop_factory=ServerLoop) as runner:
        runner.run(accept())


class Exhausted:
    """A socket of a process without free file descriptors, at first."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self.refused = 0

    def accept(self) -> tuple[socket.socket, object]:
        if not self.refused:
            self.refused += 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self._listening.accept()

    def __getattr__(self, name: str) -> object:
        return getattr(self._listening, name)


def test_connections_wait_for_file_descriptors(
    listening: socket.socket, clients: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("babelgate.server.accept.RETRY_SECONDS", 0.05)
    exhausted = Exhausted(listening)

    async def accept() -> None:
        # A fault that the system cannot be made to show.
        async with acceptor(cast(socket.socket, exhausted)) as found:
            await grown(CLIENTS, found)

    with asyncio.Runner(loop_factory=ServerLoop) as runner:
        runner.run(accept())
    assert exhausted.refused == 1


def test_a_closed_one_accepts_nothing_more(listening: socket.socket) -> None:
    async def close() -> None:
        async with acceptor(listening, shared=True) as found:
            client = socket.create_connection(listening.getsockname())
            await grown(1, found)
        with client, pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*client.getpeername())

    with asyncio.Runner(loop_factory=ServerLoop) as runner:
        runner.run(close())
