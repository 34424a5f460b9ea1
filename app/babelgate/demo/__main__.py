"""``python -m babelgate.demo``: starts a gateway, sends a day of traffic through it, and makes the report of that
day."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import click

from babelgate.config.settings import load
from babelgate.demo.day import Day, run_day
from babelgate.demo.gateway import Clock, configuration, gateway
from babelgate.demo.shop import QUEUES
from babelgate.pipeline.cli.main import pipeline
from babelgate.pipeline.spark.session import check_environment, session
from babelgate.server.healthcheck import reachable

_NOTE = (
    "Demonstration: made-up traffic of a made-up shop, through a real gateway with a simulated clock, so that a day "
    "passes in a minute. Waits come from consumers that look for work at intervals, not from the gateway."
)
_CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    # These options shorten the start.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


@click.command()
@click.option(
    "--directory", type=click.Path(path_type=Path), help="A new or empty folder to work in.  [default: a new one]"
)
@click.option(
    "--date", "day", type=click.DateTime(["%Y-%m-%d"]), help="The day to simulate, UTC.  [default: yesterday]"
)
@click.option("--seed", default=7, show_default=True, help="Seed of the random traffic.")
@click.option("--serve", is_flag=True, help="Then serve what is left of the day, with the console, until Ctrl-C.")
def demo(directory: Path | None, day: datetime | None, seed: int, serve: bool) -> None:
    """Simulate a day of a shop's messages, and make the report of it."""
    check_environment()
    folder = directory or Path(tempfile.mkdtemp(prefix="babelgate-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise click.UsageError(f"{folder} is not empty")
    day = day or datetime.now(UTC) - timedelta(days=1)
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    day_run = _run_day(folder, Clock(round(midnight.timestamp() * 1000)), seed)
    root = folder / "root"
    with session("demo", conf=_CONF, log=folder / "spark.log"):
        _run("ingest", folder / "landing", "--lake", root)
        _run("validate", folder / "sent.ndjson", "--lake", root)
        _run("metrics", "--lake", root)
        _run("report", "--lake", root, "--output", folder / "report.html", "--note", _NOTE)
        _run("trace", day_run.traces["reject"], "--lake", root)
    click.secho(f"\nThe report: {(folder / 'report.html').absolute().as_uri()}", bold=True)
    if serve:
        _serve(folder, day_run)


def _run_day(folder: Path, clock: Clock, seed: int) -> Day:
    began = time.monotonic()
    with gateway(folder, clock, QUEUES) as url:
        click.echo(f"Simulating {datetime.fromtimestamp(clock.now / 1000, UTC):%Y-%m-%d} with the gateway at {url}:")
        with click.progressbar(length=24, label="hours", show_eta=False) as bar:
            day_run = run_day(url, clock, folder / "sent.ndjson", seed, lambda hour: bar.update(int(hour) - bar.pos))
            bar.update(24 - bar.pos)
    counts = ", ".join(f"{count:,} {what}" for what, count in day_run.counts.items())
    click.echo(f"{counts}, in {time.monotonic() - began:.0f} s")
    if day_run.unsent:
        click.echo(
            f"The day ended before {day_run.unsent:,} more could be published. sent.ndjson has what producers made, so "
            f"`validate` accepts {day_run.unsent:,} more than the gateway, and quarantines what the gateway refused."
        )
    return day_run


def _serve(folder: Path, day_run: Day) -> NoReturn:
    """Become a gateway with the state and the journal of the day."""
    path = folder / "gateway.json"
    path.write_text(json.dumps(configuration(folder, QUEUES), indent=2))
    click.secho(f"\nThe console: {console_address(path, os.environ)}", bold=True)
    click.echo(
        "1. Dead letters: choose payments. Its letters are grouped by job and error; redrive a group.\n"
        f"2. Find a message: {day_run.traces['reject']} is an order that failed. See its way through the queues.\n"
        "3. Queues: choose emails. Publish a message, receive it by hand, and ack it.\n"
        "Ctrl-C ends it.\n"
    )
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "babelgate", "serve", "--config", str(path)])


def console_address(path: Path, environ: Mapping[str, str]) -> str:
    """The address of the console that a gateway with the configuration ``path`` serves in the environment."""
    settings = load(path, environ)
    return f"{settings.url(reachable(settings.host), settings.port)}/console/"


def _run(*arguments: Any) -> None:
    given = [str(argument) for argument in arguments]
    click.secho(f"\n$ babelgate pipeline {shlex.join(given)}", bold=True)
    pipeline.main(given, prog_name="babelgate pipeline", standalone_mode=False)


if __name__ == "__main__":
    demo()
