"""Keeps the index of a journal: adds what lands, makes again what was damaged, and forgets what is gone."""

from __future__ import annotations

import contextlib
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from io import UnsupportedOperation
from pathlib import Path

from msgspec import Struct

from babelgate.clock import Clock
from babelgate.observe.journal.frames import Contents, Keys, SegmentFrame, Unpacking, compression_of, contents
from babelgate.observe.journal.index import DamagedIndex, Index, IndexFile, SegmentRow
from babelgate.observe.journal.keys import INDEX, read_keys
from babelgate.observe.journal.stores import LandedSegment, Store, segment_name
from babelgate.observe.logs import get_logger
from babelgate.runtime.files import FileLock

_LOCK = "rebuild.lock"

log = get_logger(__name__)


class Indexing:
    """Adds segments to the index, for one thread; a thread of its own makes damaged files again."""

    def __init__(self, directory: Path, make_store: Callable[[], Store], clock: Clock) -> None:
        """``directory``: that of open segments. ``make_store``: the landing place, for the thread that reads it."""
        self._index = Index(directory / INDEX, clock)
        self._make_store = make_store
        self._clock = clock
        self._stopping = threading.Event()
        self._rebuilding = threading.Lock()

    def prepare(self) -> None:
        """Create the index if there is none, and begin to make again what was damaged. Raises OSError."""
        if self._index.prepare():
            self.rebuild()

    def add(self, segment: Path, landed: str, sizes: list[tuple[int, int]]) -> None:
        """Add a segment that has landed as ``landed``; ``sizes``: of its frames, plain and packed.

        Raises OSError.
        """
        with self._setting_aside():
            self._index.add(*_described(segment.name, landed, sizes, _contents(segment, sizes)))

    def forget(self, names: list[str]) -> None:
        """Remove segments that are deleted next. Raises OSError."""
        with self._setting_aside():
            self._index.remove(names)

    def rebuild(self) -> None:
        """Begin to index what the landing place has and the index has not, unless that is being done."""
        threading.Thread(target=self._rebuild, name="journal-index", daemon=True).start()

    def close(self) -> None:
        """Stop a rebuild, which goes on at the next start."""
        self._stopping.set()
        self._index.close()

    @contextlib.contextmanager
    def _setting_aside(self) -> Iterator[None]:
        try:
            yield
        except DamagedIndex as error:
            # The call fails and is repeated.
            self._index.set_aside(error.path)
            self.rebuild()
            raise OSError(str(error)) from error

    def _rebuild(self) -> None:
        if not self._rebuilding.acquire(blocking=False):
            return
        index = Index(self._index.directory, self._clock)
        try:
            while (done := self._completed(index)) is not None and index.damaged():
                pass  # another file was renamed away meanwhile
        except UnsupportedOperation as error:
            for path in index.damaged():
                path.unlink(missing_ok=True)
            log.warning("the journal's index begins again with what lands from now on", error=error)
        except Exception as error:
            # Libraries of stores raise any class of error.
            log.warning("the journal's index is not made again, until the next start", error=error)
        else:
            if done is not None:
                log.info("the journal's index is complete", segments=done.segments)
        finally:
            index.close()
            self._rebuilding.release()

    def _completed(self, index: Index) -> IndexProgress | None:
        while True:
            try:
                return complete(index, self._make_store(), lambda progress: None, self._rest)
            except DamagedIndex as error:
                index.set_aside(error.path)

    def _rest(self, seconds: float) -> bool:
        """Leave the CPU to requests for as long as it was used; return whether to go on."""
        return not self._stopping.wait(seconds)


class IndexProgress(Struct, frozen=True):
    """How far a rebuild is: ``segments`` of ``all_segments`` are indexed, and of these it has added ``added``.
    ``unreadable``: paths of damaged files."""

    segments: int
    all_segments: int
    added: int
    unreadable: list[str]


def complete(
    index: Index, store: Store, report: Callable[[IndexProgress], None], rest: Callable[[float], bool]
) -> IndexProgress | None:
    """Add all landed segments that the index lacks, newest first, and forget those that are gone.

    ``report`` is called after each segment. ``rest`` is called with the seconds that the last one took, and returns
    whether to go on. Returns None if it did not, or another process does the same. Raises any error of the store,
    OSError or DamagedIndex.
    """
    with FileLock(index.directory / _LOCK, create_mode=0o600) as lock:
        if not lock.try_acquire():
            return None
        return _complete(index, store, report, rest)


