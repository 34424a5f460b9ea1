"""``erase`` in an object store: bodies leave it, and nothing else changes."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs, parquet

from babelgate.pipeline.storage.datasets import DatasetReader
from babelgate.pipeline.storage.schemas import DATASETS, arrow_schema
from babelgate.pipeline.tables.moment import open_tables
from tests.harness.s3 import s3_server
from tests.pipeline.test_erase import GONE, KEPT, TRACED, body, commit_batch, erase, in_tables, invoke

LAKE = "s3a://lakes/prod"
VALIDATED = "accepted", "quarantined"
GONE_BODY = body(GONE)[:60]
"""The beginning of the body, with the trace."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with s3_server() as found_by:
        for name, value in found_by.items():
            monkeypatch.setenv(name, value)
        system, _ = fs.FileSystem.from_uri("s3://lakes?allow_bucket_creation=true")
        system.create_dir("lakes")
        yield system


def contents(store: Any) -> dict[str, bytes]:
    """The files of the lake."""
    found = store.get_file_info(fs.FileSelector("lakes/prod", recursive=True))
    paths = [each.path for each in found if each.type == fs.FileType.File]
    return {path.removeprefix("lakes/prod/"): bytes(store.open_input_stream(path).read()) for path in paths}


def holding(files: dict[str, bytes], text: str) -> set[str]:
    """The datasets of which a Parquet file has ``text`` anywhere in a row."""
    data = {path: content for path, content in files.items() if path.endswith(".parquet") and "_delta_log" not in path}
    rows = {path: parquet.ParquetFile(io.BytesIO(content)).read().to_pylist() for path, content in data.items()}
    return {path.partition("/")[0] for path, found in rows.items() if text in str(found)}


def made_locally(folder: Path) -> None:
    """A lake with two batches of the journal, and a run of ``validate`` of two files in each dataset."""
    reader = DatasetReader.without_spark(str(folder))
    commit_batch(reader, 0, GONE, TRACED, KEPT)
    commit_batch(reader, 1, "message-other")
    for name in VALIDATED:
        columns = arrow_schema(DATASETS[name].columns)
        place = Path(reader.folder(name, "one"))
        place.mkdir(parents=True)
        for number, ids in enumerate(([GONE, TRACED, KEPT], ["message-other"])):
            rows = [{"message_id": each, "trace_id": f"t-{each}", "body": body(each).encode()} for each in ids]
            parquet.write_table(pa.Table.from_pylist(rows, columns), place / f"part-{number}.parquet")
    reader.publish(VALIDATED, "one", {"job": "validate", "counts": {}})


def test_bodies_are_gone_and_nothing_else(store: Any, tmp_path: Path) -> None:
    made_locally(tmp_path)
    fs.copy_files(str(tmp_path), "lakes/prod", destination_filesystem=store)
    invoke("tables", "--lake", LAKE)
    rows = {name: table.to_pyarrow_table().num_rows for name, table in open_tables(LAKE).items()}
    before = contents(store)
    given = LAKE, GONE, "--trace", f"t-{TRACED}"
    planned = erase(*given, "--dry-run")
    assert contents(store) == before
    made = erase(*given)
    # The rows of the journal have no trace.
    assert made["rows"] == planned["rows"] == {"journal": 2, "journal_corrupt": 0, "accepted": 2, "quarantined": 2}
    assert made["messages"] == [GONE, TRACED]

    after = contents(store)
    (audit,) = [content for path, content in after.items() if path.startswith("_erasures/")]
    assert json.loads(audit)["rows"] == made["rows"]
    assert not [path for path in after if path.endswith(".lock")]
    assert {name: table.to_pyarrow_table().num_rows for name, table in open_tables(LAKE).items()} == rows
    for name, table in open_tables(LAKE).items():
        column = "envelope" if name == "journal" else "body"
        found = {each["message_id"]: each[column] for each in table.to_pyarrow_table().to_pylist()}
        assert found == {GONE: None, TRACED: None, **{each: body(each).encode() for each in (KEPT, "message-other")}}
    assert in_tables(LAKE, GONE_BODY) == set()
    assert set(erase(*given)["rows"].values()) == {0}

    assert holding(contents(store), GONE_BODY) == {"journal", *VALIDATED}, "former versions are readable"
    invoke("maintain", "--lake", LAKE, "--retain-days", "0")
    assert holding(contents(store), GONE_BODY) == set()
    assert {name: table.to_pyarrow_table().num_rows for name, table in open_tables(LAKE).items()} == rows


def test_a_lake_that_is_not_there_is_an_error_in_words(store: Any) -> None:
    for lake in (LAKE, "s3a://missing/prod"):
        assert "has no dataset: run `babelgate pipeline ingest`" in invoke("erase", "--lake", lake, GONE, code=1).output


def test_nothing_changes_while_compact_is_at_work(store: Any, tmp_path: Path) -> None:
    made_locally(tmp_path)
    fs.copy_files(str(tmp_path), "lakes/prod", destination_filesystem=store)
    with store.open_output_stream("lakes/prod/journal/v=1/_compact.lock") as stream:
        stream.write(json.dumps({"id": "other", "by": "process 1 on another host", "at": 4_000_000_000.0}).encode())
    before = contents(store)
    told = invoke("erase", "--lake", LAKE, GONE, code=1).output
    assert "Another compact is at work there (process 1 on another host)" in told
    assert contents(store) == before
