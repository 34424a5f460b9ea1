"""The writer's jobs to publish, reserve and sweep, and the transaction that they run in.

Jobs of one kind run together, so that a commit needs a few statements, not a few per message: each statement releases
the interpreter lock to the event loop and has to take it again.
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
from msgspec.structs import replace as with_fields

from babelgate.brokers.binding import NO_HEADERS, Delivery, Outgoing
from babelgate.brokers.sqlite.bodies import StoredBodies
from babelgate.brokers.sqlite.file import SQL, WIDEST, mark_encrypted, prove_writable, widened
from babelgate.errors import BabelgateError
from babelgate.privacy.ciphers import BodyUnreadable
from babelgate.runtime.cache import Cache

PROMOTED_AT_ONCE = 500
"""The most due messages that one commit makes ready, not counting those due in the same millisecond as the last."""

_EXPIRED = 2
"""The value of ``redelivered`` for a message whose last lease expired."""

ORDINARY_RANK = 5
"""The rank of a message without a priority, which is that of priority 4, the default of JMS."""

_headers_of = msgspec.json.Decoder(dict[str, str]).decode
_encoded = msgspec.json.Encoder().encode


def dump_headers(headers: Any) -> bytes | None:
    """Headers as they are stored; ``None`` for none."""
    return _encoded(headers) if headers else None


def load_headers(stored: bytes | None) -> Any:
    """The headers that :func:`dump_headers` stored."""
    return _headers_of(stored) if stored else NO_HEADERS


def rank_of(message: Outgoing) -> int:
    """The rank of a message: 9 less its priority, or the rank that a dead letter has kept as ``carried``."""
    if message.priority is not None:
        return 9 - message.priority
    return message.carried if type(message.carried) is int else ORDINARY_RANK


def milliseconds(seconds: float) -> int:
    """A duration in whole milliseconds, rounded up."""
    return ceil(seconds * 1000)


@dataclass(slots=True)
class Transaction:
    """One ``BEGIN IMMEDIATE`` … ``COMMIT``. ``now`` is Unix ms; ``queue_ids`` caches names, until a rollback.

    It collects what is reported after the commit: the queues with messages newly ``ready``, the earliest new ``due``
    time (Unix ms), the number of messages ``settled``, and whether it ``proved`` that the file can be written.
    """

    connection: sqlite3.Connection
    now: int
    queue_ids: Cache[str, int]
    bodies: StoredBodies
    ready: set[str] = field(default_factory=set)
    due: int | None = None
    settled: int = 0
    proved: bool = False

    def run(self, name: str, *parameters: Any) -> sqlite3.Cursor:
        """Execute the statement called ``name``."""
        return self.connection.execute(SQL[name], parameters)

    def value(self, name: str, *parameters: Any) -> Any:
        """The first column of the first row of the statement called ``name``, or ``None``."""
        row = self.connection.execute(SQL[name], parameters).fetchone()
        return row and row[0]

    def insert(self, name: str, columns: int, values: Sequence[Any]) -> None:
        """Insert rows of ``columns`` columns, whose values follow one another in ``values``; widest statements first.

        The widths are powers of two, so that few statements have to be prepared.
        """
        start, rows, width = 0, len(values) // columns, WIDEST
        while rows:
            while width > rows:
                width //= 2
            end = start + width * columns
            self.connection.execute(widened(name, width), values[start:end])
            start, rows = end, rows - width

    def queue_id(self, queue: str, create: bool = False) -> int | None:
        """The id of ``queue``; ``None`` when it never had a message, unless ``create``."""
        found: int | None = self.queue_ids.get(queue)
        if found is None:
            found = self.value("find_queue", queue)
            if found is None and create:
                found = self.run("add_queue", queue).lastrowid
            if found is not None:
                self.queue_ids.keep(queue, found)
        return found

    def due_at(self, seconds: float) -> int:
        """The time ``seconds`` from now, in Unix ms; it is noted in ``due``."""
        at = self.now + milliseconds(seconds)
        self.due = at if self.due is None else min(self.due, at)
        return at

    def stored(self, queue: str, body: bytes, encrypt: bool) -> bytes:
        """``body`` as it is stored. With ``encrypt`` the file is one that older programs refuse."""
        if encrypt:
            mark_encrypted(self.connection)
        return self.bodies.written(queue, body, encrypt)

    def promote(self) -> None:
        """Make ready the messages whose delay is over, and those with an expired lease, which counts as a failure."""
        cutoff = self.value("due_cutoff", self.now, PROMOTED_AT_ONCE)
        if cutoff is not None:
            self.ready.update(name for (name,) in self.run("due_queues", cutoff))
            self.run("promote_due", cutoff)
            self.run("remove_due", cutoff)


@dataclass(slots=True, eq=False)
class WriterJob:
    """A request to the writer: ``items`` of one ``queue``, and one result per item once the transaction has committed.

    ``error``: the whole job failed. ``size`` is the number of messages it may touch, ``weight`` the bytes it writes.
    ``encrypt``: the bodies that it writes.
    """

    queue: str
    items: Sequence[Any] = ()
    results: list[Any] = field(default_factory=list)
    error: BabelgateError | None = None
    future: asyncio.Future[list[Any]] | None = None
    encrypt: bool = False

    adds: ClassVar[bool] = False
    """Whether it stores something new, which may not use the last of the disk."""
    rank: ClassVar[int]
    """Jobs of a lower rank run first: those that make messages ready run before those that reserve."""

    @classmethod
    def run(cls, tx: Transaction, jobs: Sequence[Self]) -> None:
        """Do the work of ``jobs`` and set their results. Any error rolls the transaction back."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        return len(self.items)

    @property
    def weight(self) -> int:
        return 0

    def pieces(self) -> list[Self]:
        """The parts of this job that can fail alone."""
        return [replace(self, items=[item], results=[], future=None) for item in self.items]


