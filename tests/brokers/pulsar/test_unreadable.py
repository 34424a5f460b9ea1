"""A broker that answers and cannot read its messages: no answer says that there are none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from babelgate.brokers.binding import Delivery, Outgoing
from babelgate.brokers.pulsar.binding import PulsarBinding
from babelgate.errors import BrokerUnavailable
from babelgate.gateway.authorization import ANYONE
from tests.brokers.pulsar.harness import PulsarBroker, binding
from tests.brokers.pulsar.server import PulsarServer
from tests.harness.disk import fill, small_disk
from tests.harness.local import eventually
from tests.harness.world import World

pytestmark = [pytest.mark.pulsar, pytest.mark.slow]

MIB = 1024 * 1024
COUNT = 5
READ_FROM_DISK = {
    "managedLedgerCacheSizeMB": "0",
    "dbStorage_readAheadCacheBatchSize": "1",
    "flushInterval": "100",
    "readBufferSizeBytes": "1",
}
"""Neither the broker nor the bookie has a message in memory, once it is on the disk, but one behind the last that was
read. The bookie reads no byte of the disk before it is asked for it."""

SMALL_FILES = {"journalMaxSizeMB": "8", "journalPreAllocSizeMB": "1", "entryLogSizeLimit": str(8 * MIB)}


_LOG_HEAD = 1024
"""Bytes before the first entry of an entry log."""


class Bookie:
    """The messages on the disk of a running server."""

    def __init__(self, server: PulsarServer) -> None:
        self.server = server
        self._logs = server.directory / "bookies" / "current"

    async def stored(self, *bodies: bytes) -> None:
        """Wait until messages are on the disk. A flush that failed leaves some of them there twice."""
        await eventually(lambda: all(self._owners([each]) for each in bodies))

    @contextmanager
    def damaged(self, *bodies: bytes) -> Iterator[None]:
        """While it lasts these messages cannot be read, because the disk has them as those of another ledger."""
        owners = self._owners(bodies)
        for log, position, owner in owners:
            _write(log, position, bytes(len(owner)))
        try:
            yield
        finally:
            for log, position, owner in owners:
                _write(log, position, owner)

    def _owners(self, bodies: Sequence[bytes]) -> list[tuple[Path, int, bytes]]:
        """Where the number of the ledger of each message is, and the number. The numbers of an entry's size, its ledger
        and the entry itself precede it. https://bookkeeper.apache.org/docs/getting-started/concepts#entry-logs"""
        found = []
        for log in self._logs.glob("*.log"):
            content = log.read_bytes()
            position = _LOG_HEAD
            while size := int.from_bytes(content[position : position + 4], "big"):
                position += 4
                if any(each in content[position : position + size] for each in bodies):
                    found.append((log, position, content[position : position + 8]))
                position += size
        return found


def _write(log: Path, position: int, content: bytes) -> None:
    with log.open("r+b") as file:
        file.seek(position)
        file.write(content)


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bookie]:
    server = PulsarServer(tmp_path_factory.mktemp("pulsar"), READ_FROM_DISK)
    try:
        server.start()
        yield Bookie(server)
    finally:
        server.kill()


@pytest.fixture
async def one(bookie: Bookie) -> AsyncIterator[PulsarBinding]:
    async with binding(bookie.server.url(), {"timeout_seconds": 6}) as opened:
        yield opened


def body(queue: str, number: int) -> bytes:
    """A message that is found on the disk."""
    return f"{queue} {number}.".encode()