def _complete(
    index: Index, store: Store, report: Callable[[IndexProgress], None], rest: Callable[[float], bool]
) -> IndexProgress | None:
    damaged = index.damaged()
    indexed: set[str] = set()
    for path in index.files():
        with contextlib.closing(IndexFile(path)) as opened:
            indexed.update(opened.names())
    landed = {segment_name(each.path): each for each in store.files()}
    missing = sorted((each for name, each in landed.items() if name not in indexed), key=_path, reverse=True)
    added, unreadable = 0, list[str]()
    known = len(landed) - len(missing)
    report(IndexProgress(known, len(landed), 0, []))
    earliest: int | None = None
    for file in missing:
        if index.is_full():
            earliest = _end(file)
            break
        began = time.monotonic()
        try:
            found, sizes = _unpacked(store, file.path)
        except FileNotFoundError:
            pass  # deleted since
        except ValueError as error:
            unreadable.append(file.path)
            log.warning("a landed segment is damaged", file=file.path, error=error)
        else:
            if sizes:
                index.add(*_described(segment_name(file.path), file.path, sizes, found))
            added += 1
        report(IndexProgress(known + added, len(landed), added, unreadable))
        if not rest(time.monotonic() - began):
            return None
    # The landing place was listed after the index, to which a segment is added when it has landed.
    gone = indexed - landed.keys()
    if gone:
        index.remove(gone)
    if not unreadable and index.damaged() == damaged:
        begins: list[int] = []
        for path in index.files():
            with contextlib.closing(IndexFile(path)) as opened:
                begins += (opened.times() or ())[:1]
        if begins:
            index.reach(earliest or min(begins), rebuilt=True)
    for path in damaged:
        path.unlink(missing_ok=True)
    return IndexProgress(known + added, len(landed), added, unreadable)


def _end(file: LandedSegment) -> int:
    """The latest time of a record in a landed segment, Unix ms: an hour after that in its path.

    A segment is closed after an hour at most.
    """
    folder = file.path.rpartition("/")[0]
    return round((datetime.strptime(f"{folder}+0000", "date=%Y-%m-%d/hour=%H%z").timestamp() + 7200) * 1000)


def _path(file: LandedSegment) -> str:
    """Begins with date and hour."""
    return file.path


def _described(
    name: str, landed: str, sizes: list[tuple[int, int]], found: Iterable[Contents]
) -> tuple[SegmentRow, list[Keys]]:
    """The row of a segment, and the keys of its frames."""
    frames, keys = [], []
    start = packed_start = 0
    for (plain, packed), each in zip(sizes, found, strict=True):
        end, packed_end = start + plain, packed_start + packed
        frames.append(SegmentFrame(start, end, packed_start, packed_end, each.first_at, each.last_at))
        keys.append(each.keys)
        start, packed_start = end, packed_end
    first_at, last_at = min(frame.first_at for frame in frames), max(frame.last_at for frame in frames)
    return SegmentRow(name, landed, 0, first_at, last_at, frames), keys


def _contents(segment: Path, sizes: list[tuple[int, int]]) -> Iterator[Contents]:
    """The contents of each frame, from the key file or, where that ends, from the segment. Raises OSError."""
    start = 0
    known = {(block.start, block.end): block for block in read_keys(segment)}
    with segment.open("rb") as file:
        for plain, _ in sizes:
            block = known.get((start, start + plain))
            if block is not None:
                yield Contents(block.first_at, block.last_at, block.keys)
            else:
                file.seek(start)
                yield contents(file.read(plain))
            start += plain


def _unpacked(store: Store, path: str) -> tuple[list[Contents], list[tuple[int, int]]]:
    """Read a landed segment; return the contents, and the plain and packed sizes, of its frames."""
    compression = compression_of(path)
    assert compression is not None
    found: list[Contents] = []
    sizes: list[tuple[int, int]] = []
    parts: list[Contents] = []
    plain = packed = 0
    for piece, until, last in Unpacking(compression).plain(store.pieces(path)):
        plain += len(piece)
        parts.append(contents(piece))
        if last:
            keys = memoryview(array("I", sorted({key for part in parts for key in part.keys})))
            first_at, last_at = min(part.first_at for part in parts), max(part.last_at for part in parts)
            found.append(Contents(first_at, last_at, keys))
            sizes.append((plain, until - packed))
            parts, plain, packed = [], 0, until
    return found, sizes
