"""Tables: every engine reads the rows of the current runs, and of one moment."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from deltalake.transaction import create_table_with_add_actions
from pyarrow import compute
from pyspark.sql.types import StructType

from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.metrics.stages import DATASETS as MEASURED
from babelgate.pipeline.storage.arrow_files import ArrowFiles
from babelgate.pipeline.storage.duckdb_sql import duckdb_type
from babelgate.pipeline.storage.schemas import DATASETS, TRACES, Dataset
from babelgate.pipeline.tables.current_files import TABLES, stats_of
from babelgate.pipeline.tables.moment import open_tables, read_moment
from babelgate.pipeline.tables.publish import table_url
from babelgate.pipeline.tables.types import delta_schema
from tests.pipeline.histories import DAY, START, Days, land, row
from tests.pipeline.ingested import Run

FACTS = {"job": "urn:j", "lang": "go", "trace_id": "late", "message_id": "late", "created_at": START + 5, "bytes": 7}


@pytest.fixture
def run(spark, tmp_path):
    return Run(spark, tmp_path, ["spark", "duckdb"])


def invoke(*arguments):
    result = CliRunner().invoke(pipeline, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def sorted_rows(rows):
    return sorted(json.dumps(each, default=str, sort_keys=True) for each in rows)


def expected(run, name):
    """The rows that the pipeline itself reads."""
    if name == "journal":
        from babelgate.pipeline.journal.reader import read_journal

        frame = read_journal(run.spark, run.root)
    else:
        frame = run.store.read(name)
    return sorted_rows(frame.toArrow().to_pylist())


def in_duckdb(root):
    """A connection with the views that the command prints."""
    connection = duckdb.connect()
    connection.execute(invoke("tables", "--lake", root, "--format", "duckdb").stdout)
    return connection


def moment(run):
    found = read_moment(ArrowFiles(run.root))
    assert found is not None
    return found.tables


def check(run, names=("journal", *MEASURED)):
    tables = open_tables(run.root)
    connection = in_duckdb(run.root)
    for name in names:
        rows = expected(run, name)
        assert sorted_rows(tables[name].to_pyarrow_table().to_pylist()) == rows, name
        columns = ", ".join(f'"{each}"' for each in DATASETS[name].columns)
        assert sorted_rows(connection.sql(f"select {columns} from {name}").to_arrow_table().to_pylist()) == rows
        check_filters(tables[name].to_pyarrow_dataset(), name)


def check_filters(dataset, name):
    """A filter finds each value, and nulls, by the statistics in the log."""
    # It starts threads, which forks of the process that collects the tests have not.
    import polars

    rows = dataset.to_table().to_pylist()
    scanned = polars.scan_pyarrow_dataset(dataset)
    assert scanned.select(polars.len()).collect().item() == len(rows)
    for column, kind in DATASETS[name].columns.items():
        values = [each[column] for each in rows]
        assert dataset.count_rows(filter=compute.is_null(compute.field(column))) == values.count(None), (name, column)
        value = next((each for each in values if each is not None), None)
        if kind in ("string", "bigint", "int", "date", "boolean") and value is not None:
            count = values.count(value)
            assert dataset.count_rows(filter=compute.field(column) == value) == count, (name, column)
            assert scanned.filter(polars.col(column) == value).collect().height == count, (name, column)


def test_every_engine_reads_the_current_rows_and_no_others(run):
    land(run.landing, Days(60, days=3).rows(), "a")
    run()
    run(command="metrics")
    check(run)
    first = {name: table.version() for name, table in open_tables(run.root).items()}
    before = open_tables(run.root)["throughput"].to_pyarrow_table().num_rows

    land(run.landing, [row("accepted", START + 9, 0, **FACTS), row("acked", START + DAY, 0, **FACTS)], "b")
    run()
    check(run, ["journal"])
    run(command="compact")
    run(command="metrics")
    for table in open_tables(run.root).values():
        table.create_checkpoint()
    check(run)
    table = open_tables(run.root)["throughput"]
    assert table.version() == first["throughput"] + 1
    assert DeltaTable(table.table_uri, version=first["throughput"]).to_pyarrow_table().num_rows == before
    connection = duckdb.connect()
    everything = Path(run.root, "throughput").rglob("*.parquet")
    beside = connection.execute(f"select count(*) from read_parquet({[str(each) for each in everything]})").fetchall()
    assert beside[0][0] > table.to_pyarrow_table().num_rows, "the folder has rows of former runs, too"

    versions = {name: each.version() for name, each in open_tables(run.root).items()}
    run(command="metrics")
    invoke("tables", "--lake", run.root)
    assert {name: each.version() for name, each in open_tables(run.root).items()} == versions


def test_a_lake_of_an_older_version_gets_tables_without_a_copy(run):
    land(run.landing, Days(40, days=2).rows(), "a")
    run()
    run(command="metrics")
    run(command="compact")
    for log in Path(run.root).rglob("_delta_log"):
        shutil.rmtree(log)
    Path(run.root, "_tables.json").unlink()
    # A table from the time when traces had fewer columns.
    fewer = Dataset("traces", {name: TRACES.columns[name] for name in ("date", "trace_id")}, ("date",))
    create_table_with_add_actions(table_url(run.root, "traces"), delta_schema(fewer), [], partition_by=["date"])
    files = sorted(Path(run.root).rglob("*.parquet"))
    listed = invoke("tables", "--lake", run.root).stdout
    assert [line.split()[0] for line in listed.splitlines()] == [
        name for name in TABLES if name in open_tables(run.root)
    ]
    assert sorted(Path(run.root).rglob("*.parquet")) == files
    check(run)


def test_a_lake_of_the_version_before_the_tables_has_the_rows_that_it_read(tmp_path):
    """The lake, and the rows as that version's own code read them, are made by ``old_lake.py``."""
    with tarfile.open(Path(__file__).with_name("old_lake.tar.xz")) as packed:
        packed.extractall(tmp_path, filter="data")
    rows = json.loads((tmp_path / "rows.json").read_text())
    root = tmp_path / "lake"
    assert not [*root.rglob("_delta_log"), *root.glob("_tables.json")]
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    invoke("tables", "--lake", str(root))
    assert {path: path.read_bytes() for path in before} == before
    assert set(root.rglob("*.parquet")) == {path for path in before if path.suffix == ".parquet"}, "nothing is copied"
    tables, views = open_tables(str(root)), in_duckdb(str(root))
    assert tables.keys() == rows.keys()
    for name, read in rows.items():
        expected = known(read)
        assert known(tables[name].to_pyarrow_table().to_pylist()) == expected, name
        columns = ", ".join(f'"{each}"' for each in DATASETS[name].columns)
        assert known(views.sql(f"select {columns} from {name}").to_arrow_table().to_pylist()) == expected, name


