"""A lake or folder without data is reported before Spark starts, with what to do."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner

from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.spark.launch import Launch


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
    def spark(self: Launch, name: str) -> NoReturn:
        raise JobFailed("Spark would start here")

    monkeypatch.setattr(Launch, "spark", spark)
    (tmp_path / "empty").mkdir()
    result = CliRunner().invoke(pipeline, [command, str(tmp_path / "empty"), "--lake", str(tmp_path / "lake")])
    warning, end = result.stderr.splitlines()
    assert warning.startswith(f"warning: {tmp_path / 'empty'}: ")
    assert end == "Error: Spark would start here"
