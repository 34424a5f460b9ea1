"""The command ``tables``, and what keeps tables equal to the datasets of other commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from babelgate.pipeline.cli.options import in_lake
from babelgate.pipeline.errors import JobFailed, QualityBroken, require_spark


@click.command(
    epilog="\b\nExamples:\n  babelgate pipeline tables --lake lake"
    "\n  babelgate pipeline tables --lake lake --format duckdb > views.sql"
    "\n  babelgate pipeline tables --lake lake --format dbt > models/babelgate.yml"
)
@in_lake
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "duckdb", "dbt"]),
    default="text",
    show_default=True,
    help="A list of the tables, SQL that makes a view of each in DuckDB, or these views as sources of dbt.",
)
def tables(lake: str, form: str) -> None:
    """List the tables of the lake, which Spark, DuckDB, Polars and pandas read.

    Each dataset is a Delta Lake table. The jobs keep them current. This command makes those that are missing, such as
    in a lake of an older version of babelgate; it copies no data and does not start Spark.
    """
    require_spark("deltalake", "pyarrow")
    from babelgate.pipeline.storage.arrow_files import ArrowFiles
    from babelgate.pipeline.tables.current_files import TABLES
    from babelgate.pipeline.tables.dbt_sources import dbt_sources
    from babelgate.pipeline.tables.duckdb_views import duckdb_views
    from babelgate.pipeline.tables.moment import open_tables, read_moment
    from babelgate.pipeline.tables.publish import NotWritable, files_of, publish_tables, table_url

    try:
        if not publish_tables(lake) and read_moment(ArrowFiles(lake)) is None:
            raise JobFailed(f"{lake} has no dataset: run `babelgate pipeline ingest` or `validate` first")
    except NotWritable as error:
        click.echo(f"warning: the tables were not updated: {error.message}", err=True)
    found = open_tables(lake)
    if form == "duckdb":
        click.echo("\n".join(duckdb_views(found)), nl=False)
        return
    if form == "dbt":
        click.echo("\n".join(dbt_sources(found)))
        return
    for name in (each for each in TABLES if each in found):
        files = files_of(found[name])
        rows = sum(count for _, count in files.values())
        told = f"{rows:>12} rows {len(files):>6} files  version {found[name].version():>4}"
        click.echo(f"{name:<14}{told}  {table_url(lake, name)}")


@contextmanager
def tables_follow(follow: TablesFollow) -> Iterator[None]:
    """Call ``follow`` after the job in the block.

    A table that cannot be written is warned of: the dataset itself is right, and the next run or ``tables`` mends it.
    """
    try:
        yield
    except QualityBroken:
        follow()
        raise
    follow()


class TablesFollow:
    """Makes the tables of ``datasets`` equal to what a job has made current: called after it, or after each round of an
    endless run, it returns whether the tables are current.

    It warns once when they cannot be written, and says once that they are current again.
    """

    def __init__(self, lake: str, *datasets: str) -> None:
        self._lake = lake
        self._datasets = datasets
        self._has_warned = False

    def __call__(self) -> bool:
        from babelgate.pipeline.spark.console import say

        try:
            require_spark("deltalake", "pyarrow")
            from babelgate.pipeline.tables.publish import publish_tables

            publish_tables(self._lake, self._datasets)
        except click.ClickException as error:
            if not self._has_warned:
                say(f"warning: the tables in {self._lake} are not current: {error.message}")
            self._has_warned = True
            return False
        if self._has_warned:
            say(f"the tables in {self._lake} are current again")
        self._has_warned = False
        return True
