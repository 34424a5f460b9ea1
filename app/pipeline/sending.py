"""The jobs ``redrive``, ``replay`` and ``backfill``: stored bodies go back to a gateway, every message once.

Every message has an idempotency key, made of the run and of itself. What was killed is started again: what the ledger
tells of is left out, what was sent and not yet written down is sent again under its key, and written once.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from app.pipeline.cli_options import Launch
from app.pipeline.console import progress, say, summarize
from app.pipeline.datasets import Manifest, Store
from app.pipeline.errors import JobFailed, Partial
from app.pipeline.locks import only_one
from app.pipeline.schemas import LEDGER, ddl
from app.pipeline.sending_bodies import Changes
from app.pipeline.sending_http import Busy, Gateway, Refused, Target
from app.pipeline.sending_ledger import Begun, Ledger, told
from app.pipeline.sending_sources import Source, messages, selected
from app.pipeline.sending_tasks import COUNTS, STOPPED, Sending, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SHOWN = 10
_STALE_MARGIN_MS = 60_000
_WRONG_TARGET = frozenset({400, 404, 405})
"""The command was told a URL or a queue that is not there."""


class Order(NamedTuple):
    """What a command was asked for. ``target``: URL and token; rates in messages, times in seconds."""

    job: str
    target: Target
    changes: Changes
    select: str | None = None
    to_queue: str | None = None
    limit: int | None = None
    max_rate: float | None = None
    parallelism: int | None = None
    unknown: str = "stop"
    run_id: str | None = None
    give_up_seconds: float = 90.0
    retention_seconds: float = 86_400.0
    dry_run: bool = False

    def made_of(self) -> dict[str, Any]:
        """The options that decide what is sent, and where to."""
        return {
            "url": self.target.url.rstrip("/"),
            "select": self.select,
            "to_queue": self.to_queue,
            "limit": self.limit,
            **self.changes._asdict(),
        }


def run_of(job: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> str:
    """16 hex digits. The version of this program is no part: an upgrade must not send a run a second time."""
    ordered = sorted(json.dumps(each, sort_keys=True) for each in json.loads(_plain(inputs)))
    return hashlib.sha256(json.dumps([job, ordered, dict(options)], sort_keys=True).encode()).hexdigest()[:16]


def sending(launch: Launch, order: Order, output: str, source: Callable[[SparkSession], Source]) -> Manifest | None:
    """Run the job and tell its result; the manifest of the ledger, None of a dry run.

    Raises UsageError, JobFailed; Partial when not every message was delivered.
    """
    with launch.spark(order.job) as spark:
        found = source(spark)
        rows = messages(selected(found, order.select), found.order, order.to_queue, order.limit)
        if order.dry_run:
            _show(rows, order)
            return None
        store = Store(spark, output)
        run = order.run_id or run_of(order.job, found.inputs, order.made_of())
        with only_one(store.files, f"{store.folder(LEDGER.name)}/_locks/{run}", order.job):
            manifest = _Run(store, order, run, found.inputs).finished() or _Run(store, order, run, found.inputs).go(
                rows
            )
        path = store.folder(LEDGER.name, run)
    summarize(launch.summary, {**manifest, "path": path})
    _tell(manifest, path, order)
    return manifest


class _Run:
    def __init__(self, store: Store, order: Order, run: str, inputs: Sequence[Any]) -> None:
        self._store = store
        self._spark: SparkSession = store.spark
        self._order = order
        self._run = run
        self._inputs: list[Any] = json.loads(_plain(inputs))
        self._ledger = Ledger(store)

    def finished(self) -> Manifest | None:
        """The manifest of the run where nothing is left to do."""
        manifest = self._store.manifest(LEDGER.name, self._run)
        if manifest is None or not manifest["done"]:
            return None
        self._check_options(manifest["options"])
        self._store.point([LEDGER.name], self._run)
        self._store.files.remove(self._ledger.pieces(self._run))
        say(f"Run {self._run} is done: nothing is left to send.")
        return manifest

    def go(self, rows: DataFrame) -> Manifest:
        """Send what was not sent yet."""
        began = time.monotonic()
        before = self._begin()
        planned, plan = self._plan(rows)
        pending = sum(row["n"] for row in plan if row["pending"])
        queues = sorted({row["target_queue"] for row in plan if row["pending"] and row["target_queue"]})
        say(
            f"{self._order.job}: run {self._run}, {sum(row['n'] for row in plan)} messages, {pending} to send now, "
            f"to {len(queues)} queues of {self._order.target.url}"
        )
        self._check(queues, pending, before)
        self._ledger.begin(before)
        refused = self._send(planned, self._tasks(pending)) if pending else None
        return self._finish(plan, refused, time.monotonic() - began)

    def _begin(self) -> Begun:
        known = self._ledger.begun(self._run)
        options = self._order.made_of()
        if known is not None:
            self._check_options(known.options)
            if known.inputs != self._inputs:
                say(f"warning: the inputs of run {self._run} have changed since it was begun")
            return known
        for other in self._ledger.others():
            if (
                (other.job, other.options) == (self._order.job, options)
                and self._order.run_id is None
                and self._is_open(other)
            ):
                raise click.UsageError(
                    f"Run {other.run_id}, with these options, is not finished, and its inputs have changed since. "
                    f"Go on with --run-id {other.run_id}, or begin another run with an id of your own."
                )
        return Begun(self._run, self._order.job, options, self._inputs, time.time_ns() // 1_000_000)

    def _is_open(self, run: Begun) -> bool:
        manifest = self._store.manifest(LEDGER.name, run.run_id)
        return manifest is None or manifest["counts"]["left"] > 0

    def _check_options(self, options: Mapping[str, Any]) -> None:
        mine = self._order.made_of()
        other = sorted(name for name in mine if options.get(name) != mine[name])
        if other:
            raise click.UsageError(f"Run {self._run} was begun with other options: {', '.join(other)}.")

    def _plan(self, rows: DataFrame) -> tuple[DataFrame, list[Any]]:
        """The messages to send, and counts by (target_queue, pending)."""
        from pyspark.sql import functions as f

        settled = self._ledger.lines(self._run).select(
            "message_id", "target_queue", f.col("status").alias("was"), f.col("idempotency_key").alias("under")
        )
        again = self._order.unknown == "publish"
        pending = f.col("was").isNull() | (f.col("was") == "left")
        pending = pending | (f.col("was") == "unknown") if again else pending
        joined = rows.join(settled, ["message_id", "target_queue"], "left").withColumn("pending", pending)
        plan = (
            joined.groupBy("target_queue", "pending")
            .agg(f.count("*").alias("n"), f.sum(f.col("copies") - 1).alias("duplicates"))
            .collect()
        )
        return joined.where("pending"), plan

    def _check(self, queues: Sequence[str], pending: int, before: Begun) -> None:
        """What would come to nothing is told before anything is sent."""
        order = self._order
        if order.max_rate is not None and pending / order.max_rate > order.retention_seconds:
            say(
                f"warning: this takes {pending / order.max_rate / 3600:.1f} h at least, and the gateway keeps keys for "
                f"{order.retention_seconds / 3600:.1f} h: should it be killed, start it again within that time"
            )
        last = self._ledger.last_at(self._run)
        age = 0 if last is None else time.time_ns() // 1_000_000 - last + _STALE_MARGIN_MS
        if pending and age > order.retention_seconds * 1000 and order.unknown != "publish":
            raise JobFailed(
                f"Run {self._run} was cut off {age / 3_600_000:.1f} h ago, longer than the gateway keeps keys "
                f"({order.retention_seconds / 3600:.1f} h): what it sent at the very end might be sent twice. "
                "--unknown publish goes on all the same."
            )
        gateway = Gateway(order.target)
        try:
            for queue in queues:
                answer = gateway.check(queue)
                if isinstance(answer, Refused):
                    raise _refused(answer, queue)
                if isinstance(answer, Busy) and answer.http_status is None:
                    raise JobFailed(f"No gateway answers at {order.target.url}.")
        finally:
            gateway.close()

    def _tasks(self, pending: int) -> int:
        slots = self._order.parallelism or self._spark.sparkContext.defaultParallelism
        return max(1, min(slots, pending))

    def _send(self, planned: DataFrame, tasks: int) -> Any:
        """The one action that sends. The row of a gateway that takes no request, None when all went well."""
        order = self._order
        rate = None if order.max_rate is None else order.max_rate / tasks
        job = Sending(
            self._run, order.target, order.changes, self._ledger.pieces(self._run), rate, order.give_up_seconds
        )
        parts = planned.repartition(tasks, "message_id", "target_queue").sortWithinPartitions(
            "target_queue", "created_at", "message_id"
        )
        chosen = parts.select("message_id", "target_queue", "was", "under", "body")
        with progress(self._spark, order.job):
            counted = chosen.mapInArrow(partial(send, sending=job), ddl(COUNTS)).collect()
        return next((row for row in counted if row["status"] == STOPPED), None)

    def _finish(self, plan: Sequence[Any], refused: Any, seconds: float) -> Manifest:
        lines = self._ledger.lines(self._run)
        by = lines.groupBy("target_queue", "status", "code").count().withColumnRenamed("count", "n").collect()
        counts = told(by)
        codes: dict[str, int] = {}
        queues: dict[str, dict[str, int]] = {}
        for row in by:
            if row["code"] is not None:
                codes[row["code"]] = codes.get(row["code"], 0) + row["n"]
            queue = queues.setdefault(row["target_queue"], {})
            queue[row["status"]] = queue.get(row["status"], 0) + row["n"]
        facts = {
            "job": self._order.job,
            "options": self._order.made_of(),
            "inputs": self._inputs[:1000],
            "counts": {
                "selected": sum(row["n"] for row in plan),
                "duplicates": sum(row["duplicates"] for row in plan),
                **counts,
            },
            "codes": codes,
            "by_queue": queues,
            "seconds": round(seconds, 3),
        }
        done = counts["left"] == counts["unknown"] == 0
        manifest = self._ledger.publish(self._run, sum(counts.values()), facts, done)
        if refused is not None:
            raise _refused(Refused(refused["n"], refused["code"], refused["detail"]), None, counts["left"])
        return manifest


def _refused(answer: Refused, queue: str | None, left: int | None = None) -> click.ClickException:
    where = "" if queue is None else f" for the queue {queue}"
    rest = "" if left is None else f" {left} messages are left."
    text = f"The gateway refuses{where}: {answer.http_status} {answer.code}: {answer.detail}{rest}"
    return click.UsageError(text) if answer.http_status in _WRONG_TARGET else JobFailed(text)


def _show(rows: DataFrame, order: Order) -> None:
    """What would be sent."""
    from pyspark.sql import functions as f

    counts = (
        rows.groupBy("target_queue").agg(f.count("*").alias("n"), f.sum(f.col("copies") - 1).alias("more")).collect()
    )
    total = sum(row["n"] for row in counts)
    click.echo(f"{total} messages would be sent to {order.target.url}; nothing was.")
    for row in sorted(counts, key=lambda row: (-row["n"], row["target_queue"])):
        click.echo(f"  {row['n']:>10}  {row['target_queue'] or '(no queue: --to-queue names one)'}")
    more = sum(row["more"] for row in counts)
    if more:
        click.echo(f"  {more} further rows have the id of one of them, and would not be sent")
    first = rows.orderBy(f.col("created_at").asc_nulls_last(), "message_id", "target_queue").limit(_SHOWN)
    for row in first.select("message_id", "target_queue", "created_at", "body").collect():
        body = row["body"] or b""
        click.echo(f"{row['target_queue']}  {row['message_id']}  {row['created_at']}  {bytes(body[:120])!r}")


def _tell(manifest: Manifest, path: str, order: Order) -> None:
    counts = manifest["counts"]
    click.echo(
        f"{counts['selected']} messages: {counts['accepted']} accepted, {counts['replayed']} that were there already, "
        f"{counts['rejected']} rejected, {counts['unknown']} unknown, {counts['left']} left"
    )
    if counts["duplicates"]:
        click.echo(f"  {counts['duplicates']} further rows had the id of one of them, and were not sent")
    for code, count in sorted(manifest["codes"].items(), key=lambda each: -each[1]):
        click.echo(f"  {count:>10}  {code}")
    click.echo(f"ledger: {path}")
    if counts["left"]:
        raise Partial(f"{counts['left']} messages are left: the same command goes on with them.")
    if counts["unknown"] and order.unknown != "skip":
        raise Partial(
            f"Of {counts['unknown']} messages nobody knows whether they were published: "
            "--unknown publish sends them under a new key, --unknown skip leaves them."
        )
    if counts["rejected"]:
        raise Partial(f"{counts['rejected']} messages were rejected: the ledger tells which, and why.")


def _plain(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()
