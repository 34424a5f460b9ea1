"""The pages about tables: each example runs, and every engine gives the same."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote

import duckdb
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.metrics.histogram import percentiles
from babelgate.pipeline.storage.schemas import DATASETS
from babelgate.pipeline.tables.moment import open_tables
from tests.pipeline.histories import START, land, row
from tests.pipeline.lakes import PAGES, blocks, invoke


@pytest.fixture(scope="module")
def grown(folder):
    """The same after another batch: a message without a date, and one that nobody had to wait for."""
    lake = str(folder / "lake")
    facts = {"job": "urn:j", "lang": "go", "bytes": 7}
    quick = {**facts, "message_id": "quick", "trace_id": "quick", "queue": "quick", "created_at": START + 5}
    blank = row("accepted", START + 9, 0, **facts, message_id="blank", trace_id="blank")
    rows = [blank, row("accepted", START + 5, 0, **quick), row("delivered", START + 5, 0, **quick)]
    land(folder / "landing", rows, "b")
    invoke(lake, "ingest", str(folder / "landing"))
    invoke(lake, "metrics")
    return folder


@pytest.mark.parametrize("command", ["metrics", "compact"])
def test_with_nothing_new_a_command_ends_without_spark(folder, command):
    result = CliRunner().invoke(pipeline, [command, "--lake", str(folder / "lake")], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "Nothing has" in result.output
    assert "starting Spark" not in result.output


def test_each_example_reads_the_rows(grown, monkeypatch, capsys):
    monkeypatch.chdir(grown)
    rows = open_tables("lake")["lifecycle"].to_pyarrow_table().num_rows
    assert rows == 82
    made: dict[str, Any] = {}
    for number, code in enumerate(blocks("tables.md", "python")):
        exec(code, made)
        assert capsys.readouterr().out, number
        lifecycle = made.pop("lifecycle", None)
        if "connection" in made:
            assert made.pop("connection").sql("select * from lifecycle").to_arrow_table().num_rows == rows
        elif hasattr(lifecycle, "lazy"):
            assert lifecycle.collect().height == rows
        elif lifecycle is not None:
            count = lifecycle.count()
            assert (count if isinstance(count, int) else count["outcome"]) == rows
    for name, table in open_tables("lake").items():
        files = table.file_uris()
        assert not files or made["read"](name).count() == table.to_pyarrow_table().num_rows, name


def test_polars_own_reader_of_delta_is_as_bad_as_the_page_says(folder):
    """Once this fails, Polars reads the tables, and the page can recommend it."""
    # It starts threads, which forks of the process that collects the tests have not.
    import polars

    url = str(folder / "lake" / "lifecycle" / "v=1")
    with pytest.raises(polars.exceptions.PolarsError):
        polars.scan_delta(url).collect()
    assert polars.scan_delta(url, use_pyarrow=True).select(polars.len()).collect().item() == 0
    dataset = DeltaTable(url).to_pyarrow_dataset()
    assert polars.scan_pyarrow_dataset(dataset).select(polars.len()).collect().item() == dataset.count_rows() > 0
    assert polars.scan_pyarrow_dataset(dataset).with_row_index().select("index").collect().height == 0


def test_the_notebook_runs(grown, monkeypatch, capsys):
    notebook = json.loads((PAGES / "tables.ipynb").read_text())
    codes = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell.get("outputs") for cell in notebook["cells"])
    monkeypatch.chdir(grown)
    made: dict[str, Any] = {}
    for number, code in enumerate(codes):
        exec(code, made)
        assert len(capsys.readouterr().out.splitlines()) > 1, number
    rows = {name: table.to_pyarrow_table().to_pylist() for name, table in open_tables("lake").items()}
    assert made["days"]["accepted"].sum() == sum(row["accepted"] for row in rows["throughput"] if row["grain"] == "day")
    assert made["waits"]["messages"].sum() == sum(row["wait_ms"] is not None for row in rows["lifecycle"])
    longest = max((row for row in rows["traces"] if row["trace_ms"] is not None), key=lambda row: row["trace_ms"])
    assert len(made["hops"]) == sum(row["trace_id"] == longest["trace_id"] for row in rows["journal"])


def test_the_sources_of_dbt_are_those_of_the_lake(folder):
    printed = CliRunner().invoke(pipeline, ["tables", "--lake", str(folder / "lake"), "--format", "dbt"]).stdout
    assert re.findall(r"^ {6}- name: (\w+)$", printed, re.MULTILINE) == sorted(open_tables(str(folder / "lake")))


def test_each_question_has_one_answer(spark, grown):
    connection = duckdb.connect()
    views = CliRunner().invoke(pipeline, ["tables", "--lake", str(grown / "lake"), "--format", "duckdb"])
    connection.execute(views.stdout)
    for name, table in open_tables(str(grown / "lake")).items():
        files, ddl = [unquote(each) for each in table.file_uris()], DATASETS[name].ddl
        read = spark.read.schema(ddl)
        if DATASETS[name].partitions:
            read = read.option("basePath", unquote(table.table_uri))
        else:
            read = read.option("recursiveFileLookup", "true")
        frame = read.parquet(*files) if files else spark.createDataFrame([], ddl)
        frame.createOrReplaceTempView(name)
    questions = blocks("sql.md", "sql")
    assert len(questions) == 10
    for question in questions:
        own = connection.sql(question).to_arrow_table()
        other = spark.sql(question).toArrow()
        assert own.column_names == other.column_names
        rows = [[_plain(value) for value in each.values()] for each in own.to_pylist()]
        assert rows == [[_plain(value) for value in each.values()] for each in other.to_pylist()], question
        assert rows, question
        if "p99_ms" in question:
            waits = spark.table("latency_hist").where("grain = 'day' and kind = 'wait'")
            found = percentiles(waits.withColumnsRenamed({"sum_ms": "sum", "max_ms": "max"}), ["queue"]).collect()
            assert {(each["queue"], each["n"], each["p99"]) for each in found} == set(own_rows(own))
            assert ("quick", 1, 0.0) in own_rows(own)


def own_rows(table):
    return [tuple(each.values()) for each in table.to_pylist()]


def _plain(value):
    return (
        value if value is None or isinstance(value, str | bool) else float(value) if _is_number(value) else str(value)
    )


def _is_number(value):
    return hasattr(value, "__float__")


def test_pages_name_tables_that_exist(folder):
    section = (PAGES / "tables.md").read_text().split("## What a table has")[1].split("\n## ")[0]
    named = set(re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", section, re.MULTILINE))
    tables = {name for each in named for name in re.findall(r"`(\w+)`", each)}
    assert tables == set(open_tables(str(folder / "lake")))
