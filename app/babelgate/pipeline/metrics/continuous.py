"""``metrics --continuous``: one run after the other, each of what is new since the last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import click

from babelgate.pipeline.continuous import Continuous, serving
from babelgate.pipeline.duckdb_engine.lake import duckdb_reader
from babelgate.pipeline.errors import Hopeless
from babelgate.pipeline.journal.reader import require_journal
from babelgate.pipeline.metrics.dates import DateRange
from babelgate.pipeline.metrics.job import measure, summary_of
from babelgate.pipeline.spark.console import say
from babelgate.pipeline.spark.launch import Launch
from babelgate.pipeline.storage.datasets import DatasetReader, DatasetStore
from babelgate.pipeline.storage.locks import LockedOut, exclusive_lock


def metrics_continuously(
    launch: Launch,
    root: str,
    within: DateRange,
    every: Continuous,
    retain_hours: float,
    committed: Callable[[], bool],
) -> None:
    """Run until SIGTERM or SIGINT; a run that has begun is finished first.

    ``committed``: called after the first round, and after each run that changed something, until it returns True. A run
    that fails is repeated after a pause. Spark, if it is needed, is started once. Raises JobFailed if another endless
    run is at work, or Spark cannot be started or has stopped, and the error of a Java process that has ended. Single
    runs, and ``maintain``, work between rounds.
    """
    with launch.kept() as kept, ExitStack() as held, serving("metrics", every) as service:
        is_owner = False
        # A process that was killed may have left out the commits of its last run.
        is_behind = True

        def attempt() -> None:
            nonlocal is_owner, is_behind
            require_journal(root)
            if not is_owner:
                held.enter_context(_only_one(kept, root))
                is_owner = True
            # A run that fails may have been published all the same.
            was_behind, is_behind = is_behind, True
            done = measure(kept, root, within, retain_hours=retain_hours)
            is_behind = was_behind or not done.is_old
            if is_behind:
                is_behind = not committed()
            if not done.is_old:
                launch.summarize(summary_of(done))
                say(f"metrics: run {done.manifest['run_id']}: {done.text} in {done.manifest['seconds']:.1f} s")

        service.repeat(attempt)
    click.echo("metrics: stopped")


@contextmanager
def _only_one(launch: Launch, root: str) -> Iterator[None]:
    """Own the lock of endless runs during the block. Raises JobFailed."""
    store = DatasetReader.of_local(root) or duckdb_reader(launch, root)
    if store is None:
        with launch.spark("metrics") as spark:
            store = DatasetStore(spark, root)
    lock = exclusive_lock(store.files, store.lock("metrics-continuous"), "metrics --continuous")
    with ExitStack() as stack:
        try:
            stack.enter_context(lock)
        except LockedOut as error:
            raise Hopeless(error.message) from error
        yield
