"""The commands ``maintain`` and ``erase``."""

from __future__ import annotations

import json
import time

import click

from babelgate.pipeline.cli.options import in_lake
from babelgate.pipeline.errors import require_spark
from babelgate.pipeline.lineage.run import job_run
from babelgate.terminal import printable

_format = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Form of the result.",
)


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
@_format
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


@click.command(
    epilog="\b\nExamples:\n  babelgate pipeline erase 0190b6f2-5d0c-7b1e-8f0e-2f6b1c9d3a11 --lake lake"
    "\n  babelgate pipeline erase --trace 7be7a5f0-1f0d-4c3e-9f44-6f1f2f8c9b10 --lake lake --dry-run"
)
@click.argument("message_ids", nargs=-1, metavar="[ID]...")
@in_lake
@click.option("--trace", "trace_ids", multiple=True, metavar="ID", help="All messages of this trace; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Count the rows, and change nothing.")
@_format
def erase(message_ids: tuple[str, ...], lake: str, trace_ids: tuple[str, ...], dry_run: bool, form: str) -> None:
    """Erase the bodies of messages, by id, from the lake.

    Rows and figures stay; their bodies, digests of these and copied members of `meta` become null. Former versions of
    the tables have the bodies until `maintain` and `compact` remove them. The command does not start Spark.
    """
    if not all(each.strip() for each in (*message_ids, *trace_ids)) or not (message_ids or trace_ids):
        raise click.UsageError("ID: give the id of a message, or --trace")
    require_spark("deltalake", "pyarrow")
    from msgspec import to_builtins

    from babelgate.pipeline.erase.job import erase as run
    from babelgate.pipeline.erase.rows import ERASED
    from babelgate.pipeline.tables.current_files import TABLES
    from babelgate.pipeline.tables.publish import publish_tables

    with job_run("erase", erase.help or "", {"lake": lake, "dry_run": dry_run}):
        made = run(lake, message_ids, trace_ids, dry_run)
        if not dry_run:
            publish_tables(lake, [name for name in ERASED if name in TABLES])
    if form == "json":
        facts = {"job": "erase", "dry_run": dry_run, **to_builtins(made)}
        click.echo(json.dumps(facts, indent=2, sort_keys=True))
        return
    for name, rows in made.rows.items():
        click.echo(f"{name:<16}{rows:>10} bodies")
    for url in made.sources:
        click.echo(f"It still has such bodies: {printable(url)}")
    if not dry_run:
        click.echo("Former versions have them until `maintain` and `compact` have removed these.")
