"""The SQLite binding: all queues in one local file, shared by any number of processes of one host.

Published messages are ready by priority and in the order of publication, and return to their place when a lease ends
without a settle.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from babelgate.brokers import cursor as cursors
from babelgate.brokers.batching import send_batches
from babelgate.brokers.binding import (
    DeadLetterRequest,
    DeadRecord,
    Delivery,
    NativeQueue,
    Outcome,
    Outgoing,
    Peeked,
    QueueStats,
)
from babelgate.brokers.bounded import GRACE_SECONDS, OPEN_SECONDS, PING_SECONDS
from babelgate.brokers.capabilities import MAX_DELAY_SECONDS, MAX_LEASE_SECONDS, BrokerCapabilities
from babelgate.brokers.options import OptionMap
from babelgate.brokers.projection import NativeWrite
from babelgate.brokers.sqlite.bodies import StoredBodies
from babelgate.brokers.sqlite.file import DatabaseFile
from babelgate.brokers.sqlite.idempotency import SqliteKeys
from babelgate.brokers.sqlite.jobs import (
    ORDINARY_RANK,
    ProveJob,
    PublishJob,
    ReserveJob,
    SweepJob,
    WriterJob,
    load_headers,
)
from babelgate.brokers.sqlite.projection import projection
from babelgate.brokers.sqlite.reader import Reader
from babelgate.brokers.sqlite.settle import (
    AckJob,
    DeadLetterJob,
    ExtendJob,
    PurgeDeadJob,
    PurgeJob,
    ReleaseJob,
    RemoveDeadJob,
    parse,
)
from babelgate.brokers.sqlite.url import database_file
from babelgate.brokers.sqlite.waiters import Waiters
from babelgate.brokers.sqlite.writer import UNIT_MESSAGES, Writer, parts
from babelgate.clock import Clock
from babelgate.errors import BabelgateError, BrokerError, BrokerUnavailable, OutcomeUnknown, StorageFull
from babelgate.privacy.ciphers import BodyCipher
from babelgate.runtime import turns

CAPABILITIES = BrokerCapabilities(
    max_delay_seconds=MAX_DELAY_SECONDS,
    max_retry_delay_seconds=MAX_DELAY_SECONDS,
    max_lease_seconds=MAX_LEASE_SECONDS,
    ack_scope="anywhere",
    ordering="fifo",
    native_release=True,
    delivery_count="added",
    max_body_bytes=None,
    max_batch=1000,
    headers=True,
    priorities=True,
)
"""All bounds here are ours. SQLite's own for one body is 1e9 bytes (https://www.sqlite.org/limits.html)."""

_CLOSE_SECONDS = 4
_BUSY_GRACE_SECONDS = 0.25


def connect(name: str, url: str, options: Mapping[str, Any], clock: Clock) -> SqliteBinding:
    """The binding of the broker ``name``; no I/O. Raises ConfigError for a bad URL or option."""
    return SqliteBinding(database_file(name, url, options), clock)


