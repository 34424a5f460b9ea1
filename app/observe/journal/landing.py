"""Carries closed segments to where they land, for as long as it takes."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from threading import Condition, Thread

from app.observe.journal.record import parse_segment
from app.observe.journal.segments import SegmentLock, first_at, orphans, sync
from app.observe.journal.stores import Store
from app.observe.logs import get_logger
from app.runtime.backoff import Backoff

FIRST_RETRY_SECONDS = 0.5
LAST_RETRY_SECONDS = 30.0
ADOPT_SECONDS = 60.0
"""How often to look for what processes left that died since."""

log = get_logger("babelgate.journal")


class Landing:
    """One thread. What cannot land stays in ``directory``, closed, and is tried again with growing pauses."""

    def __init__(self, directory: Path, store: Store) -> None:
        self.landed = 0
        """Segments that are where they belong."""
        self.failed = 0
        """Attempts that failed."""
        self._directory = directory
        self._store = store
        self._waiting: deque[Path] = deque()
        self._adopted: dict[str, SegmentLock] = {}
        self._changed = Condition()
        self._until: float | None = None
        self._thread = Thread(target=self._run, name="journal-landing", daemon=True)

    @property
    def waiting(self) -> int:
        """How many segments have yet to land."""
        return len(self._waiting)

    def start(self) -> None:
        """Begin, with what dead processes left."""
        self._thread.start()

    def add(self, path: Path) -> None:
        """Land the segment at ``path`` too. Never blocks for long."""
        with self._changed:
            self._waiting.append(path)
            self._changed.notify()

    def stop(self, seconds: float) -> bool:
        """Land what is there, each tried once more, for ``seconds`` at most; whether nothing is under way any more.

        An upload that hangs is left behind: it ends with the process, and so does the claim to its segment.
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

    def _wait(self, seconds: float, *, unless_added: bool = True) -> None:
        """Until it is to stop, or something was added."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._until is not None or (unless_added and bool(self._waiting)), max(seconds, 0)
            )

    def _land(self) -> bool:
        """Try the first that waits; one that failed goes behind the others."""
        path = self._waiting[0]
        try:
            self._put(path)
        except Exception as error:
            # The libraries of stores raise what they like; whatever it was, the segment is still there.
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
            # Until it has landed, it is to outlast a power cut here.
            sync(path)
            self._store.put(path, segment.landed(first_at(path, segment)))
            path.unlink()
            self.landed += 1
        if segment.owner in self._adopted:
            with self._changed:  # the writer adds to them
                left = sum(each.name.startswith(segment.owner) for each in self._waiting)
            if left == 1:
                self._adopted.pop(segment.owner).release()

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
