"""The command group ``babelgate pipeline``."""

from __future__ import annotations

import click

from babelgate.pipeline.cli.datasets import compact, ingest, metrics, report, validate
from babelgate.pipeline.cli.find import message, trace
from babelgate.pipeline.cli.send import backfill, redrive, replay
from babelgate.pipeline.cli.tables import tables
from babelgate.pipeline.cli.upkeep import erase, maintain

COMMANDS: tuple[click.Command, ...] = (
    validate,
    ingest,
    compact,
    metrics,
    tables,
    maintain,
    erase,
    report,
    message,
    trace,
    redrive,
    replay,
    backfill,
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def pipeline() -> None:
    """Spark jobs over messages that passed through the gateway: validate, measure, send again.

    Exit codes: 0 success, 1 the job failed, 2 wrong usage or a library that is not installed, 3 the data missed a
    quality threshold, 4 only a part was done.
    """


for command in COMMANDS:
    pipeline.add_command(command)
