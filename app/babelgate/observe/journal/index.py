"""The index of a journal: the frames of landed segments that may have a message, a trace, a job, a queue or an event.

It is a folder of SQLite files that all processes of the host share. Segments are added to the newest file; a full one
is followed by another, so that an insert writes few pages, and old files are deleted as a whole. The index is made from
the segments alone: what is damaged is renamed away, and made again.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from babelgate.clock import Clock
from babelgate.observe.journal.frames import Keys, SegmentFrame
from babelgate.observe.logs import get_logger
from babelgate.runtime.files import FileLock

ROWS_PER_FILE = 2_000_000
"""A file is full with this number of keys: 40 MB, of which a large segment changes each page once."""
MAX_FILES = 50
"""Most files of an index: 2 GB, the keys of about 200 million records. Then the file with the oldest records is
deleted."""
BUSY_SECONDS = 60.0
"""Maximum wait for another process that adds a segment, which takes a second."""
_MAX_FRAME = 1 << 24
"""Numbers of frames have 24 bits in ids."""
_GROUP = 64
"""Frames whose keys are added by one statement: some 100,000 keys. More take more memory, and as much CPU for each."""
_VERSION = 1
"""``user_version`` of the files. One of another version is made again."""
_DAMAGED = ".damaged"
_FILE = re.compile(r"([0-9]{6,})\.db", re.ASCII)
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})

log = get_logger(__name__)


def _load() -> dict[str, str]:
    text = resources.files("babelgate.observe.journal").joinpath("index.sql").read_text("utf-8")
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


SQL = _load()
"""The statements of ``index.sql`` by name."""


class DamagedIndex(Exception):
    """A file of the index is damaged, or of another version of this program: see :meth:`Index.set_aside`."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path.name}: {reason}")
        self.path = path


class IndexFailed(OSError):
    """SQLite cannot use a file of the index that is not damaged: the disk is full, for example."""


class SegmentRow(Struct, frozen=True, array_like=True):
    """A landed segment in the index: the name of its plain file, its path below the landing folder, the number of its
    first frame in the index file, the times of its first and last record (Unix ms), and its frames."""

    name: str
    path: str
    first_frame: int
    first_at: int
    last_at: int
    frames: list[SegmentFrame]


_rows = msgspec.json.Decoder(list[SegmentRow])
_numbers = msgspec.json.Decoder(list[int])
_texts = msgspec.json.Decoder(list[str])


