"""The journal of one process: buffers events and lands segments. Two threads do all I/O."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

from msgspec import Struct

from babelgate.clock import Clock, now_ms
from babelgate.errors import ConfigError, Overloaded
from babelgate.observe.journal.buffer import Buffer
from babelgate.observe.journal.frames import Compression
from babelgate.observe.journal.indexing import Indexing
from babelgate.observe.journal.keys import INDEX
from babelgate.observe.journal.landing import Landing
from babelgate.observe.journal.record import Segment, new_epoch
from babelgate.observe.journal.retention import Retention
from babelgate.observe.journal.search import JournalSearch
from babelgate.observe.journal.segments import SegmentLock, Segments, make_private
from babelgate.observe.journal.stores import Directory, Store, store
from babelgate.observe.logs import get_logger
from babelgate.privacy.protection import Protection
from babelgate.runtime.files import check_writable

WRITE_SECONDS = 0.1
"""Interval of writes from memory to the open segment."""
CAPACITY_SECONDS = 5.0
"""Maximum wait of an operation for space in the buffer."""
CLOSE_SECONDS = 5.0
"""Maximum time to land the last segment when the process ends."""
_NO_NODE = re.compile(r"[^A-Za-z0-9._-]|^[._-]+")

log = get_logger(__name__)


class Options(Struct, frozen=True, kw_only=True):
    """The settings of the journal, as described in the configuration section ``journal``."""

    landing: str
    open_directory: Path
    node: str | None = None
    compression: Compression = "zstd"
    segment_bytes: int = 67_108_864
    segment_seconds: float = 60
    bodies: bool = False
    meta: tuple[str, ...] = ()
    buffer_bytes: int = 16_777_216
    wait: bool = False
    max_bytes: int | None = None
    open_store: Callable[[str, Compression], Store] = store
    """Finds the landing place. Whoever knows brokers passes a function that knows topics, too."""

    def store(self) -> Store:
        """The landing place, for one thread. Raises ConfigError naming ``journal.landing``."""
        return self.open_store(self.landing, self.compression)


class JournalStats(Struct, frozen=True):
    """Counts of one journal.

    ``records`` includes gaps and excludes ``dropped`` records. ``buffer_bytes`` wait for the disk. ``segments`` have
    landed; ``waiting_segments`` are closed and have not landed. ``errors`` counts failed writes and landings, which are
    retried.
    """

    records: int
    dropped: int
    buffer_bytes: int
    segments: int
    waiting_segments: int
    errors: int


class Journal:
    """A journal. ``observe`` takes every event, in the thread of the event loop.

    Start the journal before the first event, and close it after the last.
    """

    def __init__(self, options: Options, clock: Clock = now_ms) -> None:
        """Raises ConfigError naming a key of ``journal``."""
        node = options.node or host_node()
        epoch = new_epoch(clock(), os.urandom(4))
        self._owner = Segment(node, epoch, 1).owner
        self._directory = options.open_directory
        self._buffer = Buffer(node, epoch, options.buffer_bytes, clock, bodies=options.bodies, meta=options.meta)
        self._store = options.store()
        self._indexing = Indexing(options.open_directory, options.store, clock)
        self._landing = Landing(options.open_directory, self._store, self._indexing, self._retention(options))
        self.search = JournalSearch(options.open_directory, options.store(), clock, self._indexing.rebuild)
        self._segments = Segments(
            options.open_directory, node, epoch, options.segment_bytes, options.segment_seconds, self._landing.add
        )
        # Callers wait from half of the limit on, so that requests in progress still have space.
        self._full_at = options.buffer_bytes / 2 if options.wait else math.inf
        self._waiting = 0
        self._has_capacity = asyncio.Event()
        self._errors = 0
        self._failing = False
        self._lock: SegmentLock | None = None
        self._stopping = Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = Thread(target=self._run, name="journal-writer", daemon=True)
        self.observe = self._buffer.observe

    def protect(self, protection_of: Callable[[str | None], Protection | None]) -> None:
        """Redact and encrypt from now on as ``protection_of`` says for the queue of a body."""
        self._buffer.protection_of = protection_of

    def check(self) -> None:
        """Raise ConfigError naming a key of ``journal`` if the journal could not start. Creates nothing."""
        self._store.check()
        check_writable(self._directory, "journal.open_directory")

    def start(self) -> None:
        """Create the directories, and start the threads that write and land. Call it in the event loop.

        Raises ConfigError naming ``journal.open_directory`` or ``journal.landing``.
        """
        self._prepare()
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        self._landing.start()

    @property
    def is_full(self) -> bool:
        """Whether an operation must wait for :meth:`capacity`. Always false if the journal drops records instead."""
        return self._buffer.size >= self._full_at

    async def capacity(self, seconds: float = CAPACITY_SECONDS) -> None:
        """Wait until the buffer has space, for ``seconds`` at most. Raises Overloaded."""
        self._waiting += 1
        try:
            async with asyncio.timeout(seconds):
                while self.is_full:
                    self._has_capacity.clear()
                    await self._has_capacity.wait()
        except TimeoutError:
            raise Overloaded(reason="the journal's disk is full or too slow") from None
        finally:
            self._waiting -= 1

    def stats(self) -> JournalStats:
        """Return the current counts."""
        landing = self._landing
        return JournalStats(
            self._buffer.seq,
            self._buffer.dropped,
            self._buffer.size,
            landing.landed,
            landing.waiting,
            self._errors + landing.failed,
        )

    async def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Write the buffer, close the segment and land it, for ``seconds`` at most. Idempotent.

        Segments that did not land stay in the open directory for the next start.
        """
        if self._loop is not None and not self._stopping.is_set():
            self._stopping.set()
            await asyncio.to_thread(self._close, seconds)

    def _retention(self, options: Options) -> Retention | None:
        if options.max_bytes is None:
            return None
        if not isinstance(self._store, Directory):
            reason = "it bounds a directory only. Let the store delete old objects, by a lifecycle rule for example"
            raise ConfigError(key="journal.max_bytes", reason=reason)
        lock = options.open_directory / INDEX / "retention.lock"
        return Retention(self._store, options.max_bytes, lock, self._indexing.forget)

    def _prepare(self) -> None:
        self._store.prepare()
        try:
            make_private(self._directory)
            self._lock = SegmentLock.own(self._directory, self._owner)
            self._indexing.prepare()
        except OSError as error:
            reason = f"{self._directory}: {error.strerror or error}"
            raise ConfigError(key="journal.open_directory", reason=reason) from None

    def _run(self) -> None:
        lines: bytes | bytearray = b""
        while not self._stopping.wait(WRITE_SECONDS):
            lines = self._write(lines)
        lines = self._write(lines)
        if not lines:
            # A gap record may have been added when the last lines were written.
            lines = self._write(lines)
        if lines:
            log.error("the end of the journal could not be written", bytes=len(lines))
        self._attempt(self._segments.close)

    def _write(self, lines: bytes | bytearray) -> bytes | bytearray:
        """Write ``lines``, or the buffer if there are none; return the lines that could not be written."""
        lines = lines or self._buffer.take()
        if lines and self._attempt(lambda: self._segments.append(lines)):
            self._buffer.written(len(lines))
            lines = b""
            if self._failing:
                self._failing = False
                log.info("the journal is written again", dropped=self._buffer.dropped)
            if self._waiting and self._loop is not None:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._has_capacity.set)
        self._attempt(self._segments.close_due)
        return lines

    def _attempt(self, call: Callable[[], None]) -> bool:
        try:
            call()
        except OSError as error:
            self._errors += 1
            if not self._failing:
                log.error("the journal cannot be written", directory=str(self._directory), error=error)
            self._failing = True
            return False
        return True

    def _close(self, seconds: float) -> None:
        self.search.close()
        until = time.monotonic() + seconds
        self._thread.join(seconds)
        if self._landing.stop(max(until - time.monotonic(), 0)) and self._lock is not None:
            self._lock.release()


def host_node() -> str:
    """Return the host name, as a valid node name."""
    return _NO_NODE.sub("", socket.gethostname())[:64] or "gateway"
