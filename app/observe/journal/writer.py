"""The journal of one process: events go in, segments land. Two threads do the I/O, the event loop none."""

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

from app.clock import Clock, now_ms
from app.errors import ConfigError, Overloaded
from app.observe.journal.buffer import Buffer
from app.observe.journal.landing import Landing
from app.observe.journal.record import Segment, new_epoch
from app.observe.journal.segments import SegmentLock, Segments, make_private
from app.observe.journal.stores import Compression, store
from app.observe.logs import get_logger
from app.runtime.files import check_writable

WRITE_SECONDS = 0.1
"""How often lines go from memory to the system."""
CAPACITY_SECONDS = 5.0
"""How long a verb may wait for room."""
CLOSE_SECONDS = 5.0
"""How long a process that ends may take to land its last segment."""
_NO_NODE = re.compile(r"[^A-Za-z0-9._-]|^[._-]+")

log = get_logger("babelgate.journal")


class Options(Struct, frozen=True, kw_only=True):
    """What a configuration says of the journal; see the section ``journal`` for what each means."""

    landing: str
    open_directory: Path
    node: str | None = None
    compression: Compression = "zstd"
    segment_bytes: int = 67_108_864
    segment_seconds: float = 60
    bodies: bool = False
    buffer_bytes: int = 16_777_216
    wait: bool = False


class JournalStats(Struct, frozen=True):
    """``records`` there are, gaps included; ``dropped`` are not among them. ``buffer_bytes`` wait for the disk.

    ``segments`` have landed, ``waiting_segments`` are closed and have not. ``errors``: writes and landings that failed
    and are tried again.
    """

    records: int
    dropped: int
    buffer_bytes: int
    segments: int
    waiting_segments: int
    errors: int


class Journal:
    """``observe`` takes every event, from the thread of the event loop. Start it before the first, close it after the
    last."""

    def __init__(self, options: Options, clock: Clock = now_ms) -> None:
        """Raises ConfigError naming a key of ``journal``."""
        node = options.node or host_node()
        epoch = new_epoch(clock(), os.urandom(4))
        self._owner = Segment(node, epoch, 1).owner
        self._directory = options.open_directory
        self._buffer = Buffer(node, epoch, options.buffer_bytes, clock, bodies=options.bodies)
        self._store = store(options.landing, options.compression)
        self._landing = Landing(options.open_directory, self._store)
        self._segments = Segments(
            options.open_directory, node, epoch, options.segment_bytes, options.segment_seconds, self._landing.add
        )
        # Callers wait from half of it on, so that what is under way already still finds room.
        self._crowded = options.buffer_bytes / 2 if options.wait else math.inf
        self._waiting = 0
        self._has_capacity = asyncio.Event()
        self._errors = 0
        self._failing = False
        self._lock: SegmentLock | None = None
        self._stopping = Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = Thread(target=self._run, name="journal-writer", daemon=True)
        self.observe = self._buffer.observe

    def check(self) -> None:
        """Raise ConfigError naming a key of ``journal`` where it could not start; makes nothing."""
        self._store.check()
        check_writable(self._directory, "journal.open_directory")

    def start(self) -> None:
        """Make the directories and begin to write; what dead processes left begins to land. In the event loop.

        Raises ConfigError naming ``journal.open_directory`` or ``journal.landing``.
        """
        self._prepare()
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        self._landing.start()

    @property
    def crowded(self) -> bool:
        """Whether a verb has to wait for :meth:`capacity`: always false where records are rather dropped."""
        return self._buffer.size >= self._crowded

    async def capacity(self, seconds: float = CAPACITY_SECONDS) -> None:
        """Wait until a verb may add records, for ``seconds`` at most; at once where it may. Raises Overloaded."""
        self._waiting += 1
        try:
            async with asyncio.timeout(seconds):
                while self.crowded:
                    self._has_capacity.clear()
                    await self._has_capacity.wait()
        except TimeoutError:
            raise Overloaded(reason="the journal's disk is full or too slow") from None
        finally:
            self._waiting -= 1

    def stats(self) -> JournalStats:
        """What it has done so far, and what waits."""
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
        """Write what is in memory, close the segment and land it, for ``seconds`` at most; idempotent.

        What could not land stays in the open directory for the next start.
        """
        if self._loop is not None and not self._stopping.is_set():
            self._stopping.set()
            await asyncio.to_thread(self._close, seconds)

    def _prepare(self) -> None:
        self._store.prepare()
        try:
            make_private(self._directory)
            self._lock = SegmentLock.own(self._directory, self._owner)
        except OSError as error:
            reason = f"{self._directory}: {error.strerror}"
            raise ConfigError(key="journal.open_directory", reason=reason) from None

    def _run(self) -> None:
        lines: bytes | bytearray = b""
        while not self._stopping.wait(WRITE_SECONDS):
            lines = self._write(lines)
        lines = self._write(lines)
        if not lines:
            # A gap that was told of when the last lines found room.
            lines = self._write(lines)
        if lines:
            log.error("the end of the journal could not be written", bytes=len(lines))
        self._attempt(self._segments.close)

    def _write(self, lines: bytes | bytearray) -> bytes | bytearray:
        """Write ``lines``, else what is in memory; what could not be written."""
        lines = lines or self._buffer.take()
        if lines and self._attempt(lambda: self._segments.append(lines)):
            self._buffer.written(len(lines))
            lines = b""
            if self._failing:
                self._failing = False
                log.info("the journal is written again", dropped=self._buffer.dropped)
            if self._waiting and self._loop is not None:
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
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
        until = time.monotonic() + seconds
        self._thread.join(seconds)
        if self._landing.stop(max(until - time.monotonic(), 0)) and self._lock is not None:
            self._lock.release()


def host_node() -> str:
    """The host's name, as the name of a node."""
    return _NO_NODE.sub("", socket.gethostname())[:64] or "gateway"
