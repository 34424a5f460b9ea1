"""The job ``report``: writes the measured figures as an HTML page, JSON or CSV."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import click
from msgspec.structs import replace

from babelgate.clock import duration
from babelgate.pipeline.duckdb_engine.lake import duckdb_reader, is_small, opened
from babelgate.pipeline.errors import QualityBroken, require_spark
from babelgate.pipeline.journal.reader import has_few_records, require_journal
from babelgate.pipeline.report.figures import Figures, as_csv, as_json
from babelgate.pipeline.report.tables import name_of, target_name
from babelgate.pipeline.report.targets import LatencyTarget, check_targets
from babelgate.pipeline.spark.console import progress
from babelgate.pipeline.spark.launch import Launch
from babelgate.pipeline.storage.datasets import DatasetStore, require
from babelgate.pipeline.storage.output_file import OutputFile

if TYPE_CHECKING:
    from babelgate.pipeline.report.load import FigureRows

_MOST_TOLD = 3
_CONTENT_TYPES = {"html": "text/html; charset=utf-8", "json": "application/json", "csv": "text/csv; charset=utf-8"}


class Wanted(NamedTuple):
    """What a report is to have. ``first``, ``last``: its days, both included, None: no bound. ``console``: the URL of
    the gateway's console, to which the ids of messages lead."""

    first: date | None = None
    last: date | None = None
    note: str | None = None
    site: str | None = None
    console: str | None = None
    targets: Sequence[LatencyTarget] = ()


def report(launch: Launch, root: str, output: OutputFile, form: str, wanted: Wanted) -> None:
    """Write the report. ``form``: html, json or csv. The file is replaced atomically.

    Raises JobFailed, and QualityBroken if a target is missed, after the report is written.
    """
    from babelgate.pipeline.report.load import load_figures
    from babelgate.pipeline.report.page import as_html

    began = time.monotonic()
    forms: dict[str, Callable[[Figures], bytes]] = {
        "html": partial(as_html, console=wanted.console),
        "json": as_json,
        "csv": as_csv,
    }
    if form == "html":
        require_spark("vl_convert")
    require_journal(root)
    require(root, "throughput", "run `babelgate pipeline metrics` first")
    with _rows(launch, root) as rows:
        figures = load_figures(rows, wanted.first, wanted.last, wanted.note)
    checked = check_targets(wanted.targets, figures.queues) if wanted.targets else None
    figures = replace(figures, site=wanted.site, targets=checked)
    missed = [each for each in checked or () if each.met is False]
    content = forms[form](figures)
    output.write(content, _CONTENT_TYPES[form])
    facts = {
        "job": "report",
        "root": root,
        "output": str(output),
        "bytes": len(content),
        "first_date": figures.first_date,
        "last_date": figures.last_date,
        "at_least": figures.at_least,
        "targets_missed": len(missed),
    }
    click.echo(f"{output}: {figures.first_date} to {figures.last_date}, {len(content) / 1024:,.0f} KB")
    launch.summarize({**facts, "seconds": round(time.monotonic() - began, 3)})
    if missed:
        worst = [
            f"{name_of(each.queue)}: {target_name(each.target)} is {duration(each.actual_ms)}, "
            f"more than {duration(each.limit_ms)}"
            for each in missed[:_MOST_TOLD]
        ]
        more = f"; and {len(missed) - _MOST_TOLD} more" if len(missed) > _MOST_TOLD else ""
        raise QualityBroken(f"{'; '.join(worst)}{more}")


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
        with launch.spark("report", short=has_few_records(root)) as spark, progress(spark, "report"):
            yield SparkRows(DatasetStore(spark, root))
