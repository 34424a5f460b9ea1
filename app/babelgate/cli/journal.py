"""The commands ``journal index`` and ``journal decrypt``, which need no running gateway."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from babelgate.cli.connection import CONFIG, as_json
from babelgate.cli.output import REFUSED, complain, configuration_errors, print_json, print_json_text, say
from babelgate.terminal import guard_output, unguarded

if TYPE_CHECKING:
    from babelgate.observe.journal.indexing import IndexProgress
    from babelgate.observe.journal.writer import Options

TELL_SECONDS = 10.0
"""Interval of the lines about the progress, where standard error is no terminal."""


@click.group()
def journal() -> None:
    """Maintain and read the journal."""


@journal.command(epilog="\b\nExample:\n  babelgate journal index --config babelgate.yaml")
@CONFIG
@as_json
def index(config: Path | None, as_json: bool) -> None:
    """Index what has landed and is not indexed, and forget what is gone.

    Gateways may run meanwhile. Run it as their user, with their configuration.
    """
    from babelgate.config import settings
    from babelgate.server.wiring import journal_options

    with configuration_errors(config):
        options = journal_options(settings.load(config, os.environ))
        if options is None:
            complain("no journal is configured: set journal.landing")
            sys.exit(REFUSED)
        options.store().check()
    try:
        with _progress() as report:
            done = _index(options, report)
    except KeyboardInterrupt:
        raise
    except Exception as error:
        # Libraries of stores raise any class of error.
        complain(f"the journal cannot be indexed: {error or type(error).__name__}")
        sys.exit(REFUSED)
    if done is None:
        complain("another process indexes the journal now")
        sys.exit(REFUSED)
    if as_json:
        print_json({"segments": done.segments, "added": done.added, "unreadable": done.unreadable})
    else:
        say(f"{done.segments:,} segments are indexed, {done.added:,} of them now")
    for path in done.unreadable:
        complain(f"{path} is damaged and is not indexed")
    if done.unreadable:
        sys.exit(REFUSED)


@journal.command(epilog="\b\nExample:\n  babelgate journal decrypt --body-keys keys.json < records.ndjson")
@click.option(
    "--body-keys",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="BABELGATE_BODY_KEYS_FILE",
    help='File with the keys: a JSON list, such as [{"id": "2026", "secret": "…"}].  [default: BABELGATE_BODY_KEYS]',
)
def decrypt(body_keys: Path | None) -> None:
    """Print the records of standard input with their bodies in clear.

    A member envelope_encrypted becomes envelope, or envelope_base64 where the body is not JSON on one line. All else
    stays as it is. A record whose key is missing is printed unchanged; the keys that are missing are listed at the end,
    and the command exits with 1.
    """
    from babelgate.errors import ConfigError
    from babelgate.observe.journal.decrypting import Decrypting
    from babelgate.privacy.body_keys import read_body_keys

    try:
        lines = Decrypting(read_body_keys(body_keys))
    except ConfigError as error:
        complain(str(error))
        sys.exit(REFUSED)
    for line in sys.stdin.buffer:
        print_json_text(lines.decrypted(line.rstrip(b"\r\n")))
    for reason, count in sorted(lines.unreadable.items()):
        complain(f"{count:,} bodies are not decrypted: {reason}")
    if lines.unreadable:
        sys.exit(REFUSED)


def _index(options: Options, report: Callable[[IndexProgress], None]) -> IndexProgress | None:
    from babelgate.clock import now_ms
    from babelgate.observe.journal.index import DamagedIndex, Index
    from babelgate.observe.journal.indexing import complete
    from babelgate.observe.journal.keys import INDEX

    index = Index(options.open_directory / INDEX, now_ms)
    try:
        index.prepare()
        while True:
            try:
                return complete(index, options.store(), report, lambda seconds: True)
            except DamagedIndex as error:
                index.set_aside(error.path)
    finally:
        index.close()


@contextmanager
def _progress() -> Iterator[Callable[[IndexProgress], None]]:
    """Show a progress bar on a terminal, lines elsewhere; yield the function that reports progress."""
    if not sys.stderr.isatty():
        told_at = time.monotonic()

        def tell(progress: IndexProgress) -> None:
            nonlocal told_at
            if time.monotonic() - told_at >= TELL_SECONDS:
                told_at = time.monotonic()
                complain(f"{progress.segments:,} of {progress.all_segments:,} segments are indexed")

        yield tell
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(file=unguarded(sys.stderr)), transient=True) as bar:
        # The bar has replaced the streams, to keep printed lines above itself.
        guard_output()
        task = bar.add_task("indexing", total=None)
        yield lambda progress: bar.update(task, completed=progress.segments, total=progress.all_segments)
