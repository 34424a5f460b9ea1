"""What a command knows of the data before Spark starts: that there is none, little, or nothing new."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner

from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.journal.commits import Commit, CommitContent
from babelgate.pipeline.journal.reader import FEW_RECORDS, commit
from babelgate.pipeline.send import job
from babelgate.pipeline.spark.launch import Launch
from babelgate.pipeline.storage.datasets import DatasetReader
from babelgate.pipeline.storage.input_files import LITTLE_BYTES
from tests.pipeline.sending import Sends, body, write


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compact", "--lake", "{empty}"], "has no dataset journal: run `babelgate pipeline ingest` first"),
        (["metrics", "--lake", "{empty}"], "has no dataset journal: run `babelgate pipeline ingest` first"),
        (["message", "x", "--lake", "{lake}"], "has no dataset journal: run `babelgate pipeline ingest` first"),
        (["trace", "x", "--lake", "{empty}"], "has no dataset journal: run `babelgate pipeline ingest` first"),
        (["report", "--lake", "{empty}"], "has no dataset journal: run `babelgate pipeline ingest` first"),
        (["report", "--lake", "{ingested}"], "has no dataset throughput: run `babelgate pipeline metrics` first"),
    ],
)
def test_a_lake_without_data_is_refused_before_spark_starts(tmp_path: Path, arguments: list[str], words: str) -> None:
    (tmp_path / "empty").mkdir()
    commits = tmp_path / "ingested" / "journal" / "v=1" / "_batches"
    commits.mkdir(parents=True)
    (commits / "first.json").write_text("{}")
    places = {name: str(tmp_path / name) for name in ("empty", "lake", "ingested")}
    result = CliRunner().invoke(pipeline, [each.format(**places) for each in arguments])
    assert result.exit_code == 1, result.output
    assert words in result.stderr
    assert "starting Spark" not in result.stderr


@pytest.mark.parametrize("command", ["ingest", "validate"])
def test_a_folder_without_data_is_warned_of_before_spark_starts(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spark(self: Launch, name: str, *, short: bool = False) -> NoReturn:
        raise JobFailed("Spark would start here")

    monkeypatch.setattr(Launch, "spark", spark)
    (tmp_path / "empty").mkdir()
    result = CliRunner().invoke(pipeline, [command, str(tmp_path / "empty"), "--lake", str(tmp_path / "lake")])
    warning, end = result.stderr.splitlines()
    assert warning.startswith(f"warning: {tmp_path / 'empty'}: ")
    assert end == "Error: Spark would start here"


@pytest.mark.parametrize("records", [FEW_RECORDS, FEW_RECORDS + 1])
@pytest.mark.parametrize(
    "command",
    [["metrics"], ["message", "x"], ["compact", "--force"], ["replay", "--dry-run"], ["redrive", "--from", "journal"]],
)
def test_spark_starts_for_a_short_job_where_the_journal_is_small(
    tmp_path: Path, command: list[str], records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spark(self: Launch, name: str, *, short: bool = False) -> NoReturn:
        raise JobFailed(f"short: {short}")

    monkeypatch.setattr(Launch, "spark", spark)
    reader: Any = DatasetReader.without_spark(str(tmp_path))
    dates = {"2026-01-01": records - 1, "2026-01-02": 1}
    batch = Commit(
        batch="b", committed_at=1, folder="batch=b.0", corrupt_folder=None, dates=dates, content=CommitContent()
    )
    commit(reader, batch)
    engine = ["--engine", "spark"] if command[0] in ("metrics", "message") else []
    result = CliRunner().invoke(pipeline, [*command, "--lake", str(tmp_path), *engine])
    assert f"short: {records == FEW_RECORDS}" in result.stderr


@pytest.mark.parametrize("bodies", [FEW_RECORDS, FEW_RECORDS + 1])
@pytest.mark.parametrize("command", ["backfill --from accepted", "redrive --from quarantined"])
def test_spark_starts_for_a_short_job_where_few_bodies_were_validated(
    tmp_path: Path, command: str, bodies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spark(self: Launch, name: str, *, short: bool = False) -> NoReturn:
        raise JobFailed(f"short: {short}")

    monkeypatch.setattr(Launch, "spark", spark)
    reader = DatasetReader.without_spark(str(tmp_path))
    for name in ("accepted", "quarantined"):
        Path(reader.folder(name, "one")).mkdir(parents=True)
    reader.publish(["accepted", "quarantined"], "one", {"job": "validate", "counts": {"rows": bodies}})
    result = CliRunner().invoke(pipeline, [*command.split(), "--lake", str(tmp_path)])
    assert f"short: {bodies == FEW_RECORDS}" in result.stderr


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("command", ["validate", "backfill --from bodies", "redrive --from dead-letters"])
def test_spark_starts_for_a_short_job_where_input_files_are_small(
    tmp_path: Path, command: str, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spark(self: Launch, name: str, *, short: bool = False) -> NoReturn:
        raise JobFailed(f"short: {short}")

    monkeypatch.setattr(Launch, "spark", spark)
    name, *options = command.split()
    inputs = tmp_path / "in"
    inputs.mkdir()
    for number, size in enumerate((LITTLE_BYTES - 1, 1 + more)):
        (inputs / f"{number}.json").write_bytes(bytes(size))
    result = CliRunner().invoke(pipeline, [name, str(inputs), *options, "--lake", str(tmp_path / "lake")])
    assert f"short: {not more}" in result.stderr


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("command", ["--once", "--continuous"])
def test_spark_starts_for_a_short_job_where_little_has_landed(
    tmp_path: Path, command: str, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spark(self: Launch, name: str, *, short: bool = False) -> NoReturn:
        raise JobFailed(f"short: {short}")

    monkeypatch.setattr(Launch, "spark", spark)
    landing = tmp_path / "landing"
    landing.mkdir()
    for number, size in enumerate((LITTLE_BYTES - 1, 1 + more)):
        (landing / f"{number}.ndjson.gz").write_bytes(bytes(size))
    result = CliRunner().invoke(pipeline, ["ingest", str(landing), "--lake", str(tmp_path / "lake"), command])
    assert f"short: {command == '--once' and not more}" in result.stderr


def test_jobs_are_imported_without_spark_and_pandas() -> None:
    jobs = ("erase", "find.records", "journal.compact", "journal.ingest", "metrics", "report", "send", "tables.publish")
    whole = [f"babelgate.pipeline.{each}" if "." in each else f"babelgate.pipeline.{each}.job" for each in jobs]
    program = f"import sys, {', '.join(whole)}; print({{'pyspark', 'pandas', 'duckdb'}} & sys.modules.keys())"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.stdout == "set()\n", ended.stderr


def test_a_dry_run_reports_that_its_run_is_done_and_changes_nothing(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sends = Sends(spark, tmp_path)
    given = "backfill", write(tmp_path / "in", body(1)), "--from", "bodies", "--select", "false"
    sends(*given)
    sends(*given, "--run-id", "current")

    def files() -> dict[Path, tuple[int, bytes]]:
        found = (each for each in Path(sends.root).rglob("*") if each.is_file())
        return {each: (each.stat().st_mtime_ns, each.read_bytes()) for each in found}

    before = files()
    sends(*given, "--run-id", "current", "--dry-run", "--limit", 1, code=2)
    assert "Run current was begun with other options: limit." in sends.output
    for by_spark in (False, True):
        if by_spark:
            monkeypatch.setattr(job, "without_spark", lambda *_: None)
        sends(*given, "--dry-run")
        assert "is done: nothing is left to send" in sends.output
        assert ("starting Spark" in sends.output) == by_spark
        assert sends.shown == "0 messages would be sent to http://127.0.0.1:9; nothing was sent.\n"
    assert files() == before
