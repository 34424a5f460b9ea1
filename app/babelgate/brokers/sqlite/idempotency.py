"""Keeps idempotency keys in the file, claimed in the transaction that writes the message or in one of their own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec

from babelgate.brokers.batching import send_batches
from babelgate.brokers.binding import NativeQueue, Outgoing
from babelgate.brokers.idempotency_store import (
    RESERVED_SECONDS,
    ClaimResult,
    ExistingKey,
    KeyClaim,
    KeySettlement,
    Terms,
    share_error,
    share_of,
)
from babelgate.brokers.sqlite.jobs import PublishJob, SweepJob, Transaction, WriterJob, milliseconds
from babelgate.brokers.sqlite.writer import parts
from babelgate.errors import BabelgateError, KeysFull

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
        return await send_batches(cut, lambda part: self._once(queue, part, terms))

    def _once(
        self, queue: NativeQueue, part: Sequence[tuple[Outgoing, KeyClaim | None]], terms: Terms
    ) -> Awaitable[list[Any]]:
        job = PublishOnceJob(queue.name, part, terms=terms, broker=self._broker, encrypt=queue.encrypted)
        return self._submit(job)

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
    adds = True
    rank = 0

    def claim(self, tx: Transaction, claims: Sequence[KeyClaim | None]) -> list[ClaimResult]:
        """Claim the free keys: with a token they are reserved, without one they are settled at once."""
        claimed = [claim for claim in claims if claim is not None]
        if not claimed:
            return [None] * len(claims)
        swept = _sweep(tx, len(claimed) * _SWEPT_PER_CLAIM)
        stored = _stored(tx, claimed)
        results, granted = self._decide(tx, claims, stored)
        if swept == len(claimed) * _SWEPT_PER_CLAIM and any(isinstance(each, BabelgateError) for each in results):
            _sweep(tx, SWEPT_AT_ONCE)
            results, granted = self._decide(tx, claims, stored)
        until = tx.now + milliseconds(RESERVED_SECONDS) if self.token else 0
        expires_at = max(tx.now + milliseconds(self.terms.retention_seconds), until)
        rows: list[Any] = []
        for claim in granted:
            answer = None if self.token else claim.answer
            rows += (claim.queue, claim.key, claim.fingerprint, self.token, until, expires_at, answer, claim.caller)
        tx.insert("add_keys", 8, rows)
        if granted:
            tx.run("add_to_key_count", len(granted))
        return results

    def _decide(
        self, tx: Transaction, claims: Sequence[KeyClaim | None], stored: Mapping[str, ExistingKey]
    ) -> tuple[list[ClaimResult], list[KeyClaim]]:
        """The result of each claim, and the claims that get their key; writes nothing."""
        taken = dict(stored)
        shares = _Shares(tx, self.broker, self.terms, [claim for claim in claims if claim is not None])
        granted: list[KeyClaim] = []
        results: list[ClaimResult] = []
        for claim in claims:
            result: ClaimResult = None
            if claim is not None and (result := taken.get(claim.key)) is None:
                result = shares.take(claim)
                if result is None:
                    granted.append(claim)
                    answer = None if self.token else claim.answer
                    taken[claim.key] = ExistingKey(claim.fingerprint, answer, RESERVED_SECONDS)
            results.append(result)
        return results, granted


class _Shares:
    """What the callers of ``claims``, all of one queue, may add to the keys of the file."""

    def __init__(self, tx: Transaction, broker: str, terms: Terms, claims: Sequence[KeyClaim]) -> None:
        self._broker, self._most = broker, terms.max_keys
        self._total = int(tx.value("count_keys"))
        callers = _array(sorted({claim.caller for claim in claims})).decode()
        rows = tx.run("key_shares", callers, claims[0].queue)
        self._held: Counter[tuple[str, str]] = Counter({(caller, queue): n for caller, queue, n in rows})

    def take(self, claim: KeyClaim) -> BabelgateError | None:
        """Count one more key; or the error of the limit that forbids it."""
        of_caller, of_queue = (claim.caller, ""), (claim.caller, claim.queue)
        held, in_queue = self._held[of_caller], self._held[of_queue]
        share = share_of(self._most - (self._total - held))
        queue_share = share_of(share - (held - in_queue))
        if self._total >= self._most:
            return KeysFull(broker=self._broker, limit=self._most)
        if held >= share:
            return share_error(self._broker, claim, held, share, of_queue=False)
        if in_queue >= queue_share:
            return share_error(self._broker, claim, in_queue, queue_share, of_queue=True)
        self._total += 1
        self._held[of_caller] += 1
        self._held[of_queue] += 1
        return None


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
            writing.append(PublishJob(job.queue, granted, encrypt=job.encrypt))
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
        _removed(tx, freed)


class SweepKeysJob(SweepJob):
    """Remove expired keys. Results: the number removed."""

    __slots__ = ()

    @classmethod
    def run(cls, tx: Transaction, jobs: Sequence[Self]) -> None:
        for job in jobs:
            job.results = [_sweep(tx, SWEPT_AT_ONCE)]


def _stored(tx: Transaction, claims: Sequence[KeyClaim]) -> dict[str, ExistingKey]:
    """The stored keys of ``claims``, all of one queue. Expired ones are removed."""
    queue = claims[0].queue
    found: dict[str, ExistingKey] = {}
    expired: list[str] = []
    rows = tx.run("find_keys", queue, _array([claim.key for claim in claims]).decode()).fetchall()
    for key, fingerprint, answer, until, expires_at in rows:
        if expires_at > tx.now:
            found[key] = ExistingKey(fingerprint, answer, max(until - tx.now, 0) / 1000)
        else:
            expired.append(key)
    if expired:
        _removed(tx, tx.run("remove_keys", queue, _array(expired).decode()).rowcount)
    return found


def _sweep(tx: Transaction, limit: int) -> int:
    return _removed(tx, tx.run("sweep_keys", tx.now, limit).rowcount)


def _removed(tx: Transaction, count: int) -> int:
    """``count``, after this number of keys was removed."""
    if count:
        tx.run("add_to_key_count", -count)
    return count
