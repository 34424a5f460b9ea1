"""Tables over files that are written here, without Spark: where a lake is, who may write it, and runs cut short."""

from __future__ import annotations

import errno
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import create_table_with_add_actions
from pyarrow import fs, parquet

from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.cli.tables import TablesFollow
from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.journal.reader import now_ms
from babelgate.pipeline.metrics.stages import DATASETS as MEASURED
from babelgate.pipeline.storage.arrow_files import ArrowFiles
from babelgate.pipeline.storage.datasets import DatasetReader
from babelgate.pipeline.storage.schemas import DATASETS, Dataset
from babelgate.pipeline.tables import publish
from babelgate.pipeline.tables.maintain import maintain
from babelgate.pipeline.tables.moment import open_tables
from babelgate.pipeline.tables.publish import publish_tables
from tests.harness.s3 import s3_server

DAY = "2026-01-01"


def write(root: str, run: str, rows: int, names: tuple[str, ...] = MEASURED) -> None:
    """Complete a run of ``metrics`` with ``rows`` rows in each dataset, and make it current in ``names``."""
    files = ArrowFiles(root)
    system, _ = (fs.LocalFileSystem(), "") if files.is_local else fs.FileSystem.from_uri(root)
    reader = DatasetReader(files, files.root)
    for name in MEASURED:
        place = f"{reader.folder(name, run)}/date={DAY}"
        if files.is_local:
            Path(place).mkdir(parents=True)
        column = next(each for each, kind in DATASETS[name].columns.items() if kind == "string")
        parquet.write_table(pa.table({column: ["x"] * rows}), f"{files.path(place)}/part-0.parquet", filesystem=system)
        manifest = {"parts": {name: {DAY: run}}, "completed_at": now_ms()}
        files.write(f"{reader.folder(name, run)}/_manifest.json", json.dumps(manifest).encode())
        if name in names:
            files.write(f"{reader.folder(name)}/CURRENT", run.encode())


