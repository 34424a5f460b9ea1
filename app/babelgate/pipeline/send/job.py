"""The jobs ``redrive``, ``replay`` and ``backfill``: send stored bodies to a gateway, every message once.

Every message has an idempotency key made of the run id and the message. A killed run is started again: messages in the
ledger are skipped; those sent but not yet in the ledger are sent again under the same key and published once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.send.bodies import is_queue
from babelgate.pipeline.send.gateway import Busy, GatewayClient, GatewayRefusal
from babelgate.pipeline.send.ledger import Ledger, RunRecord, counts_by_status, overlap, pieces
from babelgate.pipeline.send.render import print_dry_run, print_result, refusal
from babelgate.pipeline.send.request import SendRequest, digest_of, run_of
from babelgate.pipeline.send.sources import SendOrigin, Unread, counted, distinct_messages, leaving_out, select_rows
from babelgate.pipeline.send.tasks import COUNTS, STOPPED, SendTask, send
from babelgate.pipeline.spark.console import progress, say
from babelgate.pipeline.spark.launch import Launch
from babelgate.pipeline.storage.datasets import DatasetReader, DatasetStore, Manifest
from babelgate.pipeline.storage.locks import exclusive_lock
from babelgate.pipeline.storage.nothing_new import owning, without_spark
from babelgate.pipeline.storage.schemas import LEDGER, ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KEYS_SECONDS = 86_400.0
"""The gateway's default retention of keys, used if it does not report its own."""
_STALE_MARGIN_MS = 180_000
"""The longest time between the gateway storing a key and the task writing its ledger line."""


def send_messages(launch: Launch, request: SendRequest, output: str, origin: SendOrigin) -> Manifest | None:
    """Run the job and print its result. Returns the manifest of the ledger, None for a dry run.

    Raises UsageError, JobFailed; Partial if some messages were not delivered.
    """
    done = without_spark(output, partial(_nothing_left, request, origin))
    is_old = True
    if done is None:
        with launch.spark(request.job, short=origin.is_small()) as spark:
            found = origin.read(spark)
            selected = leaving_out(select_rows(found, request.select), request.without)
            rows = distinct_messages(selected, found.order, request.to_queue, request.limit)
            store = DatasetStore(spark, output)
            run = request.run_id or run_of(request.job, found.inputs, request.identifying_options())
            if request.dry_run:
                print_dry_run(None if _done(store, request, run, found.inputs) else rows, request)
                return None
            with exclusive_lock(store.files, _lock(store, run), request.job):
                manifest = finished(store, request, run, found.inputs)
                is_old = manifest is not None
                if manifest is None:
                    manifest = SendRun(store, request, run, found.inputs, found.places).send_rest(rows)
            path = store.folder(LEDGER.name, run)
    elif request.dry_run:
        print_dry_run(None, request)
        return None
    else:
        manifest, path = done
    # First what people see: to write the summary may fail, and the messages are sent.
    try:
        print_result(manifest, path, request)
    finally:
        launch.summarize({**manifest, "unchanged": is_old, "path": path})
    return manifest


def _nothing_left(request: SendRequest, origin: SendOrigin, reader: DatasetReader) -> tuple[Manifest, str] | None:
    """The manifest of the run and the URL of its ledger if nothing is left to send; None otherwise. Raises UsageError,
    JobFailed."""
    inputs = origin.inputs(reader)
    run = request.run_id or run_of(request.job, inputs, request.identifying_options())
    if reader.manifest(LEDGER.name, run) is None:
        return None
    if request.dry_run:
        manifest = _done(reader, request, run, inputs)
    else:
        with owning(reader, _lock(reader, run), request.job):
            manifest = finished(reader, request, run, inputs)
    return None if manifest is None else (manifest, reader.folder(LEDGER.name, run))


def _lock(reader: DatasetReader, run: str) -> str:
    return f"{reader.folder(LEDGER.name)}/_locks/{run}"


def finished(reader: DatasetReader, request: SendRequest, run: str, inputs: Sequence[Any]) -> Manifest | None:
    """What :func:`_done` returns, with the ledger of the run as the current one. The caller owns its lock. Raises
    UsageError."""
    manifest = _done(reader, request, run, inputs)
    if manifest is not None:
        reader.point([LEDGER.name], run)
        reader.files.remove(pieces(reader, run))
    return manifest


