"""The page about Soda and dbt: its examples run on a lake, and the sources of dbt are the views of DuckDB."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import yaml
from pyarrow import parquet

from babelgate.pipeline.storage.duckdb_sql import quoted, select_files
from babelgate.pipeline.storage.schemas import DATASETS
from babelgate.pipeline.tables.current_files import TABLES
from babelgate.pipeline.tables.dbt_sources import dbt_sources
from babelgate.pipeline.tables.moment import open_tables
from tests.architecture.sources import ROOT
from tests.harness.ci import missing
from tests.pipeline.lakes import blocks

TOOLS = ROOT / ".brokers" / "quality"
"""An environment of Soda and dbt, which the Makefile makes."""


def test_the_sources_of_dbt_have_the_columns_of_the_views():
    (source,) = yaml.safe_load("\n".join(dbt_sources(TABLES)))["sources"]
    assert [each["name"] for each in source["tables"]] == sorted(TABLES)
    connection = duckdb.connect()
    for table in source["tables"]:
        view = quoted(table["name"])
        connection.execute(f"create view {view} as {select_files(DATASETS[table['name']], [])}")
        told = ", ".join(f"null::{each['data_type']} as {quoted(each['name'])}" for each in table["columns"])
        found, of_dbt = (connection.sql(query) for query in (f"from {view}", f"select {told}"))
        assert (of_dbt.columns, of_dbt.types) == (found.columns, found.types)
        assert (ROOT / table["description"].split()[1]).is_file()


def test_the_contract_and_the_model_name_what_there_is():
    connection = duckdb.connect()
    for name in TABLES:
        connection.execute(f"create view {quoted(name)} as {select_files(DATASETS[name], [])}")
    data_source, contract, profile, project = map(yaml.safe_load, blocks("quality.md", "yaml"))
    database, schema, table = contract["dataset"].split("/")
    assert (database, schema) == (data_source["name"], "main")
    assert {each["name"] for each in contract["columns"]} <= DATASETS[table].columns.keys()
    (rows,) = [each["failed_rows"] for each in contract["checks"] if "failed_rows" in each]
    assert connection.sql(f"from {quoted(table)} where {rows['expression']}").fetchall() == []
    assert project["profile"] in profile
    assert profile["messages"]["outputs"]["lake"]["path"] == data_source["connection"]["database"]
    model, test = (
        re.sub(r"\{\{ source\('babelgate', '(\w+)'\) }}", r"\1", each) for each in blocks("quality.md", "sql")
    )
    assert connection.sql(model).columns == ["job", "messages"]
    assert connection.sql(test).fetchall() == []


class Page:
    """The files of the page in ``home``, where its commands run as they are written."""

    def __init__(self, home: Path) -> None:
        if not (TOOLS / "installed").is_file():
            missing("the environment of Soda and dbt", "run `make .brokers/quality/installed`")
        self.home = home
        names = ("source.yml", "lifecycle.yml", "profiles.yml", "dbt_project.yml")
        files = dict(zip(names, blocks("quality.md", "yaml"), strict=True))
        queries = ("models/dead_letters.sql", "tests/no_end.sql")
        files |= dict(zip(queries, blocks("quality.md", "sql"), strict=True))
        # The tools have no part in the Python of babelgate, and babelgate none in theirs.
        files["bin/babelgate"] = f'#!/bin/sh\nPYTHONPATH="{ROOT / "app"}" exec "{sys.executable}" -m babelgate "$@"\n'
        for name, text in files.items():
            (home / name).parent.mkdir(exist_ok=True)
            (home / name).write_text(text, "utf-8")
        (home / "bin/babelgate").chmod(0o755)
        self.views, self.soda, self.sources, self.dbt = blocks("quality.md", "sh")

    def run(self, script: str) -> tuple[int, str]:
        """The exit status of the commands, and what they print."""
        path = f"{self.home / 'bin'}:{TOOLS / 'bin'}:{os.environ['PATH']}"
        environ = {"PATH": path, "HOME": str(self.home), "LANG": "C.UTF-8"}
        output = subprocess.STDOUT
        done = subprocess.run(
            ["sh", "-eu", "-c", script], cwd=self.home, env=environ, stdout=subprocess.PIPE, stderr=output, text=True
        )
        return done.returncode, done.stdout


def test_soda_and_dbt_find_nothing_wrong_in_a_lake_and_report_a_broken_row(folder, tmp_path):
    page = Page(tmp_path)
    lake = tmp_path / "lake"
    shutil.copytree(folder / "lake", lake)
    dead = [each["outcome"] for each in open_tables(str(lake))["lifecycle"].to_pyarrow_table().to_pylist()]
    for script in (page.views, page.soda, page.sources, page.dbt):
        status, output = page.run(script)
        assert status == 0, output
    with duckdb.connect(str(tmp_path / "lake.duckdb")) as connection:
        found = connection.sql("select sum(messages) from dead_letters").fetchall()
    assert found == [(dead.count("dead_lettered"),)] != [(0,)]

    break_a_row(lake)
    status, output = page.run(page.views)
    assert status == 0, output
    status, output = page.run(page.soda)
    assert status == 1, output
    failed = re.findall(r"^\| (\S+) +\| (\S.*?\S) +\| level: fail +\| ❌ FAILED \| \w+: (\d+) ", output, re.M)
    no_end = ("[dataset-level]", "A message that is not open has an end", "1")
    invalid = [(column, "No invalid values", "1") for column in ("outcome", "wait_ms")]
    assert failed == [no_end, ("message_id", "No missing values", "1"), *invalid], output
    status, output = page.run(page.dbt)
    assert status == 1, output
    assert "FAIL 1 no_end" in output and "PASS=0 WARN=0 ERROR=1 SKIP=1" in output, output


def break_a_row(lake: Path) -> None:
    """In the current files of a lake, one message that has ended becomes one without id, outcome and end."""
    for uri in open_tables(str(lake))["lifecycle"].file_uris():
        file = Path(unquote(uri))
        table = parquet.read_table(file, partitioning=None)
        rows: list[dict[str, Any]] = table.to_pylist()
        one = next((each for each in rows if each["outcome"] == "acked"), None)
        if one is not None:
            one |= {"message_id": None, "outcome": "lost", "wait_ms": -1, "ended_at": None}
            parquet.write_table(pa.Table.from_pylist(rows, table.schema), file)
            return
    raise LookupError("no message was acked")
