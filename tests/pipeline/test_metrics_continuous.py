"""``metrics --continuous``: what is new is measured as it comes, whatever happens to the process or to the lake.

``BABELGATE_TEST_KILLS`` is the number of kills, by default 2.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyarrow import parquet

from babelgate.pipeline.cli import datasets as commands
from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.continuous import Continuous, Service
from babelgate.pipeline.duckdb_engine.lake import opened
from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.journal import reader as journal_reader
from babelgate.pipeline.journal.commits import Commit, CommitContent
from babelgate.pipeline.metrics.continuous import metrics_continuously
from babelgate.pipeline.metrics.dates import DateRange
from babelgate.pipeline.metrics.stages import DATASETS
from babelgate.pipeline.spark.launch import Launch
from babelgate.pipeline.storage.arrow_files import ArrowFiles
from babelgate.pipeline.storage.datasets import DatasetReader
from babelgate.pipeline.tables import publish
from babelgate.pipeline.tables.current_files import current_folders, files_in
from babelgate.pipeline.tables.moment import open_tables, read_moment
from babelgate.pipeline.tables.publish import files_of
from tests.pipeline.compared import check
from tests.pipeline.conftest import CONF
from tests.pipeline.histories import DAY, SCHEMA, START, Days, Row, row

KILLS = int(os.environ.get("BABELGATE_TEST_KILLS", "2"))
LATE = {"job": "urn:j", "lang": "go", "trace_id": "late", "message_id": "late", "created_at": START + 5, "bytes": 7}
WAIT_SECONDS = 240
pytestmark = pytest.mark.timeout(600)


class Lake:
    """A lake whose batches are put there without Spark."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "lake"
        self.log = folder / "log.txt"
        self.alive = folder / "alive"
        self.summary = folder / "summary.json"
        self.rows: list[Row] = []
        self._batches = 0

    def put(self, rows: list[Row], *, committed_at: int | None = None, content: CommitContent | None = None) -> None:
        """A batch, as ``ingest`` commits it."""
        store = DatasetReader.without_spark(str(self.root))
        self._batches += 1
        name = f"{self._batches:04d}"
        folder = Path(store.folder("journal")) / f"batch={name}"
        folder.mkdir(parents=True)
        parquet.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / "journal.parquet")
        dates = [each["date"].isoformat() for each in rows]
        counts = {day: dates.count(day) for day in set(dates)}
        made = Commit(
            batch=name,
            committed_at=self._batches if committed_at is None else committed_at,
            folder=folder.name,
            corrupt_folder=None,
            dates=counts,
            content=content or CommitContent(),
        )
        journal_reader.commit(store, made)  # type: ignore[arg-type]
        self.rows += rows

    @contextmanager
    def measuring(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """The command in a process of its own, which is killed afterwards with all that it started."""
        command = [sys.executable, "-m", "babelgate", "pipeline", "metrics", "--lake", str(self.root), "--continuous"]
        command += ["--interval-seconds", "0.1", "--alive", str(self.alive), "--summary", str(self.summary), *arguments]
        with self.log.open("a") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
            top = psutil.Process(process.pid)
            try:
                yield process
            finally:
                for each in [*top.children(recursive=True), top] if process.poll() is None else []:
                    each.kill()

    def measured(self) -> int:
        """The number of records that the current datasets are made of."""
        manifest = DatasetReader.without_spark(str(self.root)).manifest(DATASETS[-1])
        return 0 if manifest is None else sum(count for count, _ in manifest["state"].values())

    def check(self) -> None:
        """The datasets are what a second computation makes of all rows."""
        store = DatasetReader.without_spark(str(self.root))
        with opened(store) as lake:
            made = {name: lake.rows(lake.current(name)) for name in DATASETS}
        check(made, self.rows, (), max(each["at"] for each in self.rows))

    def has_current_tables(self) -> bool:
        """Whether the tables name the files of the current datasets, and no others."""
        files = ArrowFiles(str(self.root))
        if read_moment(files) is None:
            return False
        reader = DatasetReader.without_spark(str(self.root))
        folders = current_folders(reader, DATASETS) or {}
        current = {
            name: {file.path for each in folders[name] for file in files_in(files, reader.folder(name), each)}
            for name in DATASETS
        }
        found = open_tables(str(self.root))
        return current == {name: set(files_of(found[name])) for name in DATASETS}

    def once(self, *arguments: str) -> Result:
        """The command in this process, without --continuous."""
        command = ["metrics", "--lake", str(self.root), "--engine", "duckdb", *arguments]
        return CliRunner().invoke(pipeline, command, catch_exceptions=False)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def wait(process: subprocess.Popen[bytes], log: Path, is_so: Callable[[], bool]) -> None:
    """Until something is so, while the process runs."""
    end = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)


