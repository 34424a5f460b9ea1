"""The journal of a process as a whole: from events to landed files, through everything that a disk can do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from msgspec import Raw

from babelgate.cli.main import cli
from babelgate.clock import now_ms
from babelgate.config.sections import JournalSettings
from babelgate.config.settings import load
from babelgate.errors import ConfigError, Overloaded
from babelgate.gateway.ack_tokens import TokenSealer
from babelgate.gateway.authorization import ANYONE
from babelgate.gateway.gateway import Gateway
from babelgate.gateway.routing import Router, Rule
from babelgate.observe.events import Event
from babelgate.observe.journal.record import Record
from babelgate.observe.journal.writer import WRITE_SECONDS, Journal, Options, host_node
from babelgate.server.wiring import build_app, journal
from tests.harness.journal import MESSAGE, happened, kept, landed, read
from tests.harness.local import eventually
from tests.harness.memory import MemoryBinding
from tests.harness.world import KEYS, Process, draft
from tests.unit.observe.test_journal_files import files_of_at_most

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
    return [path.name for path in kept(directory)] if directory.exists() else []


def take_away(landing: Path) -> None:
    """What a directory is whose disk is not mounted: no directory."""
    (landing / ".incoming").rmdir()
    landing.rmdir()
    landing.write_bytes(b"in the way")


def bring_back(landing: Path) -> None:
    landing.unlink()


async def test_what_happened_lands(make: Make, landing: Path, opened: Path) -> None:
    recording = make()
    recording.start()
    for kind in ("accepted", "delivered", "acked"):
        recording.observe(happened(kind))
    await recording.close()
    assert [record.event for record in read(landing)] == ["accepted", "delivered", "acked"]
    assert len(landed(landing)) == 1
    assert names(opened) == []
    stats = recording.stats()
    assert (stats.records, stats.dropped, stats.buffer_bytes, stats.segments, stats.waiting_segments) == (3, 0, 0, 1, 0)


async def test_it_is_on_its_way_to_the_disk_while_the_process_runs(make: Make, opened: Path) -> None:
    recording = make()
    recording.start()
    recording.observe(happened())
    await eventually(lambda: recording.stats().buffer_bytes == 0)
    assert messages_of(read(opened)) == ["id-1"]
    assert WRITE_SECONDS <= 0.1, "docs/journal.md says 200 ms"


async def test_an_idle_process_closes_its_segment_by_age(make: Make, landing: Path, opened: Path) -> None:
    recording = make(segment_seconds=0.2)
    recording.start()
    recording.observe(happened())
    await eventually(lambda: recording.stats().segments == 1)
    assert messages_of(read(landing)) == ["id-1"]
    assert [name.rpartition(".")[2] for name in names(opened)] == ["lock"]


async def test_large_segments_are_closed_by_size(make: Make, landing: Path) -> None:
    recording = make(segment_bytes=65_536, compression="zstd")
    recording.start()
    for _ in range(5):
        recording.observe(happened("delivered", *[MESSAGE] * 250))
        await eventually(lambda: recording.stats().buffer_bytes == 0)
    await recording.close()
    assert len(landed(landing)) == 5
    assert len(read(landing)) == 1_250


async def test_two_processes_share_the_directories(make: Make, landing: Path, opened: Path) -> None:
    first, second = make(), make()
    first.start()
    second.start()
    for each in (first, second):
        each.observe(happened())
    await asyncio.gather(first.close(), second.close())
    assert len({record.epoch for record in read(landing)}) == len(landed(landing)) == 2
    assert names(opened) == []


async def test_a_landing_place_that_is_away_holds_nothing_up(make: Make, landing: Path, opened: Path) -> None:
    recording = make(segment_seconds=0.1)
    recording.start()
    take_away(landing)
    recording.observe(happened())
    await eventually(lambda: recording.stats().errors > 0)
    recording.observe(happened("acked"))
    await eventually(lambda: recording.stats().waiting_segments == 2)
    assert [record.event for record in read(opened)] == ["accepted", "acked"]
    bring_back(landing)
    await eventually(lambda: recording.stats().waiting_segments == 0)
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
    recording = make(buffer_bytes=65_536)
    recording.start()
    recording.observe(happened())
    await eventually(lambda: on_disk(opened) > 0)
    with files_of_at_most(1_000):
        for _ in range(500):
            recording.observe(happened("delivered"))
        await eventually(lambda: recording.stats().errors > 0)
        assert recording.stats().buffer_bytes >= 65_536
        assert not recording.is_full, "nobody waits"
    dropped = recording.stats().dropped
    assert dropped > 0
    await eventually(lambda: recording.stats().buffer_bytes == 0)
    recording.observe(happened("acked"))
    await recording.close()
    found = read(landing)
    (gap,) = [record for record in found if record.event == "gap"]
    assert gap.count == dropped
    assert len(found) == 1 + (500 - dropped) + 1 + 1
    assert [record.event for record in found[-2:]] == ["gap", "acked"]


async def test_callers_may_be_held_back_instead(make: Make, landing: Path) -> None:
    recording = make(buffer_bytes=65_536, wait=True)
    recording.start()
    await recording.capacity()
    recording.observe(happened("delivered", *[MESSAGE] * 120))
    assert recording.is_full
    await asyncio.gather(*(recording.capacity() for _ in range(10)))
    await recording.close()
    assert len(read(landing)) == 120
    assert recording.stats().dropped == 0


async def test_callers_do_not_wait_for_ever(make: Make) -> None:
    recording = make(buffer_bytes=65_536, wait=True)
    recording.observe(happened("delivered", *[MESSAGE] * 120))
    with pytest.raises(Overloaded):
        await recording.capacity(0.05)


async def test_a_process_that_never_started_closes_too(make: Make, opened: Path) -> None:
    await make().close()
    assert names(opened) == []


async def test_a_directory_that_cannot_be_made_is_refused(make: Make, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for options, key in (
        ({"open_directory": tmp_path / "file" / "x"}, "journal.open_directory"),
        ({"landing": str(tmp_path / "file" / "x")}, "journal.landing"),
    ):
        recording = make(**options)
        for attempt in (recording.check, recording.start):
            with pytest.raises(ConfigError) as refused:
                attempt()
            assert refused.value.key == key


def test_a_check_makes_nothing(tmp_path: Path) -> None:
    Journal(Options(landing=str(tmp_path / "a" / "b"), open_directory=tmp_path / "c" / "d")).check()
    assert names(tmp_path) == []


async def test_each_start_is_an_epoch(make: Make, landing: Path) -> None:
    for _ in range(3):
        recording = make()
        recording.start()
        recording.observe(happened())
        await recording.close()
    found = read(landing)
    assert [record.seq for record in found] == [1, 1, 1]
    assert found == sorted(found, key=lambda record: record.at)
    assert found[0].at <= now_ms()


def test_a_node_is_part_of_a_file_name_that_no_reader_passes_over() -> None:
    """Spark and Hive do not read files whose names begin with a dot or an underscore."""
    for node in ("_a", ".a", "-a", "a/b", "x" * 65):
        with pytest.raises(ConfigError, match=r"journal\.node"):
            load(None, {"BABELGATE_JOURNAL__NODE": node})
    assert load(None, {"BABELGATE_JOURNAL__NODE": host_node()}).journal.node == host_node()


async def test_every_setting_arrives(tmp_path: Path) -> None:
    asked = JournalSettings(
        landing=str(tmp_path / "landing"),
        open_directory=tmp_path / "opened",
        node="shop",
        compression="zstd",
        segment_bytes=65_536,
        segment_seconds=0.1,
        bodies=True,
        buffer_bytes=65_536,
        when_full="wait",
    )
    configured = journal(load(None, {}).model_copy(update={"journal": asked}))
    assert configured is not None
    configured.start()
    configured.observe(Event("accepted", "orders", "main", messages=(MESSAGE,), bodies=(b"{}",)))
    await eventually(lambda: configured.stats().segments == 1)
    await configured.close()
    (path,) = landed(tmp_path / "landing")
    assert path.name.startswith("shop-") and path.suffix == ".zst"
    assert [bytes(cast(Raw, record.envelope)) for record in read(tmp_path / "landing")] == [b"{}"]
    configured.observe(happened("acked", *[MESSAGE] * 120))
    assert configured.is_full


def test_without_a_landing_place_there_is_none() -> None:
    assert journal(load(None, {})) is None


def test_check_config_looks_at_it_and_makes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "babelgate.yaml"
    for opened, status, words in ((f"{path}/x", 1, "journal.open_directory"), (str(tmp_path / "open"), 0, "BROKER")):
        asked = {"landing": str(tmp_path / "landing"), "open_directory": opened}
        path.write_text(json.dumps({"state_dir": str(tmp_path), "journal": asked}))
        told = CliRunner().invoke(cli, ["check-config", "--offline", "--config", str(path)])
        assert told.exit_code == status, told.output
        assert words in told.output
    assert names(tmp_path) == [path.name]


async def test_a_gateway_holds_its_callers_back(tmp_path: Path, queue: str) -> None:
    """Without room for records every verb that would add some is refused, and has done nothing."""
    binding = MemoryBinding()
    full = True

    async def room() -> None:
        if full:
            raise Overloaded(reason="The journal is full.")

    gateway = Gateway({"memory": binding}, Router([], Rule("*", binding)), TokenSealer(KEYS), capacity=room)
    process = Process(queue, lambda _: gateway, tmp_path)
    with pytest.raises(Overloaded):
        await process.publish()
    results = await gateway.publish_many(ANYONE, queue, [draft({})] * 2)
    assert [type(result) for result in results] == [Overloaded] * 2
    full = False
    assert await process.is_empty()
    await process.publish()
    message = await process.one()
    full = True
    for verb in (process.receive(), process.ack(message)):
        with pytest.raises(Overloaded):
            await verb
    full = False
    assert await process.ack(message) == [None]
    assert await process.is_empty()


@pytest.mark.parametrize(("when_full", "waits"), [("wait", True), ("drop", False)])
async def test_only_who_asks_for_it_waits(tmp_path: Path, when_full: str, waits: bool) -> None:
    environ = {
        "BABELGATE_STATE_DIR": str(tmp_path),
        "BABELGATE_JOURNAL__LANDING": str(tmp_path / "landing"),
        "BABELGATE_JOURNAL__BUFFER_BYTES": "65536",
        "BABELGATE_JOURNAL__WHEN_FULL": when_full,
    }
    app = build_app(load(None, environ))
    # Nothing is written before the application starts.
    app.gateway.observe(happened("delivered", *[MESSAGE] * 300))
    await app.gateway.start()
    try:
        publishing = app.gateway.publish(ANYONE, "orders", draft({}))
        if waits:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(publishing, 0.2)
        else:
            assert (await publishing).queue == "orders"
    finally:
        await app.gateway.close()
