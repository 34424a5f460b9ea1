"""One call of a search: reads the frames that may have what is searched, the first in the order of the answer first."""

from __future__ import annotations

import heapq
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import cast

import msgspec
from msgspec import UNSET, Struct, structs

from babelgate.observe.journal.frames import FRAME_BYTES, Member, SegmentFrame, compression_of, key, unpacked
from babelgate.observe.journal.index import IndexFile, SegmentRow
from babelgate.observe.journal.kept_meta import split
from babelgate.observe.journal.keys import read_keys
from babelgate.observe.journal.record import OPEN, PART, JournalEvent, Record, decode, parse_segment
from babelgate.observe.journal.stores import Store
from babelgate.observe.logs import get_logger

MAX_READS = 64
"""Reads of a call, each of a frame or of the rows of :data:`_SEGMENTS` segments: about a tenth of a second."""
_FEW_FRAMES = 512
"""The segments of this number of frames are looked up; those of more are gone through in the order of their times."""
_SEGMENTS = 256
_MEMBERS: tuple[Member, ...] = ("message_id", "trace_id", "meta", "job", "queue", "event")
"""In the order of their values' usual frequency, rarest first."""
_EVER, _NEVER = -(2**63), 2**63 - 1

log = get_logger(__name__)

Place = tuple[int, str, str, int]
"""Where a record is in the order of an answer: its time, node, epoch and number."""


class Query(Struct, frozen=True, kw_only=True):
    """What is searched: the records that have all the given values, from ``since`` on and before ``until``, Unix ms.

    ``meta``: a member that records keep, as ``NAME=VALUE``.
    """

    message_id: str | None = None
    trace_id: str | None = None
    job: str | None = None
    queue: str | None = None
    event: JournalEvent | None = None
    since: int | None = None
    until: int | None = None
    meta: str | None = None

    @property
    def newest_first(self) -> bool:
        """The order of the answer: the story of a message or of a trace begins with the oldest record."""
        return self.message_id is None and self.trace_id is None


class Moved(Exception):
    """A segment landed while it was read: the call has to begin again."""