class IndexFile:
    """A connection to one file of the index, for one thread. Every method may raise IndexFailed or DamagedIndex.

    The constructor also raises FileNotFoundError.

    The interpreter's lock is free while a statement runs, and each of them returns one row: a thread that fetched
    thousands would wait for the event loop before each.
    """

    def __init__(self, path: Path, *, create_since: int | None = None) -> None:
        """Open a file, or make a new one whose segments are all from ``create_since`` on, Unix ms."""
        self.path = path
        with self._naming_damage():
            self._connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS, isolation_level=None
            )
        try:
            self._prepare(create_since)
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self, create_since: int | None) -> None:
        with self._naming_damage():
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -4000", "temp_store = MEMORY"):
                self._connection.execute(f"PRAGMA {pragma}")
            self._inode = os.stat(self.path).st_ino
            if create_since is not None:
                self._create(create_since)
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            if version != _VERSION:
                raise DamagedIndex(self.path, f"its version is {version}, not {_VERSION}")

    def close(self) -> None:
        self._connection.close()

    def is_current(self) -> bool:
        """Whether the path still leads to the open file."""
        try:
            return os.stat(self.path).st_ino == self._inode
        except FileNotFoundError:
            return False

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A transaction, which is durable when the block has ended without an error."""
        with self._naming_damage():
            self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            with self._naming_damage():
                self._connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise

    def run(self, statement: str, /, **values: Any) -> Any:
        """Run a statement; return its first row, None if it has none."""
        with self._naming_damage():
            return self._connection.execute(SQL[statement], values).fetchone()

    def since(self) -> int:
        """From when on all segments are in the index, Unix ms; of the newest file it is true for all files."""
        return int(self.run("state")[0])

    def times(self) -> tuple[int, int] | None:
        """The times of the first and the last record; None of an empty file."""
        first, last = self.run("times")
        return None if first is None else (first, last)

    def names(self) -> list[str]:
        """The names of its segments."""
        return _texts.decode(self.run("names")[0])

    def frames(self, keys: list[int]) -> list[int]:
        """The numbers of the frames that have all of ``keys``, one or more, in order."""
        return _numbers.decode(self.run("frames", keys=_json(keys), count=len(keys))[0])

    def segments_of(self, frames: list[int], since: int, until: int) -> list[SegmentRow]:
        """The segments of frames, those with records from ``since`` on and before ``until`` only."""
        return _found(self.run("segments_of_frames", frames=_json(frames), since=since, until=until))

    def segments(
        self, since: int, until: int, after: tuple[int, str], limit: int, *, newest_first: bool
    ) -> list[SegmentRow]:
        """``limit`` segments of the time range, those after ``after``: by the time of the last record and the name,
        newest first, or by the time of the first record and the name, oldest first."""
        name = "newest_segments" if newest_first else "oldest_segments"
        return _found(self.run(name, since=since, until=until, at=after[0], name=after[1], limit=limit))

    def _create(self, since: int) -> None:
        with self.writing():
            for statement in SQL["schema"].split(";")[:-1]:
                self._connection.execute(statement)
            self.run("add_state", since=since)
            self._connection.execute(f"PRAGMA user_version = {_VERSION}")

    @contextmanager
    def _naming_damage(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if error.sqlite_errorcode & 0xFF in _DAMAGE:
                raise DamagedIndex(self.path, str(error)) from error
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_CANTOPEN and not self.path.exists():
                raise FileNotFoundError(str(self.path)) from None
            raise IndexFailed(f"{self.path.name}: {error}") from error


def _found(row: tuple[str | None]) -> list[SegmentRow]:
    return [] if row[0] is None else _rows.decode(row[0])


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


class Index:
    """The folder of the index, for one thread. Other threads and processes have an Index of their own.

    Every method may raise OSError or DamagedIndex. After the latter call :meth:`set_aside`.
    """

    def __init__(
        self, directory: Path, clock: Clock, *, rows_per_file: int = ROWS_PER_FILE, max_files: int = MAX_FILES
    ) -> None:
        """``clock``: the one of the records."""
        self.directory = directory
        self._rows_per_file = rows_per_file
        self._max_files = max_files
        self._clock = clock
        self._open: IndexFile | None = None

    def files(self) -> list[Path]:
        """The files, oldest first; none if there is no index."""
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return []
        found = sorted((int(match[1]), name) for name in names if (match := _FILE.fullmatch(name)))
        return [self.directory / name for _, name in found]

    def prepare(self) -> bool:
        """Create the index if there is none; return whether a part of it has to be made again."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._maintaining():
            if not self.files():
                self._create(self._clock())
        return bool(self.damaged())

    def add(self, segment: SegmentRow, keys: Iterable[Keys]) -> None:
        """Add a landed segment, unless the newest file has it. ``keys``: of each frame; ``first_frame`` is set here.

        Durable when it returns, all or nothing.
        """
        with self._newest(to_grow=True) as file:
            if file.run("has_segment", name=segment.name):
                return
            _, first_frame, _ = file.run("state")
            row = msgspec.structs.replace(segment, first_frame=first_frame)
            added, numbered = 0, enumerate(keys, first_frame)
            while group := list(islice(numbered, _GROUP)):
                frames = ",".join(_json(found.tolist()) for _, found in group)
                file.run("add_keys", frames=f"[{frames}]", first=group[0][0])
                added += sum(len(found) for _, found in group)
            file.run("grow", frames=len(segment.frames), rows=added)
            file.run(
                "add_segment",
                name=row.name,
                first_frame=first_frame,
                first_at=row.first_at,
                last_at=row.last_at,
                facts=_json(row),
            )

    def remove(self, names: Iterable[str]) -> None:
        """Forget segments that are gone from the landing place; delete the files that have no other."""
        asked = _json(list(names))
        files = self.files()
        for path in files:
            with contextlib.closing(IndexFile(path)) as file:
                (last_at,) = file.run("last_at_of", names=asked)
                if last_at is None:
                    continue
                # First the promise, then what it was about.
                self.reach(last_at + 1)
                with file.writing():
                    file.run("remove_segments", names=asked)
                empty = file.times() is None
            if empty and path != files[-1]:
                self._delete(path)

    def reach(self, since: int, *, rebuilt: bool = False) -> None:
        """Record that all segments from ``since`` on are indexed: at the earliest, unless the index was ``rebuilt``."""
        with self._newest() as file:
            if rebuilt or since > file.since():
                file.run("set_since", since=since)

    def is_full(self) -> bool:
        """Whether a further segment would make the index forget another."""
        if len(files := self.files()) < self._max_files:
            return False
        with contextlib.closing(IndexFile(files[-1])) as file:
            return bool(file.run("state")[2] >= self._rows_per_file)

    def set_aside(self, path: Path) -> None:
        """Rename a damaged file away. From now on the index reaches back to this moment, until it is made again."""
        self.close()
        with self._maintaining():
            try:
                path.rename(path.with_name(f"{path.name}{_DAMAGED}"))
            except FileNotFoundError:
                return
            for suffix in ("-wal", "-shm"):
                path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)
            log.error("a file of the journal's index is damaged and is made again", file=path.name)
            if not self.files():
                self._create(self._clock())
        self.reach(self._clock())

    def damaged(self) -> list[Path]:
        """The damaged files, whose segments have to be indexed again."""
        return sorted(self.directory.glob(f"*{_DAMAGED}"))

    def close(self) -> None:
        """Close the open file. The index can be used again."""
        if self._open is not None:
            self._open.close()
            self._open = None

    @contextmanager
    def _newest(self, *, to_grow: bool = False) -> Iterator[IndexFile]:
        """A transaction in the newest file; ``to_grow``: in a new one if that is full."""
        while True:
            path = self.files()[-1]
            if self._open is None or self._open.path != path or not self._open.is_current():
                self.close()
                self._open = IndexFile(path)
            file = self._open
            with file.writing():
                # Another process may have added a file, or deleted this one, before the transaction began.
                if self.files()[-1] == path and file.is_current():
                    since, next_frame, rows = file.run("state")
                    if not to_grow or (rows < self._rows_per_file and next_frame < _MAX_FRAME // 2):
                        yield file
                        return
                    with self._maintaining():
                        if self.files()[-1] == path:
                            self._create(since)
            self._bound()

    def _create(self, since: int) -> None:
        used = [int(name.partition(".")[0]) for name in os.listdir(self.directory) if name[:6].isdecimal()]
        path = self.directory / f"{max(used, default=0) + 1:06d}.db"
        # With its tables the file gets its name: it is the newest only when it can be used.
        made = path.with_suffix(".new")
        self._delete(made)
        os.close(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        IndexFile(made, create_since=since).close()
        made.rename(path)

    def _bound(self) -> None:
        """Delete the file with the oldest records while there are too many."""
        while len(files := self.files()) > self._max_files:
            ends = []
            for path in files[:-1]:
                with contextlib.closing(IndexFile(path)) as file:
                    times = file.times()
                    ends.append((-1 if times is None else times[1], path))
            last_at, path = min(ends)
            self.reach(last_at + 1)
            self._delete(path)

    def _delete(self, path: Path) -> None:
        for suffix in ("", "-wal", "-shm"):
            path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)

    @contextmanager
    def _maintaining(self) -> Iterator[None]:
        """The right to add, rename and delete files. Waits for another process, which needs milliseconds."""
        with FileLock(self.directory) as lock:
            lock.acquire()
            yield
