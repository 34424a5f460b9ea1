"""The writer's jobs that end or extend leases, and that remove messages and dead letters."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Self

from babelgate.brokers.sqlite.jobs import SweepJob, Transaction, WriterJob
from babelgate.envelope import dead_letter_record
from babelgate.errors import LeaseLost
from babelgate.privacy.ciphers import is_encrypted

SETTLED_FOR_MS = 60_000
"""How long after a settle, and at least until the lease's deadline, a repeated settle succeeds."""

FORGET_EVERY = 256
"""After how many settles the writer calls :func:`forget_settled`."""

_PURGED_AT_ONCE = 500
"""The most messages that one commit of a purge removes."""

Key = tuple[int, int]
"""The content of a handle: the message's id and the nonce of its lease."""


def parse(handle: str) -> Key:
    """The key in ``handle``; for a malformed handle a key that belongs to no lease."""
    id, _, nonce = handle.partition(".")
    try:
        key = int(id, 16), int(nonce, 16)
    except ValueError:
        return -1, -1
    # SQLite has no larger integers.
    return key if max(map(abs, key)) < 1 << 63 else (-1, -1)


def array(ids: Iterable[int]) -> str:
    """``ids`` as the JSON array that the statements take as a list."""
    return f"[{','.join(map(str, ids))}]"


class LeaseJob(WriterJob):
    """A job on leases: ``items`` are keys."""

    __slots__ = ()
    rank = 1

    @staticmethod
    def key(item: Any) -> Key:
        """The key of an item."""
        key: Key = item
        return key

    @classmethod
    def leased(cls, tx: Transaction, jobs: Sequence[Self]) -> dict[int, int]:
        """The ids and nonces of the messages of ``jobs`` whose lease is valid and has the nonce of the key.

        A lease ends at its deadline; its row stays until it is promoted, which counts the expiry.
        """
        wanted = [(*cls.key(item), job.queue) for job in jobs for item in job.items]
        held = {
            id: (nonce, queue_id) for id, nonce, queue_id in tx.run("leases", array(id for id, _, _ in wanted), tx.now)
        }
        return {id: nonce for id, nonce, queue in wanted if held.get(id) == (nonce, tx.queue_id(queue))}

    @classmethod
    def finish(cls, tx: Transaction, jobs: Sequence[Self], leased: dict[int, int], dead: bool) -> None:
        """Remove the ``leased`` messages and set the results: None also for a message that was settled alike before."""
        if leased:
            ids = array(leased)
            tx.run("add_settled", tx.now + SETTLED_FOR_MS, dead, ids)
            tx.run("remove_held", ids)
            tx.run("remove_messages", ids)
            tx.settled += len(leased)
        done = set(leased.items())
        others = {cls.key(item) for job in jobs for item in job.items} - done
        if others:
            done.update(tx.run("settlements", array(id for id, _ in others), dead, tx.now).fetchall())
        for job in jobs:
            job.results = [None if cls.key(item) in done else LeaseLost() for item in job.items]


class AckJob(LeaseJob):
    """Results: ``None``, or LeaseLost."""

    __slots__ = ()

    @classmethod
    def run(cls, tx: Transaction, jobs: Sequence[Self]) -> None:
        if len(jobs) != 1 or len(jobs[0].items) != 1 or not cls._settles_one(tx, jobs[0]):
            cls.finish(tx, jobs, cls.leased(tx, jobs), dead=False)

    @classmethod
    def _settles_one(cls, tx: Transaction, job: Self) -> bool:
        """Ack the only item of ``job`` with one statement less than others need; False where its lease is not valid."""
        id, nonce = job.items[0]
        until, queue_id = tx.now + SETTLED_FOR_MS, tx.queue_id(job.queue)
        if not tx.run("settle_one", until, id, nonce, queue_id, tx.now).rowcount:
            return False
        ids = array((id,))
        tx.run("remove_held", ids)
        tx.run("remove_messages", ids)
        tx.settled += 1
        job.results = [None]
        return True


class DeadLetterJob(LeaseJob):
    """Dead-letter. ``items``: a key with the ``dead_letter`` block. Results: ``None``, or LeaseLost."""

    __slots__ = ()

    @staticmethod
    def key(item: tuple[Key, Mapping[str, Any]]) -> Key:
        return item[0]

    @classmethod
    def run(cls, tx: Transaction, jobs: Sequence[Self]) -> None:
        leased = cls.leased(tx, jobs)
        stored = {id: (body, headers, rank) for id, body, headers, rank in tx.run("stored", array(leased))}
        rows: list[Any] = []
        for job in jobs:
            for (id, nonce), block in job.items:
                if leased.get(id) == nonce and id in stored:
                    body, headers, rank = stored.pop(id)
                    record = dead_letter_record(tx.bodies.read(job.queue, body), block)
                    record = tx.stored(job.queue, record, job.encrypt or is_encrypted(body))
                    rows += (tx.queue_id(job.queue), tx.now, record, headers, rank)
        tx.insert("add_dead", 5, rows)
        cls.finish(tx, jobs, leased, dead=True)


