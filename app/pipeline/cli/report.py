"""The options of ``pipeline report``."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from app.pipeline.spark.launch import Launch, starts_spark

_DAY = click.DateTime(["%Y-%m-%d"])


@click.command()
@click.argument("root")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="The file to write.  [default: report.FORMAT]"
)
@click.option(
    "--format", "form", type=click.Choice(["html", "json", "csv"]), help="[default: by the name of --output, else html]"
)
@click.option("--from", "first", type=_DAY, metavar="DATE", help="The first day, UTC.  [default: the first there is]")
@click.option("--to", "last", type=_DAY, metavar="DATE", help="The last day, included.  [default: the last there is]")
@click.option("--note", metavar="TEXT", help="A sentence for the top of the page.")
@starts_spark
def report(
    launch: Launch,
    root: str,
    output: Path | None,
    form: str | None,
    first: datetime | None,
    last: datetime | None,
    note: str | None,
) -> None:
    """Make a report of what `metrics` (and `validate`) have written below ROOT: a page that needs nothing but itself.

    JSON and CSV hold the same numbers.
    """
    from app.pipeline.report.command import report as run

    if first is not None and last is not None and first > last:
        raise click.UsageError("--from is later than --to")
    ending = "" if output is None else output.suffix.removeprefix(".").lower()
    form = form or (ending if ending in ("html", "json", "csv") else "html")
    run(launch, root, output or Path(f"report.{form}"), form, first and first.date(), last and last.date(), note)
