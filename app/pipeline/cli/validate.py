"""The options of ``pipeline validate``."""

from __future__ import annotations

import click

from app.pipeline.spark.launch import Launch, starts_spark


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.option("--output", required=True, metavar="ROOT", help="Folder or URL that takes accepted/ and quarantined/.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["auto", "ndjson", "parquet", "dead-letters"]),
    default="auto",
    show_default=True,
    help="What the inputs are; auto tells by their first bytes.",
)
@click.option("--column", help="Of Parquet, the column of the bodies.  [default: body, or the only fitting one]")
@click.option(
    "--max-quarantine-rate", type=click.FloatRange(0, 1), help="Exit with 3 when a larger share is quarantined."
)
@click.option(
    "--max-body-bytes",
    type=click.IntRange(min=1),
    help="Quarantine what is larger, as too_large.  [default: 16777216]",
)
@click.option("--force", is_flag=True, help="Do it again where nothing has changed.")
@starts_spark
def validate(
    launch: Launch,
    inputs: tuple[str, ...],
    output: str,
    form: str,
    column: str | None,
    max_quarantine_rate: float | None,
    max_body_bytes: int | None,
    force: bool,
) -> None:
    """Sort the bodies in INPUTS, files or folders, into accepted/ and quarantined/ below ROOT.

    Reads NDJSON (plain, gzip, zstd), Parquet with a column of bodies, and exports of dead letters, as the API lists
    them.
    """
    from app.pipeline.storage.inputs import MAX_BODY_BYTES, Reading
    from app.pipeline.validate.job import validate as run

    reading = Reading(form, column, max_body_bytes or MAX_BODY_BYTES)
    run(launch, inputs, output, reading, max_quarantine_rate, force)
