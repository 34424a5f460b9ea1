"""What every command that starts Spark has in common: its options, its log, and its errors in words."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.pipeline.errors import JobFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Launch:
    """How a command was asked to run. ``summary``: the file for its result."""

    master: str | None
    conf: dict[str, str]
    summary: Path | None
    verbose: bool

    @contextmanager
    def spark(self, name: str) -> Iterator[SparkSession]:
        """Spark for the job ``name``. What fails in it is raised as JobFailed, in words, and its log is kept and named.

        With ``--verbose`` Spark writes to the terminal instead.
        """
        from app.pipeline.spark.console import say
        from app.pipeline.spark.failures import explain
        from app.pipeline.spark.session import session

        say(f"{name}: starting Spark")
        log = None
        if not self.verbose:
            with tempfile.NamedTemporaryFile(prefix=f"babelgate-{name}-", suffix=".log", delete=False) as file:
                log = Path(file.name)
        try:
            with session(name, master=self.master, conf=self.conf, log=log) as started:
                yield started
        except Exception as error:
            reason = None if isinstance(error, click.ClickException) else explain(error)
            if reason is None:
                raise
            more = "" if log is None else f"\nWhat Spark wrote is in {log}."
            log = None
            raise JobFailed(reason + more) from error
        finally:
            if log is not None:
                log.unlink()


def retains(what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option ``--retain-hours`` of a command that replaces ``what``."""
    return click.option(
        "--retain-hours",
        type=click.FloatRange(min=0),
        default=24.0,
        show_default=True,
        help=f"How long {what}, for those who read them.",
    )


def starts_spark(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command`` a Launch as its first argument, made from options of its own."""

    @functools.wraps(command)
    def launched(
        master: str | None, conf: tuple[str, ...], summary: Path | None, verbose: bool, **arguments: Any
    ) -> None:
        if summary is not None and not summary.absolute().parent.is_dir():
            # At the end it would be too late to say so.
            raise click.BadParameter(f"there is no folder {summary.parent}", param_hint="--summary")
        command(Launch(master, dict(map(_pair, conf)), summary, verbose), **arguments)

    for option in (
        click.option("--verbose", is_flag=True, help="Let Spark write its log to standard error."),
        click.option(
            "--summary", type=click.Path(dir_okay=False, path_type=Path), help="Write the result to this file, as JSON."
        ),
        click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; may be repeated."),
        click.option("--master", help="Where Spark runs, as its own tools take it.  [default: local[*]]"),
    ):
        launched = option(launched)
    return launched


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--conf")
    return key, value
