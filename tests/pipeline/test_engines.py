"""DuckDB reads what Spark reads, and is chosen where the lake is small."""

from __future__ import annotations

import json
import re
import sys
from typing import NoReturn

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import fs, parquet

from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.duckdb_engine.lake import opened, parquet_files
from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.metrics.stages import DATASETS
from babelgate.pipeline.spark.launch import Launch
from babelgate.pipeline.storage.datasets import DatasetReader
from tests.harness.s3 import s3_server
from tests.pipeline.histories import DAY, START, Days, land, row
from tests.pipeline.ingested import Run

BODY = b'{"job":"\xc3\xa9"}'


def invoke(*arguments, code=0):
    result = CliRunner().invoke(pipeline, [str(each) for each in arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def run(spark, tmp_path_factory):
    """A lake with compacted files, batches since, late and missing records."""
    folder = tmp_path_factory.mktemp("engines") / "a lake"
    run = Run(spark, folder)
    rows = list(Days(90, days=3).rows())
    land(run.landing, rows[::2], "a")
    run()
    run(command="compact")
    facts = {"job": "urn:\u00e9", "lang": "go", "trace_id": "trace-1", "created_at": START + 5, "bytes": 7}
    late = [
        row("accepted", START + 9, 0, message_id="it's", envelope=BODY, **facts),
        row("delivered", START + DAY, 0, message_id="it's", **{**facts, "trace_id": None}),
        row("acked", START + 2 * DAY, 0, message_id="it's", **{**facts, "trace_id": None}),
        row("acked", START + 2 * DAY, 0, message_id=None, **facts),
    ]
    land(run.landing, [*rows[1::2], *late], "b", first_seq=4)
    run()
    run(command="metrics")
    bodies = folder / "bodies.ndjson"
    bodies.write_text('{"job":"urn:babel:a:b","trace_id":"t","data":{},"meta":{"lang":"go"}}\n{"job":"a"}\n{\n')
    invoke("validate", bodies, "--lake", run.root)
    return run


def found(run, engine, *arguments):
    result = CliRunner().invoke(
        pipeline, [*arguments, "--lake", run.root, "--engine", engine, "--format", "json"], catch_exceptions=False
    )
    # A busy machine shows the progress of Spark, too.
    progress = re.compile(r": (starting Spark|\d+ of \d+ tasks, \d+ s)$")
    warnings = [line for line in result.stderr.splitlines() if not progress.search(line)]
    return result.exit_code, json.loads(result.stdout), warnings


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("message", "it's"), 0),
        (("message", "id-17"), 0),
        (("message", "none"), 1),
        (("message", "id-34", "--from", "2026-01-02", "--to", "2026-01-03"), 0),
        (("trace", "trace-1"), 0),
        (("trace", "trace-11"), 0),
        (("trace", "trace-1", "--from", "2026-01-02"), 0),
        (("trace", "trace-1", "--to", "2025-12-31"), 1),
    ],
)
def test_duckdb_finds_what_spark_finds(run, arguments, code):
    by_spark = found(run, "spark", *arguments)
    assert found(run, "duckdb", *arguments) == by_spark
    assert by_spark[0] == code


@pytest.mark.parametrize(
    ("form", "days"),
    [
        ("json", ()),
        ("json", ("--from", "2026-01-02", "--to", "2026-01-02", "--target", "wait_p50=99h")),
        ("json", ("--to", "2030-01-01")),
        ("html", ("--from", "2026-01-02", "--note", "n")),
    ],
)
def test_a_report_of_duckdb_is_that_of_spark(run, tmp_path, form, days):
    made = []
    for engine in ("spark", "duckdb"):
        told = invoke(
            "report", "--lake", run.root, "--output", tmp_path / f"{engine}.{form}", *days, "--engine", engine
        )
        assert ("starting Spark" in told.stderr) == (engine == "spark")
        made.append((tmp_path / f"{engine}.{form}").read_bytes())
    assert made[0] == made[1]
    if form == "json":
        figures = json.loads(made[0])
        assert figures["total"]["accepted"] > 0
        assert {"nacked", "lease_expired", "dead_lettered"} <= {each["event"] for each in figures["errors"]}
        assert any(len(each["examples"]) == 3 for each in figures["errors"])


