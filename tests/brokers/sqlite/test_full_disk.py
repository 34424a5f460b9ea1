"""A file on a real file system that fills up: no new messages, and everything else goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from babelgate import envelope
from babelgate.brokers.binding import DeadLetterRequest
from babelgate.brokers.sqlite.room import RESERVED_BYTES
from babelgate.errors import StorageFull
from tests.brokers.sqlite.harness import SqliteBroker
from tests.brokers.sqlite.support import Line, opened
from tests.harness.disk import fill, small_disk
from tests.harness.world import World

MIB = 1024 * 1024
BLOCK = envelope.dead_letter_block("failed", "q", 1, 7, "why")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 64 * MIB) as directory:
        yield directory


async def filled(line: Line, body: bytes, times: int) -> int:
    """Publish up to ``times`` bodies, until the first is refused; the number of those that were stored."""
    for count in range(times):
        try:
            await line.publish(body)
        except StorageFull:
            return count
    raise AssertionError("it was not refused")


@pytest.mark.parametrize("size", [2_000, 400_000])
async def test_a_disk_that_messages_fill_up_is_drained(disk: Path, queue: str, size: int) -> None:
    async with opened(disk / "q.db") as binding:
        line = Line(binding, queue)
        # Small messages fill what is left.
        filler = fill(disk, RESERVED_BYTES + 4 * MIB) if size < MIB // 10 else None
        stored = await filled(line, b"x" * size, 20_000)
        assert stored > 0
        nacked, dead, extended, acked, *rest = await line.reserve()
        handle = nacked.handle
        assert await binding.release(line.queue, [handle], 0, failed=True) == [None]
        assert await binding.dead_letter(line.queue, [DeadLetterRequest(dead.handle, BLOCK)]) == [None]
        assert isinstance((await binding.extend(line.queue, [extended.handle], 600))[0], int)
        assert await line.ack(acked, extended, *rest) == [None] * (len(rest) + 2)
        taken = 3 + len(rest)
        while found := await line.reserve():
            assert await line.ack(*found) == [None] * len(found)
            taken += len(found)
        assert taken == stored
        (record,), _ = await binding.read_dead(line.queue, None, 10)
        assert await binding.remove_dead(line.queue, [record], None) == ([True], None)
        # The file has not become smaller, and its pages are free.
        assert await filled(line, b"x" * size, 20_000) > 0
        assert filler is None or filler.exists()


async def test_a_disk_that_others_fill_up_loses_nothing_and_is_served_again(disk: Path, queue: str) -> None:
    async with opened(disk / "q.db") as binding:
        line = Line(binding, queue)
        await line.publish(b"message")
        filler = fill(disk, RESERVED_BYTES - MIB)
        stored = 1 + await filled(line, b"message", 20_000)
        with pytest.raises(StorageFull, match="less than 16 MiB are free on its disk"):
            await line.publish(b"refused")
        taken = 0
        while found := await line.reserve():
            assert await line.ack(*found) == [None] * len(found)
            taken += len(found)
        assert taken == stored
        filler.unlink()
        await line.publish(b"after")
        assert await line.bodies() == [b"after"]


async def test_a_redrive_that_meets_a_full_disk_alone_is_reported(disk: Path, queue: str) -> None:
    """No publish has met it: the log, the metric and the warnings are of any write."""
    world = World(SqliteBroker(disk), queue)
    gateway = await world.process()
    try:
        # Both together are more than one answer of the file system counts for.
        for _ in range(2):
            await gateway.publish({"text": "x" * 900_000})
            assert await gateway.reject(await gateway.one()) == [None]
        fill(disk, RESERVED_BYTES - MIB)
        assert gateway.gateway.outages.storage("local") is None
        result = await gateway.redrive()
        assert (result.redriven, result.failed) == (0, 2)
        assert "less than 16 MiB" in (gateway.gateway.outages.storage("local") or "")
        assert len(await gateway.dead()) == 2
    finally:
        await world.close()
