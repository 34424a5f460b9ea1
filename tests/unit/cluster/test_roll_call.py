"""Peers tell who they are over real sockets, and one that gives no answer is named."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from babelgate.clock import now_ms
from babelgate.cluster.client import Address
from babelgate.cluster.roll_call import PeerRollCall
from babelgate.cluster.signing import Signer
from babelgate.cluster.sockets import SocketDirectory
from babelgate.errors import Forbidden
from babelgate.gateway.authorization import ANYONE, Caller, Right
from babelgate.gateway.replicas import Identity, Replicas
from tests.harness.local import free_port
from tests.harness.replica import Replica
from tests.harness.world import KEYS

OWN = Identity("0" * 16, "here", "g", 1, "1.0", 5)
Make = Callable[..., Awaitable[Replica]]


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[Make]:
    """Makes started replicas that meet in one directory, unless they get one of their own."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(own: Identity | None = None, directory: Path = tmp_path / "peers", **how: object) -> Replica:
            made = await Replica(directory, **how).start()  # type: ignore[arg-type]
            stack.push_async_callback(made.close)
            made.gateway.overview.replicas = None if own is None else Replicas(own)
            return made

        yield make


async def serving(tmp_path: Path, *places: Address, seconds: float = 60) -> tuple[list[Identity], list[str]]:
    """Who serves and who is silent, as one that meets the others in their directory sees it."""
    directory = SocketDirectory(tmp_path / "peers")
    directory.open()
    peers = PeerRollCall(Signer(KEYS, now_ms), directory, places, seconds)
    try:
        found = await Replicas(OWN, peers).serving(ANYONE)
    finally:
        await peers.close()
        directory.close()
    assert (found.own, found.has_port) == (OWN.incarnation, True)
    return list(found.processes), list(found.silent)


async def test_all_peers_say_who_they_are(replica: Make, tmp_path: Path) -> None:
    workers = [Identity(f"{n}" * 16, "there", "w", 10 - n, "1.1", 7) for n in (1, 2)]
    for each in workers:
        await replica(each)
    place = Address("127.0.0.1", free_port())
    old = await replica(directory=tmp_path / "far", listen=place)
    processes, silent = await serving(tmp_path, place, Address("localhost", place.port))
    assert processes == [Identity(old.gateway.incarnation), OWN, workers[1], workers[0]]
    assert silent == []


async def test_who_gives_no_answer_is_named(replica: Make, tmp_path: Path) -> None:
    await replica(Identity("1" * 16, "there"))
    with socket.create_server(("127.0.0.1", 0)) as hung:
        place = Address(*hung.getsockname())
        gone = Address("127.0.0.1", free_port())
        processes, silent = await serving(tmp_path, place, gone, seconds=2)
    assert [each.node for each in processes] == ["here", "there"]
    assert silent == sorted([str(place), str(gone)])


async def test_answers_are_reused_and_need_a_right() -> None:
    class Counting:
        asked = 0

        async def ask(self) -> tuple[list[Identity], list[str]]:
            self.asked += 1
            return [], []

    peers = Counting()
    replicas = Replicas(OWN, peers)
    assert (await replicas.serving(ANYONE)) is (await replicas.serving(ANYONE))
    assert peers.asked == 1
    with pytest.raises(Forbidden):
        await replicas.serving(Caller("l", {"*": frozenset({Right.LISTEN})}))
    assert not (await Replicas(OWN).serving(ANYONE)).has_port
