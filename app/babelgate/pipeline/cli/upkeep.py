"""The command ``maintain``."""

from __future__ import annotations

import json
import time

import click

from babelgate.pipeline.cli.options import in_lake
from babelgate.pipeline.errors import require_spark


@click.command(
    epilog="\b\nExamples:\n  babelgate pipeline maintain --lake lake --dry-run"
    "\n  babelgate pipeline maintain --lake lake --retain-days 30"
)
@in_lake
@click.option(
    "--retain-days",
    type=click.FloatRange(0, 30),
    default=7.0,
    show_default=True,
    help="How long former versions of the tables stay readable.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and change nothing.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Form of the result.",
)
def maintain(lake: str, retain_days: float, dry_run: bool, form: str) -> None:
    """Remove former versions of the tables of the lake, files that only they need, and what killed jobs left.

    The current version of each table stays, and so does each that was current within --retain-days. Jobs may run
    meanwhile; what they work on is left to a later run. The command does not start Spark.
    """
    require_spark("deltalake", "pyarrow")
    from babelgate.pipeline.tables.maintain import maintain as run

    began = time.monotonic()
    made = run(lake, retain_days, dry_run)
    if form == "json":
        facts = {"job": "maintain", "dry_run": dry_run, "retain_days": retain_days, **made._asdict()}
        click.echo(json.dumps({**facts, "seconds": round(time.monotonic() - began, 3)}, indent=2, sort_keys=True))
        return
    for path in made.removed if dry_run else ():
        click.echo(path)
    verb = "Would remove" if dry_run else "Removed"
    logs = sum(made.log_files.values())
    click.echo(f"{verb} {len(made.removed)} folders and files, {made.bytes} bytes, and {logs} files of logs.")
    if made.busy:
        click.echo(f"At work, so what they leave stays until another time: {', '.join(made.busy)}")
