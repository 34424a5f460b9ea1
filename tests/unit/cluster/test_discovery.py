"""Peers on other hosts are found by being asked who they are: at given addresses, and at all those of a name."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from babelgate.clock import now_ms
from babelgate.cluster.client import Address, PeerClient, PeerSilent, PeerUnreachable
from babelgate.cluster.discovery import QUERY_EVERY_SECONDS, Addresses
from babelgate.cluster.signing import ANYBODY, Signer
from babelgate.cluster.sockets import SocketDirectory
from babelgate.cluster.wire import IDENTITY_PATH
from babelgate.errors import ConfigError, LeaseLost, OwnerUnreachable
from tests.harness.local import free_ports
from tests.harness.proxy import proxy
from tests.harness.replica import Replica
from tests.harness.world import KEYS, kinds

HOST = "127.0.0.1"
STRANGE = "feedfeedfeedfeed"


class Host:
    """A place for a replica of its own: an address, and a directory where nobody else is."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.address = Address(HOST, port)

    @contextlib.asynccontextmanager
    async def replica(self, **how: object) -> AsyncIterator[Replica]:
        made = Replica(self.directory, listen=self.address, **how)  # type: ignore[arg-type]
        await made.start()
        try:
            yield made
        finally:
            await made.close()


@pytest.fixture
def hosts(tmp_path: Path) -> list[Host]:
    return [Host(tmp_path / str(port), port) for port in free_ports(2)]


@pytest.fixture
async def client() -> AsyncIterator[PeerClient]:
    made = PeerClient(Signer(KEYS, now_ms), answer_seconds=0.3)
    yield made
    await made.close()


def addresses(client: PeerClient, *places: Address) -> Addresses:
    return Addresses(client, SocketDirectory(Path("never-opened")), places)


async def test_a_settle_reaches_another_host(hosts: list[Host]) -> None:
    here, there = hosts
    async with there.replica() as owner, here.replica(places=[here.address, there.address]) as other:
        assert await other.ack(await owner.token()) == [None]
        assert await owner.held() == 0


async def test_all_addresses_of_a_name_are_asked(hosts: list[Host]) -> None:
    here, there = hosts
    async with there.replica() as owner, here.replica(places=[Address("localhost", there.address.port)]) as other:
        assert await other.ack(await owner.token()) == [None]


async def test_many_who_look_for_it_ask_once(client: PeerClient, hosts: list[Host]) -> None:
    async with hosts[0].replica() as owner, proxy(*hosts[0].address) as between:
        place = Address(HOST, between.port)
        peers = addresses(client, place)
        wanted = owner.gateway.incarnation
        assert await asyncio.gather(*(peers.find(wanted) for _ in range(20))) == [place] * 20
        assert await peers.find(wanted) == place
        assert between.sent.count(b"GET /peer ") == 1


async def test_one_that_is_nowhere_is_asked_for_once_a_second(client: PeerClient, hosts: list[Host]) -> None:
    async with hosts[0].replica(), proxy(*hosts[0].address) as between:
        peers = addresses(client, Address(HOST, between.port))
        assert [await peers.find(STRANGE) for _ in range(5)] == [None] * 5
        assert between.sent.count(b"GET /peer ") == 1
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await peers.find("beefbeefbeefbeef") is None, "another one is looked for once more"
        assert between.sent.count(b"GET /peer ") == 2
        assert loop.time() - began > QUERY_EVERY_SECONDS / 2


async def test_one_that_starts_later_is_found(client: PeerClient, hosts: list[Host]) -> None:
    peers = addresses(client, hosts[0].address)
    assert await peers.find(STRANGE) is None
    async with hosts[0].replica() as owner:
        assert await peers.find(owner.gateway.incarnation) == hosts[0].address


async def test_one_that_came_back_is_another(hosts: list[Host]) -> None:
    here, there = hosts
    async with here.replica(places=[there.address]) as other:
        async with there.replica() as before:
            first, second = await before.tokens(2)
            assert await other.ack(first) == [None]
        async with there.replica() as after:
            token = await after.token()
            assert kinds(await other.ack(second)) == [LeaseLost]
            assert await other.ack(token) == [None]


async def test_one_that_does_not_say_who_it_is_may_be_the_owner(client: PeerClient, hosts: list[Host]) -> None:
    async with hosts[0].replica() as owner, proxy(*hosts[0].address) as between:
        between.hold_replies = True
        peers = addresses(client, Address(HOST, between.port), hosts[1].address)
        with pytest.raises(PeerUnreachable, match=str(between.port)):
            await peers.find(owner.gateway.incarnation)
        between.hold_replies = False
        between.cut()
        assert await peers.find(owner.gateway.incarnation) == Address(HOST, between.port)


async def test_one_that_is_out_of_reach_where_it_was_is_looked_for_again(hosts: list[Host]) -> None:
    async def overloaded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    here, there = hosts
    async with (
        there.replica() as owner,
        proxy(*there.address) as before,
        proxy(HOST, free_ports(1)[0]) as after,
        await asyncio.start_server(overloaded, HOST, 0) as server,
        here.replica(places=[Address(HOST, before.port), Address(HOST, after.port)]) as other,
    ):
        first, second = await owner.tokens(2)
        assert await other.ack(first) == [None]
        before.lead_to(*server.sockets[0].getsockname())
        before.cut()
        after.lead_to(*there.address)
        assert kinds(await other.ack(second)) == [OwnerUnreachable]
        assert await other.ack(second) == [None]


async def test_an_answer_without_end_is_none(client: PeerClient) -> None:
    gone = asyncio.Semaphore(0)

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        # A reset is no end of what comes: it closes the transport.
        while not (reader.at_eof() or writer.is_closing()):
            writer.write(b"x")
            await asyncio.sleep(0.05)
        writer.close()
        gone.release()

    async with await asyncio.start_server(drip, HOST, 0) as server:
        place = Address(*server.sockets[0].getsockname())
        with pytest.raises(PeerSilent):
            await client.call(place, "GET", IDENTITY_PATH, ANYBODY)
        with pytest.raises(PeerUnreachable, match="did not answer with their identity"):
            await addresses(client, place).find(STRANGE)
        await gone.acquire()
        await gone.acquire()


async def test_a_stranger_is_no_peer(client: PeerClient) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(connected, HOST, 0) as server:
        assert await addresses(client, Address(*server.sockets[0].getsockname())).find(STRANGE) is None


async def test_a_name_that_nobody_has(client: PeerClient) -> None:
    peers = addresses(client, Address("no-such-name.invalid", 1))
    with contextlib.suppress(PeerUnreachable):
        # Whether it does not exist or cannot be asked about is for the resolver of this machine to say.
        assert await peers.find(STRANGE) is None


async def test_a_port_that_is_taken(hosts: list[Host]) -> None:
    taken = Replica(hosts[0].directory, listen=hosts[0].address)
    with (
        socket.create_server(hosts[0].address),
        pytest.raises(ConfigError, match=r"peers\.listen: cannot listen on 127.0.0.1:.*in use"),
    ):
        await taken.start()
    await taken.close()
