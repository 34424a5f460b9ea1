"""Keeps a local landing folder below its maximum size."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from babelgate.observe.journal.stores import Directory, LandedSegment, segment_name
from babelgate.observe.logs import get_logger
from babelgate.runtime.files import FileLock

LOOK_SECONDS = 60.0
"""Interval of looks at the landing folder, to which other processes may add segments."""
_SHARE = 100
"""The folder is also looked at when this process has added the hundredth part of its maximum size."""

log = get_logger(__name__)


class Retention:
    """Deletes the oldest landed segments while all together are larger than ``max_bytes``. For one thread.

    Of several processes with the same lock one looks at a time.
    """

    def __init__(
        self,
        store: Directory,
        max_bytes: int,
        lock: Path,
        forget: Callable[[list[str]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``forget``: removes segments from the index, by name, before they are deleted. ``clock``: seconds."""
        self._store = store
        self._max_bytes = max_bytes
        self._lock = lock
        self._forget = forget
        self._clock = clock
        self._look_at = clock()
        self._added = 0

    def apply(self, added: int = 0) -> None:
        """Delete what is too much, if it is time to look. ``added``: packed bytes that have just landed.

        Raises OSError.
        """
        self._added += added
        if self._clock() < self._look_at and self._added < self._max_bytes / _SHARE:
            return
        self._look_at, self._added = self._clock() + LOOK_SECONDS, 0
        with FileLock(self._lock, create_mode=0o600) as lock:
            if lock.try_acquire():
                self._delete()

    def _delete(self) -> None:
        files = sorted(self._store.files(), key=_age)
        too_much = sum(each.size for each in files) - self._max_bytes
        oldest: list[LandedSegment] = []
        for each in files:
            if too_much <= 0:
                break
            oldest.append(each)
            too_much -= each.size
        if oldest:
            self._forget([segment_name(each.path) for each in oldest])
            for each in oldest:
                self._store.delete(each.path)
            log.info("the oldest segments of the journal are deleted", segments=len(oldest), until=oldest[-1].path)


def _age(file: LandedSegment) -> tuple[str, float, str]:
    """By the hour of the first record, then by the time of landing."""
    return file.path.rpartition("/")[0], file.written_at, file.path
