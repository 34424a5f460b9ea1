"""The options of ``pipeline metrics``."""

from __future__ import annotations

from datetime import datetime

import click

from app.pipeline.spark.launch import Launch, retains, starts_spark

_DATE = click.DateTime(["%Y-%m-%d"])


@click.command()
@click.argument("root")
@click.option("--from", "start", type=_DATE, metavar="DATE", help="The first date to state.  [default: the first]")
@click.option("--to", "end", type=_DATE, metavar="DATE", help="The last date to state.  [default: the last]")
@click.option(
    "--lookback-days",
    type=click.IntRange(min=1),
    default=31,
    show_default=True,
    help="How long a message may take: what happens later changes no date before.",
)
@click.option("--force", is_flag=True, help="State all dates again, also where nothing has changed.")
@retains("dates that were stated again stay as they were")
@starts_spark
def metrics(
    launch: Launch,
    root: str,
    start: datetime | None,
    end: datetime | None,
    lookback_days: int,
    force: bool,
    retain_hours: float,
) -> None:
    """Measure what the journal below ROOT tells: counts, rates, times, sizes, and the life of every message.

    Only the dates are stated again that new events touch. Dates are UTC.
    """
    from app.pipeline.metrics.dates import Range
    from app.pipeline.metrics.job import metrics as run

    if start is not None and end is not None and start > end:
        raise click.BadParameter("it is before --from", param_hint="--to")
    run(launch, root, Range(start and start.date(), end and end.date(), lookback_days), force, retain_hours)