def stop(process: subprocess.Popen[bytes], log: Path) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_SECONDS) == 0, log.read_text()


def test_what_is_new_is_measured_until_a_signal(lake: Lake) -> None:
    rows = list(Days(90, days=3).rows())
    with lake.measuring() as process:
        wait(process, lake.log, lambda: lake.log.exists() and "Trying again in 2 s" in lake.log.read_text())
        assert "has no dataset journal: run `babelgate pipeline ingest` first. Trying again in 1 s" in (
            lake.log.read_text()
        )
        for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
            lake.put(part)
            wait(process, lake.log, lambda: lake.measured() == len(lake.rows))
        lake.check()

        lake.alive.unlink()
        wait(process, lake.log, lake.alive.exists)
        other = lake.once("--continuous")
        assert (other.exit_code, "Another metrics --continuous is at work there" in other.output) == (1, True)
        wait(process, lake.log, lambda: lake.once("--force").exit_code == 0)
        lake.put([row("accepted", START + 9, 0, **LATE)])
        wait(process, lake.log, lambda: lake.measured() == len(lake.rows))
        stop(process, lake.log)
    told = lake.log.read_text()
    assert told.count("metrics: run ") == 3 and told.endswith("metrics: stopped\n"), told
    assert json.loads(lake.summary.read_text())["as_of"] == max(each["at"] for each in lake.rows)
    assert "Nothing has changed" in lake.once().output
    lake.check()


def test_a_late_record_recomputes_its_day_and_those_of_its_messages(lake: Lake) -> None:
    lake.put([*Days(60, days=3).rows(), row("accepted", START + 9, 0, **LATE)])
    with lake.measuring() as process:
        wait(process, lake.log, lambda: lake.measured() == len(lake.rows))
        store = DatasetReader.without_spark(str(lake.root))
        first: dict[str, Any] = store.manifest("throughput") or {}
        lake.put([row("acked", START + DAY + 1, 0, **LATE)])
        wait(process, lake.log, lambda: lake.measured() == len(lake.rows))
        stop(process, lake.log)
    second: dict[str, Any] = store.manifest("throughput") or {}
    assert second["dates"] == ["2026-01-02"] and len(first["dates"]) > 1
    changed = {
        name: {day for day, run in second["parts"][name].items() if run != first["parts"][name].get(day)}
        for name in ("throughput", "rates", "payload", "lifecycle", "latency", "traces")
    }
    assert changed["throughput"] == changed["rates"] == {"2026-01-02"}
    assert changed["traces"] <= changed["lifecycle"] | {"2026-01-01"}
    assert changed["lifecycle"] <= {"2026-01-01", "2026-01-02"}
    lake.check()


@pytest.mark.timeout(600 + 120 * KILLS)
def test_a_killed_process_goes_on(lake: Lake) -> None:
    chance = random.Random()
    lake.put(list(Days(30, days=2, seed=0).rows()))
    for number in range(1, KILLS + 1):
        with lake.measuring() as process:
            wait(process, lake.log, lambda: lake.measured() == len(lake.rows))
            lake.put(_named(number))
            time.sleep(chance.uniform(0, 0.8))
            process.kill()
    lake.alive.unlink(missing_ok=True)
    with lake.measuring() as process:
        # The last process that was killed may have measured all. A signal before the first round would end this one.
        wait(process, lake.log, lambda: lake.alive.exists() and lake.measured() == len(lake.rows))
        stop(process, lake.log)
    lake.check()
    assert lake.has_current_tables()


def _named(number: int) -> list[Row]:
    """Rows of other messages than those of other numbers."""
    mark = f"-{number}"
    ids = ("message_id", "trace_id")
    rows = Days(30, days=2, seed=number).rows()
    return [{**each, **{name: each[name] and each[name] + mark for name in ids}} for each in rows]


