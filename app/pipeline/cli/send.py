"""The options of ``pipeline redrive``, ``replay`` and ``backfill``."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any

import click

from app.pipeline.cli.options import starts_spark
from app.pipeline.spark.launch import Launch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.pipeline.send.sources import Source

_LOCAL_URL = "http://127.0.0.1:8080"
_RUN_ID = r"[A-Za-z0-9._-]{1,64}"

Find = Callable[["SparkSession"], "Source"]


def _sends(drops_dead_letter: bool) -> Callable[[Callable[..., Find]], Callable[..., None]]:
    """Make a command of a function that tells where its messages come from, with the options that all of them have."""

    def decorate(command: Callable[..., Find]) -> Callable[..., None]:
        @starts_spark
        @functools.wraps(command)
        def sent(launch: Launch, output: str, **given: Any) -> None:
            own = {name: given.pop(name) for name in inspect.signature(command).parameters}
            _send(launch, command.__name__, output, command(**own), column=own.get("column"), **given)

        option = click.option(
            "--drop-dead-letter/--keep-dead-letter",
            default=drops_dead_letter,
            show_default=True,
            help="Take the block dead_letter out; the gateway accepts no message that has one.",
        )
        for each in (option, *reversed(_OPTIONS)):
            sent = each(sent)
        return sent

    return decorate


_OPTIONS = (
    click.option("--output", required=True, metavar="ROOT", help="Folder or URL that takes ledger/."),
    click.option("--url", envvar="BABELGATE_URL", default=_LOCAL_URL, show_default=True, help="Of the gateway."),
    click.option("--token", envvar="BABELGATE_TOKEN", help="Bearer token; rather set BABELGATE_TOKEN."),
    click.option(
        "--token-file", type=click.File(errors="replace"), envvar="BABELGATE_TOKEN_FILE", help="A file that holds it."
    ),
    click.option("--select", metavar="SQL", help="Send only what this condition on the columns holds for."),
    click.option("--to-queue", metavar="QUEUE", help="Send everything there.  [default: each message's own queue]"),
    click.option("--limit", type=click.IntRange(min=1), help="Send so many, the oldest first."),
    click.option(
        "--max-rate", type=click.FloatRange(min=0, min_open=True), help="Messages a second, of all tasks together."
    ),
    click.option("--parallelism", type=click.IntRange(min=1), help="Tasks that send.  [default: Spark's cores]"),
    click.option("--reset-attempts", is_flag=True, help="Set attempts to 0."),
    click.option("--dry-run", is_flag=True, help="Tell what would be sent, and send nothing."),
    click.option("--run-id", help="Name the run, or go on with it.  [default: made of inputs and options]"),
    click.option(
        "--unknown",
        type=click.Choice(["stop", "publish", "skip"]),
        default="stop",
        show_default=True,
        help="Of messages that may have been published: end with 4, send them under a new key, or leave them.",
    ),
    click.option(
        "--give-up-seconds",
        type=click.FloatRange(min=0),
        default=90.0,
        show_default=True,
        help="Stop, and leave the rest, when nothing got through for so long.",
    ),
)


def _send(
    launch: Launch,
    job: str,
    output: str,
    find: Find,
    *,
    url: str,
    token: str | None,
    token_file: IO[str] | None,
    reset_attempts: bool,
    drop_dead_letter: bool,
    **asked: Any,
) -> None:
    from app.pipeline.send.bodies import Changes, is_queue
    from app.pipeline.send.gateway import Target, url_fault
    from app.pipeline.send.job import send_messages
    from app.pipeline.send.request import SendRequest

    secret = (token or (token_file.read() if token_file else "")).strip()
    if not (secret.isascii() and secret.isprintable()):
        # What stands there instead may still be a secret: it is not quoted.
        raise click.BadParameter("a token is one line of ASCII", param_hint="--token")
    if asked["run_id"] is not None and not re.fullmatch(_RUN_ID, asked["run_id"]):
        raise click.BadParameter("a run id has 1 to 64 letters, digits, dots, dashes and underscores")
    if asked["max_rate"] is not None and not math.isfinite(asked["max_rate"]):
        raise click.BadParameter(f"{asked['max_rate']} is no number", param_hint="--max-rate")
    to_queue = asked["to_queue"]
    if to_queue is not None and not is_queue(to_queue):
        raise click.BadParameter(f"{to_queue!r} is no name of a queue", param_hint="--to-queue")
    fault = url_fault(url)
    if fault is not None:
        raise click.BadParameter(fault, param_hint="--url")
    changes = Changes(reset_attempts, drop_dead_letter)
    order = SendRequest(job, Target(url, secret or None), changes, **asked)
    send_messages(launch, order, output, find)


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.option(
    "--from",
    "origin",
    type=click.Choice(["quarantined", "dead-letters", "journal"]),
    default="quarantined",
    show_default=True,
    help="What INPUTS are.",
)
@_sends(drops_dead_letter=True)
def redrive(inputs: tuple[str, ...], origin: str) -> Find:
    """Send back what went wrong.

    INPUTS: the ROOT whose quarantined/ holds the messages; or exports of dead letters, as the API lists them; or the
    ROOT whose journal/ tells which messages lie in a dead-letter queue, with their bodies. Nothing is removed there.
    """
    if origin == "dead-letters":
        return _files(inputs, "dead-letters", None)
    root = _one(inputs)
    return _journal(root, dead=True) if origin == "journal" else _dataset(root, origin)


@click.command()
@click.argument("root")
@_sends(drops_dead_letter=False)
def replay(root: str) -> Find:
    """Send again what the journal/ below ROOT tells of, from the bodies it holds.

    Each message goes once, as it was accepted, or first delivered.
    """
    return _journal(root, dead=False)


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.option(
    "--from",
    "origin",
    type=click.Choice(["accepted", "bodies"]),
    default="accepted",
    show_default=True,
    help="What INPUTS are.",
)
@click.option("--column", help="Of Parquet, the column of the bodies.  [default: body, or the only fitting one]")
@_sends(drops_dead_letter=False)
def backfill(inputs: tuple[str, ...], origin: str, column: str | None) -> Find:
    """Send stored messages.

    INPUTS: the ROOT whose accepted/ holds them; or files and folders of bodies, NDJSON (plain, gzip, zstd) or Parquet.
    """
    return _files(inputs, "auto", column) if origin == "bodies" else _dataset(_one(inputs), origin)


def _one(inputs: tuple[str, ...]) -> str:
    if len(inputs) > 1:
        raise click.UsageError("Of datasets, INPUTS is one ROOT.")
    return inputs[0]


def _dataset(root: str, dataset: str) -> Find:
    from app.pipeline.send.sources import from_dataset

    return lambda spark: from_dataset(spark, root, dataset)


def _journal(root: str, dead: bool) -> Find:
    from app.pipeline.send.sources import from_journal

    return lambda spark: from_journal(spark, root, dead)


def _files(inputs: tuple[str, ...], form: str, column: str | None) -> Find:
    from app.pipeline.send.sources import from_files
    from app.pipeline.storage.inputs import ReadOptions

    return lambda spark: from_files(spark, inputs, ReadOptions(form, column))
