"""Runs all writes of one file in one thread, with group commit.

All jobs that wait when a transaction begins share its commit, up to a bound; jobs that arrive during the commit share
the next. So an idle writer adds no wait, and under load many jobs share the cost of a commit.
"""

from __future__ import annotations

import asyncio
import math
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from babelgate.brokers.batching import batches
from babelgate.brokers.sqlite.bodies import StoredBodies
from babelgate.brokers.sqlite.errors import primary_code, translated
from babelgate.brokers.sqlite.file import DatabaseFile
from babelgate.brokers.sqlite.jobs import Transaction, WriterJob
from babelgate.brokers.sqlite.room import RESERVED_BYTES, Room
from babelgate.brokers.sqlite.settle import FORGET_EVERY, forget_settled
from babelgate.clock import Clock
from babelgate.errors import BrokerUnavailable, ConfigError, StorageFull
from babelgate.runtime.cache import Cache

COMMIT_SECONDS = 0.010
COMMIT_MESSAGES = 1000
"""A commit takes no further work after this long, or past this many messages."""

_QUEUE_IDS_BYTES = 4 * 1024 * 1024
"""Of the row ids of queues that are remembered: about 10,000."""

PROVEN_SECONDS = 30.0
"""How long a ping believes that the file can be written, after a write has shown it. An idle replica writes a page
twice a minute, and readiness finds a file that became read-only about as soon as other outages."""

UNIT_MESSAGES = 250
UNIT_BYTES = 1 << 20
"""The work between two checks of the clock, and the bounds of one job."""

Item = TypeVar("Item")

Committed = Callable[[set[str], int | None, Sequence[WriterJob]], None]
"""Called on the event loop after each commit: queues with messages newly ready, the earliest new due time (Unix ms),
and the jobs that were done although their callers had gone."""