class Scan:
    """A call. ``records`` and ``next_place`` are its answer once :meth:`run` has returned."""

    def __init__(self, query: Query, limit: int, after: Place | None) -> None:
        self.records: list[Record] = []
        self.next_place: Place | None = None
        """Where the next call has to go on; None at the end."""
        self.unread_until: int | None = None
        """Before this time (Unix ms) there may be records in a frame that could not be read."""
        self._limit = limit
        self._after = after
        self._newest_first = query.newest_first
        self._since = _EVER if query.since is None else query.since
        self._until = _NEVER if query.until is None else query.until
        if after is not None and self._newest_first:
            self._until = min(self._until, after[0] + 1)
        elif after is not None:
            self._since = max(self._since, after[0])
        self._wanted = {
            member: text.encode("utf-8", "replace").decode()
            for member in _MEMBERS
            if (text := cast("str | None", getattr(query, member))) is not None
        }
        self._keys = [key(member, text) for member, text in self._wanted.items()]
        self._needles = [_needle(*wanted) for wanted in self._wanted.items()]
        self._found: dict[Place, Record] = {}
        self._best: list[Place] = []
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._ties = count()
        self._reads = 0
        self._store_failed = False

    def run(self, directory: Path, index: Callable[[], Iterable[IndexFile]], store: Store) -> None:
        """Search the segments of ``directory``, and those in the files that ``index`` returns, landed in ``store``.

        Raises Moved, OSError or DamagedIndex.
        """
        # A segment is deleted after it was added to the index, so one that is not here any more is found there.
        for path in _open_paths(directory):
            self._push_segment(path)
        for file in index():
            times = file.times()
            if times is not None:
                self._push(*times, partial(self._open_file, file, store))
        start = self._heap[0][0] if self._heap else 0
        while self._heap:
            bound, _, expand = self._heap[0]
            # A call that may end must have made progress: everything at its start was read.
            if self._is_complete(bound) or (self._reads >= MAX_READS and bound > start):
                break
            heapq.heappop(self._heap)
            expand()
        self._finish()

    def _finish(self) -> None:
        ready = self._best[: self._limit]
        if self._heap:
            bound = self._heap[0][0]
            ready = [place for place in ready if self._score(place[0]) < bound]
            if len(ready) == self._limit:
                self.next_place = ready[-1]
            else:
                # No record has these names: the next call begins with all records of the time ``bound``.
                self.next_place = (1 - bound if self._newest_first else bound, "", "", -1)
        elif len(self._best) > self._limit:
            self.next_place = ready[-1]
        self.records = [self._found[place] for place in ready]

    def _score(self, at: int) -> int:
        return -at if self._newest_first else at

    def _is_complete(self, bound: int) -> bool:
        return len(self._best) >= self._limit and self._score(self._best[self._limit - 1][0]) < bound

    def _push(self, first_at: int, last_at: int, expand: Callable[[], None]) -> None:
        """Plan to expand what has records of these times only. The heap has the best possible first."""
        if last_at >= self._since and first_at < self._until:
            best = -min(last_at, self._until - 1) if self._newest_first else max(first_at, self._since)
            heapq.heappush(self._heap, (best, next(self._ties), expand))

    def _push_segment(self, path: Path) -> None:
        covered = 0
        for block in read_keys(path):
            covered = block.end
            if block.has(self._keys):
                self._push(block.first_at, block.last_at, partial(self._read_open, path, block.start, block.end))
        self._push(_EVER, _NEVER, partial(self._read_open, path, covered, None))

    def _open_file(self, file: IndexFile, store: Store) -> None:
        if not self._keys:
            self._open_segments(file, store, None, None)
            return
        frames = file.frames(self._keys)
        if len(frames) > _FEW_FRAMES:
            self._open_segments(file, store, frames, None)
        elif frames:
            for row in file.segments_of(frames, self._since, self._until):
                self._open_row(row, store, frames)

    def _open_segments(
        self, file: IndexFile, store: Store, frames: list[int] | None, after: tuple[int, str] | None
    ) -> None:
        self._reads += 1
        start = (_NEVER, "") if self._newest_first else (_EVER, "")
        rows = file.segments(self._since, self._until, after or start, _SEGMENTS, newest_first=self._newest_first)
        for row in rows:
            self._push(row.first_at, row.last_at, partial(self._open_row, row, store, frames))
        if len(rows) == _SEGMENTS:
            end = rows[-1]
            place = (end.last_at if self._newest_first else end.first_at, end.name)
            times = (_EVER, place[0]) if self._newest_first else (place[0], _NEVER)
            self._push(*times, partial(self._open_segments, file, store, frames, place))

    def _open_row(self, row: SegmentRow, store: Store, frames: list[int] | None) -> None:
        numbered = enumerate(row.frames)
        if frames is not None:
            first, end = row.first_frame, row.first_frame + len(row.frames)
            asked = frames[bisect_left(frames, first) : bisect_left(frames, end)]
            numbered = ((number - first, row.frames[number - first]) for number in asked)  # type: ignore[assignment]
        for _, frame in numbered:
            self._push(frame.first_at, frame.last_at, partial(self._read_landed, row.path, frame, store))

    def _read_landed(self, path: str, frame: SegmentFrame, store: Store) -> None:
        self._reads += 1
        compression = compression_of(path)
        assert compression is not None
        try:
            if self._store_failed:
                raise FileNotFoundError(path)
            packed = store.read(path, frame.packed_start, frame.packed_end)
            for piece in unpacked(packed, frame.end - frame.start, compression):
                self._add(piece)
        except Exception as error:
            # Libraries of stores raise any class of error. What can be read is the answer, which says what it lacks.
            self.unread_until = max(frame.last_at + 1, self.unread_until or 0)
            if not isinstance(error, FileNotFoundError | ValueError):
                self._store_failed = True
            if not isinstance(error, FileNotFoundError):
                log.warning("a part of the journal cannot be read", file=path, error=error)

    def _read_open(self, path: Path, start: int, end: int | None) -> None:
        """Read a frame of a segment that has not landed; ``end`` None: all complete lines from ``start`` on."""
        with _opened(path) as descriptor:
            while end is None or start < end:
                self._reads += 1
                size = FRAME_BYTES if end is None else end - start
                block = os.pread(descriptor, size, start)
                while (cut := block.rfind(b"\n") + 1) == 0 and len(block) == size:
                    size *= 2  # a line that is longer
                    block = os.pread(descriptor, size, start)
                if not cut:
                    return
                self._add(block[:cut])
                start += cut

    def _add(self, lines: bytes) -> None:
        """Add the records of ``lines`` that are searched, and keep the best ones of all."""
        before = len(self._found)
        for record in self._matching(lines):
            place = (record.at, record.node, record.epoch, record.seq)
            if not self._since <= record.at < self._until or place in self._found:
                continue
            if self._after is not None and (place >= self._after if self._newest_first else place <= self._after):
                continue
            self._found[place] = structs.replace(
                record,
                envelope=UNSET,
                envelope_base64=UNSET,
                envelope_encrypted=UNSET,
                headers=UNSET,
                ordering_key=UNSET,
                headers_encrypted=UNSET,
            )
        if len(self._found) > before:
            # One more than the limit shows that there is another page.
            self._best = sorted(self._found, reverse=self._newest_first)
            for place in self._best[self._limit + 1 :]:
                del self._found[place]
            del self._best[self._limit + 1 :]

    def _matching(self, lines: bytes) -> Iterator[Record]:
        for line in _lines_with(self._needles, lines):
            try:
                record = decode(line)
            except ValueError:
                continue
            if all(is_of(record, member, text) for member, text in self._wanted.items()):
                yield record


def is_of(record: Record, member: Member, text: str) -> bool:
    """Whether the record has this value."""
    if member != "meta":
        return bool(getattr(record, member) == text)
    name, value = split(text)
    return record.meta is not UNSET and record.meta.get(name) == value


def _needle(member: Member, text: str) -> bytes:
    """What the line of a record with this value contains."""
    name, value = split(text) if member == "meta" else (member, text)
    return msgspec.json.encode(name) + b":" + msgspec.json.encode(value)


def _lines_with(needles: list[bytes], lines: bytes) -> Iterator[bytes]:
    """The lines that contain all ``needles``: a search in the bytes is many times faster than decoding."""
    if not needles:
        yield from lines[:-1].split(b"\n")
        return
    first, *others = needles
    at = lines.find(first)
    while at >= 0:
        start, end = lines.rfind(b"\n", 0, at) + 1, lines.find(b"\n", at)
        end = len(lines) if end < 0 else end
        line = lines[start:end]
        if all(other in line for other in others):
            yield line
        at = lines.find(first, end)


def _open_paths(directory: Path) -> list[Path]:
    """The segments of ``directory`` that have not landed."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return [directory / name for name in names if not name.endswith(PART) and parse_segment(name)]


class _opened:
    """Opens a segment, also if it has been closed since it was listed. Raises Moved if it has landed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def __enter__(self) -> int:
        for path in (self._path, self._path.with_name(self._path.name.removesuffix(OPEN))):
            try:
                self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            return self._descriptor
        raise Moved

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
