"""Carries messages in one pickled file, which every call reads and writes as a whole under a lock."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import os
import pickle
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from babelgate.brokers.binding import (
    DeadLetterRequest,
    DeadRecord,
    Delivery,
    NativeQueue,
    Outcome,
    Outgoing,
    QueueStats,
)
from babelgate.brokers.capabilities import REPORTS, BrokerCapabilities
from babelgate.brokers.options import OptionMap, timeout_of
from babelgate.clock import Clock
from babelgate.envelope import dead_letter_record
from babelgate.errors import BabelgateError, BrokerUnavailable, LeaseLost

CAPABILITIES = BrokerCapabilities(
    max_delay_seconds=None,
    max_retry_delay_seconds=None,
    max_lease_seconds=86_400,
    ack_scope="anywhere",
    ordering="fifo",
    native_release=True,
    delivery_count="added",
    max_body_bytes=None,
    max_batch=100,
    headers=True,
    reports=REPORTS - {"oldest_age_seconds", "queues"},
)


@dataclass
class ToyMessage:
    """A message, ready from ``due`` on. ``lease_ends`` is 0 while it is not leased; both in Unix milliseconds."""

    number: int
    body: bytes
    headers: Mapping[str, str]
    due: int
    lease_ends: int = 0
    handle: str = ""
    failures: int = 0
    expired: bool = False


@dataclass
class ToyQueue:
    """A queue: its messages, the handles that were acked, and its dead letters."""

    messages: list[ToyMessage] = field(default_factory=list)
    acked: set[str] = field(default_factory=set)
    dead: list[DeadRecord] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def expire(self, now: int) -> None:
        """End the leases that are over."""
        for message in self.messages:
            if message.lease_ends and message.lease_ends <= now:
                message.lease_ends, message.handle, message.expired = 0, "", True
                message.failures += 1

    def leased(self, handle: str) -> ToyMessage | None:
        return next((message for message in self.messages if message.lease_ends and message.handle == handle), None)

    def ready(self, now: int) -> list[ToyMessage]:
        found = [message for message in self.messages if not message.lease_ends and message.due <= now]
        return sorted(found, key=lambda message: (message.due, message.number))


def connect(name: str, url: str, options: Mapping[str, Any], clock: Clock) -> ToyBinding:
    """The binding for ``toy:///path``; no I/O. Raises ConfigError."""
    timeout_seconds, others = timeout_of(options)
    OptionMap(others).finish()
    return ToyBinding(name, Path(unquote(urlsplit(url).path)), timeout_seconds, clock)


