"""``babelgate pipeline``: its commands, each with its options in a module of its own."""

from __future__ import annotations

import click

from app.pipeline.cli.datasets import compact, ingest, metrics, report, validate
from app.pipeline.cli.find import message, trace
from app.pipeline.cli.send import backfill, redrive, replay

COMMANDS: tuple[click.Command, ...] = (
    validate,
    ingest,
    compact,
    metrics,
    report,
    message,
    trace,
    redrive,
    replay,
    backfill,
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def pipeline() -> None:
    """Jobs on Spark over the messages that passed through: check, measure, repair.

    They exit with 0 when all went well, 1 when the job failed, 2 for wrong usage, 3 when a threshold of data quality
    was broken, 4 when only a part was done.
    """


for command in COMMANDS:
    pipeline.add_command(command)
