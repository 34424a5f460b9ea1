"""Keeps each message in a file. A process holds a message by the lock of its file, which ends with the process."""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, unquote, urlsplit

from babelgate.brokers import cursor as cursors
from babelgate.brokers.binding import DeadRecord, Delivery, NativeQueue, Outcome, Outgoing, QueueStats
from babelgate.brokers.capabilities import BrokerCapabilities
from babelgate.brokers.options import OptionMap, timeout_of
from babelgate.clock import Clock
from babelgate.errors import BrokerUnavailable, LeaseLost

CAPABILITIES = BrokerCapabilities(
    max_delay_seconds=None,
    max_retry_delay_seconds=None,
    max_lease_seconds=86_400,
    ack_scope="owner",
    lease_bound_to="connection",
    ordering="fifo",
    native_release=False,
    native_dead_letter=False,
    delivery_count="none",
    max_body_bytes=None,
    max_batch=100,
    headers=True,
    counted_as={"in_flight": "depth"},
    reports=frozenset({"delayed", "expiries"}),
)


def connect(name: str, url: str, options: Mapping[str, Any], clock: Clock) -> ToyBinding:
    """The binding for ``toy:///directory``; no I/O. Raises ConfigError."""
    timeout_seconds, others = timeout_of(options)
    OptionMap(others).finish()
    return ToyBinding(name, Path(unquote(urlsplit(url).path)), timeout_seconds, clock)


class ToyBinding:
    """A ConnectionBroker, with PublishesDeadLetters, DeadStore and Purges. A file's name has the end of the delay, in
    Unix ms, and a number."""

    def __init__(self, name: str, root: Path, timeout_seconds: float, clock: Clock) -> None:
        self.name, self.timeout_seconds, self._root, self._clock = name, timeout_seconds, root, clock
        self._numbers = itertools.count(time.time_ns() // 1000)
        self._held: dict[str, tuple[Path, BinaryIO]] = {}
        self._acked: set[str] = set()

    def native_queue(self, name: str, options: Mapping[str, Any]) -> NativeQueue:
        OptionMap(options).finish()
        return NativeQueue(name, dead_letters=f"{name}.dlq")

    def capabilities(self, queue: NativeQueue) -> BrokerCapabilities:
        return CAPABILITIES

    async def open(self) -> None:
        await self.ping()

    async def close(self) -> None:
        self._release(list(self._held))

    async def ping(self) -> None:
        self._files("")

    async def warnings(self) -> Sequence[str]:
        return ["this broker is a toy"]

    async def publish(self, queue: NativeQueue, messages: Sequence[Outgoing]) -> Sequence[Outcome]:
        return [self._write(queue.name, each) for each in messages]

    async def publish_dead_letters(self, queue: NativeQueue, records: Sequence[Outgoing]) -> Sequence[Outcome]:
        return [self._write(f"{queue.name}.dlq", each) for each in records]

    async def reserve(
        self, queue: NativeQueue, limit: int, wait_seconds: float, lease_seconds: float
    ) -> Sequence[Delivery]:
        ends = time.monotonic() + min(wait_seconds, self.timeout_seconds)
        while True:
            taken = map(self._hold, self._files(queue.name, due_by=self._clock()))
            if found := list(itertools.islice(filter(None, taken), limit)):
                return found
            if time.monotonic() >= ends:
                return []
            await asyncio.sleep(0.02)

    async def ack(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        with self._usable():
            for handle in self._held.keys() & set(handles):
                self._held[handle][0].unlink()
                self._acked.add(handle)
                self._release([handle])
        return [None if handle in self._acked else LeaseLost() for handle in handles]

    async def release(
        self, queue: NativeQueue, handles: Sequence[str], delay_seconds: float, failed: bool
    ) -> Sequence[Outcome]:
        return self._release(handles)

    def outstanding(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[bool]:
        return [handle in self._held for handle in handles]

    async def prove(self, queue: NativeQueue, handles: Sequence[str]) -> Sequence[Outcome]:
        return [None if handle in self._held else LeaseLost() for handle in handles]

    async def stats(self, queue: NativeQueue) -> QueueStats:
        ready, every = (len(self._files(queue.name, due_by=due)) for due in (self._clock(), None))
        return QueueStats(depth=ready, delayed=every - ready, dead=len(self._files(f"{queue.name}.dlq")))

    async def purge(self, queue: NativeQueue) -> int:
        taken = [each.handle for each in map(self._hold, self._files(queue.name)) if each]
        await self.ack(queue, taken)
        return len(taken)

    async def read_dead(
        self, queue: NativeQueue, cursor: str | None, limit: int
    ) -> tuple[Sequence[DeadRecord], str | None]:
        files = [each for each in self._files(f"{queue.name}.dlq") if _number(each) > cursors.decode(cursor)]
        records = [DeadRecord(each, *_read(each.read_bytes())) for each in files[:limit]]
        return records, cursors.encode(_number(files[limit - 1])) if len(files) > limit else None

    async def remove_dead(
        self, queue: NativeQueue, records: Sequence[DeadRecord], cursor: str | None
    ) -> tuple[Sequence[bool], str | None]:
        present = set(self._files(f"{queue.name}.dlq"))
        for record in records:
            record.key.unlink(missing_ok=True)
        return [record.key in present for record in records], cursor

    async def purge_dead(self, queue: NativeQueue) -> int:
        letters = [DeadRecord(each, b"") for each in self._files(f"{queue.name}.dlq")]
        removed, _ = await self.remove_dead(queue, letters, None)
        return sum(removed)

    def _files(self, name: str, due_by: int | None = None) -> list[Path]:
        """The files of a queue, oldest first; of those ready at ``due_by``, Unix ms."""
        with self._usable():
            folder = self._root / quote(name, safe="")
            folder.mkdir(parents=True, exist_ok=True)
            files = sorted(each for each in folder.iterdir() if each.suffix == ".message")
        return [each for each in files if due_by is None or int(each.name[:15]) <= due_by]

    def _write(self, name: str, message: Outgoing) -> Outcome:
        self._files(name)
        due = self._clock() + round(message.delay_seconds * 1000) if message.delay_seconds else 0
        path = self._root / quote(name, safe="") / f"{due:015d}-{next(self._numbers):018d}.message"
        with self._usable():
            new = path.with_suffix(".new")
            new.write_bytes(json.dumps(dict(message.headers)).encode() + b"\n" + message.body)
            new.rename(path)
        return None

    def _hold(self, path: Path) -> Delivery | None:
        """Lock the file; None if it is locked, or gone."""
        with self._usable(), ExitStack() as opened:
            try:
                file = opened.enter_context(path.open("rb"))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.stat()
            except (BlockingIOError, FileNotFoundError):
                return None
            body, headers = _read(file.read())
            opened.pop_all()
        handle = str(next(self._numbers))
        self._held[handle] = path, file
        return Delivery(body, handle, 0, headers)

    def _release(self, handles: Sequence[str]) -> list[Outcome]:
        held = [self._held.pop(handle, None) for handle in handles]
        for each in filter(None, held):
            each[1].close()
        return [None if each else LeaseLost() for each in held]

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BrokerUnavailable(self.name, type(error).__name__) from error


def _number(path: Path) -> int:
    return int(path.stem[16:])


def _read(content: bytes) -> tuple[bytes, Mapping[str, str]]:
    """The body and the headers in a file."""
    headers, _, body = content.partition(b"\n")
    return body, json.loads(headers)
