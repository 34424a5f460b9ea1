"""What the writer thread is asked to do, and the transaction it does it in: publish, reserve, sweep.

Jobs of one kind are run together, so that a commit costs a few statements and not a few per message: each statement
hands the interpreter lock to the event loop several times and has to win it back. What one call needs beside its own
row is therefore done by triggers of the schema, so that a commit of one kind of job is a single statement.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, ClassVar, Self

import msgspec

from app.brokers.binding import NO_HEADERS, Delivery
from app.brokers.sqlite_sql import SQL, WIDEST, widened
from app.errors import BabelgateError

NEVER = -1
"""A time in Unix ms at which nothing is due."""

PROMOTED_AT_ONCE = 500
"""How many due messages one commit makes ready; those due in the same millisecond go together."""

_headers_of = msgspec.json.Decoder(dict[str, str]).decode
_encoded = msgspec.json.Encoder().encode


def dump_headers(headers: Any) -> bytes | None:
    """Headers as they are stored; ``None`` for none."""
    return _encoded(headers) if headers else None


def load_headers(stored: bytes | None) -> Any:
    """The headers that :func:`dump_headers` stored."""
    return _headers_of(stored) if stored else NO_HEADERS


def milliseconds(seconds: float) -> int:
    """A duration in whole milliseconds, never shorter than asked for."""
    return ceil(seconds * 1000)


@dataclass(slots=True)
class Transaction:
    """One ``BEGIN IMMEDIATE`` … ``COMMIT``, or a single statement that commits by itself.

    ``now`` is Unix ms; ``queue_ids`` caches names, until a rollback. It gathers what waiting reserves need to hear of
    after the commit: ``ready`` queues, the earliest time ``due``; and how many messages were ``settled``.
    """

    connection: sqlite3.Connection
    now: int
    queue_ids: dict[str, int]
    ready: set[str] = field(default_factory=set)
    due: int | None = None
    settled: int = 0

    def run(self, name: str, *parameters: Any) -> sqlite3.Cursor:
        """Execute the statement called ``name``."""
        return self.connection.execute(SQL[name], parameters)

    def value(self, name: str, *parameters: Any) -> Any:
        """The first column of the first row of the statement called ``name``, or ``None``."""
        row = self.connection.execute(SQL[name], parameters).fetchone()
        return row and row[0]

    def insert(self, name: str, columns: int, values: Sequence[Any]) -> None:
        """Insert the rows that ``values`` holds one after the other."""
        for start in range(0, len(values), WIDEST * columns):
            part = values[start : start + WIDEST * columns]
            self.connection.execute(widened(name, len(part) // columns), part)

    def queue_id(self, queue: str, create: bool = False) -> int | None:
        """The id of ``queue``; ``None`` when nothing was ever published to it, unless ``create``."""
        found: int | None = self.queue_ids.get(queue)
        if found is None:
            found = self.value("find_queue", queue)
            if found is None and create:
                found = self.run("add_queue", queue).lastrowid
            if found is not None:
                self.queue_ids[queue] = found
        return found

    def due_at(self, seconds: float) -> int:
        """The time ``seconds`` from now, in Unix ms; noted as a time at which something becomes due."""
        at = self.now + milliseconds(seconds)
        self.due = at if self.due is None else min(self.due, at)
        return at

    def promote(self) -> None:
        """Make ready what is due: delays that are over, and expired leases, each of which counts as a failure."""
        cutoff = self.value("due_cutoff", self.now, PROMOTED_AT_ONCE)
        if cutoff is not None:
            self.ready.update(name for (name,) in self.run("due_queues", cutoff))
            self.run("promote_due", cutoff)
            self.run("remove_due", cutoff)


@dataclass(slots=True, eq=False)
class Job:
    """A request to the writer: ``items`` of one ``queue``, and one result per item once the transaction has committed.

    ``error``: the whole job failed. ``size`` is the number of messages it may touch, ``weight`` the bytes it writes.
    """

    queue: str
    items: Sequence[Any] = ()
    results: list[Any] = field(default_factory=list)
    error: BabelgateError | None = None
    future: asyncio.Future[list[Any]] | None = None

    rank: ClassVar[int]
    """Jobs of a lower rank run first: what makes messages ready runs before what reserves them."""

    @classmethod
    def run(cls, tx: Transaction, jobs: Sequence[Self]) -> None:
        """Do the work of ``jobs`` and set their results. Whatever it raises undoes the transaction."""
        raise NotImplementedError

    @classmethod
    def alone(cls, tx: Transaction, jobs: Sequence[Self]) -> bool:
        """Do what :meth:`run` does by one statement that is a transaction of its own; False where that cannot be.

        Then nothing was done. One that raises BrokerRejected or is not of SQLite has done nothing either.
        """
        return False

    @property
    def size(self) -> int:
        return len(self.items)

    @property
    def weight(self) -> int:
        return 0

    def pieces(self) -> list[Self]:
        """The parts of this job that can fail alone."""
        return [replace(self, items=[item], results=[], future=None) for item in self.items]


class Publish(Job):
    """``items``: Outgoing. Results: ``None`` each."""

    __slots__ = ()
    rank = 0

    @property
    def weight(self) -> int:
        return sum(len(message.body) for message in self.items)

    @classmethod
    def run(cls, tx: Transaction, jobs: Sequence[Self]) -> None:
        rows: list[Any] = []
        for job in jobs:
            queue_id = tx.queue_id(job.queue, create=True)
            for message in job.items:
                due_at = tx.due_at(message.delay_seconds) if message.delay_seconds > 0 else None
                if due_at is None:
                    tx.ready.add(job.queue)
                rows += (queue_id, tx.now, due_at, message.body, dump_headers(message.headers))
            job.results = [None] * len(job.items)
        tx.insert("publish", 5, rows)

    @classmethod
    def alone(cls, tx: Transaction, jobs: Sequence[Self]) -> bool:
        if sum(len(job.items) for job in jobs) > WIDEST or any(job.queue not in tx.queue_ids for job in jobs):
            return False
        cls.run(tx, jobs)
        return True


@dataclass(slots=True, eq=False)
class Reserve(Job):
    """Results: up to ``limit`` Delivery, in the order of publication."""

    limit: int = 1
    lease_seconds: float = 0
    rank = 3

    @property
    def size(self) -> int:
        return self.limit

    def pieces(self) -> list[Self]:
        return [self]

    @classmethod
    def run(cls, tx: Transaction, jobs: Sequence[Self]) -> None:
        tx.promote()
        for job in jobs:
            job.results = job._lease(tx, unless_due_by=NEVER)

    @classmethod
    def alone(cls, tx: Transaction, jobs: Sequence[Self]) -> bool:
        (job, *others) = jobs
        if others or job.queue not in tx.queue_ids:
            return False
        job.results = job._lease(tx, unless_due_by=tx.now)
        if job.results:
            return True
        next_due = tx.value("next_due")
        return next_due is None or next_due > tx.now

    def _lease(self, tx: Transaction, unless_due_by: int) -> list[Delivery]:
        """Lease what is ready; nothing while something is due at ``unless_due_by``, which may be older."""
        queue_id = tx.queue_id(self.queue)
        until = tx.now + milliseconds(self.lease_seconds)
        # One nonce serves the whole call: it proves, together with the row's id, which lease a handle belongs to.
        nonce = int.from_bytes(os.urandom(8), "big") >> 1
        if not tx.run("lease", until, nonce, queue_id, unless_due_by, self.limit).rowcount:
            return []
        tx.due_at(self.lease_seconds)
        return [
            Delivery(body, f"{id:x}.{nonce:x}", until, load_headers(headers), failures, bool(redelivered))
            for id, body, headers, failures, redelivered in tx.run("leased", until, nonce).fetchall()
        ]


class Sweep(Job):
    """Make ready what is due. Results: the next time something becomes due (Unix ms), or ``None``."""

    __slots__ = ()
    rank = 2

    def pieces(self) -> list[Self]:
        return [self]

    @classmethod
    def run(cls, tx: Transaction, jobs: Sequence[Self]) -> None:
        tx.promote()
        next_due = tx.value("next_due")
        for job in jobs:
            job.results = [next_due]
