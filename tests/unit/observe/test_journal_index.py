"""The index of a journal on the disk: shared, bounded, complete after a kill, and made again where it is damaged."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from click.testing import CliRunner

from babelgate.cli.main import cli
from babelgate.clock import now_ms
from babelgate.config.settings import load
from babelgate.errors import ConfigError
from babelgate.observe.journal.frames import Keys, SegmentFrame, contents
from babelgate.observe.journal.index import Index, IndexFile, SegmentRow
from babelgate.observe.journal.indexing import _contents, complete
from babelgate.observe.journal.record import Record, encode, parse_segment
from babelgate.observe.journal.retention import LOOK_SECONDS, Retention
from babelgate.observe.journal.search import JournalSearch, Query
from babelgate.observe.journal.stores import Directory, store
from babelgate.observe.journal.writer import Journal, Options
from babelgate.server.wiring import journal
from tests.harness.journal import kept, landed, read, records, unpacked
from tests.harness.local import eventually
from tests.unit.observe.test_journal_search import LONG_SECONDS, all_of, event, events_of

Make = Callable[..., Journal]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[Journal] = []

    def make(**options: Any) -> Journal:
        defaults: dict[str, Any] = {"landing": str(tmp_path / "landing"), "open_directory": tmp_path / "open"}
        made.append(Journal(Options(**(defaults | {"node": "a"} | options))))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        await each.close()


async def write_segments(recording: Journal, count: int, first: int = 1) -> None:
    """Land ``count`` segments with a record each, of the messages ``first``, ``first`` + 1, …"""
    for number in range(first, first + count):
        before = recording.stats().segments
        recording.observe(event("accepted", str(number)))
        await eventually(lambda before=before: recording.stats().segments > before)  # type: ignore[misc]


async def messages(recording: Journal) -> list[str]:
    """The ids of all messages that a search finds, oldest first."""
    return [str(each.message_id) for each in reversed(await all_of(recording.search, Query()))]


def database_files(tmp_path: Path, directory: str = "open") -> list[Path]:
    return sorted((tmp_path / directory / "index").glob("*.db"))


def damage(path: Path) -> None:
    """Overwrite all but the name of a file: a bad sector, or a crash of the file system."""
    path.write_bytes(b"\xff" * path.stat().st_size)


async def test_a_segment_is_deleted_when_it_is_indexed(make: Make, tmp_path: Path) -> None:
    """A search finds a segment in the open directory until the index has it."""
    recording = make(segment_seconds=0.05)
    blocked = sqlite3.connect(database_files(tmp_path)[0], isolation_level=None)
    blocked.execute("BEGIN IMMEDIATE")
    recording.observe(event("accepted", "1"))
    await eventually(lambda: len(landed(tmp_path / "landing")) == 1)
    assert len(list((tmp_path / "open").glob("*.ndjson"))) == 1
    assert await messages(recording) == ["1"]
    blocked.close()
    await eventually(lambda: recording.stats().segments == 1)
    assert list((tmp_path / "open").glob("*.ndjson")) == []
    assert await messages(recording) == ["1"]


def test_a_frame_that_was_divided_is_indexed_by_its_own_records(tmp_path: Path) -> None:
    """The segment has one frame, and landed in messages that take less."""
    nothing: tuple[Any, ...] = (None,) * 8
    made = [Record(1, "a", "e", at, "accepted", at, "q", "main", f"urn:{at}", *nothing) for at in range(1, 4)]
    lines = [encode(each) + b"\n" for each in made]
    path = tmp_path / "a-018bcfe568001a2b3c4d-000001.ndjson"
    path.write_bytes(b"".join(lines))
    found = [*_contents(path, [(len(line), 1) for line in lines])]
    assert [each.first_at for each in found] == [1, 2, 3]
    assert [(each.last_at, each.keys) for each in found] == [(each.last_at, each.keys) for each in map(contents, lines)]


KILLED = """
import asyncio, sys
from pathlib import Path
from babelgate.observe.journal.writer import Journal, Options
from tests.harness.journal import happened
from babelgate.observe.events import Facts

