"""``maintain``: former versions expire, those that readers may name stay, and what killed jobs left is removed."""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import parquet

from babelgate import __version__
from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.metrics.stages import DATASETS as MEASURED
from babelgate.pipeline.storage.arrow_files import ArrowFiles
from babelgate.pipeline.storage.datasets import DatasetReader
from babelgate.pipeline.storage.locks import exclusive_lock
from babelgate.pipeline.storage.schemas import DATASETS
from babelgate.pipeline.tables.moment import open_tables
from babelgate.pipeline.tables.publish import publish_tables, table_url
from babelgate.pipeline.validate.job import DATASETS as VALIDATED
from tests.pipeline.histories import START, Days, land, row
from tests.pipeline.ingested import Run
from tests.pipeline.test_tables import check

DAY = "2026-01-01"
NAMES = {"metrics": MEASURED, "validate": VALIDATED}


class Lake:
    """A lake whose runs are written here, each completed and published so many days ago."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.reader = DatasetReader.without_spark(str(root))
        self.now = time.time()

    def complete(self, job: str, run: str, rows: int, days_ago: float) -> None:
        at = self.now - days_ago * 86_400
        for name in NAMES[job]:
            columns = DATASETS[name].columns
            folder = Path(self.reader.folder(name, run), *([f"date={DAY}"] if DATASETS[name].partitions else []))
            folder.mkdir(parents=True)
            column = next(each for each, kind in columns.items() if kind == "string")
            parquet.write_table(pa.table({column: ["x"] * rows}), folder / "part-0.parquet")
            facts: dict[str, Any] = {"run_id": run, "code_version": __version__, "completed_at": int(at * 1000)}
            facts |= {"parts": {each: {DAY: run} for each in MEASURED}} if job == "metrics" else {}
            Path(self.reader.folder(name, run), "_manifest.json").write_text(json.dumps(facts))
            Path(self.reader.folder(name), "CURRENT").write_text(run)
        before = self.log()
        publish_tables(str(self.root))
        for path in self.log() - before:
            os.utime(path, (at, at))

    def log(self) -> set[Path]:
        return set(self.root.glob("*/v=1/_delta_log/*.json"))

    def age_checkpoints(self) -> None:
        """Two hours pass since each checkpoint was made."""
        for path in self.root.glob("*/v=1/_delta_log/*.checkpoint.parquet"):
            at = path.stat().st_mtime - 7200
            os.utime(path, (at, at))

    def files(self) -> set[Path]:
        return {path for path in self.root.rglob("*") if path.is_file() and not path.name.endswith(".lock")}

    def maintain(self, *arguments: str) -> Any:
        given = ["maintain", "--lake", str(self.root), "--format", "json", *arguments]
        result = CliRunner().invoke(pipeline, given, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def readable(self, name: str) -> dict[int, int]:
        """The number of rows of each version that can be read."""
        found = {}
        newest = DeltaTable(table_url(str(self.root), name)).version()
        for version in range(newest + 1):
            try:
                table = DeltaTable(table_url(str(self.root), name), version=version)
                found[version] = table.to_pyarrow_table().num_rows
            except (DeltaError, FileNotFoundError):
                continue
        return found


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.mark.parametrize(("job", "name"), [("metrics", "traces"), ("validate", "accepted")])
def test_versions_within_the_retention_stay_readable(lake: Lake, job: str, name: str) -> None:
    for number, days_ago in enumerate((10, 9, 8, 3, 1)):
        lake.complete(job, f"r{number}", number + 1, days_ago)
    assert lake.readable(name) == {0: 1, 1: 2, 2: 3, 3: 4, 4: 5}
    before = lake.files()
    planned = lake.maintain("--dry-run")
    assert lake.files() == before
    made = lake.maintain()
    assert {key: made[key] for key in ("removed", "bytes", "log_files", "busy")} == {
        key: planned[key] for key in ("removed", "bytes", "log_files", "busy")
    }
    # Version 2 was current when the retention began.
    assert lake.readable(name) == {2: 3, 3: 4, 4: 5}
    home = f"{name}/v=1"
    assert {each for each in made["removed"] if each.startswith(home)} == {f"{home}/run=r0", f"{home}/run=r1"}
    assert made["bytes"] > 0
    # A reader may have begun with a former checkpoint, so the log is cut an hour after it got one.
    again = lake.maintain()
    assert (made["log_files"], again["removed"], again["log_files"]) == ({}, [], {})
    lake.age_checkpoints()
    assert lake.maintain("--dry-run")["log_files"] == dict.fromkeys(NAMES[job], 2)
    assert lake.maintain()["log_files"] == dict.fromkeys(NAMES[job], 2)
    assert lake.readable(name) == {2: 3, 3: 4, 4: 5}
    lake.maintain("--retain-days", "0")
    assert lake.readable(name) == {4: 5}
    lake.age_checkpoints()
    lake.maintain("--retain-days", "0")
    assert lake.readable(name) == {4: 5}
    assert len(list((lake.root / home).rglob("*.parquet"))) == 2, "the rows, and the checkpoint of the log"


def test_a_checkpoint_with_which_a_reader_began_stays(lake: Lake) -> None:
    for number in range(25):
        lake.complete("validate", f"r{number}", number + 1, 40 - number)
        if number in (4, 24):
            lake.maintain()
            lake.age_checkpoints()
    hint = lake.root / "accepted" / "v=1" / "_delta_log" / "_last_checkpoint"
    before = json.loads(hint.read_text())["version"]
    for _ in range(2):
        lake.maintain("--retain-days", "0")
        assert hint.with_name(f"{before:020}.checkpoint.parquet").exists()
    lake.age_checkpoints()
    lake.maintain("--retain-days", "0")
    assert json.loads(hint.read_text())["version"] == 24
    assert [path.name[:20] for path in hint.parent.glob("*.checkpoint.parquet")] == [f"{24:020}"]
    assert lake.readable("accepted") == {24: 25}


def test_the_log_goes_on_after_its_beginning_was_removed(lake: Lake) -> None:
    for number in range(5):
        lake.complete("validate", f"r{number}", number + 1, 20 - number)
    lake.maintain()
    for number in range(5, 50):
        lake.complete("validate", f"r{number}", number + 1, 20 - number / 3)
    for _ in range(2):
        lake.maintain()
        lake.age_checkpoints()
    # Those of the last seven days, and the one before.
    assert lake.readable("accepted") == {number: number + 1 for number in range(39, 50)}


def test_the_named_moment_stays_however_old_it_is(lake: Lake) -> None:
    for number, days_ago in enumerate((12, 11, 10, 9)):
        lake.complete("metrics", f"r{number}", number + 1, days_ago)
    # The newest run is not whole, so the tables of the job stay as they are, at version 3.
    lake.complete("metrics", "r4", 9, 8)
    Path(lake.reader.folder("open", "r4"), "_manifest.json").unlink()
    moment = json.loads((lake.root / "_tables.json").read_text())
    moment["tables"]["traces"]["version"] = 1
    (lake.root / "_tables.json").write_text(json.dumps(moment))
    lake.maintain("--retain-days", "0")
    assert open_tables(str(lake.root))["traces"].to_pyarrow_table().num_rows == 2
    assert {name: table.to_pyarrow_table().num_rows for name, table in open_tables(str(lake.root)).items()} == {
        **dict.fromkeys(MEASURED, 9),
        "traces": 2,
    }


def test_what_a_job_at_work_writes_is_left_alone(lake: Lake) -> None:
    for job in NAMES:
        for number in range(3):
            lake.complete(job, f"r{number}", 1, 20 - number)
    half = Path(lake.reader.folder("accepted", "half"))
    half.mkdir()
    (half / "part-0.parquet").write_bytes(b"half")
    before = lake.files()
    files = ArrowFiles(str(lake.root))
    with exclusive_lock(files, lake.reader.lock("validate"), "validate"):
        made = lake.maintain()
    assert made["busy"] == ["validate"]
    gone = {path.relative_to(lake.root).parts[0] for path in before - lake.files() if "_delta_log" not in path.parts}
    assert gone == set(MEASURED)
    assert not half.exists() or lake.maintain()["busy"] == []
    assert not half.exists()


def test_what_killed_jobs_left_is_removed(lake: Lake) -> None:
    lake.complete("metrics", "one", 2, 1)
    lake.complete("validate", "one", 2, 1)
    journal = Path(lake.reader.folder("journal"))
    left = [
        Path(lake.reader.folder("accepted", "half"), "part-0.parquet"),
        Path(lake.reader.folder("journal_gaps", "half"), "part-0.parquet"),
        Path(lake.reader.folder("traces", "half"), f"date={DAY}", "part-0.parquet"),
        journal / "batch=b-00000001.0a" / "part-0.parquet",
        journal / "run=half" / f"date={DAY}" / "part-0.parquet",
        journal / "_batches" / f".b-00000001.json.{uuid.uuid4()}",
        journal / f".CURRENT.{uuid.uuid4()}",
        lake.root / "_staging" / "run=half" / "part-0.parquet",
        lake.root / f"._tables.json.{uuid.uuid4()}",
        lake.root / "accepted" / "v=1" / "_delta_log" / f"_commit_{uuid.uuid4()}.json.tmp",
    ]
    before = lake.files()
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
    lake.maintain("--dry-run")
    assert all(path.exists() for path in left)
    lake.maintain()
    assert lake.files() == before


def test_without_a_lake_nothing_is_made(tmp_path: Path) -> None:
    result = CliRunner().invoke(pipeline, ["maintain", "--lake", str(tmp_path)])
    assert result.exit_code == 1
    assert "has no dataset: run `babelgate pipeline ingest`" in result.output
    assert not list(tmp_path.iterdir())


def test_after_all_jobs_the_lake_has_what_is_current_alone(spark: Any, tmp_path: Path) -> None:
    run = Run(spark, tmp_path)
    facts = {
        "job": "urn:j",
        "lang": "go",
        "trace_id": "late",
        "message_id": "late",
        "created_at": START + 5,
        "bytes": 7,
    }
    for number, rows in enumerate((list(Days(30, days=2).rows()), [row("accepted", START + 9, 0, **facts)])):
        land(run.landing, rows, f"n{number}")
        run()
        run(command="metrics")
        run(command="compact")
    lake = Lake(Path(run.root))
    shutil.rmtree(lake.root / "journal" / "v=1" / "_checkpoint")
    lake.maintain("--retain-days", "0")
    check(run)
    tables = open_tables(run.root)
    current = {Path(path.removeprefix("file://")) for table in tables.values() for path in table.file_uris()}
    assert {path for path in lake.root.rglob("*.parquet") if "_delta_log" not in path.parts} == current
    assert lake.maintain("--retain-days", "0")["removed"] == []
    run(command="metrics")
    run(command="compact")
    check(run)
