"""Journals of other gateways are searched over real sockets, and one that gives no answer is named."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from babelgate.clock import now_ms
from babelgate.cluster.client import Address
from babelgate.cluster.searching import PeerSearch
from babelgate.cluster.signing import Signer
from babelgate.cluster.sockets import SocketDirectory
from babelgate.gateway.ack_tokens import TokenKey
from babelgate.gateway.history import History
from babelgate.gateway.merging import Finding, Inquiry
from babelgate.observe.journal.search import Query, cursor_of
from tests.harness.history import MemorySearch, history, place, record
from tests.harness.local import free_port
from tests.harness.replica import Replica
from tests.harness.world import KEYS

QUERY = Query(message_id="m")
INQUIRY = Inquiry(QUERY, 10, None, "of the asker")
RECORDS = [record(at=n, to_queue="é") for n in range(3)]
Make = Callable[..., Awaitable[Replica]]


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[Make]:
    """Makes started replicas that meet in one directory, unless they get one of their own."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(found: History, directory: Path = tmp_path / "peers", **how: object) -> Replica:
            made = await Replica(directory, history=found, **how).start()  # type: ignore[arg-type]
            stack.push_async_callback(made.close)
            return made

        yield make


@pytest.fixture
async def ask(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[tuple[list[Finding], list[str]]]]]:
    """Asks all peers of the directory, and those at addresses."""
    directory = SocketDirectory(tmp_path / "peers")
    directory.open()

    async def asked(*places: Address, seconds: float = 60, inquiry: Inquiry = INQUIRY):
        peers = PeerSearch(Signer(KEYS, now_ms), directory, places, seconds)
        try:
            return await peers.ask(inquiry)
        finally:
            await peers.close()

    yield asked
    directory.close()


@contextlib.asynccontextmanager
async def answering(answer: bytes | None) -> AsyncIterator[tuple[str, int]]:
    """The address of a server that answers each request with these bytes and hangs up; None: it never answers."""
    ended = asyncio.Event()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            if answer is None:
                await ended.wait()
            else:
                writer.write(answer)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()
    finally:
        ended.set()
        server.close()
        await server.wait_closed()


async def test_all_peers_are_asked(replica: Make, ask, tmp_path: Path) -> None:
    """Those of the directory, and those at addresses, each with what it has."""
    there = Address("127.0.0.1", free_port())
    await replica(history(MemorySearch(RECORDS[:2]), node="a"))
    await replica(history(MemorySearch(RECORDS[2:]), node="b"), tmp_path / "elsewhere", listen=there)
    found, silent = await ask(there, Address("localhost", there.port))
    assert [(each.node, each.records, each.next_cursor) for each in found] == [
        ("a", RECORDS[:2], None),
        ("b", RECORDS[2:], None),
    ]
    assert [each.since for each in found] == [RECORDS[0].at, RECORDS[2].at]
    assert silent == []


async def test_the_search_is_the_one_that_was_asked_for(replica: Make, ask) -> None:
    """All its conditions, its limit and its cursor."""
    journal = MemorySearch(RECORDS)
    await replica(history(journal))
    query = Query(trace_id="t", job="j", queue="q", event="accepted", since=1, until=2**53)
    cursor = cursor_of(place(RECORDS[0]))
    (found,), _ = await ask(inquiry=Inquiry(query, 1, cursor, "x"))
    assert journal.calls == [(query, 1, cursor)]
    assert (found.records, found.next_cursor) == (RECORDS[1:2], cursor_of(place(RECORDS[1])))


async def test_a_gateway_does_not_ask_itself(replica: Make) -> None:
    one = await replica(history(MemorySearch(RECORDS)))
    peers = PeerSearch(one.signer, one.sockets)
    assert await peers.ask(INQUIRY) == ([], [])
    await peers.close()


async def test_its_own_address_among_those_of_a_name_finds_nothing_twice(replica: Make, ask) -> None:
    there = Address("127.0.0.1", free_port())
    journal = MemorySearch(RECORDS)
    await replica(history(journal, files="of the asker"), listen=there)
    found, silent = await ask(there)
    assert [each.records for each in found] == [[], []]
    assert (journal.calls, silent) == ([], [])


class TestSilence:
    """A peer without an answer is named, and the others are heard."""

    @pytest.fixture
    async def heard(self, replica: Make) -> None:
        await replica(history(MemorySearch(RECORDS), node="a"))

    @pytest.mark.parametrize(
        "answer",
        [
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}",
            b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\n{}",
            b"HTTP/1.1 429 Busy\r\nContent-Length: 2\r\n\r\n{}",
            b"HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n" + b'{"finding":null}',
            b"",
        ],
        ids=["an older version", "another key", "overloaded", "stopping", "unsigned", "hangs up"],
    )
    async def test_a_useless_answer(self, heard: None, ask, answer: bytes) -> None:
        async with answering(answer) as (host, port):
            found, silent = await ask(Address(host, port))
        assert [each.node for each in found] == ["a"]
        assert silent == [f"{host}:{port}"]

    async def test_one_that_hangs(self, heard: None, ask) -> None:
        async with answering(None) as (host, port):
            found, silent = await ask(Address(host, port), seconds=5)
        assert ([each.node for each in found], silent) == (["a"], [f"{host}:{port}"])

    async def test_one_whose_search_hangs(self, heard: None, replica: Make, ask) -> None:
        class Hanging(MemorySearch):
            async def find(self, *_: object) -> object:  # type: ignore[override]
                return await asyncio.Event().wait()

        other = await replica(history(Hanging(), node="b"))
        found, silent = await ask(seconds=5)
        assert [each.node for each in found] == ["a"]
        assert silent == [other.gateway.incarnation]

    async def test_an_address_where_nothing_listens(self, heard: None, ask) -> None:
        port = free_port()
        found, silent = await ask(Address("127.0.0.1", port))
        assert ([each.node for each in found], silent) == (["a"], [f"127.0.0.1:{port}"])

    async def test_one_with_another_key(self, heard: None, replica: Make, ask) -> None:
        other = await replica(history(MemorySearch(), node="b"), keys=[TokenKey("test", b"a key of nobody else")])
        found, silent = await ask()
        assert ([each.node for each in found], silent) == (["a"], [other.gateway.incarnation])

    async def test_one_without_a_journal(self, heard: None, replica: Make, ask) -> None:
        """What it did is not known."""
        other = await replica(History())
        found, silent = await ask()
        assert ([each.node for each in found], silent) == (["a"], [other.gateway.incarnation])

    async def test_one_whose_cursors_are_of_another_version(self, replica: Make, ask) -> None:
        class Newer(MemorySearch):
            async def find(self, *given: object) -> object:  # type: ignore[override]
                page = await super().find(*given)  # type: ignore[arg-type]
                page.next_cursor = "v2"
                return page

        other = await replica(history(Newer(RECORDS)))
        assert await ask() == ([], [other.gateway.incarnation])

    async def test_the_socket_of_a_killed_process_is_nobody(self, heard: None, ask, tmp_path: Path) -> None:
        """Other processes read what it left in the directory."""
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(tmp_path / "peers" / "feedfeedfeedfeed.sock"))
        found, silent = await ask()
        assert ([each.node for each in found], silent) == (["a"], [])