async def main(folder):
    journal = Journal(Options(
        landing=str(folder / "landing"), open_directory=folder / "open", node="a", segment_seconds=0.02
    ))
    journal.start()
    number = 0
    while True:
        journal.observe(happened("accepted", *[Facts(message_id=f"{journal._owner}-{number + n}") for n in range(50)]))
        number += 50
        print(number, flush=True)
        await asyncio.sleep(0.001)

asyncio.run(main(Path(sys.argv[1])))
"""


def epochs(folder: Path) -> set[str]:
    """The processes that have written a segment."""
    return {segment.epoch for path in folder.rglob("*") if (segment := parse_segment(path.name)) is not None}


def write_and_die(folder: Path, steps: int) -> None:
    before = len(epochs(folder))
    with subprocess.Popen([sys.executable, "-c", KILLED, str(folder)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(steps):
            assert process.stdout.readline()
        # The writing thread of a busy machine may not have begun.
        while len(epochs(folder)) == before:
            assert process.stdout.readline()
        process.kill()


async def test_the_index_is_complete_after_any_kill(make: Make, tmp_path: Path) -> None:
    """Processes land a segment every 0.1 s, and are killed at various moments of that."""
    for number in range(8):
        write_and_die(tmp_path, 150 + 13 * number)
    recording = make()
    await eventually(lambda: [each.suffix for each in kept(tmp_path / "open")] == [".lock"])
    expected = read(tmp_path / "landing")
    assert len({each.epoch for each in expected}) == 8
    found = await all_of(recording.search, Query(), 1000)
    assert sorted(found, key=lambda each: (each.epoch, each.seq)) == expected
    for record in expected[:: len(expected) // 50]:
        page = await recording.search.find(Query(message_id=record.message_id), 10)
        assert page.records == [record]
        assert page.reaches_back_to is not None and page.reaches_back_to <= record.at
    indexed = [name for path in database_files(tmp_path) for name in IndexFile(path).names()]
    assert sorted(indexed) == sorted(path.name.removesuffix(".zst") for path in landed(tmp_path / "landing"))
    assert list((tmp_path / "open" / "index").glob("*.keys")) == []


@pytest.mark.parametrize("by", ["a search", "a landing"])
@pytest.mark.parametrize("content", ["damaged", "empty"])
async def test_a_damaged_file_is_made_again(
    make: Make, tmp_path: Path, by: str, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = make(segment_seconds=0.05)
    await write_segments(first, 3)
    await first.close()
    (path,) = database_files(tmp_path)
    if content == "damaged":
        damage(path)
    else:
        path.write_bytes(b"")
    damaged_at = now_ms()
    second = make(segment_seconds=0.05)
    if by == "a landing":
        await write_segments(second, 1, 4)
    else:
        page = await second.search.find(Query(message_id="1"), 10)
        assert page.reaches_back_to is not None
        assert page.reaches_back_to >= damaged_at or events_of(page.records) == [("accepted", "1")]
    expected = ["1", "2", "3", "4"][: 4 if by == "a landing" else 3]
    await eventually(lambda: not list(path.parent.glob("*.damaged")))
    assert await messages(second) == expected
    page = await second.search.find(Query(message_id="1"), 10)
    assert page.reaches_back_to == page.records[0].at
    assert [each.name for each in database_files(tmp_path)] == ["000002.db"]
    assert "a file of the journal's index is damaged" in caplog.text


async def test_a_rebuild_goes_on_at_the_next_start(make: Make, tmp_path: Path) -> None:
    """The process ended after it had renamed a damaged file, and before its part was indexed again."""
    first = make(segment_seconds=0.05)
    await write_segments(first, 2)
    await first.close()
    (path,) = database_files(tmp_path)
    index = Index(path.parent, now_ms)
    index.set_aside(path)
    index.close()
    second = make()
    await eventually(lambda: not list(path.parent.glob("*.damaged")))
    assert await messages(second) == ["1", "2"]


async def test_files_of_an_earlier_version_are_indexed_by_the_command(make: Make, tmp_path: Path) -> None:
    """They consist of one frame, and there is no index."""
    first = make()
    for number in range(6):
        first.observe(event("accepted", *(str(number * 1000 + n) for n in range(1000))))
    await first.close(LONG_SECONDS)
    (path,) = landed(tmp_path / "landing")
    path.write_bytes(zstandard.ZstdCompressor(3).compress(unpacked(path.read_bytes(), path.name)))
    shutil.rmtree(tmp_path / "open")
    second = make()
    page = await second.search.find(Query(message_id="17"), 10)
    assert page.records == [] and page.reaches_back_to is not None and page.reaches_back_to > read(path.parent)[0].at
    config = tmp_path / "babelgate.yaml"
    settings = {"landing": str(tmp_path / "landing"), "open_directory": str(tmp_path / "open")}
    config.write_text(json.dumps({"state_dir": str(tmp_path), "journal": settings}))
    for added in (1, 0):
        told = CliRunner().invoke(cli, ["journal", "index", "--config", str(config), "--json"])
        assert told.exit_code == 0, told.output
        assert json.loads(told.output) == {"segments": 1, "added": added, "unreadable": []}
    for id in ("17", "5999"):
        page = await second.search.find(Query(message_id=id), 10)
        assert events_of(page.records) == [("accepted", id)]
        assert page.reaches_back_to == read(path.parent)[0].at


async def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    config = tmp_path / "babelgate.yaml"
    settings: dict[str, Any] = {"state_dir": str(tmp_path)}
    config.write_text(json.dumps(settings))
    told = CliRunner().invoke(cli, ["journal", "index", "--config", str(config)])
    assert told.exit_code == 1 and "journal.landing" in told.output
    config.write_text(json.dumps(settings | {"journal": {"landing": str(tmp_path / "landing")}}))
    told = CliRunner().invoke(cli, ["journal", "index", "--config", str(config)])
    assert told.exit_code == 1 and "is not a directory" in told.output
    of_topic = tmp_path / "of-topic.json"
    of_topic.write_text(json.dumps(settings | {"journal": {"landing": "kafka://127.0.0.1:9/journal"}}))
    told = CliRunner().invoke(cli, ["journal", "index", "--config", str(of_topic)])
    assert told.exit_code == 1 and "cannot be listed" in told.output and "babelgate pipeline ingest" in told.output
    broken = tmp_path / "landing" / "date=2026-01-01" / "hour=00" / "a-018bcfe568001a2b3c4d-000001.ndjson.zst"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"\x28\xb5\x2f\xfdrubbish")
    told = CliRunner().invoke(cli, ["journal", "index", "--config", str(config)])
    assert told.exit_code == 1 and broken.name in told.output


async def test_deleted_segments_are_forgotten_by_the_command(make: Make, tmp_path: Path) -> None:
    recording = make(segment_seconds=0.05)
    await write_segments(recording, 3)
    gone, *others = landed(tmp_path / "landing")
    last_at = records(gone)[-1].at
    gone.unlink()
    page = await recording.search.find(Query(), 10)
    assert len(page.records) == 2 and page.reaches_back_to == last_at + 1
    index = Index(tmp_path / "open" / "index", now_ms)
    done = complete(index, store(str(tmp_path / "landing"), "zstd"), lambda progress: None, lambda seconds: True)
    index.close()
    assert done is not None and done.segments == 2
    page = await recording.search.find(Query(), 10)
    assert page.reaches_back_to == min(records(each)[0].at for each in others)


async def test_full_files_are_followed_by_others(make: Make, tmp_path: Path) -> None:
    """There are three files of ten keys at most, so that older segments are forgotten."""
    recording = make(segment_seconds=0.05)
    await write_segments(recording, 12)
    await recording.close()
    place = store(str(tmp_path / "landing"), "zstd")
    index = Index(tmp_path / "small" / "index", now_ms, rows_per_file=10, max_files=3)
    index.prepare()
    index.reach(0, rebuilt=True)
    for path in landed(tmp_path / "landing"):
        index.add(*described(path, str(path.relative_to(tmp_path / "landing"))))
        found = await check(tmp_path)
        assert len(database_files(tmp_path, "small")) <= 3
    index.close()
    assert found[0].message_id == "12" and 4 <= len(found) < 12
    # A new index begins with the newest, and ends where it is full.
    index = Index(tmp_path / "other" / "index", now_ms, rows_per_file=10, max_files=3)
    index.prepare()
    assert complete(index, place, lambda progress: None, lambda seconds: True) is not None
    assert [path.name for path in database_files(tmp_path, "other")] == ["000001.db", "000002.db", "000003.db"]
    index.close()


def described(path: Path, below: str) -> tuple[SegmentRow, list[Keys]]:
    """A landed segment of one frame, and its keys."""
    text = unpacked(path.read_bytes(), path.name)
    found = contents(text)
    frame = SegmentFrame(0, len(text), 0, path.stat().st_size, found.first_at, found.last_at)
    return SegmentRow(path.name.removesuffix(".zst"), below, 0, found.first_at, found.last_at, [frame]), [found.keys]


async def check(tmp_path: Path) -> list[Record]:
    """Return what a search finds; fail if it lacks a record of an indexed segment of the time that it knows."""
    search = JournalSearch(tmp_path / "small", store(str(tmp_path / "landing"), "zstd"), now_ms)
    page = await search.find(Query(), 100)
    search.close()
    assert page.records and page.reaches_back_to is not None
    newest = page.records[0].at
    expected = [each for each in read(tmp_path / "landing") if page.reaches_back_to <= each.at <= newest]
    assert [each for each in expected if each not in page.records] == []
    return page.records


async def test_a_landing_folder_has_a_maximum_size(make: Make, tmp_path: Path) -> None:
    recording = make(segment_seconds=0.05)
    await write_segments(recording, 6)
    sizes = [path.stat().st_size for path in landed(tmp_path / "landing")]
    now = 0.0
    index = Index(tmp_path / "open" / "index", now_ms)
    place = Directory(tmp_path / "landing", "zstd")
    room = sum(sizes[3:]) + min(sizes) // 2
    retention = Retention(place, room, tmp_path / "lock", index.remove, lambda: now)
    retention.apply()
    assert len(landed(tmp_path / "landing")) == 3
    assert await messages(recording) == ["4", "5", "6"]
    page = await recording.search.find(Query(message_id="1"), 10)
    assert page.records == [] and page.reaches_back_to is not None
    (first,) = (await recording.search.find(Query(message_id="4"), 10)).records
    assert page.reaches_back_to <= first.at
    await write_segments(recording, 1, 7)
    retention.apply()
    assert len(landed(tmp_path / "landing")) == 4, "it is not time to look"
    now = LOOK_SECONDS
    retention.apply()
    assert len(landed(tmp_path / "landing")) == 3
    assert await messages(recording) == ["5", "6", "7"]
    index.close()


async def test_a_journal_applies_its_maximum_size(make: Make, tmp_path: Path) -> None:
    recording = make(segment_seconds=0.05, max_bytes=2_000)
    await write_segments(recording, 30)

    def landed_bytes() -> int:
        try:
            return sum(path.stat().st_size for path in landed(tmp_path / "landing"))
        except FileNotFoundError:  # Retention has just removed a file.
            return 0

    await eventually(lambda: 0 < landed_bytes() < 2_500)
    found = await messages(recording)
    assert found[-1] == "30" and len(found) < 20
    assert recording.stats().errors == 0


@pytest.mark.parametrize("landing", ["s3://bucket/path", "memory://x"])
def test_stores_have_rules_of_their_own(landing: str) -> None:
    environ = {"BABELGATE_JOURNAL__LANDING": landing, "BABELGATE_JOURNAL__MAX_BYTES": "1048576"}
    with pytest.raises(ConfigError, match="a directory only") as refused:
        journal(load(None, environ))
    assert refused.value.key == "journal.max_bytes"
