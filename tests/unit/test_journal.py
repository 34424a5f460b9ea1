"""The journal of a process as a whole: from events to landed files, through everything that a disk can do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from app.clock import now_ms
from app.errors import ConfigError, Overloaded
from app.observe.journal import Record
from app.observe.journal_writer import WRITE_SECONDS, Journal, Options, host_node
from tests.harness.journal import MESSAGE, happened, landed, read
from tests.harness.local import eventually
from tests.unit.test_journal_files import files_of_at_most

Make = Callable[..., Journal]


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    return tmp_path / "landing"


@pytest.fixture
def opened(tmp_path: Path) -> Path:
    """The directory of open segments."""
    return tmp_path / "open"


@pytest.fixture
async def make(landing: Path, opened: Path) -> AsyncIterator[Make]:
    made: list[Journal] = []

    def make(**options: Any) -> Journal:
        defaults: dict[str, Any] = {"landing": str(landing), "open_directory": opened, "node": "a"}
        made.append(Journal(Options(**(defaults | options))))
        return made[-1]

    yield make
    for each in made:
        await each.close()


def messages_of(found: list[Record]) -> list[str | None]:
    return [record.message_id for record in found]


def on_disk(directory: Path) -> int:
    """Bytes in segments that have not landed."""
    return sum(path.stat().st_size for path in directory.glob("*.ndjson*"))


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*"))


def take_away(landing: Path) -> None:
    """What a directory is whose disk is not mounted: no directory."""
    (landing / ".incoming").rmdir()
    landing.rmdir()
    landing.write_bytes(b"in the way")


def bring_back(landing: Path) -> None:
    landing.unlink()


async def test_what_happened_lands(make: Make, landing: Path, opened: Path) -> None:
    journal = make()
    journal.start()
    for kind in ("accepted", "delivered", "acked"):
        journal.observe(happened(kind))
    await journal.close()
    assert [record.event for record in read(landing)] == ["accepted", "delivered", "acked"]
    assert len(landed(landing)) == 1
    assert names(opened) == []
    stats = journal.stats()
    assert (stats.records, stats.dropped, stats.buffer_bytes, stats.segments, stats.waiting_segments) == (3, 0, 0, 1, 0)


async def test_it_is_on_its_way_to_the_disk_while_the_process_runs(make: Make, opened: Path) -> None:
    journal = make()
    journal.start()
    journal.observe(happened())
    await eventually(lambda: journal.stats().buffer_bytes == 0)
    assert messages_of(read(opened)) == ["id-1"]
    assert WRITE_SECONDS <= 0.1, "docs/journal.md says 200 ms"


async def test_an_idle_process_closes_its_segment_by_age(make: Make, landing: Path, opened: Path) -> None:
    journal = make(segment_seconds=0.2)
    journal.start()
    journal.observe(happened())
    await eventually(lambda: journal.stats().segments == 1)
    assert messages_of(read(landing)) == ["id-1"]
    assert [name.rpartition(".")[2] for name in names(opened)] == ["lock"]


async def test_large_segments_are_closed_by_size(make: Make, landing: Path) -> None:
    journal = make(segment_bytes=65_536, compression="zstd")
    journal.start()
    for _ in range(5):
        journal.observe(happened("delivered", *[MESSAGE] * 250))
        await eventually(lambda: journal.stats().buffer_bytes == 0)
    await journal.close()
    assert len(landed(landing)) == 5
    assert len(read(landing)) == 1_250


async def test_two_processes_share_the_directories(make: Make, landing: Path, opened: Path) -> None:
    first, second = make(), make()
    first.start()
    second.start()
    for journal in (first, second):
        journal.observe(happened())
    await asyncio.gather(first.close(), second.close())
    assert len({record.epoch for record in read(landing)}) == len(landed(landing)) == 2
    assert names(opened) == []


async def test_a_landing_place_that_is_away_holds_nothing_up(make: Make, landing: Path, opened: Path) -> None:
    journal = make(segment_seconds=0.1)
    journal.start()
    take_away(landing)
    journal.observe(happened())
    await eventually(lambda: journal.stats().errors > 0)
    journal.observe(happened("acked"))
    await eventually(lambda: journal.stats().waiting_segments == 2)
    assert [record.event for record in read(opened)] == ["accepted", "acked"]
    bring_back(landing)
    await eventually(lambda: journal.stats().waiting_segments == 0)
    assert [record.event for record in read(landing)] == ["accepted", "acked"]


async def test_what_could_not_land_is_left_for_the_next_start(make: Make, landing: Path, opened: Path) -> None:
    first = make()
    first.start()
    take_away(landing)
    first.observe(happened())
    await first.close(0.5)
    assert first.stats().waiting_segments == 1
    assert messages_of(read(opened)) == ["id-1"]
    bring_back(landing)
    second = make()
    second.start()
    await eventually(lambda: second.stats().segments == 1)
    assert messages_of(read(landing)) == ["id-1"]


async def test_a_full_disk_is_a_gap(make: Make, landing: Path, opened: Path) -> None:
    journal = make(buffer_bytes=65_536)
    journal.start()
    journal.observe(happened())
    await eventually(lambda: on_disk(opened) > 0)
    with files_of_at_most(1_000):
        for _ in range(500):
            journal.observe(happened("delivered"))
        await eventually(lambda: journal.stats().errors > 0)
        assert journal.stats().buffer_bytes >= 65_536
        assert not journal.crowded, "nobody waits"
    dropped = journal.stats().dropped
    assert dropped > 0
    await eventually(lambda: journal.stats().buffer_bytes == 0)
    journal.observe(happened("acked"))
    await journal.close()
    found = read(landing)
    (gap,) = [record for record in found if record.event == "gap"]
    assert gap.count == dropped
    assert len(found) == 1 + (500 - dropped) + 1 + 1
    assert [record.event for record in found[-2:]] == ["gap", "acked"]


async def test_callers_may_be_held_back_instead(make: Make, landing: Path) -> None:
    journal = make(buffer_bytes=65_536, wait=True)
    journal.start()
    await journal.room()
    journal.observe(happened("delivered", *[MESSAGE] * 120))
    assert journal.crowded
    await asyncio.gather(*(journal.room() for _ in range(10)))
    await journal.close()
    assert len(read(landing)) == 120
    assert journal.stats().dropped == 0


async def test_callers_do_not_wait_for_ever(make: Make) -> None:
    journal = make(buffer_bytes=65_536, wait=True)
    journal.observe(happened("delivered", *[MESSAGE] * 120))
    with pytest.raises(Overloaded):
        await journal.room(0.05)


async def test_a_process_that_never_started_closes_too(make: Make, opened: Path) -> None:
    await make().close()
    assert names(opened) == []


async def test_a_directory_that_cannot_be_made_is_refused(make: Make, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for options, key in (
        ({"open_directory": tmp_path / "file" / "x"}, "journal.open_directory"),
        ({"landing": str(tmp_path / "file" / "x")}, "journal.landing"),
    ):
        journal = make(**options)
        for attempt in (journal.check, journal.start):
            with pytest.raises(ConfigError) as refused:
                attempt()
            assert refused.value.key == key


def test_a_check_makes_nothing(tmp_path: Path) -> None:
    Journal(Options(landing=str(tmp_path / "a" / "b"), open_directory=tmp_path / "c" / "d")).check()
    assert names(tmp_path) == []


async def test_each_start_is_an_epoch(make: Make, landing: Path) -> None:
    for _ in range(3):
        journal = make()
        journal.start()
        journal.observe(happened())
        await journal.close()
    found = read(landing)
    assert [record.seq for record in found] == [1, 1, 1]
    assert found == sorted(found, key=lambda record: record.at)
    assert found[0].at <= now_ms()


def test_the_hosts_name_is_a_node() -> None:
    assert Options(landing="x", open_directory=Path(), node=host_node()).node