class PublishJob(WriterJob):
    """``items``: Outgoing. Results: ``None`` each."""

    __slots__ = ()
    adds = True
    rank = 0

    @property
    def weight(self) -> int:
        return sum(len(message.body) for message in self.items)

    @classmethod
    def run(cls, tx: Transaction, jobs: Sequence[Self]) -> None:
        by_queue: dict[str, tuple[list[Outgoing], list[Outgoing], list[Outgoing]]] = {}
        for job in jobs:
            queued = by_queue.setdefault(job.queue, ([], [], []))
            for message in job.items:
                stored = tx.stored(job.queue, message.body, job.encrypt)
                if stored is not message.body:
                    message = with_fields(message, body=stored)
                is_plain = message.priority is None and message.carried is None
                queued[
                    1 if message.delay_seconds > 0 else 0 if is_plain or rank_of(message) == ORDINARY_RANK else 2
                ].append(message)
            job.results = [None] * len(job.items)
        after = tx.value("last_id") + 1
        rows: list[Any] = []
        ranges: list[tuple[int, int, int]] = []
        ranked_rows: list[Any] = []
        delayed_rows: list[Any] = []
        for queue, (at_once, delayed, ranked) in by_queue.items():
            queue_id = tx.queue_id(queue, create=True)
            assert queue_id is not None
            if at_once:
                ranges.append((queue_id, after, after + len(at_once) - 1))
                tx.ready.add(queue)
            for message in at_once:
                rows += (after, tx.now, message.body, dump_headers(message.headers))
                after += 1
            for message in delayed:
                rows += (after, tx.now, message.body, dump_headers(message.headers))
                delayed_rows += (after, queue_id, tx.due_at(message.delay_seconds), rank_of(message))
                after += 1
            for message in ranked:
                rows += (after, tx.now, message.body, dump_headers(message.headers))
                ranked_rows += (queue_id, rank_of(message), after)
                tx.ready.add(queue)
                after += 1
        tx.insert("add_messages", 4, rows)
        for added in ranges:
            tx.run("add_ready", *added)
        tx.insert("add_ranked", 3, ranked_rows)
        tx.insert("add_delayed", 4, delayed_rows)


@dataclass(slots=True, eq=False)
class ReserveJob(WriterJob):
    """Results: up to ``limit`` Delivery, by priority, then in the order of publication."""

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
            job.results = job._reserve(tx)

    def _reserve(self, tx: Transaction) -> list[Delivery]:
        queue_id = tx.queue_id(self.queue)
        rows = [] if queue_id is None else tx.run("next_ready", queue_id, self.limit).fetchall()
        bodies = []
        for row in rows:
            try:
                bodies.append(tx.bodies.read(self.queue, row[1]))
            except BodyUnreadable as error:
                # It keeps its place, and the next messages wait behind it, as long as its key is missing.
                if not bodies:
                    self.error = error
                break
        rows = rows[: len(bodies)]
        if not rows:
            return []
        last, rank = rows[-1][0], rows[-1][5]
        until = tx.due_at(self.lease_seconds)
        # One nonce for the whole call: together with the row's id it identifies the lease of a handle.
        nonce = int.from_bytes(os.urandom(8), "big") >> 1
        tx.run("lease_ready", until, nonce, queue_id, rank, last)
        tx.run("remove_ready", queue_id, rank, last)
        return [
            Delivery(
                body,
                f"{id:x}.{nonce:x}",
                until,
                load_headers(headers),
                failures,
                redelivered=redelivered > 0,
                expired=redelivered == _EXPIRED,
            )
            for (id, _, headers, failures, redelivered, _), body in zip(rows, bodies, strict=True)
        ]


class SweepJob(WriterJob):
    """Make due messages ready. Results: the next due time (Unix ms), or ``None``."""

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


class ProveJob(WriterJob):
    """Write one page, which shows that the file can still be written. Results: ``None``."""

    __slots__ = ()
    adds = True
    rank = 2

    def pieces(self) -> list[Self]:
        return [self]

    @classmethod
    def run(cls, tx: Transaction, jobs: Sequence[Self]) -> None:
        prove_writable(tx.connection)
        tx.proved = True
        for job in jobs:
            job.results = [None]
