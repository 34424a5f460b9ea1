"""Purging queues and removing dead letters, as jobs of the writer."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from app.brokers.sqlite.jobs import Job, Sweep, Transaction
from app.brokers.sqlite.settle import array

_PURGED_AT_ONCE = 500


@dataclass(slots=True, eq=False)
class Purge(Sweep):
    """Remove some of the messages that are ready or delayed, of those that were there when the first call was made.

    Results: how many it removed, and the bound to pass to the next call, ``None`` when none is left.
    """

    last_id: int | None = None
    rank = 2

    @classmethod
    def run(cls, tx: Transaction, jobs: Sequence[Self]) -> None:
        tx.promote()
        for job in jobs:
            last_id = tx.value("last_id") if job.last_id is None else job.last_id
            queue_id = tx.queue_id(job.queue)
            found = tx.run("purgeable", queue_id, last_id, _PURGED_AT_ONCE)
            ids = [id for (id,) in found]
            tx.run("purge_ready", queue_id, array(ids))
            tx.run("remove_held", array(ids))
            tx.run("remove_messages", array(ids))
            job.results = [len(ids), last_id if len(ids) == _PURGED_AT_ONCE else None]


@dataclass(slots=True, eq=False)
class PurgeDead(Sweep):
    """Remove some of the dead letters that died before ``before_ms``; results as of :class:`Purge`."""

    before_ms: int | None = None
    last_id: int | None = None
    rank = 2

    @classmethod
    def run(cls, tx: Transaction, jobs: Sequence[Self]) -> None:
        for job in jobs:
            last_id = tx.value("last_dead") if job.last_id is None else job.last_id
            before = sys.maxsize if job.before_ms is None else job.before_ms
            found = tx.run("purgeable_dead", tx.queue_id(job.queue), last_id, before, _PURGED_AT_ONCE)
            ids = [id for (id,) in found]
            tx.run("remove_dead", array(ids))
            job.results = [len(ids), last_id if len(ids) == _PURGED_AT_ONCE else None]


class RemoveDead(Job):
    """``items``: ids of dead letters. Results: whether this call removed it."""

    __slots__ = ()
    rank = 1

    @classmethod
    def run(cls, tx: Transaction, jobs: Sequence[Self]) -> None:
        for job in jobs:
            found = {id for (id,) in tx.run("find_dead", array(job.items), tx.queue_id(job.queue))}
            tx.run("remove_dead", array(found))
            job.results = [id in found for id in job.items]
