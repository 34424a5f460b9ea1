"""The commands ``redrive``, ``replay`` and ``backfill``."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from babelgate.pipeline.cli.options import in_lake, starts_spark
from babelgate.pipeline.spark.launch import Launch

if TYPE_CHECKING:
    from babelgate.pipeline.send.sources import SendOrigin

_LOCAL_URL = "http://127.0.0.1:8080"
_RUN_ID = r"[A-Za-z0-9._-]{1,64}"


def _sends(drops_dead_letter: bool) -> Callable[[Callable[..., SendOrigin]], Callable[..., None]]:
    """Turns a function that returns a source of messages into a command that sends them, with the common options."""

    def decorate(command: Callable[..., SendOrigin]) -> Callable[..., None]:
        @starts_spark
        @functools.wraps(command)
        def sent(launch: Launch, lake: str, **values: Any) -> None:
            own = {name: values.pop(name) for name in inspect.signature(command).parameters if name != "lake"}
            told = {name: own[name] for name in ("column", "without") if name in own}
            _send(launch, command.__name__, lake, command(lake=lake, **own), **told, **values)

        option = click.option(
            "--drop-dead-letter/--keep-dead-letter",
            default=drops_dead_letter,
            show_default=True,
            help="Remove the block dead_letter; the gateway accepts no message that has one.",
        )
        for each in (option, *reversed(_OPTIONS)):
            sent = each(sent)
        return sent

    return decorate


_OPTIONS = (
    in_lake,
    click.option("--url", envvar="BABELGATE_URL", default=_LOCAL_URL, show_default=True, help="URL of the gateway."),
    click.option("--token", envvar="BABELGATE_TOKEN", help="Bearer token; prefer the variable BABELGATE_TOKEN."),
    click.option(
        "--token-file",
        type=click.File(errors="replace"),
        envvar="BABELGATE_TOKEN_FILE",
        help="File with the bearer token.",
    ),
    click.option("--select", metavar="SQL", help="Send only rows that match this condition on the columns."),
    click.option("--to-queue", metavar="QUEUE", help="Queue for all messages.  [default: each message's own queue]"),
    click.option("--limit", type=click.IntRange(min=1), help="Send at most this many, the oldest first."),
    click.option(
        "--max-rate", type=click.FloatRange(min=0, min_open=True), help="Messages per second of all tasks together."
    ),
    click.option("--parallelism", type=click.IntRange(min=1), help="Tasks that send.  [default: Spark's cores]"),
    click.option("--reset-attempts", is_flag=True, help="Set attempts to 0."),
    click.option("--dry-run", is_flag=True, help="Show what would be sent, and send nothing."),
    click.option("--run-id", help="Id of the run to start or continue.  [default: made of inputs and options]"),
    click.option(
        "--unknown",
        type=click.Choice(["stop", "publish", "skip"]),
        default="stop",
        show_default=True,
        help="Messages that may have been published: exit with 4, send them under a new key, or leave them.",
    ),
    click.option(
        "--give-up-seconds",
        type=click.FloatRange(min=0),
        default=90.0,
        show_default=True,
        help="Stop and leave the rest after this long without success.",
    ),
)


def _send(
    launch: Launch,
    job: str,
    lake: str,
    origin: SendOrigin,
    *,
    url: str,
    token: str | None,
    token_file: IO[str] | None,
    reset_attempts: bool,
    drop_dead_letter: bool,
    **options: Any,
) -> None:
    from babelgate.pipeline.send.bodies import Changes, is_queue
    from babelgate.pipeline.send.gateway import Target, url_fault
    from babelgate.pipeline.send.job import send_messages
    from babelgate.pipeline.send.request import SendRequest

    secret = (token or (token_file.read() if token_file else "")).strip()
    if not (secret.isascii() and secret.isprintable()):
        # A wrong value may still be a secret, so it is not quoted.
        raise click.BadParameter("a token is one line of ASCII", param_hint="--token")
    if options["run_id"] is not None and not re.fullmatch(_RUN_ID, options["run_id"]):
        raise click.BadParameter("a run id has 1 to 64 letters, digits, dots, dashes and underscores")
    if options["max_rate"] is not None and not math.isfinite(options["max_rate"]):
        raise click.BadParameter(f"{options['max_rate']} is no number", param_hint="--max-rate")
    to_queue = options["to_queue"]
    if to_queue is not None and not is_queue(to_queue):
        raise click.BadParameter(f"{to_queue!r} is no valid queue name", param_hint="--to-queue")
    fault = url_fault(url)
    if fault is not None:
        raise click.BadParameter(fault, param_hint="--url")
    changes = Changes(reset_attempts, drop_dead_letter)
    request = SendRequest(job, Target(url, secret or None), changes, **options)
    send_messages(launch, request, lake, origin)


_body_keys = click.option(
    "--body-keys",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="BABELGATE_BODY_KEYS_FILE",
    help="File with the keys of encrypted bodies in journal/: a JSON list of objects with id and secret.  "
    "[default: BABELGATE_BODY_KEYS]",
)


_without = click.option(
    "--without",
    type=click.Choice(["headers", "ordering_key"]),
    multiple=True,
    help="Leave out the native headers or ordering keys in journal/, for queues that have none.",
)


@click.command(
    epilog="\b\nExamples:\n  babelgate pipeline redrive --lake lake --dry-run"
    "\n  babelgate pipeline redrive dead.json --from dead-letters --lake lake --reset-attempts"
)
@click.argument("inputs", nargs=-1)
@click.option(
    "--from",
    "origin",
    type=click.Choice(["quarantined", "dead-letters", "journal"]),
    default="quarantined",
    show_default=True,
    help="Where the messages are: a dataset of the lake, or files.",
)
@_body_keys
@_without
@_sends(drops_dead_letter=True)
def redrive(
    lake: str, inputs: tuple[str, ...], origin: str, body_keys: Path | None, without: tuple[str, ...]
) -> SendOrigin:
    """Send quarantined or dead-lettered messages to their queues again.

    They come from quarantined/ of the lake; with --from dead-letters from INPUTS, exports of dead letters as the API
    lists them; with --from journal from a journal/ with bodies, those that are in a dead-letter queue. Nothing is
    removed there.
    """
    if without and origin != "journal":
        raise click.UsageError(f"--without: --from {origin} has no headers or ordering keys to leave out.")
    if origin == "dead-letters":
        return _files(_some(inputs, origin), "dead-letters", None)
    _no(inputs, origin)
    return _journal(lake, True, body_keys) if origin == "journal" else _dataset(lake, origin)


@click.command(epilog="\b\nExample:\n  babelgate pipeline replay --lake lake --to-queue orders-replayed --dry-run")
@_body_keys
@_without
@_sends(drops_dead_letter=False)
def replay(lake: str, body_keys: Path | None) -> SendOrigin:
    """Send the messages of the lake's journal/ again, which must contain bodies.

    Each message is sent once, as it was accepted, or else as it was first delivered, with its native headers and its
    ordering key.
    """
    return _journal(lake, False, body_keys)


@click.command(
    epilog="\b\nExamples:\n  babelgate pipeline backfill --lake lake --dry-run"
    "\n  babelgate pipeline backfill dumps/ --from bodies --lake lake"
)
@click.argument("inputs", nargs=-1)
@click.option(
    "--from",
    "origin",
    type=click.Choice(["accepted", "bodies"]),
    default="accepted",
    show_default=True,
    help="Where the messages are: a dataset of the lake, or files.",
)
@click.option("--column", help="Parquet column of the bodies.  [default: body, or the only fitting one]")
@_sends(drops_dead_letter=False)
def backfill(lake: str, inputs: tuple[str, ...], origin: str, column: str | None) -> SendOrigin:
    """Send stored messages.

    They come from accepted/ of the lake; with --from bodies from INPUTS: files and folders of bodies, NDJSON (plain,
    gzip, zstd) or Parquet.
    """
    if origin == "bodies":
        return _files(_some(inputs, origin), "auto", column)
    _no(inputs, origin)
    return _dataset(lake, origin)


def _some(inputs: tuple[str, ...], origin: str) -> tuple[str, ...]:
    if not inputs:
        raise click.UsageError(f"INPUTS: --from {origin} reads files, and none is given.")
    return inputs


def _no(inputs: tuple[str, ...], origin: str) -> None:
    if inputs:
        raise click.UsageError(f"INPUTS: --from {origin} reads the lake, and no files.")


def _dataset(root: str, dataset: str) -> SendOrigin:
    from babelgate.pipeline.send.sources import SendOrigin, from_dataset, has_few_bodies, inputs_of_dataset

    return SendOrigin(
        lambda spark: from_dataset(spark, root, dataset),
        lambda reader: inputs_of_dataset(reader, dataset),
        lambda: has_few_bodies(root, dataset),
    )


def _journal(root: str, dead: bool, body_keys: Path | None) -> SendOrigin:
    from babelgate.errors import ConfigError
    from babelgate.pipeline.journal.reader import has_few_records
    from babelgate.pipeline.send.sources import SendOrigin, from_journal, inputs_of_journal
    from babelgate.privacy.body_keys import read_body_keys

    try:
        keys = read_body_keys(body_keys)
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="--body-keys") from None
    return SendOrigin(
        lambda spark: from_journal(spark, root, dead, keys), inputs_of_journal, lambda: has_few_records(root)
    )


def _files(inputs: tuple[str, ...], form: str, column: str | None) -> SendOrigin:
    from babelgate.pipeline.send.sources import SendOrigin, from_files, has_small_files, inputs_of_files
    from babelgate.pipeline.storage.inputs import ReadOptions

    reading = ReadOptions(form, column)
    return SendOrigin(
        lambda spark: from_files(spark, inputs, reading),
        lambda _: inputs_of_files(inputs),
        lambda: has_small_files(inputs),
    )
