"""The job ``report``: writes the measured figures as an HTML page, JSON or CSV."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from babelgate.pipeline.duckdb_engine.lake import duckdb_reader, is_small, opened
from babelgate.pipeline.errors import JobFailed, require_spark
from babelgate.pipeline.journal.reader import require_journal
from babelgate.pipeline.report.figures import Figures, as_csv, as_json
from babelgate.pipeline.spark.console import progress, summarize
from babelgate.pipeline.spark.launch import Launch
from babelgate.pipeline.storage.datasets import DatasetStore, require

if TYPE_CHECKING:
    from babelgate.pipeline.report.load import FigureRows


def report(
    launch: Launch, root: str, output: Path, form: str, first: date | None, last: date | None, note: str | None
) -> None:
    """Write the report. ``form``: html, json or csv. The file is replaced atomically. Raises JobFailed."""
    from babelgate.pipeline.report.load import load_figures
    from babelgate.pipeline.report.page import as_html

    began = time.monotonic()
    forms: dict[str, Callable[[Figures], bytes]] = {"html": as_html, "json": as_json, "csv": as_csv}
    if form == "html":
        require_spark("vl_convert")
    require_journal(root)
    require(root, "throughput", "run `babelgate pipeline metrics` first")
    with _rows(launch, root) as rows:
        figures = load_figures(rows, first, last, note)
    content = forms[form](figures)
    try:
        _write(output, content)
    except OSError as error:
        raise JobFailed(f"{output} cannot be written: {error.strerror}") from error
    facts = {
        "job": "report",
        "root": root,
        "output": str(output),
        "bytes": len(content),
        "first_date": figures.first_date,
        "last_date": figures.last_date,
        "at_least": figures.at_least,
    }
    summarize(launch.summary, {**facts, "seconds": round(time.monotonic() - began, 3)})
    click.echo(f"{output}: {figures.first_date} to {figures.last_date}, {len(content) / 1024:,.0f} KB")


@contextmanager
def _rows(launch: Launch, root: str) -> Iterator[FigureRows]:
    from babelgate.pipeline.report.duckdb_rows import DATASETS, DuckDBRows
    from babelgate.pipeline.report.spark_rows import SparkRows

    reader = duckdb_reader(launch, root)
    if reader is not None and is_small(
        launch, reader, [url for name in DATASETS for url in reader.current_folders(name)]
    ):
        with opened(reader) as lake:
            yield DuckDBRows(lake)
    else:
        with launch.spark("report") as spark, progress(spark, "report"):
            yield SparkRows(DatasetStore(spark, root))


def _write(output: Path, content: bytes) -> None:
    temporary = output.with_name(f".{output.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(output)