@dataclass(slots=True, eq=False)
class ReleaseJob(LeaseJob):
    """Results: ``None``, or LeaseLost."""

    delay_seconds: float = 0
    failed: bool = False

    @classmethod
    def run(cls, tx: Transaction, jobs: Sequence[Self]) -> None:
        for (delay_seconds, failed), alike in groupby(jobs, key=lambda job: (job.delay_seconds, job.failed)):
            group = list(alike)
            leased = cls.leased(tx, group)
            ids = array(leased)
            if leased and delay_seconds > 0:
                tx.run("release_later", tx.due_at(delay_seconds), failed, failed, ids)
            elif leased:
                tx.run("release_now", failed, failed, ids)
                tx.run("remove_held", ids)
                tx.ready.update(job.queue for job in group)
            done = set(leased.items())
            for job in group:
                job.results = [None if key in done else LeaseLost() for key in job.items]


@dataclass(slots=True, eq=False)
class ExtendJob(LeaseJob):
    """Results: the new deadline in Unix ms, or LeaseLost."""

    lease_seconds: float = 0

    @classmethod
    def run(cls, tx: Transaction, jobs: Sequence[Self]) -> None:
        for lease_seconds, alike in groupby(jobs, key=lambda job: job.lease_seconds):
            group = list(alike)
            leased = cls.leased(tx, group)
            until = tx.due_at(lease_seconds)
            tx.run("extend", until, array(leased))
            done = set(leased.items())
            for job in group:
                job.results = [until if key in done else LeaseLost() for key in job.items]


@dataclass(slots=True, eq=False)
class PurgeJob(SweepJob):
    """Remove up to _PURGED_AT_ONCE ready or delayed messages that existed at the first call.

    Results: the number removed, and the ``last_id`` for the next call; ``None`` when none is left.
    """

    last_id: int | None = None
    rank = 2

    @classmethod
    def run(cls, tx: Transaction, jobs: Sequence[Self]) -> None:
        tx.promote()
        for job in jobs:
            last_id = tx.value("last_id") if job.last_id is None else job.last_id
            queue_id = tx.queue_id(job.queue)
            found = tx.run("purgeable", queue_id, last_id, queue_id, last_id, _PURGED_AT_ONCE)
            ids = [id for (id,) in found]
            tx.run("purge_ready", queue_id, array(ids))
            tx.run("remove_held", array(ids))
            tx.run("remove_messages", array(ids))
            job.results = [len(ids), last_id if len(ids) == _PURGED_AT_ONCE else None]


@dataclass(slots=True, eq=False)
class PurgeDeadJob(SweepJob):
    """Remove up to _PURGED_AT_ONCE dead letters that existed at the first call; results as of :class:`PurgeJob`."""

    last_id: int | None = None
    rank = 2

    @classmethod
    def run(cls, tx: Transaction, jobs: Sequence[Self]) -> None:
        for job in jobs:
            last_id = tx.value("last_dead") if job.last_id is None else job.last_id
            found = tx.run("purgeable_dead", tx.queue_id(job.queue), last_id, _PURGED_AT_ONCE)
            ids = [id for (id,) in found]
            tx.run("remove_dead", array(ids))
            job.results = [len(ids), last_id if len(ids) == _PURGED_AT_ONCE else None]


class RemoveDeadJob(WriterJob):
    """``items``: ids of dead letters. Results: per id whether this call removed it."""

    __slots__ = ()
    rank = 1

    @classmethod
    def run(cls, tx: Transaction, jobs: Sequence[Self]) -> None:
        for job in jobs:
            found = {id for (id,) in tx.run("find_dead", array(job.items), tx.queue_id(job.queue))}
            tx.run("remove_dead", array(found))
            job.results = [id in found for id in job.items]


def forget_settled(tx: Transaction, after: int) -> int:
    """Remove expired rows of ``settled`` in the next range of ids ``after``; return the start of the range after it.

    Each call covers twice as many rows as were added since the last one, so the table stays small without idle work.
    """
    end = tx.value("settled_chunk_end", after, 2 * FORGET_EVERY - 1)
    tx.run("forget_settled", after, sys.maxsize if end is None else end, tx.now)
    return -1 if end is None else int(end)
