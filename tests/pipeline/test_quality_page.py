"""The page about Soda and dbt names what the tables have, and the sources of dbt are the views of DuckDB."""

from __future__ import annotations

import re

import duckdb
import yaml

from babelgate.pipeline.storage.duckdb_sql import quoted, select_files
from babelgate.pipeline.storage.schemas import DATASETS
from babelgate.pipeline.tables.current_files import TABLES
from babelgate.pipeline.tables.dbt_sources import dbt_sources
from tests.architecture.sources import ROOT

PAGE = (ROOT / "docs" / "pipeline" / "quality.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


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
    data_source, contract, profile, project = map(yaml.safe_load, blocks("yaml"))
    database, schema, table = contract["dataset"].split("/")
    assert (database, schema) == (data_source["name"], "main")
    assert {each["name"] for each in contract["columns"]} <= DATASETS[table].columns.keys()
    (rows,) = [each["failed_rows"] for each in contract["checks"] if "failed_rows" in each]
    assert connection.sql(f"from {quoted(table)} where {rows['expression']}").fetchall() == []
    assert project["profile"] in profile
    assert profile["messages"]["outputs"]["lake"]["path"] == data_source["connection"]["database"]
    (model,) = blocks("sql")
    query = re.sub(r"\{\{ source\('babelgate', '(\w+)'\) }}", r"\1", model)
    assert connection.sql(query).columns == ["job", "messages"]
