"""``validate --force`` repeats a run in a folder of its own, so no reader is without rows, wherever it is killed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.storage.datasets import DatasetReader, DatasetStore, unchanged
from babelgate.pipeline.storage.files import Files
from babelgate.pipeline.storage.inputs import ReadOptions
from babelgate.pipeline.tables.moment import open_tables
from babelgate.pipeline.validate import job
from tests.pipeline.sending import body

ROWS = {"accepted": 3, "quarantined": 1}


class Killed(Exception):
    """The process ends here."""


class MortalFiles(Files):
    """The process that uses these files is killed before its change number ``last``, counted from 0."""

    def __init__(self, spark: Any, url: str, last: int) -> None:
        super().__init__(spark, url)
        self._left = last

    def _change(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Killed

    def write(self, url: str, content: bytes) -> None:
        self._change()
        super().write(url, content)

    def rename(self, source: str, target: str) -> bool:
        self._change()
        return super().rename(source, target)

    def make_folder(self, url: str) -> None:
        self._change()
        super().make_folder(url)

    def remove(self, url: str) -> None:
        self._change()
        super().remove(url)


class Lake:
    def __init__(self, spark: Any, folder: Path) -> None:
        self.root = str(folder / "lake")
        self.store = DatasetStore(spark, self.root)
        self.source = folder / "bodies.ndjson"
        self.source.write_bytes(b"\n".join([*map(body, range(ROWS["accepted"])), b"{}"]))

    def invoke(self, *arguments: str) -> str:
        result = CliRunner().invoke(pipeline, [*arguments, "--lake", self.root], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    def validate(self, *arguments: str) -> str:
        return self.invoke("validate", str(self.source), *arguments)

    def check(self) -> None:
        """All readers see all rows."""
        assert {name: self.store.read(name).count() for name in ROWS} == ROWS
        assert {name: table.to_pyarrow_table().num_rows for name, table in open_tables(self.root).items()} == ROWS


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Lake:
    made = Lake(spark, tmp_path)
    made.validate()
    return made


def test_wherever_it_is_killed_readers_see_all_rows(spark: Any, lake: Lake) -> None:
    files, first = job.list_input_files([str(lake.source)]), lake.store.current("accepted")
    assert first is not None
    changes, is_killed = 0, True
    while is_killed:
        mortal = DatasetStore(spark, lake.root)
        mortal.files = MortalFiles(spark, lake.root, changes)
        try:
            job._run(spark, mortal, files, ReadOptions(), first, None)
            is_killed = False
        except Killed:
            changes += 1
        lake.check()
        lake.invoke("tables")
        lake.check()
    assert changes > 8, "it stages, moves, completes and points in two datasets"
    assert lake.store.current("accepted") == lake.store.current("quarantined") != first
    assert unchanged(lake.root, list(ROWS), first) is not None
    assert "Nothing has changed" in lake.validate()


def test_a_repetition_that_was_killed_between_the_two_datasets_goes_on(lake: Lake) -> None:
    former = lake.store.current("quarantined")
    lake.validate("--force")
    repeated = lake.store.current("quarantined")
    lake.store.files.write(f"{lake.store.folder('quarantined')}/CURRENT", f"{former}\n".encode())
    assert "Nothing has changed" in lake.validate()
    assert lake.store.current("accepted") == lake.store.current("quarantined") == repeated != former
    lake.check()


def test_the_last_repetition_is_the_one_that_becomes_current_again(lake: Lake) -> None:
    lake.validate("--force")
    lake.validate("--force")
    last, content = lake.store.current("accepted"), lake.source.read_bytes()
    assert last is not None
    at = lake.source.stat().st_mtime_ns
    lake.source.write_bytes(b"[]")
    lake.validate()
    assert lake.store.current("accepted") != last
    lake.source.write_bytes(content)
    os.utime(lake.source, ns=(at, at))
    assert "Nothing has changed" in lake.validate()
    assert lake.store.current("accepted") == last


def test_the_former_run_stays_as_long_as_others(lake: Lake) -> None:
    former = lake.store.current("accepted")
    assert former is not None
    lake.validate("--force")
    lake.invoke("maintain")
    table = open_tables(lake.root)["accepted"]
    table.load_as_version(table.version() - 1)
    assert table.to_pyarrow_table().num_rows == ROWS["accepted"], "a reader of the former version goes on"
    assert former in lake.store.runs("accepted")
    lake.invoke("maintain", "--retain-days", "0")
    assert lake.store.runs("accepted") == lake.store.runs("quarantined") == [lake.store.current("accepted")]
    lake.check()


def test_a_current_run_that_an_older_version_left_half_made_is_not_read(lake: Lake) -> None:
    reader = DatasetReader.without_spark(lake.root)
    current = reader.current("accepted")
    shutil.rmtree(reader.folder("accepted", current))
    for read in (lake.store.read, reader.current_folders):
        with pytest.raises(JobFailed, match=f"The current run {current} of accepted in .* is not complete"):
            read("accepted")
    assert "Nothing has changed" not in lake.validate()
    lake.check()
