"""The options of ``pipeline ingest`` and ``pipeline compact``."""

from __future__ import annotations

import click

from app.pipeline.spark.launch import Launch, retains, starts_spark


@click.command()
@click.argument("landing")
@click.option("--output", required=True, metavar="ROOT", help="Folder or URL that takes journal/ and its like.")
@click.option(
    "--once/--continuous", default=True, show_default=True, help="Read what is there now, or go on until stopped."
)
@click.option(
    "--interval-seconds",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    help="With --continuous, how often to look for new segments.",
)
@click.option(
    "--max-files", type=click.IntRange(min=1), default=1000, show_default=True, help="Segments of one batch, at most."
)
@click.option("--checkpoint", metavar="FOLDER", help="What was read already.  [default: in ROOT]")
@starts_spark
def ingest(
    launch: Launch,
    landing: str,
    output: str,
    once: bool,
    interval_seconds: float,
    max_files: int,
    checkpoint: str | None,
) -> None:
    """Read the journal's segments in LANDING, a folder or URL, into journal/ below ROOT, every record once.

    What is no record goes to journal_corrupt/, what is missing is told in journal_gaps/. It may be killed at any
    moment and started again.
    """
    from app.pipeline.journal.ingest import ingest as run

    run(launch, landing, output, None if once else interval_seconds, max_files, checkpoint)


@click.command()
@click.argument("root")
@click.option(
    "--target-mib",
    type=click.FloatRange(min=0.01),
    default=128.0,
    show_default=True,
    help="The size that files are to have; a date with less has one.",
)
@retains("files that were replaced stay")
@click.option("--force", is_flag=True, help="Write every date again, not only those with new batches.")
@starts_spark
def compact(launch: Launch, root: str, target_mib: float, retain_hours: float, force: bool) -> None:
    """Put the many small files of journal/ below ROOT together: one set a date, sorted by queue and message.

    Readers see the former files or the new ones, and ingest may go on meanwhile. Files that were replaced longer than
    --retain-hours ago are removed.
    """
    from app.pipeline.journal.compact import compact as run

    run(launch, root, target_mib, retain_hours, force)
