"""The one thread that writes: group commit.

Whatever waits when a transaction begins shares its commit, up to a bound; what arrives during the commit shares
the next. So there is no added wait when idle, and under load the cost of a commit is divided by all who wait for it.
"""

from __future__ import annotations

import asyncio
import math
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import Any

from app.brokers.sqlite.errors import primary_code, translated
from app.brokers.sqlite.file import DatabaseFile
from app.brokers.sqlite.jobs import Job, Transaction
from app.brokers.sqlite.settle import FORGET_EVERY, forget_settled
from app.clock import Clock
from app.errors import BabelgateError

COMMIT_SECONDS = 0.010
COMMIT_MESSAGES = 1000
"""A commit takes no further work after this long, or past this many messages."""

UNIT_MESSAGES = 250
UNIT_BYTES = 1 << 20
"""The work between two looks at the clock, and the most that one job should ask for: this many messages or bytes."""

Committed = Callable[[set[str], int | None], None]
"""Told on the event loop, once per commit: queues with messages newly ready, the earliest new due time (Unix ms)."""


class Writer:
    """Runs jobs on its own connection. ``connect`` opens it, in the thread (a seam: ``file.connect_writer``)."""

    def __init__(
        self, file: DatabaseFile, clock: Clock, committed: Committed, connect: Callable[[], sqlite3.Connection]
    ) -> None:
        self._file = file
        self._clock = clock
        self._committed = committed
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._inbox: SimpleQueue[Job | None] = SimpleQueue()
        self._stopping = False
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._queue_ids: dict[str, int] = {}
        self._settled = 0
        self._forgotten = -1
        self._thread = threading.Thread(target=self._run, name=f"sqlite-{file.broker}", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> asyncio.Future[list[Any]]:
        """Queue ``job``; its results, or its error, come after the commit. Called on the event loop."""
        job.future = self._loop.create_future()
        self._inbox.put(job)
        return job.future

    async def stop(self, timeout_seconds: float) -> None:
        """Do what was submitted, then end the thread; waits at most ``timeout_seconds`` for it."""
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join, timeout_seconds)

    def _run(self) -> None:
        waiting: list[Job] = []
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
            waiting = self._work(connection, waiting)
        self._disconnect(checkpoint=True)

    def _take(self, waiting: list[Job], job: Job | None) -> int:
        if job is None:
            self._stopping = True
        elif job.future is None or not job.future.cancelled():
            waiting.append(job)
            return job.size
        return 0

    def _drain(self, waiting: list[Job], messages: float = math.inf) -> None:
        taken = sum(job.size for job in waiting)
        with suppress(Empty):
            while taken <= messages and not self._stopping:
                taken += self._take(waiting, self._inbox.get_nowait())

    def _begin(self) -> sqlite3.Connection:
        if self._connection is not None and self._identity != self._file.identity():
            self._disconnect()  # the file was removed or replaced, and what goes to the old one is lost
        if self._connection is None:
            self._connection = self._connect()
            self._identity = self._file.identity()
            self._queue_ids.clear()
        self._file.begin(self._connection)
        return self._connection

    def _work(self, connection: sqlite3.Connection, jobs: list[Job]) -> list[Job]:
        """Run and commit ``jobs`` as far as the time allows; those that are left."""
        units = _units(jobs)
        tx = Transaction(connection, self._clock(), self._queue_ids)
        started = time.monotonic()
        done: list[Job] = []
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

    def _one_by_one(self, connection: sqlite3.Connection, jobs: list[Job]) -> None:
        """Start over after a failure, each message in a savepoint: it fails, not those it shared a statement with."""
        try:
            self._roll_back()
            self._file.begin(connection)
            tx = Transaction(connection, self._clock(), self._queue_ids)
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

    def _attempt(self, tx: Transaction, piece: Job) -> None:
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

    def _commit(self, tx: Transaction, jobs: list[Job]) -> None:
        try:
            tx.connection.execute("COMMIT")
        except Exception as error:
            self._fail(jobs, error, committing=True)
        else:
            self._tell(jobs, tx.ready, tx.due)

    def _fail(self, jobs: list[Job], error: Exception, committing: bool = False) -> None:
        self._roll_back()
        if isinstance(error, sqlite3.Error) and primary_code(error) != sqlite3.SQLITE_FULL:
            self._disconnect()
        for job in jobs:
            job.error = translated(error, self._file.broker, committing)
        self._tell(jobs, set(), None)

    def _roll_back(self) -> None:
        self._queue_ids.clear()
        if self._connection is not None and self._connection.in_transaction:
            with suppress(sqlite3.Error):  # one that fails leaves a transaction that the next BEGIN trips over
                self._connection.execute("ROLLBACK")

    def _disconnect(self, checkpoint: bool = False) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                if checkpoint:
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
                connection.close()

    def _tell(self, jobs: list[Job], ready: set[str], due: int | None) -> None:
        with suppress(RuntimeError):  # the event loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(self._resolve, jobs, ready, due)

    def _resolve(self, jobs: list[Job], ready: set[str], due: int | None) -> None:
        for job in jobs:
            if job.future is None or job.future.done():
                continue  # nobody waits for it any more
            if job.error is not None:
                job.future.set_exception(job.error)
            else:
                job.future.set_result(job.results)
        self._committed(ready, due)


def parts(items: Iterable[Any], weight: Callable[[Any], int] = lambda item: 0) -> list[list[Any]]:
    """``items`` cut into parts of the size a job should have; ``weight`` in bytes."""
    cut: list[list[Any]] = []
    left = 0
    for item in items:
        left -= weight(item)
        if not cut or left < 0 or len(cut[-1]) == UNIT_MESSAGES:
            cut.append([])
            left = UNIT_BYTES - weight(item)
        cut[-1].append(item)
    return cut


async def gathered(submit: Callable[[Job], Awaitable[list[Any]]], jobs: Sequence[Job]) -> list[Any]:
    """The results of all ``jobs``, in order. They may be of several commits: one that failed has its error for each of
    its items."""
    results: list[Any] = []
    for job, answer in zip(jobs, await asyncio.gather(*map(submit, jobs), return_exceptions=True), strict=True):
        if isinstance(answer, BabelgateError):
            results += [answer] * len(job.items)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            results += answer
    return results


def _units(jobs: list[Job]) -> deque[list[Job]]:
    """``jobs`` by kind, cut into units of bounded work; the order of arrival is kept within a kind."""
    units: deque[list[Job]] = deque()
    for _, alike in groupby(sorted(jobs, key=lambda job: (job.rank, type(job).__name__)), key=type):
        messages = size = math.inf
        for job in alike:
            messages, size = messages + job.size, size + job.weight
            if messages > UNIT_MESSAGES or size > UNIT_BYTES:
                units.append([])
                messages, size = job.size, job.weight
            units[-1].append(job)
    return units