class ToyBinding:
    """Binding, DeadLetters, DeadStore and Purges. The lock is a file beside the data, with the suffix ``.lock``."""

    def __init__(self, name: str, path: Path, timeout_seconds: float, clock: Clock) -> None:
        self.name = name
        self.timeout_seconds = timeout_seconds
        self._path = path
        self._lock = path.with_suffix(".lock")
        self._clock = clock

    def native_queue(self, name: str, options: Mapping[str, Any]) -> NativeQueue:
        OptionMap(options).finish()
        return NativeQueue(name)

    def capabilities(self, queue: NativeQueue) -> BrokerCapabilities:
        return CAPABILITIES

    async def open(self) -> None:
        await self.ping()

    async def close(self) -> None:
        """Every call closes what it opened."""

    async def ping(self) -> None:
        async with self._locked(min(2.0, self.timeout_seconds)):
            pass

    async def warnings(self) -> Sequence[str]:
        return ["this broker is a toy"]

    async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        async with self._changed(queue) as (found, now):
            for each in messages:
                due = now + round(each.delay_seconds * 1000)
                found.messages.append(ToyMessage(next(found.numbers), each.body, dict(each.headers), due))
        return [None] * len(messages)

    async def reserve(
        self, queue: NativeQueue, limit: int, wait_seconds: float, lease_seconds: float
    ) -> Sequence[Delivery]:
        ends = time.monotonic() + wait_seconds
        while True:
            within = min(self.timeout_seconds, max(ends - time.monotonic(), 0) + 0.9)
            async with self._changed(queue, within) as (found, now):
                taken = found.ready(now)[:limit]
                for message in taken:
                    message.lease_ends = now + round(lease_seconds * 1000)
                    message.handle = f"{message.number}-{os.urandom(8).hex()}"
                deliveries = [
                    Delivery(
                        each.body,
                        each.handle,
                        each.lease_ends,
                        each.headers,
                        each.failures,
                        redelivered=each.failures > 0,
                        expired=each.expired,
                    )
                    for each in taken
                ]
            if deliveries or time.monotonic() >= ends:
                return deliveries
            await asyncio.sleep(0.02)

    async def ack(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        async with self._changed(queue) as (found, _):
            for handle in handles:
                if message := found.leased(handle):
                    found.messages.remove(message)
                    found.acked.add(handle)
            return [None if handle in found.acked else LeaseLost() for handle in handles]

    async def release(
        self, queue: NativeQueue, handles: Sequence[str], delay_seconds: float, failed: bool
    ) -> Sequence[Outcome]:
        outcomes: list[Outcome] = []
        async with self._changed(queue) as (found, now):
            for handle in handles:
                message = found.leased(handle)
                outcomes.append(None if message else LeaseLost())
                if message:
                    message.lease_ends, message.expired = 0, False
                    message.failures += failed
                    if failed or delay_seconds:
                        message.due = now + round(delay_seconds * 1000)
        return outcomes

    async def extend(
        self, queue: NativeQueue, handles: Sequence[str], lease_seconds: float
    ) -> Sequence[int | BabelgateError]:
        async with self._changed(queue) as (found, now):
            ends = now + round(lease_seconds * 1000)
            leased = [found.leased(handle) for handle in handles]
            for message in leased:
                if message:
                    message.lease_ends = ends
        return [ends if message else LeaseLost() for message in leased]

    async def stats(self, queue: NativeQueue) -> QueueStats:
        async with self._changed(queue) as (found, now):
            in_flight = sum(message.lease_ends > 0 for message in found.messages)
            ready = len(found.ready(now))
            return QueueStats(ready, in_flight, len(found.messages) - ready - in_flight, len(found.dead))

    async def purge(self, queue: NativeQueue) -> int:
        async with self._changed(queue) as (found, _):
            kept = [message for message in found.messages if message.lease_ends]
            removed = len(found.messages) - len(kept)
            found.messages = kept
        return removed

    async def dead_letter(self, queue: NativeQueue, letters: Sequence[DeadLetterRequest]) -> Sequence[Outcome]:
        outcomes: list[Outcome] = []
        async with self._changed(queue) as (found, _):
            for letter in letters:
                message = found.leased(letter.handle)
                outcomes.append(None if message else LeaseLost())
                if message:
                    found.messages.remove(message)
                    record = dead_letter_record(message.body, letter.block)
                    found.dead.append(DeadRecord(next(found.numbers), record, message.headers))
        return outcomes

    async def read_dead(
        self, queue: NativeQueue, cursor: str | None, limit: int
    ) -> tuple[Sequence[DeadRecord], str | None]:
        async with self._changed(queue) as (found, _):
            rest = [record for record in found.dead if record.key > int(cursor or 0)]
        return rest[:limit], str(rest[limit - 1].key) if len(rest) > limit else None

    async def remove_dead(
        self, queue: NativeQueue, records: Sequence[DeadRecord], cursor: str | None
    ) -> tuple[Sequence[bool], str | None]:
        async with self._changed(queue) as (found, _):
            present = {record.key for record in found.dead}
            removed = {record.key for record in records}
            found.dead = [record for record in found.dead if record.key not in removed]
        return [record.key in present for record in records], cursor

    async def purge_dead(self, queue: NativeQueue) -> int:
        async with self._changed(queue) as (found, _):
            removed, found.dead = len(found.dead), []
        return removed

    @contextlib.asynccontextmanager
    async def _changed(self, queue: NativeQueue, within: float | None = None) -> AsyncIterator[tuple[ToyQueue, int]]:
        """The queue without expired leases, and the time; what the block changes is written."""
        async with self._locked(self.timeout_seconds if within is None else within):
            content = self._path.read_bytes() if self._path.exists() else b""
            queues: defaultdict[str, ToyQueue] = pickle.loads(content) if content else defaultdict(ToyQueue)
            now = self._clock()
            queues[queue.name].expire(now)
            yield queues[queue.name], now
            changed = pickle.dumps(queues)
            if changed != content:
                written = self._path.with_suffix(".new")
                written.write_bytes(changed)
                written.replace(self._path)

    @contextlib.asynccontextmanager
    async def _locked(self, within: float) -> AsyncIterator[None]:
        """Hold the lock. Raises BrokerUnavailable after ``within`` seconds."""
        ends = time.monotonic() + within
        with self._lock.open("ab") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > ends:
                        raise BrokerUnavailable(self.name, "the file is locked") from None
                await asyncio.sleep(0.002)
            yield
