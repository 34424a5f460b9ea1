"""Prints the results of commands that send, and makes their errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from babelgate.pipeline.errors import JobFailed, Partial
from babelgate.pipeline.send.gateway import GatewayRefusal
from babelgate.pipeline.send.request import SendRequest
from babelgate.pipeline.send.sources import counted
from babelgate.pipeline.storage.datasets import Manifest
from babelgate.terminal import printable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SHOWN = 10
_SHOWN_CHARS = 120
_WRONG_TARGET = frozenset({400, 404, 405})
"""HTTP statuses that show a wrong --url or queue, so that the command ends with a usage error."""


def refusal(answer: GatewayRefusal, queue: str | None, left: int | None = None) -> click.ClickException:
    """The error of a command whose requests the gateway refuses."""
    where = "" if queue is None else f" for the queue {queue}"
    rest = "" if left is None else f" {left} messages are left."
    text = printable(f"The gateway refuses{where}: {answer.http_status} {answer.code}: {answer.detail}{rest}")
    return click.UsageError(text) if answer.http_status in _WRONG_TARGET else JobFailed(text)


def print_dry_run(rows: DataFrame | None, request: SendRequest) -> None:
    """Print what would be sent. None: the run is done. Raises UsageError as a run would."""
    if rows is None:
        _print_total(0, request)
        return
    from pyspark.sql import functions as f

    counts, unread = counted(rows.withColumn("pending", f.lit(True)))
    _print_total(sum(row["n"] for row in counts), request)
    for row in sorted(counts, key=lambda row: (-row["n"], row["target_queue"])):
        click.echo(f"  {row['n']:>10}  {_shown(row['target_queue']) or '(no queue: --to-queue names one)'}")
    duplicates = sum(row["duplicates"] for row in counts)
    if duplicates:
        click.echo(f"  {duplicates} further rows are duplicates by id, and would not be sent")
    if unread.files:
        click.echo(f"  {unread.text()}")
    oldest = f.col("created_at").asc_nulls_last(), "message_id", "target_queue"
    first = rows.where("unread is null").orderBy(*oldest).limit(_SHOWN)
    for row in first.select("message_id", "target_queue", "created_at", "body").collect():
        names = f"{_shown(row['target_queue'])}  {_shown(row['message_id'])}"
        click.echo(f"{names}  {row['created_at']}  {bytes((row['body'] or b'')[:_SHOWN_CHARS])!r}")


def _print_total(messages: int, request: SendRequest) -> None:
    click.echo(f"{messages} messages would be sent to {request.target.url}; nothing was sent.")


def _shown(name: str) -> str:
    """``name`` shortened and printable, because it comes from a producer."""
    return printable(name[:_SHOWN_CHARS])


def print_result(manifest: Manifest, path: str, request: SendRequest) -> None:
    """Print the result. Raises Partial if some messages were not delivered, or some files not read."""
    counts = manifest["counts"]
    click.echo(
        f"{counts['selected']} messages: {counts['accepted']} accepted, {counts['replayed']} published before, "
        f"{counts['rejected']} rejected, {counts['unknown']} unknown, {counts['left']} left"
    )
    if counts["duplicates"]:
        click.echo(f"  {counts['duplicates']} further rows were duplicates by id, and were not sent")
    for code, count in sorted(manifest["codes"].items(), key=lambda each: -each[1]):
        click.echo(f"  {count:>10}  {_shown(code)}")
    click.echo(f"ledger: {path}")
    if counts["left"]:
        raise Partial(f"{counts['left']} messages are left: run the same command again to send them.")
    if counts.get("unread"):
        raise Partial(f"{counts['unread']} files or bodies could not be read completely: run the same command again.")
    if counts["unknown"] and request.unknown != "skip":
        raise Partial(
            f"{counts['unknown']} messages may or may not have been published: "
            "--unknown publish sends them under a new key, --unknown skip leaves them."
        )
    if counts["rejected"]:
        raise Partial(f"{counts['rejected']} messages were rejected: see the ledger for their codes.")
