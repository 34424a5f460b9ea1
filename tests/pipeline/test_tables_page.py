"""The pages about tables: each example runs, and every engine gives the same."""

from __future__ import annotations

import re
from typing import Any

import duckdb
import polars
import pytest
from click.testing import CliRunner

from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.storage.schemas import DATASETS
from babelgate.pipeline.tables.moment import open_tables
from tests.architecture.sources import ROOT
from tests.pipeline.histories import Days, land

PAGES = ROOT / "docs" / "pipeline"


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def folder(spark, tmp_path_factory):
    """A folder with a lake in which a gap, bad bodies, and the rows of a former run are."""
    folder = tmp_path_factory.mktemp("pages")
    lake = str(folder / "lake")
    rows = list(Days(80, days=2).rows())
    bodies = folder / "bodies.ndjson"
    bodies.write_text('{"job":"urn:babel:a:b","meta":{"lang":"go"},"data":{}}\nnothing\n{"meta":{"lang":"php"}}\n')

    def invoke(*arguments):
        result = CliRunner().invoke(pipeline, [*arguments, "--lake", lake], catch_exceptions=False)
        assert result.exit_code == 0, result.output

    invoke("validate", str(bodies))
    for number, part in enumerate((rows[: len(rows) // 2], rows[len(rows) // 2 :])):
        land(folder / "landing", part, "a", 1 + number * len(rows))
        invoke("ingest", str(folder / "landing"))
        invoke("metrics")
    invoke("compact")
    return folder


@pytest.mark.parametrize("command", ["metrics", "compact"])
def test_with_nothing_new_a_command_ends_without_spark(folder, command):
    result = CliRunner().invoke(pipeline, [command, "--lake", str(folder / "lake")], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "Nothing has" in result.output
    assert "starting Spark" not in result.output


def test_each_example_reads_the_rows(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    rows = open_tables("lake")["lifecycle"].to_pyarrow_table().num_rows
    assert rows == 80
    made: dict[str, Any] = {}
    for number, code in enumerate(blocks("tables.md", "python")):
        exec(code, made)
        assert capsys.readouterr().out, number
        lifecycle = made.pop("lifecycle", None)
        if "connection" in made:
            assert made.pop("connection").sql("select * from lifecycle").to_arrow_table().num_rows == rows
        elif isinstance(lifecycle, polars.LazyFrame):
            assert lifecycle.collect().height == rows
        elif lifecycle is not None:
            count = lifecycle.count()
            assert (count if isinstance(count, int) else count["outcome"]) == rows


def test_each_question_has_one_answer(spark, folder):
    connection = duckdb.connect()
    views = CliRunner().invoke(pipeline, ["tables", "--lake", str(folder / "lake"), "--format", "duckdb"])
    connection.execute(views.stdout)
    for name, table in open_tables(str(folder / "lake")).items():
        files, ddl = table.file_uris(), DATASETS[name].ddl
        read = spark.read.schema(ddl).option("basePath", table.table_uri)
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


def _plain(value):
    return (
        value if value is None or isinstance(value, str | bool) else float(value) if _is_number(value) else str(value)
    )


def _is_number(value):
    return hasattr(value, "__float__")


def test_pages_name_tables_that_exist(folder):
    named = set(re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", (PAGES / "tables.md").read_text(), re.MULTILINE))
    tables = {name for each in named for name in re.findall(r"`(\w+)`", each)}
    assert tables == set(open_tables(str(folder / "lake")))
