"""``metrics --engine duckdb`` on a lake in an object store, without Spark: its figures, failures and kills, the copies
that it makes, and its lock."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyarrow import fs

from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.duckdb_engine.lake import opened
from babelgate.pipeline.metrics import duckdb_increment, since
from babelgate.pipeline.metrics.parts import SLICE
from babelgate.pipeline.metrics.stages import DATASETS
from babelgate.pipeline.storage import locks
from babelgate.pipeline.storage.datasets import DatasetReader
from babelgate.pipeline.storage.locks import exclusive_lock
from tests.harness.s3 import s3_server
from tests.pipeline.compared import check
from tests.pipeline.histories import DAY, START, Days, row
from tests.pipeline.incremental import is_increment
from tests.pipeline.test_metrics_continuous import LATE, Lake, stop, wait

pytestmark = pytest.mark.timeout(600)

URL = "s3a://lakes/prod"
METRICS = "metrics", "--lake", URL, "--engine", "duckdb"


class Store:
    """A lake in an object store. Its batches are made in a local folder."""

    def __init__(self, folder: Path) -> None:
        self.local = Lake(folder)
        self.log = folder / "killed.txt"
        self._store, _ = fs.FileSystem.from_uri("s3://lakes?allow_bucket_creation=true")
        self._store.create_dir("lakes")

    def put(self, rows: list[Any]) -> None:
        self.local.put(rows)
        self.copy("journal")

    def copy(self, below: str = "") -> None:
        """Copy what is in the local folder, also its locks."""
        source, target = f"{self.local.root}/{below}", f"lakes/prod/{below}"
        fs.copy_files(source.rstrip("/"), target.rstrip("/"), destination_filesystem=self._store)

    def spoil(self, below: str) -> None:
        with self._store.open_output_stream(f"lakes/prod/{below}") as stream:
            stream.write(b"no Parquet")

    def objects(self) -> set[str]:
        """The files of the datasets, without those of the journal and of locks."""
        found = self._store.get_file_info(fs.FileSelector("lakes/prod", recursive=True))
        files = (each.path for each in found if each.type == fs.FileType.File)
        return {path for path in files if "/journal/" not in path and not path.endswith(".lock")}

    def check(self) -> None:
        check(self.read(), self.local.rows, (), max(each["at"] for each in self.local.rows))

    def free_locks(self) -> None:
        """Do what a minute does after a kill: the lease of the lock ends."""
        for each in self._store.get_file_info(fs.FileSelector("lakes/prod", recursive=True)):
            if each.path.endswith(".lock"):
                self._store.delete_file(each.path)

    def read(self) -> dict[str, list[dict[str, Any]]]:
        """The rows of each dataset, as its current run has them."""
        with opened(DatasetReader.without_spark(URL)) as lake:
            return {name: lake.rows(f"select * from ({lake.current(name)}) order by all") for name in DATASETS}

    def killed_once(self, is_so: Callable[[], bool]) -> bool:
        """Start the command, and kill it once something is so; whether it was at work then."""
        with self.log.open("wb") as log:
            process = subprocess.Popen([sys.executable, "-m", "babelgate", "pipeline", *METRICS], stderr=log)
            while not is_so() and process.poll() is None:
                time.sleep(0.01)
            was_alive = process.poll() is None
            process.kill()
            process.wait()
        assert was_alive or process.returncode == 0, self.log.read_text()
        return was_alive


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with s3_server() as found_by:
        for name, value in found_by.items():
            monkeypatch.setenv(name, value)
        yield Store(tmp_path)


def measure(*, code: int = 0) -> str:
    result = CliRunner().invoke(pipeline, METRICS, catch_exceptions=False)
    assert result.exit_code == code, result.output
    assert "starting Spark" not in result.output
    return result.output


def test_figures_come_out_right_and_kills_leave_those_before_or_after(store: Store) -> None:
    rows = list(Days(60, days=3).rows())
    store.put(rows[: len(rows) // 2])
    measure()
    assert "Nothing has changed" in measure()
    store.check()
    former = store.read()

    store.put([*rows[len(rows) // 2 :], row("accepted", START + 9, 0, **LATE)])
    before = store.objects()
    states = []
    for count in (1, 12, 24):
        was_alive = store.killed_once(lambda count=count: len(store.objects() - before) >= count)  # type: ignore[misc]
        store.free_locks()
        states.append((was_alive, store.read()))
    assert any(was_alive for was_alive, _ in states), "each had ended before it was killed"
    measure()
    store.check()
    latter = store.read()
    for name in DATASETS:
        assert former[name] != latter[name]
        assert all(found[name] in (former[name], latter[name]) for _, found in states), name
    named = {path.split("/run=")[1].split("/")[0] for path in store.objects() if "/run=" in path}
    reader = DatasetReader.without_spark(URL)
    assert named == {run for name in DATASETS for run in reader.runs(name)}, "no folder of a killed run is left"


def test_an_endless_run_needs_no_spark(store: Store) -> None:
    lake = store.local
    store.put(list(Days(30, days=2).rows()))
    command = [sys.executable, "-m", "babelgate", "pipeline", *METRICS, "--continuous", "--interval-seconds", "0.1"]
    with lake.log.open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            wait(process, lake.log, lambda: _measured() == len(lake.rows))
            store.put([row("acked", START + DAY + 1, 0, **LATE)])
            wait(process, lake.log, lambda: _measured() == len(lake.rows))
            stop(process, lake.log)
        finally:
            process.kill()
    assert "starting Spark" not in lake.log.read_text()
    store.check()


def _measured() -> int:
    manifest = DatasetReader.without_spark(URL).manifest(DATASETS[-1])
    return 0 if manifest is None else sum(count for count, _ in manifest["state"].values())


def test_a_local_lake_goes_on_in_a_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its slices of large dates. In the store whole dates are computed."""
    monkeypatch.setattr(since, "WHOLE_RECORDS", 0)
    monkeypatch.setattr(duckdb_increment, "DIVIDED_BYTES", 0)
    rows = sorted(Days(15, days=1).rows(), key=lambda each: each["at"])
    for some in (rows[:-20], rows[-20:-10]):
        store.local.put(some)
        assert store.local.once().exit_code == 0
    assert is_increment(store.local.root)
    store.copy()
    assert any(f"/{SLICE}" in path for path in store.objects())
    assert "Nothing has changed" in measure()
    for some in (rows[-10:-5], rows[-5:]):
        store.put(some)
        measure()
        store.check()
    reader = DatasetReader.without_spark(URL)
    parts = (reader.manifest("lifecycle") or {})["parts"]["lifecycle"]
    assert set(parts.values()) == {reader.current("lifecycle")} and not any(SLICE in part for part in parts)


