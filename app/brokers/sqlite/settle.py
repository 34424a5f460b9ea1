"""What ends or prolongs a lease, as jobs of the writer."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Self

from app.brokers.sqlite.jobs import Job, Transaction
from app.envelope import dead_letter_record
from app.errors import LeaseLost

SETTLED_FOR_MS = 60_000
"""How long after a settle (and at least until the lease's deadline) the same call made again is answered as done."""

FORGET_EVERY = 256
"""After how many settles the writer calls :func:`forget_settled`."""

Key = tuple[int, int]
"""What a handle says: the message's id and the nonce of its lease."""


def parse(handle: str) -> Key:
    """The key in ``handle``; one that fits no lease when it is malformed."""
    id, _, nonce = handle.partition(".")
    try:
        return int(id, 16), int(nonce, 16)
    except ValueError:
        return -1, -1


def array(ids: Iterable[int]) -> str:
    """``ids`` as the JSON array that the statements take as a list."""
    return f"[{','.join(map(str, ids))}]"


class Settle(Job):
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
        """Of the messages that ``jobs`` name, those whose lease the key proves: their ids, with the nonces.

        A lease ends with its deadline. Its row stays until it is promoted, which counts the expiry.
        """
        wanted = [(*cls.key(item), job.queue) for job in jobs for item in job.items]
        held = {
            id: (nonce, queue_id) for id, nonce, queue_id in tx.run("leases", array(id for id, _, _ in wanted), tx.now)
        }
        return {id: nonce for id, nonce, queue in wanted if held.get(id) == (nonce, tx.queue_id(queue))}

    @classmethod
    def finish(cls, tx: Transaction, jobs: Sequence[Self], leased: dict[int, int], dead: bool) -> None:
        """End the ``leased`` messages for good and set the results: done is also what was ended so before."""
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


class Ack(Settle):
    """Results: ``None``, or LeaseLost."""

    __slots__ = ()

    @classmethod
    def run(cls, tx: Transaction, jobs: Sequence[Self]) -> None:
        cls.finish(tx, jobs, cls.leased(tx, jobs), dead=False)


class Bury(Settle):
    """Dead-letter. ``items``: a key with the ``dead_letter`` block. Results: ``None``, or LeaseLost."""

    __slots__ = ()

    @staticmethod
    def key(item: tuple[Key, Mapping[str, Any]]) -> Key:
        return item[0]

    @classmethod
    def run(cls, tx: Transaction, jobs: Sequence[Self]) -> None:
        leased = cls.leased(tx, jobs)
        stored = {id: (body, headers) for id, body, headers in tx.run("stored", array(leased))}
        rows: list[Any] = []
        for job in jobs:
            for (id, nonce), block in job.items:
                if leased.get(id) == nonce and id in stored:
                    body, headers = stored.pop(id)
                    rows += (tx.queue_id(job.queue), tx.now, dead_letter_record(body, block), headers)
        tx.insert("add_dead", 4, rows)
        cls.finish(tx, jobs, leased, dead=True)


@dataclass(slots=True, eq=False)
class Release(Settle):
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
                tx.run("release_later", tx.due_at(delay_seconds), failed, ids)
            elif leased:
                tx.run("release_now", failed, ids)
                tx.run("remove_held", ids)
                tx.ready.update(job.queue for job in group)
            done = set(leased.items())
            for job in group:
                job.results = [None if key in done else LeaseLost() for key in job.items]


@dataclass(slots=True, eq=False)
class Extend(Settle):
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


def forget_settled(tx: Transaction, after: int) -> int:
    """Drop expired memories of settles from the next stretch of ids ``after``; where the stretch after that begins.

    Each settle pays for looking at two earlier ones, so that they never pile up and nothing has to run while idle.
    """
    end = tx.value("settled_chunk_end", after, 2 * FORGET_EVERY - 1)
    tx.run("forget_settled", after, sys.maxsize if end is None else end, tx.now)
    return -1 if end is None else int(end)
