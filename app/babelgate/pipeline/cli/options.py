"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from babelgate.extras import missing
from babelgate.masking import mask_url
from babelgate.pipeline.continuous import Continuous
from babelgate.pipeline.errors import require_spark
from babelgate.pipeline.lineage.run import job_run
from babelgate.pipeline.spark.launch import Launch

if TYPE_CHECKING:
    from babelgate.pipeline.storage.output_file import OutputFile

DATE = click.DateTime(["%Y-%m-%d"])


def _checked_lake(_context: click.Context, _option: click.Parameter, lake: str) -> str:
    """Refuse a topic: a journal lands there, but no command reads it as a lake."""
    if "://" not in lake:
        return lake
    from babelgate.brokers.landing import is_topic

    if is_topic(lake):
        raise click.BadParameter(
            f"{mask_url(lake)} is a topic. Read its records into a lake first: "
            "babelgate pipeline ingest TOPIC --lake LAKE"
        )
    return lake


in_lake = click.option(
    "--lake",
    required=True,
    callback=_checked_lake,
    envvar="BABELGATE_LAKE",
    metavar="ROOT",
    help="Folder or URL of the lake, which holds all datasets of the pipeline; or set BABELGATE_LAKE.",
)


def output_file(place: str, option: str) -> OutputFile:
    """The file at a path or URL that ``option`` names. Raises BadParameter where none can be written."""
    from babelgate.pipeline.storage.output_file import OutputFile

    try:
        return OutputFile(place)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from error


def retains(what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds ``--retain-hours`` to a command. ``what``: subject and verb of its help text."""
    return click.option(
        "--retain-hours",
        type=click.FloatRange(min=0),
        default=24.0,
        show_default=True,
        help=f"How long {what}, for readers that use them.",
    )


def runs_continuously(once: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds ``--continuous`` to a command, and passes it as ``every``: None without it. ``once``: what the command does
    then."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_every(
            *arguments: Any, once: bool, interval_seconds: float, alive: Path | None, **options: Any
        ) -> None:
            if alive is not None and not alive.absolute().parent.is_dir():
                raise click.BadParameter(f"there is no folder {alive.parent}", param_hint="--alive")
            command(*arguments, every=None if once else Continuous(interval_seconds, alive), **options)

        decorated: Callable[..., None] = with_every
        for option in (
            click.option(
                "--alive",
                type=click.Path(dir_okay=False, path_type=Path),
                help="With --continuous, touch this file after each round, for a probe that looks at its age.",
            ),
            click.option(
                "--interval-seconds",
                type=click.FloatRange(min=0.1),
                default=10.0,
                show_default=True,
                help="With --continuous, seconds from the beginning of a round to the next.",
            ),
            click.option("--once/--continuous", default=True, show_default=True, help=f"{once}, or run until stopped."),
        ):
            decorated = option(decorated)
        return decorated

    return decorate


def starts_spark(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that start Spark, and passes them to ``command`` as a Launch, its first argument."""
    return _launched(command, always_spark=True)


def chooses_engine(command: Callable[..., None]) -> Callable[..., None]:
    """The same for a command that DuckDB does as well, with the options that choose it."""
    command = _launched(command, always_spark=False)
    for option in (
        click.option(
            "--duckdb-max-mib",
            type=click.FloatRange(min=0),
            default=512.0,
            show_default=True,
            envvar="BABELGATE_DUCKDB_MAX_MIB",
            show_envvar=True,
            help="Most MiB of Parquet files for which auto takes DuckDB.",
        ),
        click.option(
            "--engine",
            type=click.Choice(["auto", "duckdb", "spark"]),
            default="auto",
            show_default=True,
            help="What reads the lake; auto: DuckDB if it is small, local, and Spark is not asked for.",
        ),
    ):
        command = option(command)
    return command


def _launched(command: Callable[..., None], *, always_spark: bool) -> Callable[..., None]:
    @functools.wraps(command)
    def launched(
        master: str | None,
        conf: tuple[str, ...],
        summary: str | None,
        verbose: bool,
        engine: str = "spark",
        duckdb_max_mib: float = 0.0,
        **arguments: Any,
    ) -> None:
        if engine == "duckdb" and (master is not None or conf):
            raise click.UsageError("--master and --conf are of Spark, not of --engine duckdb")
        if always_spark or engine == "spark" or missing(("pyarrow",)):
            require_spark()
        settings = dict(map(_pair, conf))
        written = None if summary is None else output_file(summary, "--summary").write
        with job_run(command.__name__, command.__doc__ or "", arguments) as note:
            command(Launch(master, settings, written, verbose, engine, duckdb_max_mib, note), **arguments)

    for option in (
        click.option("--verbose", is_flag=True, help="Let Spark write its log to standard error."),
        click.option("--summary", metavar="FILE", help="Write the result to this file, a path or a URL, as JSON."),
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
