"""Keeps idempotency keys in the file, claimed in the transaction that writes the message or in one of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec

from app.brokers.batching import send_batches
from app.brokers.binding import NativeQueue, Outgoing
from app.brokers.idempotency_store import RESERVED_SECONDS, ClaimResult, ExistingKey, KeyClaim, KeySettlement, Terms
from app.brokers.sqlite.jobs import PublishJob, SweepJob, Transaction, WriterJob, milliseconds
from app.brokers.sqlite.writer import parts
from app.errors import KeysFull

SWEPT_AT_ONCE = 500
_SWEPT_PER_CLAIM = 2
"""Expired keys that a claim removes for each key it may add, so that the file does not grow with expired keys."""

_array = msgspec.json.Encoder().encode


class SqliteKeys:
    """The keys of one file. ``submit`` passes a job to its writer."""

    def __init__(self, broker: str, submit: Callable[[WriterJob], Awaitable[list[Any]]]) -> None:
        self._broker = broker
        self._submit = submit

    async def publish(
        self, queue: NativeQueue, messages: Sequence[tuple[Outgoing, KeyClaim | None]], terms: Terms
    ) -> Sequence[ClaimResult]:
        """A message and its key share a transaction, usually with others."""
        cut = parts(messages, [len(message.body) for message, _ in messages])
        return await send_batches(
            cut, lambda part: self._submit(PublishOnceJob(queue.name, part, terms=terms, broker=self._broker))
        )

    async def reserve(self, claims: Sequence[KeyClaim], token: bytes, terms: Terms) -> Sequence[ClaimResult]:
        """One transaction, or one for each UNIT_MESSAGES."""
        return await send_batches(
            parts(claims), lambda part: self._submit(ClaimJob("", part, terms=terms, broker=self._broker, token=token))
        )

    async def settle(self, settlings: Sequence[KeySettlement], terms: Terms) -> None:
        """As :meth:`reserve`."""
        await asyncio.gather(*(self._submit(SettleKeysJob("", part, terms=terms)) for part in parts(settlings)))

    async def sweep(self) -> int:
        """At most SWEPT_AT_ONCE."""
        (removed,) = await self._submit(SweepKeysJob(""))
        return int(removed)


@dataclass(slots=True, eq=False)
class _ClaimingJob(WriterJob):
    """A job that claims keys of one queue. Results: ClaimResult."""

    terms: Terms = field(default_factory=Terms)
    broker: str = ""
    token: bytes | None = None
    rank = 0

    def claim(self, tx: Transaction, claims: Sequence[KeyClaim | None]) -> list[ClaimResult]:
        """Claim the free keys: with a token they are reserved, without one they are settled at once."""
        until = tx.now + milliseconds(RESERVED_SECONDS) if self.token else 0
        expires_at = max(tx.now + milliseconds(self.terms.retention_seconds), until)
        claimed = [claim for claim in claims if claim is not None]
        capacity = self._capacity(tx, len(claimed))
        stored = _stored(tx, claimed)
        taken = {key: found for key, found in stored.items() if found is not None}
        rows: list[Any] = []
        added = 0
        results: list[ClaimResult] = []
        for claim in claims:
            result: ClaimResult = None
            if claim is not None and (result := taken.get(claim.key)) is None:
                new = claim.key not in stored
                if added + new > capacity:
                    result = KeysFull(broker=self.broker, limit=self.terms.max_keys)
                else:
                    added += new
                    answer = None if self.token else claim.answer
                    rows += (claim.queue, claim.key, claim.fingerprint, self.token, until, expires_at, answer)
                    taken[claim.key] = ExistingKey(claim.fingerprint, answer, RESERVED_SECONDS)
            results.append(result)
        tx.insert("add_keys", 7, rows)
        if added:
            tx.run("add_to_key_count", added)
        return results

    def _capacity(self, tx: Transaction, claimed: int) -> int:
        """How many keys may be added, after a removal of expired ones."""
        swept = _sweep(tx, claimed * _SWEPT_PER_CLAIM)
        left = self.terms.max_keys - int(tx.value("count_keys"))
        if left < claimed and swept == claimed * _SWEPT_PER_CLAIM:
            left += _sweep(tx, SWEPT_AT_ONCE)
        return left


class PublishOnceJob(_ClaimingJob):
    """``items``: pairs of Outgoing and KeyClaim, or ``None`` for a message without a key."""

    __slots__ = ()

    @property
    def weight(self) -> int:
        return sum(len(message.body) for message, _ in self.items)

    @classmethod
    def run(cls, tx: Transaction, jobs: Sequence[Self]) -> None:
        writing: list[PublishJob] = []
        for job in jobs:
            job.results = job.claim(tx, [claim for _, claim in job.items])
            granted = [item[0] for item, result in zip(job.items, job.results, strict=True) if result is None]
            writing.append(PublishJob(job.queue, granted))
        PublishJob.run(tx, writing)


class ClaimJob(_ClaimingJob):
    """``items``: KeyClaim."""

    __slots__ = ()

    @classmethod
    def run(cls, tx: Transaction, jobs: Sequence[Self]) -> None:
        for job in jobs:
            job.results = job.claim(tx, job.items)


@dataclass(slots=True, eq=False)
class SettleKeysJob(WriterJob):
    """``items``: KeySettlement. Results: ``None`` each."""

    terms: Terms = field(default_factory=Terms)
    rank = 0

    @classmethod
    def run(cls, tx: Transaction, jobs: Sequence[Self]) -> None:
        freed = 0
        for job in jobs:
            expires_at = tx.now + milliseconds(job.terms.retention_seconds)
            for item in job.items:
                claim, of = item.claim, (item.claim.queue, item.claim.key, item.token)
                if item.resolution == "done":
                    tx.run("settle_key", claim.answer, expires_at, *of)
                elif item.resolution == "unknown":
                    tx.run("abandon_key", *of)
                else:
                    freed += tx.run("free_key", *of).rowcount
            job.results = [None] * len(job.items)
        if freed:
            tx.run("add_to_key_count", -freed)


class SweepKeysJob(SweepJob):
    """Remove expired keys. Results: the number removed."""

    __slots__ = ()

    @classmethod
    def run(cls, tx: Transaction, jobs: Sequence[Self]) -> None:
        for job in jobs:
            job.results = [_sweep(tx, SWEPT_AT_ONCE)]


def _stored(tx: Transaction, claims: Sequence[KeyClaim]) -> dict[str, ExistingKey | None]:
    """The stored keys of ``claims``, all of one queue; ``None`` for an expired one."""
    if not claims:
        return {}
    rows = tx.run("find_keys", claims[0].queue, _array([claim.key for claim in claims]).decode())
    return {
        key: ExistingKey(fingerprint, answer, max(until - tx.now, 0) / 1000) if expires_at > tx.now else None
        for key, fingerprint, answer, until, expires_at in rows
    }


def _sweep(tx: Transaction, limit: int) -> int:
    removed = tx.run("sweep_keys", tx.now, limit).rowcount
    if removed:
        tx.run("add_to_key_count", -removed)
    return removed