def command(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(pipeline, ["tables", *arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def counts(root: str) -> dict[str, int]:
    return {name: table.to_pyarrow_table().num_rows for name, table in open_tables(root).items()}


@pytest.mark.parametrize("name", ["a b", "ü", "x#y", "50%", "it's", "trace_id=y", "date=2020-02-02"])
def test_views_read_a_lake_in_any_folder(tmp_path: Path, name: str) -> None:
    root = str(tmp_path / name)
    write(root, "one", 2)
    connection = duckdb.connect()
    connection.execute(command("--lake", root, "--format", "duckdb").stdout)
    found = connection.execute("select count(*), min(cast(date as varchar)), min(trace_id) from traces").fetchall()
    assert found == [(2, DAY, "x")]


def test_a_folder_that_the_library_mistakes_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "a%20b"
    write(str(root), "one", 2)
    assert "Delta Lake takes %20 for an escape: rename the folder" in command("--lake", str(root), code=1).output
    with pytest.raises(JobFailed, match="rename the folder"):
        publish_tables(root.as_uri())
    assert not list(root.rglob("_delta_log"))


def test_tables_of_a_job_are_of_one_run(tmp_path: Path) -> None:
    root = str(tmp_path)
    write(root, "one", 2)
    command("--lake", root)
    # Killed while it made its datasets current.
    write(root, "two", 3, MEASURED[:3])
    command("--lake", root)
    assert counts(root) == dict.fromkeys(MEASURED, 3)
    # No run that is whole: the tables stay.
    write(root, "three", 4, MEASURED[:3])
    Path(DatasetReader.without_spark(root).folder("open", "three"), "_manifest.json").unlink()
    listed = command("--lake", root).stdout
    assert {tuple(line.split()[:2]) for line in listed.splitlines()} == {(name, "3") for name in MEASURED}
    assert counts(root) == dict.fromkeys(MEASURED, 3)


def test_two_processes_make_the_first_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(tmp_path)
    write(root, "one", 2)
    create = create_table_with_add_actions

    def after_another(*arguments: Any, **named: Any) -> None:
        create(*arguments, **named)
        raise DeltaError("Generic error: A Delta Lake table already exists at that location.")

    monkeypatch.setattr(publish, "create_table_with_add_actions", after_another)
    publish_tables(root)
    assert counts(root) == dict.fromkeys(MEASURED, 2)


def test_what_was_committed_while_columns_were_added_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(tmp_path)
    write(root, "one", 2)
    fewer = {
        name: Dataset(name, dict(list(each.columns.items())[:3]), each.partitions) for name, each in DATASETS.items()
    }
    with monkeypatch.context() as older:
        older.setattr(publish, "DATASETS", fewer)
        publish_tables(root)
    add_columns = publish._Table._add_columns

    def after_another(table: Any, opened: DeltaTable) -> bool:
        added = add_columns(table, opened)
        if added and not called:
            called.append(True)
            write(root, "two", 3)
            publish_tables(root)
        return added

    called: list[bool] = []
    monkeypatch.setattr(publish._Table, "_add_columns", after_another)
    monkeypatch.setattr(publish, "waiting_lock", lambda path: nullcontext())
    publish_tables(root)
    assert called
    assert counts(root) == dict.fromkeys(MEASURED, 3)
    fields = {name: [field.name for field in table.schema().fields] for name, table in open_tables(root).items()}
    assert fields == {name: list(DATASETS[name].columns) for name in MEASURED}


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_who_may_only_read_gets_the_views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    root = str(tmp_path)
    write(root, "one", 2)
    publish_tables(root)
    write(root, "two", 3)

    def refused(path: str) -> Any:
        raise OSError(number, "refused", path)

    monkeypatch.setattr(publish, "waiting_lock", refused)
    result = command("--lake", root, "--format", "duckdb")
    assert "warning: the tables were not updated" in result.stderr
    connection = duckdb.connect()
    connection.execute(result.stdout)
    assert connection.execute("select count(*) from traces").fetchall() == [(2,)]
    Path(root, "_tables.json").unlink()
    assert "has no tables" in command("--lake", root, code=1).output


def test_no_lock_is_left_where_no_lake_is(tmp_path: Path) -> None:
    for root in (tmp_path / "missing", tmp_path):
        assert "has no dataset: run `babelgate pipeline ingest`" in command("--lake", str(root), code=1).output
    assert not list(tmp_path.iterdir())


def test_a_reader_takes_a_url_of_a_file(tmp_path: Path) -> None:
    write(str(tmp_path / "a b"), "one", 2)
    assert DatasetReader.without_spark((tmp_path / "a b").as_uri()).current("traces") == "one"


def test_an_error_is_one_line_without_colours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(str(tmp_path), "one", 2)

    def fails(table: Any) -> None:
        raise DeltaError("\x1b[31mKernel error\x1b[0m:\n  no file")

    monkeypatch.setattr(publish._Table, "open", fails)
    with pytest.raises(JobFailed) as failed:
        publish_tables(str(tmp_path))
    assert failed.value.message == f"The tables of {tmp_path} could not be written: Kernel error: no file"


def test_an_outage_is_told_once_and_so_is_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An endless run tries after each round."""
    write(str(tmp_path), "one", 2)
    follow = TablesFollow(str(tmp_path), *MEASURED)

    def fails(table: Any) -> None:
        raise OSError("disk full")

    for _ in range(2):
        with monkeypatch.context() as broken:
            broken.setattr(publish._Table, "open", fails)
            assert [follow() for _ in range(3)] == [False] * 3
        assert [follow() for _ in range(3)] == [True] * 3
    told = [line.rpartition("babelgate pipeline: ")[2] for line in capsys.readouterr().err.splitlines()]
    wrong = f"warning: the tables in {tmp_path} are not current: "
    outage = [
        f"{wrong}The tables of {tmp_path} could not be written: disk full",
        f"the tables in {tmp_path} are current again",
    ]
    assert told == outage * 2


def test_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server() as found_by:
        for name, value in found_by.items():
            monkeypatch.setenv(name, value)
        system, _ = fs.FileSystem.from_uri("s3://lakes/prod?allow_bucket_creation=true")
        system.create_dir("lakes")
        write("s3://lakes/prod", "one", 2)
        publish_tables("s3a://lakes/prod")
        assert counts("s3a://lakes/prod") == dict.fromkeys(MEASURED, 2)
        before = publish._Table(DatasetReader.without_spark("s3://lakes/prod"), ArrowFiles("s3://lakes/prod"), "traces")
        opened = before.open()
        write("s3://lakes/prod", "two", 3)
        publish_tables("s3://lakes/prod")
        assert counts("s3://lakes/prod") == dict.fromkeys(MEASURED, 3)
        with pytest.raises(CommitFailedError):
            before.commit(opened, [f"run=two/date={DAY}"])
        planned = maintain("s3://lakes/prod", 30, dry_run=True)
        assert (planned.removed, planned.busy) == ([], [])
        made = maintain("s3://lakes/prod", 0)
        assert made.busy == [], "the dry run has removed its lock"
        assert made.removed
        assert not any("lock" in path.rpartition("/")[2] for path in made.removed)