def _done(reader: DatasetReader, request: SendRequest, run: str, inputs: Sequence[Any]) -> Manifest | None:
    """The manifest of the run if nothing is left to send; else None. Only reads. Raises UsageError."""
    manifest = reader.manifest(LEDGER.name, run)
    if manifest is None or not manifest["done"]:
        return None
    _check_options(request, run, manifest["job"], manifest["options"])
    if manifest["inputs"] != digest_of(inputs):
        raise click.UsageError(f"Run {run} is done, and had other inputs: use another --run-id.")
    say(f"Run {run} is done: nothing is left to send.")
    return manifest


def _check_options(request: SendRequest, run: str, job: str, options: Mapping[str, Any]) -> None:
    """Raise UsageError unless the run has this job and these options."""
    mine = request.identifying_options()
    if job != request.job:
        raise click.UsageError(f"Run {run} belongs to {job}: use another --run-id.")
    other = sorted(name for name in {*mine, *options} if options.get(name) != mine.get(name))
    if other:
        raise click.UsageError(f"Run {run} was begun with other options: {', '.join(other)}.")


class SendRun:
    """One run of one command. The caller owns its lock."""

    def __init__(
        self, store: DatasetStore, request: SendRequest, run: str, inputs: Sequence[Any], places: list[str]
    ) -> None:
        """``inputs``: JSON values that identify the inputs; ``places``: their URLs."""
        self._store = store
        self._spark: SparkSession = store.spark
        self._request = request
        self._run = run
        self._inputs = digest_of(inputs)
        self._places = places
        self._ledger = Ledger(store)

    def send_rest(self, rows: DataFrame) -> Manifest:
        """Send the messages that are not sent yet."""
        began = time.monotonic()
        begun = self._begin()
        planned, plan, unread = self._plan(rows)
        pending = sum(row["n"] for row in plan if row["pending"])
        queues = sorted({row["target_queue"] for row in plan if row["pending"] and is_queue(row["target_queue"])})
        say(
            f"{self._request.job}: run {self._run}, {sum(row['n'] for row in plan)} messages, {pending} to send now, "
            f"to {len(queues)} queues of {self._request.target.url}"
        )
        if unread.files:
            say(f"warning: {unread.text()}")
        keys_seconds = self._check(queues)
        self._warn_of_rate(pending, keys_seconds)
        begun = self._check_key_age(begun, pending, keys_seconds)
        self._ledger.begin(begun)
        refused = self._send(planned, self._tasks(pending)) if pending else None
        return self._finish(plan, unread, refused, time.monotonic() - began)

    def _begin(self) -> RunRecord:
        known = self._ledger.begun(self._run)
        options = self._request.identifying_options()
        if known is not None:
            _check_options(self._request, self._run, known.job, known.options)
            if known.inputs != self._inputs:
                say(f"warning: the inputs of run {self._run} have changed since it was begun")
            since = known.unsure_since or self._ledger.last_at(self._run) or known.started_at
            return structs.replace(known, unsure_since=since)
        for other in self._ledger.others():
            if (
                (other.job, other.options) == (self._request.job, options)
                and self._request.run_id is None
                and overlap(self._places, other.places)
                and self._is_open(other)
            ):
                raise click.UsageError(
                    f"Run {other.run_id}, with these options, is not finished, and its inputs have changed since. "
                    f"Continue it with --run-id {other.run_id}, or start another run with a new --run-id."
                )
        return RunRecord(
            self._run, self._request.job, options, self._inputs, time.time_ns() // 1_000_000, None, self._places
        )

    def _is_open(self, run: RunRecord) -> bool:
        manifest = self._store.manifest(LEDGER.name, run.run_id)
        if manifest is None or manifest["counts"]["left"]:
            return True
        return bool(manifest["counts"].get("unread") and manifest["counts"]["selected"])

    def _plan(self, rows: DataFrame) -> tuple[DataFrame, list[Any], Unread]:
        """The messages to send, counts of all by (target_queue, pending), and the unreadable files. Raises UsageError
        if an ordering key is too long for a gateway."""
        from pyspark.sql import functions as f

        settled = self._ledger.lines(self._run).select(
            "message_id", "target_queue", f.col("status").alias("was"), f.col("idempotency_key").alias("under")
        )
        again = self._request.unknown == "publish"
        pending = f.col("was").isNull() | (f.col("was") == "left")
        pending = pending | (f.col("was") == "unknown") if again else pending
        joined = rows.join(settled, ["message_id", "target_queue"], "left").withColumn("pending", pending)
        return joined.where("pending and unread is null"), *counted(joined)

    def _check_key_age(self, begun: RunRecord, pending: int, keys_seconds: float) -> RunRecord:
        """``begun``. Raises JobFailed if its last messages may be sent twice, because their keys have expired."""
        if begun.unsure_since is None or not pending:
            return begun
        age = time.time_ns() // 1_000_000 - begun.unsure_since + _STALE_MARGIN_MS
        if age <= keys_seconds * 1000:
            return begun
        if self._request.unknown == "publish":
            return structs.replace(begun, unsure_since=None)
        raise JobFailed(
            f"Run {self._run} was cut off {age / 3_600_000:.1f} h ago, longer than the gateway keeps keys "
            f"({keys_seconds / 3600:.1f} h), so its last messages might be sent twice. "
            "Use --unknown publish to continue anyway."
        )

    def _warn_of_rate(self, pending: int, keys_seconds: float) -> None:
        rate = self._request.max_rate
        if rate is not None and pending / rate > keys_seconds:
            say(
                f"warning: this takes at least {pending / rate / 3600:.1f} h, but the gateway keeps keys for "
                f"{keys_seconds / 3600:.1f} h: if it is killed, start it again within that time"
            )

    def _check(self, queues: Sequence[str]) -> float:
        """Check gateway and queues before sending. Returns the shortest retention of keys, in seconds."""
        request = self._request
        gateway = GatewayClient(request.target)
        kept: list[float] = []
        try:
            for queue in queues:
                answer = gateway.check(queue)
                if isinstance(answer, GatewayRefusal):
                    raise refusal(answer, queue)
                if isinstance(answer, Busy) and answer.http_status is None:
                    raise JobFailed(f"No gateway answers at {request.target.url}.")
                seconds = gateway.retention_seconds(queue)
                if seconds is not None:
                    kept.append(seconds)
        finally:
            gateway.close()
        return min(kept, default=_KEYS_SECONDS)

    def _tasks(self, pending: int) -> int:
        slots = self._request.parallelism or self._spark.sparkContext.defaultParallelism
        return max(1, min(slots, pending))

    def _send(self, planned: DataFrame, tasks: int) -> Any:
        """Send ``planned`` in one Spark action. Returns the row of a refusal by the gateway, else None."""
        from pyspark.sql import functions as f

        request = self._request
        rate = None if request.max_rate is None else request.max_rate / tasks
        job = SendTask(
            self._run, request.target, request.changes, self._ledger.target(self._run), rate, request.give_up_seconds
        )
        # One task sends the messages of an ordering key, in their order.
        together = f.coalesce("ordering_key", "message_id"), "target_queue"
        order = f.when(f.col("ordering_key").isNotNull(), f.col("place"))
        parts = planned.repartition(tasks, *together).sortWithinPartitions(
            "target_queue", order, "created_at", "message_id"
        )
        chosen = parts.select("message_id", "target_queue", "was", "under", "body", "headers", "ordering_key")
        with progress(self._spark, request.job):
            counted = chosen.mapInArrow(partial(send, sending=job), ddl(COUNTS)).collect()
        return next((row for row in counted if row["status"] == STOPPED), None)

    def _finish(self, plan: Sequence[Any], unread: Unread, refused: Any, seconds: float) -> Manifest:
        lines = self._ledger.lines(self._run)
        by = lines.groupBy("target_queue", "status", "code").count().withColumnRenamed("count", "n").collect()
        counts = counts_by_status(by)
        selected = sum(row["n"] for row in plan)
        if sum(counts.values()) < selected:
            raise JobFailed(
                f"The ledger of run {self._run} lacks some of {selected} messages: run the same command again."
            )
        codes: dict[str, int] = {}
        queues: dict[str, dict[str, int]] = {}
        for row in by:
            if row["code"] is not None:
                codes[row["code"]] = codes.get(row["code"], 0) + row["n"]
            queue = queues.setdefault(row["target_queue"], {})
            queue[row["status"]] = queue.get(row["status"], 0) + row["n"]
        facts = {
            "job": self._request.job,
            "options": self._request.identifying_options(),
            "inputs": self._inputs,
            "counts": {
                "selected": selected,
                "duplicates": sum(row["duplicates"] for row in plan),
                "unread": unread.files,
                **counts,
            },
            "codes": codes,
            "by_queue": queues,
            "seconds": round(seconds, 3),
        }
        done = counts["left"] == counts["unknown"] == unread.files == 0
        manifest = self._ledger.publish(self._run, sum(counts.values()), facts, done)
        if refused is not None:
            raise refusal(GatewayRefusal(refused["n"], refused["code"], refused["detail"]), None, counts["left"])
        return manifest
