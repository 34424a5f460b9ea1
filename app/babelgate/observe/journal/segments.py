"""The directory of open segments: writes segments, locks those of each process, and closes those of dead processes."""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from babelgate.observe.journal.keys import KeyWriter, key_file
from babelgate.observe.journal.record import OPEN, PART, Segment, decode, parse_segment
from babelgate.observe.logs import get_logger
from babelgate.runtime.files import FileLock


class Segments:
    """Appends lines to the segments of one process, one segment at a time. For one thread.

    A complete segment loses the suffix ``.open`` and is passed to ``closed``.
    """

    def __init__(
        self,
        directory: Path,
        node: str,
        epoch: str,
        max_bytes: int,
        max_seconds: float,
        closed: Callable[[Path], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock``: seconds."""
        self._directory = directory
        self._next = Segment(node, epoch, 1)
        self._max_bytes = max_bytes
        self._max_seconds = max_seconds
        self._closed = closed
        self._clock = clock
        self._descriptor: int | None = None
        self._keys: KeyWriter | None = None
        self._size = 0
        self._opened_at = 0.0

    def append(self, lines: bytes | bytearray) -> None:
        """Write complete lines, all or none; opens a segment if none is open.

        Raises OSError; then the file is unchanged, and the same lines may be appended again.
        """
        if self._descriptor is None:
            self._descriptor = self._open()
        left = memoryview(lines)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(lines)
        if self._keys is not None:
            self._keys.grow(self._descriptor, self._size)

    def close_due(self) -> None:
        """Close the segment if it is large or old enough. Raises OSError."""
        if self._descriptor is not None and (
            self._size >= self._max_bytes or self._clock() - self._opened_at >= self._max_seconds
        ):
            self.close()

    def close(self) -> None:
        """Close the open segment, if any, and remove it if it is empty. Raises OSError."""
        if self._descriptor is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        complete = self._directory / self._next.file_name
        # If a later step fails, the next segment still has a new name, and this one is landed by a later start.
        self._next = Segment(self._next.node, self._next.epoch, self._next.number + 1)
        if self._keys is not None:
            self._keys.grow(descriptor, self._size, last=True)
        os.close(descriptor)
        if not self._size:
            os.unlink(f"{complete}{OPEN}")
            return
        os.rename(f"{complete}{OPEN}", complete)
        self._closed(complete)

    def _open(self) -> int:
        make_private(self._directory)
        path = f"{self._directory / self._next.file_name}{OPEN}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._keys = KeyWriter(self._directory / self._next.file_name)
        self._size, self._opened_at = 0, self._clock()
        return descriptor


def make_private(directory: Path) -> None:
    """Create ``directory``, for its owner only, and its parents. Raises OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def sync(path: Path) -> None:
    """Fsync a file or a directory. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def trim(path: Path) -> int:
    """Cut the segment of a dead process after its last complete record; return the number of bytes cut.

    After a power cut a file may end in garbage, which may contain line feeds. Raises OSError.
    """
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if not size:
            return 0
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            end = text.rfind(b"\n") + 1
            while end and not _is_record(text[(start := text.rfind(b"\n", 0, end - 1) + 1) : end]):
                end = start
        file.truncate(end)
        return size - end


def first_at(path: Path, segment: Segment) -> int:
    """Return the ``at`` of the first line, or the start of its process if that line is not a record."""
    with path.open("rb") as file:
        try:
            return decode(file.readline()).at
        except ValueError:
            return segment.started_at


def _is_record(line: bytes) -> bool:
    try:
        decode(line)
    except ValueError:
        return False
    return True


_LOCK = ".lock"

log = get_logger(__name__)


class SegmentLock:
    """The exclusive right to the segments of one process, which ends with the process that has it.

    A flock(2) lock, so ``directory`` must be on a disk of this host.
    """

    def __init__(self, owner: str, lock: FileLock) -> None:
        self.owner = owner
        self._lock = lock

    @classmethod
    def take(cls, directory: Path, owner: str) -> SegmentLock | None:
        """Lock the segments of ``owner``; None if it is alive, or another process has the lock. Raises OSError."""
        return cls._taken(directory, owner, wait=False)

    @classmethod
    def own(cls, directory: Path, owner: str) -> SegmentLock:
        """Lock the segments of this process, before it writes any. Raises OSError.

        Blocks briefly if another process that looks for orphans has the lock.
        """
        lock = cls._taken(directory, owner, wait=True)
        assert lock is not None
        return lock

    @classmethod
    def _taken(cls, directory: Path, owner: str, *, wait: bool) -> SegmentLock | None:
        while True:
            lock = FileLock(directory / f"{owner}{_LOCK}", create_mode=0o600)
            try:
                if wait:
                    lock.acquire()
                elif not lock.try_acquire():
                    lock.close()
                    return None
                # The process that held the lock may have removed the file in between; another would lock a new file.
                if lock.is_current():
                    return cls(owner, lock)
            except OSError:
                lock.close()
                raise
            lock.close()

    def release(self) -> None:
        """Remove the lock file and unlock, after all segments have landed. Raises OSError."""
        Path(self._lock.path).unlink(missing_ok=True)
        self._lock.close()


def orphans(directory: Path) -> Iterator[tuple[SegmentLock, list[Path]]]:
    """Yield the segments of each dead process, trimmed and closed, and their lock. Raises OSError.

    The segments of a process are in order. The lock of a process without segments is released and not yielded.
    """
    owners = {found.owner for path in directory.iterdir() if (found := parse_segment(path.name))}
    owners |= {path.name.removesuffix(_LOCK) for path in directory.glob(f"*{_LOCK}")}
    for owner in sorted(owners):
        lock = SegmentLock.take(directory, owner)
        if lock is None:
            continue
        for path in directory.glob(f"{owner}-*{PART}"):
            path.unlink()
        for path in key_file(directory / owner).parent.glob(f"{owner}-*"):
            path.unlink()  # After a power cut its keys may be incomplete; the segment is indexed when it lands.
        paths = [path for path in directory.iterdir() if (found := parse_segment(path.name)) and found.owner == owner]
        closed = [path for path in map(_closed, sorted(paths)) if path is not None]
        if closed:
            yield lock, closed
        else:
            lock.release()


def _closed(path: Path) -> Path | None:
    """Trim and rename a segment of a dead process; None if it has no complete record."""
    if path.suffix != OPEN:
        return path
    cut = trim(path)
    if cut:
        log.warning("the end of a segment was no record and is cut off", file=path.name, bytes=cut)
    if not path.stat().st_size:
        path.unlink()
        return None
    return path.rename(path.with_suffix(""))