def test_tables_that_a_killed_run_left_behind_follow(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.put(list(Days(30, days=2).rows()))
    assert lake.once().exit_code == 0
    assert lake.has_current_tables()
    lake.put([row("accepted", START + 9, 0, **LATE)])
    with monkeypatch.context() as patched:
        patched.setattr(commands, "tables_follow", lambda *_: nullcontext())
        assert lake.once().exit_code == 0
    assert not lake.has_current_tables()
    with lake.measuring() as process:
        wait(process, lake.log, lake.has_current_tables)
        stop(process, lake.log)
    assert "metrics: run " not in lake.log.read_text()


def test_tables_that_could_not_be_written_follow_with_nothing_new(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.put(list(Days(30, days=1).rows()))
    left = iter(range(5))
    monkeypatch.setattr(Service, "is_stopping", property(lambda _: next(left, None) is None))
    answers = iter([False, False, True])
    launch = Launch(None, {}, None, False, "duckdb")
    within = DateRange(None, None, 31)
    metrics_continuously(launch, str(lake.root), within, Continuous(0.01), 1.0, lambda: next(answers))
    assert next(answers, None) is None, "of five rounds three"


def test_tables_follow_a_run_that_failed_while_it_was_published(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.put(list(Days(30, days=1).rows()))
    left = iter(range(3))
    monkeypatch.setattr(Service, "is_stopping", property(lambda _: next(left, None) is None))
    point = DatasetReader.point
    followed: list[str | None] = []

    def fails(store: DatasetReader, datasets: Sequence[str], run: str) -> None:
        monkeypatch.setattr(DatasetReader, "point", point)
        store.point(datasets[:1], run)
        raise JobFailed("disk full")

    def committed() -> bool:
        followed.append(DatasetReader.without_spark(str(lake.root)).current(DATASETS[-1]))
        if len(followed) == 1:
            lake.put([row("accepted", START + 9, 0, **LATE)])
            # The next run makes one dataset current, and fails.
            monkeypatch.setattr(DatasetReader, "point", lambda *given: None if _is_old(*given) else fails(*given))
        return True

    launch = Launch(None, {}, None, False, "duckdb")
    metrics_continuously(launch, str(lake.root), DateRange(None, None, 31), Continuous(0.01), 1.0, committed)
    assert len(set(followed)) == len(followed) == 2


def _is_old(store: DatasetReader, datasets: Sequence[str], run: str) -> bool:
    return store.current(datasets[0]) == run


def test_tables_that_cannot_be_written_are_told_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also at the end of an endless run."""
    lake.put(list(Days(30, days=1).rows()))
    left = iter(range(3))
    monkeypatch.setattr(Service, "is_stopping", property(lambda _: next(left, None) is None))

    def fails(table: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(publish._Table, "open", fails)
    given = ["metrics", "--lake", str(lake.root), "--continuous", "--interval-seconds", "0.1", "--engine", "duckdb"]
    result = CliRunner().invoke(pipeline, given)
    assert result.exit_code == 0, result.output
    assert result.output.count("are not current") == 1, result.output


def test_a_lake_that_is_away_for_a_while(lake: Lake) -> None:
    lake.put(list(Days(30, days=2).rows()))
    elsewhere = lake.root.with_name("elsewhere")
    with lake.measuring() as process:
        wait(process, lake.log, lambda: lake.measured() == len(lake.rows))
        lake.root.rename(elsewhere)
        wait(process, lake.log, lambda: "Trying again" in lake.log.read_text())
        # The round that was at work may have made the folder of the lock.
        shutil.rmtree(lake.root, ignore_errors=True)
        elsewhere.rename(lake.root)
        lake.put([row("accepted", START + 9, 0, **LATE)])
        wait(process, lake.log, lambda: lake.measured() == len(lake.rows))
        stop(process, lake.log)
    lake.check()


def test_a_spark_that_cannot_start_ends_it(lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lake.put(list(Days(20, days=1).rows()))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with lake.measuring("--engine", "spark") as process:
        assert process.wait(WAIT_SECONDS) == 1, lake.log.read_text()
    told = lake.log.read_text()
    assert "Spark needs Java" in told and "Trying again" not in told


@pytest.mark.spark
def test_spark_is_started_once(lake: Lake) -> None:
    lake.put(list(Days(20, days=2).rows()))
    conf = [each for key, value in CONF.items() for each in ("--conf", f"{key}={value}")]
    with lake.measuring("--engine", "spark", "--master", "local[2]", *conf) as process:
        wait(process, lake.log, lambda: lake.measured() == len(lake.rows))
        lake.put([row("accepted", START + 9, 0, **LATE)])
        wait(process, lake.log, lambda: lake.measured() == len(lake.rows))
        stop(process, lake.log)
    assert lake.log.read_text().count("starting Spark") == 1
    lake.check()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--continuous", "--force"], "--force is for one run, not for --continuous"),
        (["--continuous", "--alive", "/nowhere/alive"], "there is no folder /nowhere"),
    ],
)
def test_options_that_do_not_fit(lake: Lake, arguments: list[str], told: str) -> None:
    found = lake.once(*arguments)
    assert (found.exit_code, told in found.output) == (2, True), found.output
