"""The job ``report``: writes the measured figures as an HTML page, JSON or CSV."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import click

from babelgate.pipeline.errors import JobFailed, require_spark
from babelgate.pipeline.journal.reader import require_journal
from babelgate.pipeline.report.figures import Figures, as_csv, as_json
from babelgate.pipeline.spark.console import progress, summarize
from babelgate.pipeline.spark.launch import Launch
from babelgate.pipeline.storage.datasets import DatasetStore, require


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
    with launch.spark("report") as spark, progress(spark, "report"):
        figures = load_figures(DatasetStore(spark, root), first, last, note)
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


def _write(output: Path, content: bytes) -> None:
    temporary = output.with_name(f".{output.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(output)