class SqliteBinding:
    """One file. Implements Binding, Peeks, Purges, DeadLetters, DeadStore, Lists, ReportsVersion,
    KeepsFiles, KeepsKeys and EncryptsBodies.

    A write returns after its commit. It waits for other processes at most the file's ``busy_timeout_seconds`` per
    transaction (BrokerUnavailable), and as a whole at most ``timeout_seconds`` (OutcomeUnknown). A full or read-only
    disk is StorageFull or StorageReadOnly. ``connect_writer`` opens the writer's connection, by default the file's.
    """

    lists_foreign = False

    def __init__(
        self, file: DatabaseFile, clock: Clock, connect_writer: Callable[[], sqlite3.Connection] | None = None
    ) -> None:
        self.name = file.broker
        self.timeout_seconds = file.timeout_seconds
        self._file = file
        self._clock = clock
        self._connect_writer = connect_writer or file.connect_writer
        self._bodies = StoredBodies(self.name)
        self._running: tuple[Writer, Reader, Waiters] | None = None
        self.keys = SqliteKeys(self.name, self._submit)

    def use_body_keys(self, cipher: BodyCipher) -> None:
        self._bodies.cipher = cipher

    @property
    def server_version(self) -> str:
        return f"SQLite {sqlite3.sqlite_version}"

    @property
    def files(self) -> Sequence[Path]:
        """The database and those that SQLite and the writers keep beside it."""
        return [Path(self._file.path + suffix) for suffix in ("", "-wal", "-shm", "-turn")]

    def native_queue(self, name: str, options: Mapping[str, Any]) -> NativeQueue:
        OptionMap(options).finish(" for a queue in SQLite")
        return NativeQueue(name)

    def capabilities(self, queue: NativeQueue) -> BrokerCapabilities:
        return CAPABILITIES

    async def open(self) -> None:
        await self._answered(SweepJob(""), OPEN_SECONDS)

    async def close(self) -> None:
        """Waiting reserves return empty. Leases stay: any other process can settle them, and they expire."""
        running, self._running = self._running, None
        if running is not None:
            writer, reader, waiters = running
            await waiters.close()
            await reader.close()
            await writer.stop(_CLOSE_SECONDS)

    async def ping(self) -> None:
        job = SweepJob("") if self._started()[0].is_proven else ProveJob("")
        # A full disk refuses new messages only, and receives and acks make room.
        with contextlib.suppress(StorageFull):
            try:
                await self._answered(job, PING_SECONDS)
            except OutcomeUnknown as error:
                raise BrokerUnavailable(self.name, error.reason) from error

    async def warnings(self) -> Sequence[str]:
        if self._file.synchronous == "full":
            return []
        return ["synchronous is normal: a power failure can lose the messages accepted since the last checkpoint"]

    async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        if len(messages) == 1:
            return await self._submit(PublishJob(queue.name, messages, encrypt=queue.encrypted))
        cut = parts(messages, [len(message.body) for message in messages])
        if len(cut) == 1:
            return await self._submit(PublishJob(queue.name, cut[0], encrypt=queue.encrypted))
        return await send_batches(cut, lambda part: self._submit(PublishJob(queue.name, part, encrypt=queue.encrypted)))

    async def projection(self, queue: NativeQueue, message: Outgoing) -> Sequence[NativeWrite]:
        """The rows that :meth:`publish` would write, from its own job."""
        return await turns.run(projection, queue.name, message, self._clock(), size=len(message.body))

    async def reserve(
        self, queue: NativeQueue, limit: int, wait_seconds: float, lease_seconds: float
    ) -> Sequence[Delivery]:
        job = partial(ReserveJob, queue.name, limit=min(limit, UNIT_MESSAGES), lease_seconds=lease_seconds)
        if wait_seconds <= 0:
            return await self._answered(job(), self.timeout_seconds)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        while True:
            waiters = self._started()[2]
            waiter = waiters.add(queue.name)
            try:
                deliveries = await self._answered(job(), max(deadline - loop.time(), 0) + self.timeout_seconds)
                if deliveries or not await _happens(waiter, deadline - loop.time()) or self._running is None:
                    return deliveries
            finally:
                waiters.discard(queue.name, waiter)

    async def ack(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        return await self._all([AckJob(queue.name, part) for part in parts(map(parse, handles))])

    async def release(
        self, queue: NativeQueue, handles: Sequence[str], delay_seconds: float, failed: bool
    ) -> Sequence[Outcome]:
        cut = parts(map(parse, handles))
        jobs = [ReleaseJob(queue.name, keys, delay_seconds=delay_seconds, failed=failed) for keys in cut]
        return await self._all(jobs)

    async def extend(
        self, queue: NativeQueue, handles: Sequence[str], lease_seconds: float
    ) -> Sequence[int | BabelgateError]:
        cut = parts(map(parse, handles))
        return await self._all([ExtendJob(queue.name, keys, lease_seconds=lease_seconds) for keys in cut])

    async def stats(self, queue: NativeQueue) -> QueueStats:
        now = self._clock()
        rows = await self._started()[1].of_queue("stats", queue.name, now=now)
        if not rows:
            return QueueStats(depth=0, in_flight=0, delayed=0, dead=0)
        ready, due, in_flight, delayed, dead, oldest = rows[0]
        age = None if oldest is None else max(now - oldest, 0) / 1000
        return QueueStats(ready + due, in_flight, delayed, dead, age)

    async def peek(self, queue: NativeQueue, limit: int) -> Sequence[Peeked]:
        rows = await self._started()[1].of_queue("peek", queue.name, now=self._clock(), limit=limit)
        bodies = await self._bodies.read_all(queue.name, [body for body, _ in rows])
        return [Peeked(body, load_headers(headers)) for body, (_, headers) in zip(bodies, rows, strict=True)]

    async def purge(self, queue: NativeQueue) -> int:
        return await self._purged(lambda last_id: PurgeJob(queue.name, last_id=last_id))

    async def dead_letter(self, queue: NativeQueue, letters: Sequence[DeadLetterRequest]) -> Sequence[Outcome]:
        items = ((parse(letter.handle), letter.block) for letter in letters)
        return await self._all([DeadLetterJob(queue.name, part, encrypt=queue.encrypted) for part in parts(items)])

    async def read_dead(
        self, queue: NativeQueue, cursor: str | None, limit: int
    ) -> tuple[Sequence[DeadRecord], str | None]:
        after = cursors.decode(cursor)
        rows = await self._started()[1].of_queue("read_dead", queue.name, after=after, limit=limit)
        bodies = await self._bodies.read_all(queue.name, [body for _, body, _, _ in rows])
        records = [
            DeadRecord(id, body, load_headers(headers))
            if rank == ORDINARY_RANK
            else DeadRecord(id, body, load_headers(headers), rank, 9 - rank)
            for (id, _, headers, rank), body in zip(rows, bodies, strict=True)
        ]
        return records, cursors.encode(records[-1].key) if len(records) == limit else None

    async def remove_dead(
        self, queue: NativeQueue, records: Sequence[DeadRecord], cursor: str | None
    ) -> tuple[Sequence[bool], str | None]:
        cut = parts(record.key for record in records)
        return await self._all([RemoveDeadJob(queue.name, ids) for ids in cut]), cursor

    async def purge_dead(self, queue: NativeQueue) -> int:
        return await self._purged(lambda last_id: PurgeDeadJob(queue.name, last_id=last_id))

    async def queues(self) -> Sequence[str]:
        return [name for (name,) in await self._started()[1].rows("list_queues")]

    def _started(self) -> tuple[Writer, Reader, Waiters]:
        if self._running is None:
            reader = Reader(self._file)
            waiters = Waiters(reader.look, self._sweep, self._clock)
            writer = Writer(self._file, self._clock, self._committed, self._connect_writer, self._bodies)
            self._running = writer, reader, waiters
        return self._running

    def _queued(self, job: WriterJob) -> asyncio.Future[list[Any]]:
        return self._started()[0].submit(job)

    async def _submit(self, job: WriterJob) -> list[Any]:
        """The results of a job that writes. Raises OutcomeUnknown after ``timeout_seconds`` and a grace, during which
        the writer can still report that other processes kept the file locked."""
        return await self._answered(job, self.timeout_seconds + _BUSY_GRACE_SECONDS, OutcomeUnknown)

    async def _all(self, jobs: Sequence[WriterJob]) -> list[Any]:
        if len(jobs) == 1:
            return await self._submit(jobs[0])
        return [result for results in await asyncio.gather(*map(self._submit, jobs)) for result in results]

    async def _answered(self, job: WriterJob, seconds: float, late: type[BrokerError] = BrokerUnavailable) -> list[Any]:
        """The results of a job; raises ``late`` after ``seconds`` and a grace.

        The writer drops a job whose caller has gone before it was begun.
        """
        answer = self._queued(job)
        loop = answer.get_loop()
        # At the first timer this process may have stood still, and the results are there.
        timer = loop.call_later(seconds, loop.call_later, GRACE_SECONDS, self._expire, answer, seconds, late)
        try:
            return await answer
        except asyncio.CancelledError:
            # The results may have come in the same turn of the event loop.
            if not answer.cancelled() and answer.exception() is None:
                self._give_back(job)
            raise
        finally:
            timer.cancel()

    def _expire(self, answer: asyncio.Future[list[Any]], seconds: float, late: type[BrokerError]) -> None:
        if not answer.done():
            answer.set_exception(late(self.name, f"no answer within {seconds:g} s"))

    def _give_back(self, job: WriterJob) -> None:
        """Give back messages that were reserved for a caller that has gone."""
        if isinstance(job, ReserveJob) and job.results and self._running:
            self._queued(ReleaseJob(job.queue, [parse(delivery.handle) for delivery in job.results]))

    async def _purged(self, job: Callable[[int | None], WriterJob]) -> int:
        total = 0
        last_id: int | None = None
        while True:
            removed, last_id = await self._submit(job(last_id))
            total += int(removed)
            if last_id is None:
                return total

    async def _sweep(self) -> int | None:
        next_due: int | None
        (next_due,) = await self._submit(SweepJob(""))
        return next_due

    def _committed(self, ready: set[str], due: int | None, unwanted: Sequence[WriterJob]) -> None:
        if self._running is not None:
            _, _, waiters = self._running
            waiters.wake(ready)
            waiters.due(due)
            for job in unwanted:
                self._give_back(job)


async def _happens(waiter: asyncio.Future[None], within_seconds: float) -> bool:
    if within_seconds > 0:
        await asyncio.wait([waiter], timeout=within_seconds)
    return waiter.done()