class Writer:
    """Runs jobs on its own connection. ``connect`` opens it, in the thread (a seam: ``file.connect_writer``)."""

    def __init__(
        self,
        file: DatabaseFile,
        clock: Clock,
        committed: Committed,
        connect: Callable[[], sqlite3.Connection],
        bodies: StoredBodies,
    ) -> None:
        self._file = file
        self._bodies = bodies
        self._clock = clock
        self._committed = committed
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._inbox: SimpleQueue[WriterJob | None] = SimpleQueue()
        self._stopping = False
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._queue_ids: Cache[str, int] = Cache(_QUEUE_IDS_BYTES)
        self._room = Room(file.path)
        self._was_open = False
        self._proven_at = -math.inf
        self._settled = 0
        self._forgotten = -1
        self._thread = threading.Thread(target=self._run, name=f"sqlite-{file.broker}", daemon=True)
        self._thread.start()

    def submit(self, job: WriterJob) -> asyncio.Future[list[Any]]:
        """Queue ``job``; return a future of its results, or its error, after the commit. Called on the event loop."""
        job.future = self._loop.create_future()
        self._inbox.put(job)
        return job.future

    @property
    def is_proven(self) -> bool:
        """Whether a ProveJob has succeeded within the last PROVEN_SECONDS, and no commit has failed since."""
        return time.monotonic() - self._proven_at < PROVEN_SECONDS

    async def stop(self, timeout_seconds: float) -> None:
        """Run the submitted jobs, then end the thread; waits at most ``timeout_seconds`` for it."""
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join, timeout_seconds)

    def _run(self) -> None:
        waiting: list[WriterJob] = []
        while waiting or not self._stopping:
            if not waiting:
                self._take(waiting, self._inbox.get())
                continue
            try:
                connection = self._begin()
            except Exception as error:
                self._drain(waiting)
                self._fail(waiting, error)
                waiting = []
                continue
            self._drain(waiting, COMMIT_MESSAGES - UNIT_MESSAGES)
            waiting = self._work(connection, self._with_room(connection, waiting))
        self._disconnect(checkpoint=True)

    def _take(self, waiting: list[WriterJob], job: WriterJob | None) -> int:
        if job is None:
            self._stopping = True
        elif job.future is None or not job.future.done():
            waiting.append(job)
            return job.size
        return 0

    def _drain(self, waiting: list[WriterJob], messages: float = math.inf) -> None:
        taken = sum(job.size for job in waiting)
        with suppress(Empty):
            while taken <= messages and not self._stopping:
                taken += self._take(waiting, self._inbox.get_nowait())

    def _begin(self) -> sqlite3.Connection:
        if self._connection is not None and self._identity != self._file.identity():
            self._disconnect()  # the file was removed or replaced; writes to the old one would be lost
        if self._connection is None:
            self._connection = self._reconnect() if self._was_open else self._connect()
            self._was_open = True
            self._identity = self._file.identity()
            self._queue_ids.clear()
        self._file.begin(self._connection)
        return self._connection

    def _reconnect(self) -> sqlite3.Connection:
        """Open the file again. A file that cannot be used is a wrong configuration only at the start."""
        try:
            return self._connect()
        except ConfigError as error:
            raise BrokerUnavailable(self._file.broker, error.facts["reason"]) from error

    def _with_room(self, connection: sqlite3.Connection, jobs: list[WriterJob]) -> list[WriterJob]:
        """``jobs`` without those that would use the last of the disk; these fail."""
        adding = [job for job in jobs if job.adds]
        if not adding or self._room.suffices(connection, sum(job.weight for job in adding)):
            return jobs
        reason = f"less than {RESERVED_BYTES >> 20} MiB are free on its disk, which receives and settles need"
        for job in adding:
            job.error = StorageFull(self._file.broker, reason)
        self._report(adding, set(), None)
        return [job for job in jobs if not job.adds]

    def _work(self, connection: sqlite3.Connection, jobs: list[WriterJob]) -> list[WriterJob]:
        """Run and commit ``jobs`` as far as the time allows; return the others."""
        units = _units(jobs)
        tx = Transaction(connection, self._clock(), self._queue_ids, self._bodies)
        started = time.monotonic()
        done: list[WriterJob] = []
        try:
            while units and (not done or time.monotonic() - started < COMMIT_SECONDS):
                unit = units.popleft()
                done += unit
                type(unit[0]).run(tx, unit)
            self._forget(tx)
        except Exception:
            self._one_by_one(connection, done)
        else:
            self._commit(tx, done)
        return [job for unit in units for job in unit]

    def _one_by_one(self, connection: sqlite3.Connection, jobs: list[WriterJob]) -> None:
        """Repeat ``jobs`` after a failure with a savepoint per message, so that only the faulty ones fail."""
        try:
            self._roll_back()
            self._file.begin(connection)
            tx = Transaction(connection, self._clock(), self._queue_ids, self._bodies)
            for job in jobs:
                pieces = job.pieces()
                for piece in pieces:
                    self._attempt(tx, piece)
                if pieces != [job]:
                    job.results = [piece.error or piece.results[0] for piece in pieces]
        except Exception as error:
            self._fail(jobs, error)
        else:
            self._commit(tx, jobs)

    def _attempt(self, tx: Transaction, piece: WriterJob) -> None:
        tx.connection.execute("SAVEPOINT piece")
        try:
            type(piece).run(tx, [piece])
        except Exception as error:
            if not tx.connection.in_transaction:
                raise  # SQLite has undone the whole transaction, as it does when the disk is full
            tx.connection.execute("ROLLBACK TO piece")
            tx.queue_ids.clear()
            piece.error = translated(error, self._file.broker)
        tx.connection.execute("RELEASE piece")

    def _forget(self, tx: Transaction) -> None:
        self._settled += tx.settled
        if self._settled >= FORGET_EVERY:
            self._settled = 0
            self._forgotten = forget_settled(tx, self._forgotten)

    def _commit(self, tx: Transaction, jobs: list[WriterJob]) -> None:
        try:
            tx.connection.execute("COMMIT")
        except Exception as error:
            self._fail(jobs, error, committing=True)
        else:
            if tx.proved:
                self._proven_at = time.monotonic()
            self._report(jobs, tx.ready, tx.due)

    def _fail(self, jobs: list[WriterJob], error: Exception, committing: bool = False) -> None:
        self._roll_back()
        if isinstance(error, sqlite3.Error) and primary_code(error) != sqlite3.SQLITE_FULL:
            self._disconnect()
            self._proven_at = -math.inf
        for job in jobs:
            job.error = translated(error, self._file.broker, committing)
        self._report(jobs, set(), None)

    def _roll_back(self) -> None:
        self._queue_ids.clear()
        if self._connection is not None and self._connection.in_transaction:
            with suppress(sqlite3.Error):  # after a failed ROLLBACK the next BEGIN fails as well
                self._connection.execute("ROLLBACK")

    def _disconnect(self, checkpoint: bool = False) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                if checkpoint:
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
                connection.close()

    def _report(self, jobs: list[WriterJob], ready: set[str], due: int | None) -> None:
        with suppress(RuntimeError):  # the event loop is closed: no caller is left
            self._loop.call_soon_threadsafe(self._resolve, jobs, ready, due)

    def _resolve(self, jobs: list[WriterJob], ready: set[str], due: int | None) -> None:
        unwanted: list[WriterJob] = []
        for job in jobs:
            if job.future is None or job.future.done():
                if job.error is None:
                    unwanted.append(job)
            elif job.error is not None:
                job.future.set_exception(job.error)
            else:
                job.future.set_result(job.results)
        self._committed(ready, due, unwanted)


def parts(items: Iterable[Item], sizes: Sequence[int] = ()) -> list[list[Item]]:
    """``items`` in batches that fit one job; ``sizes``: the bytes of each."""
    return list(batches(items, UNIT_MESSAGES, UNIT_BYTES, sizes))


def _units(jobs: list[WriterJob]) -> deque[list[WriterJob]]:
    """``jobs`` by kind, split into units of bounded work; each kind keeps its order of arrival."""
    units: deque[list[WriterJob]] = deque()
    for _, alike in groupby(sorted(jobs, key=lambda job: (job.rank, type(job).__name__)), key=type):
        messages = size = math.inf
        for job in alike:
            messages, size = messages + job.size, size + job.weight
            if messages > UNIT_MESSAGES or size > UNIT_BYTES:
                units.append([])
                messages, size = job.size, job.weight
            units[-1].append(job)
    return units