def known(rows):
    """The rows without nulls, as an older version has fewer columns."""
    return sorted_rows({name: value for name, value in each.items() if value is not None} for each in rows)


def test_tables_belong_together_although_one_of_them_fails(run, monkeypatch):
    land(run.landing, Days(20, days=1).rows(), "a")
    run()
    run(command="metrics")
    before = moment(run)

    def fails_for_traces(files, home, file):
        if "/traces/" in home:
            raise OSError("not readable")
        return stats_of(files, home, file)

    with monkeypatch.context() as broken:
        broken.setattr("babelgate.pipeline.tables.publish.stats_of", fails_for_traces)
        land(run.landing, [row("accepted", START + 9, 0, **FACTS)], "b")
        run()
        run(command="metrics")
    assert f"warning: the tables in {run.root} are not current" in run.output
    after = moment(run)
    assert {name: after[name] for name in MEASURED} == {name: before[name] for name in MEASURED}
    assert DeltaTable(table_url(run.root, "throughput")).version() > after["throughput"].version
    run(command="metrics")
    check(run)


def test_validated_bodies_are_those_of_the_current_run(run, tmp_path):
    for number, count in enumerate((3, 5)):
        bodies = tmp_path / f"{number}.ndjson"
        bodies.write_text('{"job":"urn:babel:a:b","trace_id":"t","data":{},"meta":{"lang":"go"}}\n' * count)
        invoke("validate", str(bodies), "--lake", run.root)
        check(run, ["accepted", "quarantined"])
    # The same run again, in a folder of its own.
    invoke("validate", str(bodies), "--lake", run.root, "--force")
    check(run, ["accepted", "quarantined"])
    # A former run becomes current again.
    invoke("validate", str(tmp_path / "0.ndjson"), "--lake", run.root)
    check(run, ["accepted", "quarantined"])


def test_a_lake_without_data_has_no_tables(tmp_path):
    result = CliRunner().invoke(pipeline, ["tables", "--lake", str(tmp_path)])
    assert result.exit_code == 1
    assert "has no dataset: run `babelgate pipeline ingest` or `validate` first" in result.output


def test_types_are_those_of_spark(spark):
    for name in TABLES:
        dataset = DATASETS[name]
        own = json.loads(delta_schema(dataset).to_json())
        assert own["fields"] == json.loads(StructType.fromDDL(dataset.ddl).json())["fields"], name
        columns = ", ".join(f'"{column}" {duckdb_type(kind)}' for column, kind in dataset.columns.items())
        duckdb.connect().execute(f"create table made ({columns})")
