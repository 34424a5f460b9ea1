"""The commands ``validate``, ``ingest``, ``compact``, ``metrics`` and ``report``."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import click

from babelgate.pipeline.cli.options import (
    DATE,
    chooses_engine,
    in_lake,
    output_file,
    retains,
    runs_continuously,
    starts_spark,
)
from babelgate.pipeline.cli.tables import TablesFollow, tables_follow
from babelgate.pipeline.continuous import Continuous
from babelgate.pipeline.spark.launch import Launch

_EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(epilog="\b\nExample:\n  babelgate pipeline validate dumps/ --lake lake --max-quarantine-rate 0.01")
@click.argument("inputs", nargs=-1, required=True)
@in_lake
@click.option(
    "--format",
    "form",
    type=click.Choice(["auto", "ndjson", "parquet", "dead-letters"]),
    default="auto",
    show_default=True,
    help="Format of the inputs; auto detects it from their first bytes.",
)
@click.option("--column", help="Parquet column of the bodies.  [default: body, or the only fitting one]")
@click.option(
    "--max-quarantine-rate", type=click.FloatRange(0, 1), help="Exit with 3 if a larger share is quarantined."
)
@click.option(
    "--max-body-bytes",
    type=click.IntRange(min=1),
    help="Quarantine larger bodies, as too_large.  [default: 16777216]",
)
@click.option(
    "--schemas",
    metavar="PLACE",
    help="Check data by the JSON Schema of its job, too: a directory of schemas, a file with a bundle, or its URL.",
)
@click.option(
    "--schemas-ca-file", type=_EXISTING, help="Certificates, PEM, that verify the server of a URL in --schemas."
)
@click.option("--schemas-bearer-file", type=_EXISTING, help="A file with a token that is sent to that URL.")
@click.option("--force", is_flag=True, help="Repeat the job although nothing has changed.")
@starts_spark
def validate(
    launch: Launch,
    inputs: tuple[str, ...],
    lake: str,
    form: str,
    column: str | None,
    max_quarantine_rate: float | None,
    max_body_bytes: int | None,
    schemas: str | None,
    schemas_ca_file: Path | None,
    schemas_bearer_file: Path | None,
    force: bool,
) -> None:
    """Sort the bodies in INPUTS, files or folders, into accepted/ and quarantined/ of the lake.

    Reads NDJSON (plain, gzip, zstd), Parquet with a column of bodies, and exports of dead letters, as the API lists
    them.
    """
    from babelgate.pipeline.storage.inputs import MAX_BODY_BYTES, ReadOptions
    from babelgate.pipeline.validate.job import validate as run
    from babelgate.pipeline.validate.job_schemas import read_schemas

    reading = ReadOptions(form, column, max_body_bytes or MAX_BODY_BYTES)
    if schemas is None and (schemas_ca_file or schemas_bearer_file):
        raise click.UsageError("--schemas-ca-file and --schemas-bearer-file need --schemas")
    bundle = None if schemas is None else read_schemas(schemas, schemas_ca_file, schemas_bearer_file)
    with tables_follow(TablesFollow(lake, "accepted", "quarantined")):
        run(launch, inputs, lake, reading, max_quarantine_rate, force, bundle)


@click.command(epilog="\b\nExample:\n  babelgate pipeline ingest /var/lib/babelgate/journal --lake lake")
@click.argument("landing")
@in_lake
@runs_continuously("Read the segments there are now")
@click.option(
    "--max-files",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Most segments per batch, or messages of a topic.",
)
@click.option("--checkpoint", metavar="FOLDER", help="Folder for the list of segments read.  [default: in the lake]")
@click.option(
    "--password-file",
    type=_EXISTING,
    envvar="BABELGATE_LANDING_PASSWORD_FILE",
    help="File with the password for a topic, instead of one in its URL; or set BABELGATE_LANDING_PASSWORD_FILE, or "
    "BABELGATE_LANDING_PASSWORD to the password itself.",
)
@click.option("--skip-lost", is_flag=True, help="Go on although the topic has lost messages that were not read.")
@starts_spark
def ingest(
    launch: Launch,
    landing: str,
    lake: str,
    every: Continuous | None,
    max_files: int,
    checkpoint: str | None,
    password_file: Path | None,
    skip_lost: bool,
) -> None:
    """Read the journal's segments in LANDING, a folder or URL, into journal/ of the lake, every record once.

    LANDING may be a topic: kafka://HOST[:PORT]/TOPIC. Its offsets are kept in the lake.

    Corrupt lines go to journal_corrupt/, and journal_gaps/ lists missing records. The command may be killed at any time
    and started again.
    """
    from babelgate.brokers.landing import is_topic
    from babelgate.pipeline.journal.ingest import ingest as run
    from babelgate.pipeline.journal.ingest_topic import TopicOptions, ingest_topic

    tables_committed = TablesFollow(lake, "journal", "journal_gaps")

    def committed() -> None:
        tables_committed()
        launch.note({})

    of_a_topic = is_topic(landing)
    if of_a_topic and checkpoint is not None:
        raise click.UsageError("--checkpoint is for a folder; the offsets of a topic are kept in the lake")
    if not of_a_topic and skip_lost:
        raise click.UsageError("--skip-lost is for a topic")
    with tables_follow(tables_committed):
        if of_a_topic:
            password = os.environ.get("BABELGATE_LANDING_PASSWORD")
            if password_file is not None:
                password = password_file.read_text("utf-8").strip()
            ingest_topic(launch, TopicOptions(landing, password, max_files, skip_lost), lake, every, committed)
        else:
            run(launch, landing, lake, every, max_files, checkpoint, committed)


@click.command(epilog="\b\nExample:\n  babelgate pipeline compact --lake lake")
@in_lake
@click.option(
    "--target-mib",
    type=click.FloatRange(min=0.01),
    default=128.0,
    show_default=True,
    help="Target size of files; a smaller date has one file.",
)
@retains("replaced files stay")
@click.option("--force", is_flag=True, help="Compact every date, not only those with new batches.")
@starts_spark
def compact(launch: Launch, lake: str, target_mib: float, retain_hours: float, force: bool) -> None:
    """Merge the small files of journal/ of the lake: one set per date, sorted by queue and message.

    Readers see either the former files or the new ones. ingest may run meanwhile. Files replaced longer than
    --retain-hours ago are removed.
    """
    from babelgate.pipeline.journal.compact import compact as run

    with tables_follow(TablesFollow(lake, "journal")):
        run(launch, lake, target_mib, retain_hours, force)


@click.command(epilog="\b\nExample:\n  babelgate pipeline metrics --lake lake --from 2026-01-01 --to 2026-01-31")
@in_lake
@click.option("--from", "start", type=DATE, metavar="DATE", help="The first date to compute.  [default: the first]")
@click.option("--to", "end", type=DATE, metavar="DATE", help="The last date to compute.  [default: the last]")
@click.option(
    "--lookback-days",
    type=click.IntRange(min=1),
    default=31,
    show_default=True,
    help="Greatest age of a message in days; later events do not change its date.",
)
@click.option("--force", is_flag=True, help="Recompute all dates, also those without changes.")
@click.option(
    "--retain-hours",
    type=click.FloatRange(min=0),
    help="How long superseded data stays, for readers that use it.  [default: 24, with --continuous 1]",
)
@runs_continuously("Measure what is there now")
@chooses_engine
def metrics(
    launch: Launch,
    lake: str,
    every: Continuous | None,
    start: datetime | None,
    end: datetime | None,
    lookback_days: int,
    force: bool,
    retain_hours: float | None,
) -> None:
    """Measure the journal of the lake: counts, rates, times, sizes, and the lifecycle of every message.

    Only dates that new events touch are recomputed. Dates are UTC.
    """
    from babelgate.pipeline.metrics.continuous import metrics_continuously
    from babelgate.pipeline.metrics.dates import DateRange
    from babelgate.pipeline.metrics.job import metrics as run
    from babelgate.pipeline.metrics.stages import DATASETS

    if start is not None and end is not None and start > end:
        raise click.BadParameter("it is before --from", param_hint="--to")
    if every is not None and force:
        raise click.UsageError("--force is for one run, not for --continuous")
    within = DateRange(start and start.date(), end and end.date(), lookback_days)
    measured = TablesFollow(lake, *DATASETS)
    with tables_follow(measured):
        if every is None:
            run(launch, lake, within, force, 24.0 if retain_hours is None else retain_hours)
        else:
            # A run a minute would fill the disk in a day.
            retained = 1.0 if retain_hours is None else retain_hours
            metrics_continuously(launch, lake, within, every, retained, measured)


@click.command(epilog="\b\nExample:\n  babelgate pipeline report --lake lake --output report.html")
@in_lake
@click.option("--output", metavar="FILE", help="The file to write, a path or a URL.  [default: report.FORMAT]")
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "json", "csv"]),
    help="[default: by the suffix of --output, else html]",
)
@click.option("--from", "first", type=DATE, metavar="DATE", help="The first day, UTC.  [default: the first]")
@click.option("--to", "last", type=DATE, metavar="DATE", help="The last day, included.  [default: the last]")
@click.option("--note", metavar="TEXT", help="A sentence for the top of the page.")
@click.option("--site", metavar="NAME", help="The name of this installation, for the title.")
@click.option("--console", metavar="URL", help="The gateway's console, to which the ids of messages lead.")
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="[QUEUES:]NAME=TIME",
    help="The most that p50, p95, p99, max (created to acked), or wait_p50 and so on, of each queue may be, such as "
    "p99=2s. Exit with 3 if it is more. QUEUES: a pattern. May be repeated.",
)
@chooses_engine
def report(
    launch: Launch,
    lake: str,
    output: str | None,
    form: str | None,
    first: datetime | None,
    last: datetime | None,
    note: str | None,
    site: str | None,
    console: str | None,
    targets: tuple[str, ...],
) -> None:
    """Make a report of the datasets of `metrics` (and `validate`) in the lake: one self-contained HTML page.

    JSON and CSV contain the same numbers.
    """
    from babelgate.pipeline.report.job import Wanted
    from babelgate.pipeline.report.job import report as run
    from babelgate.pipeline.report.targets import parse_target

    if first is not None and last is not None and first > last:
        raise click.UsageError("--from is later than --to")
    written = output_file(output or f"report.{form or 'html'}", "--output")
    ending = written.suffix.removeprefix(".").lower()
    form = form or (ending if ending in ("html", "json", "csv") else "html")
    if console is not None:
        from babelgate.pipeline.send.gateway import url_fault

        fault = url_fault(console)
        if fault is None and ("?" in console or "#" in console):
            fault = "paths are appended to it, so it must have no ? and no #"
        if fault is not None:
            raise click.BadParameter(fault, param_hint="--console")
    try:
        parsed = [parse_target(each) for each in targets]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--target") from error
    wanted = Wanted(first and first.date(), last and last.date(), note, site, console, parsed)
    run(launch, lake, written, form, wanted)
