"""Shows the progress of a job."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

from babelgate.terminal import guard_output, printable, unguarded

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import SparkSession

WATCHER = "babelgate-progress"
_LINE_SECONDS = 10.0
_POLL_SECONDS = 0.2


@contextmanager
def progress(spark: SparkSession, label: str) -> Iterator[None]:
    """Show done and total tasks on standard error: a bar on a terminal, elsewhere a line every 10 s."""
    tasks = counting(spark.sparkContext.statusTracker())
    over = threading.Event()
    show = _bar if sys.stderr.isatty() else _lines
    watcher = threading.Thread(target=show, args=(label, tasks, over), name=WATCHER, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def counting(tracker: StatusTracker) -> Callable[[], tuple[int, int]]:
    """A function that returns how many tasks are done, and how many are known so far."""
    from py4j.protocol import Py4JError

    seen: dict[int, tuple[int, int]] = {}
    active: set[int] = set()

    def tasks() -> tuple[int, int]:
        # If Spark has ended, the job itself fails and reports it.
        with suppress(Py4JError, OSError):
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None:
                    seen[stage] = info.numCompletedTasks, info.numTasks
            active.clear()
            active.update(tracker.getActiveStageIds())
        # A stage that is no longer active has finished all its tasks.
        done = sum(count if stage in active else total for stage, (count, total) in seen.items())
        return done, sum(total for _, total in seen.values())

    return tasks


def _bar(label: str, tasks: Callable[[], tuple[int, int]], over: threading.Event) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(file=unguarded(sys.stderr)), transient=True) as bar:
        # The bar has replaced the streams, to keep printed lines above itself.
        guard_output()
        line = bar.add_task(label, total=None)
        while not over.wait(_POLL_SECONDS):
            done, total = tasks()
            bar.update(line, completed=done, total=total or None)


def _lines(
    label: str, tasks: Callable[[], tuple[int, int]], over: threading.Event, seconds: float = _LINE_SECONDS
) -> None:
    began = time.monotonic()
    while not over.wait(seconds):
        done, total = tasks()
        click.echo(f"{label}: {done} of {total} tasks, {time.monotonic() - began:.0f} s", err=True)


def say(text: str) -> None:
    """Print a line to standard error."""
    click.echo(printable(text), err=True)