@pytest.mark.parametrize(
    ("held", "unreadable", "options"),
    [
        (0, range(COUNT), {}),
        (0, [0], {}),
        (2, [3], {}),
        (2, [COUNT - 1], {}),
        (2, range(2, COUNT), {"key_shared": True}),
    ],
    ids=["all", "first", "next", "last", "key_shared"],
)
async def test_what_cannot_be_read_is_not_absent(
    bookie: Bookie, one: PulsarBinding, queue: str, held: int, unreadable: Sequence[int], options: Mapping[str, Any]
) -> None:
    """When the disk is well again the messages come at once, although the broker pauses after a read that failed."""
    native = one.native_queue(queue, options)
    bodies = [body(queue, number) for number in range(COUNT)]
    assert await one.publish(native, [Outgoing(each) for each in bodies]) == [None] * COUNT
    await bookie.stored(*bodies)
    # A second flush begins when the first has ended, which has emptied the memory.
    await one.publish(one.native_queue(f"{queue}-later", {}), [Outgoing(body(queue, COUNT))])
    await bookie.stored(body(queue, COUNT))
    taken: list[Delivery] = []
    while len(taken) < held:
        taken += await one.reserve(native, 1, 20, 30)
    with bookie.damaged(*(bodies[number] for number in unreadable)):
        # One that waits, and one that does not. What can be read may come before.
        for wait_seconds in (0, 1):
            with pytest.raises(BrokerUnavailable, match="does not deliver"):
                while found := await one.reserve(native, COUNT, wait_seconds, 30):
                    taken += found
    while len(taken) < COUNT:
        found = await one.reserve(native, COUNT, 0, 30)
        assert found, "it answered that there is nothing"
        taken += found
    assert sorted(each.body for each in taken) == bodies
    assert await one.ack(native, [each.handle for each in taken]) == [None] * COUNT


@pytest.mark.parametrize("is_limited", [False, True], ids=["readers", "no_readers"])
async def test_what_others_hold_or_is_delayed_is_no_failure(bookie: Bookie, queue: str, is_limited: bool) -> None:
    """Also where the broker refuses a reader, which has a subscription of its own."""
    namespace = f"public/{queue}"
    assert await asyncio.to_thread(bookie.server.admin, f"namespaces/{namespace}", "PUT") is not None
    if is_limited:
        limit = f"namespaces/{namespace}/maxSubscriptionsPerTopic"
        assert await asyncio.to_thread(bookie.server.admin, limit, "POST", b"1") is not None
    url = bookie.server.url().replace("/?", f"/{namespace}?")
    async with binding(url) as one, binding(url) as other:
        native = one.native_queue(queue, {})
        delayed = Outgoing(body(queue, 2), delay_seconds=3600)
        assert await one.publish(native, [Outgoing(body(queue, 0)), Outgoing(body(queue, 1)), delayed]) == [None] * 3
        taken: list[Delivery] = []
        while len(taken) < 2:
            taken += await one.reserve(native, 2, 20, 30)
        assert await other.reserve(native, 2, 0, 30) == []
        assert await other.reserve(native, 2, 1.5, 30) == []
        assert await one.reserve(native, 2, 0, 30) == []
        assert one.outstanding(native, [each.handle for each in taken]) == [True, True]


async def test_a_bookie_whose_disk_is_full_is_not_an_empty_queue(tmp_path: Path, queue: str) -> None:
    """The bookie ends itself. The broker answers on, without an error to its consumers."""
    directory = tmp_path / "pulsar"
    directory.mkdir()
    with small_disk(directory / "bookies", 96 * MIB) as disk:
        server = PulsarServer(directory, SMALL_FILES)
        world = World(PulsarBroker(server), queue)
        try:
            server.start()
            process = await world.process()
            await process.publish_all([{}] * 4)
            message = await process.one()
            assert await process.reject(message) == [None]
            assert len(await process.dead()) == 1
            made = process.gateway.bindings["pulsar"]
            native = made.native_queue(queue, {})
            fill(disk)

            async def is_gone() -> bool:
                return list(await made.publish(native, [Outgoing(b"." * MIB)] * 8)) != [None] * 8

            async with asyncio.timeout(60):
                while not await is_gone():
                    pass
            await made.ping()
            calls: list[Callable[[], Coroutine[Any, Any, Any]]] = [
                lambda: process.receive(5),
                lambda: process.receive(5, wait=1),
                lambda: process.gateway.peek(ANYONE, queue, 5),
                process.dead,
                process.redrive,
            ]
            for call in calls:
                with pytest.raises(BrokerUnavailable):
                    await call()
        finally:
            await world.close()
            server.kill()
