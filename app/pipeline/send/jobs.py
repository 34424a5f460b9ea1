"""The jobs ``redrive``, ``replay`` and ``backfill``: stored bodies go back to a gateway, every message once.

Every message has an idempotency key, made of the run and of itself. What was killed is started again: what the ledger
tells of is left out, what was sent and not yet written down is sent again under its key, and written once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from app.pipeline.send.render import show, tell
from app.pipeline.send.request import Order, run_of
from app.pipeline.send.run import Run
from app.pipeline.send.sources import Source, messages, selected
from app.pipeline.spark.console import summarize
from app.pipeline.spark.launch import Launch
from app.pipeline.storage.datasets import Manifest, Store
from app.pipeline.storage.locks import only_one
from app.pipeline.storage.schemas import LEDGER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def sending(launch: Launch, order: Order, output: str, source: Callable[[SparkSession], Source]) -> Manifest | None:
    """Run the job and tell its result; the manifest of the ledger, None of a dry run.

    Raises UsageError, JobFailed; Partial when not every message was delivered.
    """
    with launch.spark(order.job) as spark:
        found = source(spark)
        rows = messages(selected(found, order.select), found.order, order.to_queue, order.limit)
        if order.dry_run:
            show(rows, order)
            return None
        store = Store(spark, output)
        run = order.run_id or run_of(order.job, found.inputs, order.made_of())
        with only_one(store.files, f"{store.folder(LEDGER.name)}/_locks/{run}", order.job):
            job = Run(store, order, run, found.inputs, found.places)
            manifest = job.finished() or job.go(rows)
        path = store.folder(LEDGER.name, run)
    summarize(launch.summary, {**manifest, "path": path})
    tell(manifest, path, order)
    return manifest