def test_duckdb_reads_copies_of_an_object_store(run, without_spark, monkeypatch, tmp_path):
    with s3_server() as found_by:
        for name, value in found_by.items():
            monkeypatch.setenv(name, value)
        store, _ = fs.FileSystem.from_uri("s3://lakes/prod?allow_bucket_creation=true")
        store.create_dir("lakes")
        fs.copy_files(run.root, "lakes/prod", destination_filesystem=store)
        made = []
        for lake in (run.root, "s3a://lakes/prod"):
            given = "--lake", lake, "--engine", "duckdb", "--format", "json"
            searched = [invoke(*what, *given).stdout for what in (("message", "it's"), ("trace", "trace-11"))]
            invoke("report", *given, "--from", "2026-01-02", "--output", tmp_path / "report.json")
            made.append([*searched, (tmp_path / "report.json").read_bytes()])
        assert made[0] == made[1]
        invoke("metrics", "--lake", "s3a://lakes/prod", "--engine", "duckdb", "--force")
        by_spark, by_duckdb = figures(run.root), figures("s3a://lakes/prod")
        assert by_duckdb == by_spark and all(by_spark.values())
        told = invoke("message", "it's", "--lake", "s3a://lakes/prod", code=1)
        assert "Spark would start here" in told.output


def figures(lake):
    """The rows of each dataset of metrics."""
    with opened(DatasetReader.without_spark(str(lake))) as duckdb:
        return {name: duckdb.rows(f"select * from ({duckdb.current(name)}) order by all") for name in DATASETS}


@pytest.fixture
def without_spark(monkeypatch):
    """Spark does not start."""

    def spark(self: Launch, name: str, *, short: bool = False) -> NoReturn:
        raise JobFailed("Spark would start here")

    monkeypatch.setattr(Launch, "spark", spark)


SEARCH = "message", "id-17", "--lake"


def test_a_small_lake_is_read_by_duckdb(run, without_spark, tmp_path):
    invoke("report", "--lake", run.root, "--output", tmp_path / "report.json")
    told = invoke("report", "--lake", run.root, "--output", tmp_path / "r.json", "--duckdb-max-mib", "0.0001", code=1)
    assert "Spark would start here" in told.stderr
    invoke(*SEARCH, run.root)
    invoke(*SEARCH, run.root, "--duckdb-max-mib", "1")
    invoke(*SEARCH, run.root, "--duckdb-max-mib", "0", "--engine", "duckdb")


@pytest.mark.parametrize(
    "options",
    [
        ("--engine", "spark"),
        ("--master", "local[1]"),
        ("--conf", "spark.executor.memory=1g"),
        ("--duckdb-max-mib", "0.0001"),
    ],
)
def test_spark_is_used_where_it_is_asked_for_or_the_lake_is_large(run, without_spark, options):
    assert invoke(*SEARCH, run.root, *options, code=1).stderr == "Error: Spark would start here\n"


def test_spark_is_used_without_duckdb(run, without_spark, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    told = invoke(*SEARCH, run.root, code=1).stderr.splitlines()
    assert told == ["duckdb is not installed, so Spark is used", "Error: Spark would start here"]
    told = invoke(*SEARCH, run.root, "--engine", "duckdb", code=2).stderr
    assert "not installed here: duckdb; install the extra spark" in told


def test_what_duckdb_cannot_do_is_refused(run, tmp_path):
    told = invoke(*SEARCH, run.root, "--engine", "duckdb", "--master", "local[1]", code=2).stderr
    assert "--master and --conf are of Spark, not of --engine duckdb" in told
    told = invoke(*SEARCH, "oss://bucket/lake", "--engine", "duckdb", code=2).stderr
    assert "DuckDB reads local folders, s3:// and gs:// only" in told


def test_a_path_is_no_pattern_to_duckdb(tmp_path):
    for number, name in enumerate(("a [lake]*?", "a lxx")):
        home = tmp_path / name / "journal" / "v=1" / "batch=1"
        home.mkdir(parents=True)
        parquet.write_table(pa.table({"at": [number]}), home / "part.parquet")
    reader = DatasetReader.without_spark(str(tmp_path / "a [lake]*?"))
    with opened(reader) as lake:
        rows = lake.rows(lake.select("journal", [f"{reader.folder('journal')}/batch=1"]))
    assert [(each["at"], each["message_id"]) for each in rows] == [(0, None)]
    with pytest.raises(JobFailed, match="is gone"):
        list(parquet_files(reader, [f"{reader.folder('journal')}/batch=2"]))