def test_no_copy_is_left(store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither after an error: then the former figures are current."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    store.put(list(Days(30, days=1).rows()))
    measure()
    former = store.read()
    assert not list(temporary.iterdir())
    store.put([row("acked", START + 7, 0, **LATE)])
    store.spoil("journal/v=1/batch=0002/journal.parquet")
    measure(code=1)
    assert not list(temporary.iterdir())
    assert store.read() == former


def test_copies_of_the_journal_are_removed_once_they_are_read(store: Store) -> None:
    """They have the bodies, which no figure is made of."""
    store.put([row("accepted", START + 7, 0, **LATE)])
    reader = DatasetReader.without_spark(URL)
    with opened(reader) as lake:
        folders = [f"{reader.folder('journal')}/batch=0001"]
        journal = lake.select("journal", folders)
        lake.table("journal", journal)
        lake.forget(folders)
        assert lake.rows("select count(*) as n from journal") == [{"n": 1}]
        with pytest.raises(Exception, match="No files found"):
            lake.rows(journal)
        assert len(lake.rows(lake.select("journal", folders))) == 1, "it is copied again"


def test_the_lock_is_kept_while_a_query_writes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_BEAT_SECONDS", 0.02)
    reader = DatasetReader.without_spark(URL)
    beats: list[float] = []
    write = reader.files.write

    def log(url: str, content: bytes) -> None:
        beats.append(time.monotonic())
        write(url, content)

    monkeypatch.setattr(reader.files, "write", log)
    lock = reader.lock("metrics")
    with exclusive_lock(reader.files, lock, "metrics"), opened(reader) as lake:
        began = time.monotonic()
        # One statement of DuckDB, a second or more.
        lake.run("create temporary table long as select count(distinct hash(range)) from range(20_000_000)")
        ended = time.monotonic()
        assert json.loads(reader.files.read(lock) or b"")["by"].startswith("process ")
    assert any(began < at < ended for at in beats), (began, ended, beats)
