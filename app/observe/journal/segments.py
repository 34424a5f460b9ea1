"""The segment that is being written, and those that are done, in the directory of open segments."""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

from app.observe.journal.record import OPEN, Segment, decode


class Segments:
    """Appends lines to files of one process, one after the other. For one thread.

    A file that is complete loses the ending ``.open``; ``closed`` is told of it.
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
        self._size = 0
        self._opened_at = 0.0

    def append(self, lines: bytes | bytearray) -> None:
        """Hand whole lines to the system, in one piece or not at all; opens a file where none is.

        Raises OSError: the file then ends where it did before, and the same lines may be appended again.
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

    def close_due(self) -> None:
        """Close the file when it is large or old enough. Raises OSError."""
        if self._descriptor is not None and (
            self._size >= self._max_bytes or self._clock() - self._opened_at >= self._max_seconds
        ):
            self.close()

    def close(self) -> None:
        """Close the file, where one is open; one that holds nothing goes away. Raises OSError."""
        if self._descriptor is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        complete = self._directory / self._next.file_name
        # Whatever fails from here on, the next file has another name; what is left of this one lands later.
        self._next = Segment(self._next.node, self._next.epoch, self._next.number + 1)
        os.close(descriptor)
        if not self._size:
            os.unlink(f"{complete}{OPEN}")
            return
        os.rename(f"{complete}{OPEN}", complete)
        self._closed(complete)

    def _open(self) -> int:
        make_private(self._directory)
        path = f"{self._directory / self._next.file_name}{OPEN}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size, self._opened_at = 0, self._clock()
        return descriptor


def make_private(directory: Path) -> None:
    """Make ``directory``, for its owner only, and those above it. Raises OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def sync(path: Path) -> None:
    """Have the system write a file, or the names in a directory, to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def trim(path: Path) -> int:
    """Cut a file that nobody writes any more behind its last line that is whole and a record; the bytes cut off.

    After a power cut a file may end in garbage, of which a line feed may be part. Raises OSError.
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
    """The ``at`` of the first record of a file; of one whose first line is no record, the start of its process."""
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
