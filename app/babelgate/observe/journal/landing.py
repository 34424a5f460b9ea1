"""Lands closed segments, retrying until it succeeds."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from threading import Condition, Thread

from babelgate.observe.journal.indexing import Indexing
from babelgate.observe.journal.keys import key_file
from babelgate.observe.journal.record import parse_segment
from babelgate.observe.journal.retention import Retention
from babelgate.observe.journal.segments import SegmentLock, first_at, orphans, sync
from babelgate.observe.journal.stores import Store
from babelgate.observe.logs import get_logger
from babelgate.runtime.backoff import Backoff

FIRST_RETRY_SECONDS = 0.5
LAST_RETRY_SECONDS = 30.0
ADOPT_SECONDS = 60.0
"""Interval of the search for segments of dead processes."""

log = get_logger(__name__)


class Landing:
    """A thread that lands segments. A failed segment stays in ``directory`` and is retried with growing pauses."""

    def __init__(self, directory: Path, store: Store, indexing: Indexing, retention: Retention | None = None) -> None:
        self.landed = 0
        """Number of landed segments."""
        self.failed = 0
        """Number of failed attempts."""
        self._directory = directory
        self._store = store
        self._indexing = indexing
        self._retention = retention
        self._waiting: deque[Path] = deque()
        self._adopted: dict[str, SegmentLock] = {}
        # What landed while the index failed: a topic would have it twice.
        self._unindexed: dict[Path, tuple[str, list[tuple[int, int]]]] = {}
        self._changed = Condition()
        self._until: float | None = None
        self._thread = Thread(target=self._run, name="journal-landing", daemon=True)

    @property
    def waiting(self) -> int:
        """Number of segments that have not landed yet."""
        return len(self._waiting)

    def start(self) -> None:
        """Start the thread, which first lands the segments of dead processes."""
        self._thread.start()

    def add(self, path: Path) -> None:
        """Add the segment at ``path``. Never waits for I/O."""
        with self._changed:
            self._waiting.append(path)
            self._changed.notify()

    def stop(self, seconds: float) -> bool:
        """Try each waiting segment once more, for ``seconds`` at most; return whether the thread has ended.

        An upload that hangs ends with the process, and so does the lock of its segment.
        """
        with self._changed:
            self._until = time.monotonic() + seconds
            self._changed.notify()
        self._thread.join(seconds)
        if self._thread.is_alive():
            log.warning("segments are left for the next start", waiting=self.waiting)
            return False
        while self._adopted:
            self._adopted.popitem()[1].release()
        return True

    def _run(self) -> None:
        backoff, adopt_at = Backoff(FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS), 0.0
        while self._until is None:
            if time.monotonic() >= adopt_at:
                self._adopt()
                self._bound(0)
                adopt_at = time.monotonic() + ADOPT_SECONDS
            if not self._waiting:
                self._wait(adopt_at - time.monotonic())
            elif self._land():
                backoff.succeeded()
            else:
                self._wait(backoff.failed(), unless_added=False)
        for _ in range(len(self._waiting)):
            if time.monotonic() < self._until:
                self._land()
        self._indexing.close()

    def _wait(self, seconds: float, *, unless_added: bool = True) -> None:
        """Wait until the thread must stop, or a segment was added."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._until is not None or (unless_added and bool(self._waiting)), max(seconds, 0)
            )

    def _land(self) -> bool:
        """Try the first waiting segment; after a failure it becomes the last."""
        path = self._waiting[0]
        try:
            self._put(path)
        except Exception as error:
            # Store libraries raise any class of error. The segment is still in the directory.
            self.failed += 1
            log.warning("a segment did not land", file=path.name, waiting=len(self._waiting), error=error)
            self._waiting.rotate(-1)
            return False
        self._waiting.popleft()
        return True

    def _put(self, path: Path) -> None:
        segment = parse_segment(path.name)
        assert segment is not None
        if not path.exists():
            log.error("a segment is gone before it landed", file=path.name)
        else:
            if path not in self._unindexed:
                # The segment must survive a power cut until it has landed.
                sync(path)
                self._unindexed[path] = self._store.put(path, segment.landed(first_at(path, segment)))
            landed, sizes = self._unindexed[path]
            # A search finds the segment here until the index has it.
            self._indexing.add(path, landed, sizes)
            path.unlink()
            del self._unindexed[path]
            key_file(path).unlink(missing_ok=True)
            self.landed += 1
            self._bound(sum(packed for _, packed in sizes))
        if segment.owner in self._adopted:
            with self._changed:  # the writer adds segments concurrently
                left = sum(each.name.startswith(segment.owner) for each in self._waiting)
            if left == 1:
                self._adopted.pop(segment.owner).release()

    def _bound(self, added: int) -> None:
        if self._retention is not None:
            try:
                self._retention.apply(added)
            except OSError as error:
                self.failed += 1
                log.warning("old segments of the journal cannot be deleted", error=error)

    def _adopt(self) -> None:
        try:
            for lock, paths in orphans(self._directory):
                log.info("segments of a process that died", files=[path.name for path in paths])
                self._adopted[lock.owner] = lock
                for path in paths:
                    self.add(path)
        except OSError as error:
            self.failed += 1
            log.warning("what dead processes left cannot be read", error=error)
