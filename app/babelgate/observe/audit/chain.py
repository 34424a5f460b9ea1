"""The chain of one process: its files, which only grow, and its head."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from babelgate.clock import Clock
from babelgate.observe.audit.lines import (
    AuditKey,
    Head,
    file_name,
    files_of,
    hash_of,
    head_path,
    heads_of,
    members_of,
    read_head,
    sealed,
)
from babelgate.observe.journal.segments import make_private, sync
from babelgate.observe.log_throttle import LogThrottle
from babelgate.observe.logs import get_logger
from babelgate.runtime.files import FileLock

MAX_SLOTS = 1_024
"""Most processes of one node with one directory."""

log = get_logger(__name__)

Entry = Mapping[str, Any]
"""The members of a line without those that the chain adds."""


class Chain:
    """Appends entries to the files of one chain. One thread at a time uses it; every method raises OSError.

    A process takes the first free chain of its node, ``NODE-0``, ``NODE-1`` and so on, by a lock that ends with it.
    So the next process goes on with the chain of one that was killed. It never changes a file of its predecessor.
    """

    def __init__(
        self,
        directory: Path,
        node: str,
        keys: Sequence[AuditKey],
        clock: Clock,
        *,
        file_bytes: int,
        max_bytes: int | None,
        retention_seconds: float | None,
    ) -> None:
        """``keys``: the first seals. ``file_bytes``: size from which a new file is begun. ``max_bytes``: most bytes of
        the files of this chain; ``retention_seconds``: their greatest age. None: they are kept."""
        self._directory = directory
        self._node = node
        self._keys = keys
        self._clock = clock
        self._file_bytes = file_bytes
        self._max_bytes = max_bytes
        self._retention_seconds = retention_seconds
        self._lock: FileLock | None = None
        self._head_file = -1
        self._file = -1
        self._number = 0
        self._size = 0
        self.name = ""
        self.head = Head()
        self.written = 0
        """Lines that this object has written."""
        self.errors = 0
        """Old files that could not be removed, each time."""
        self._recorded: set[str] = set()
        """Files whose removal has a record, and that are still there."""
        self._throttle = LogThrottle(log)

    def open(self) -> dict[str, Any]:
        """Find the end of the chain: set :attr:`head` to its last whole line. Returns what the next line has to say:
        torn ends of files, lines that the head knew and that are gone, and a head that is gone or damaged."""
        make_private(self._directory)
        if self._lock is None:
            self._lock = self._take()
        self._open_head(head_path(self._directory, self.name))
        self._close_file()
        return self._recover()

    def begin(self, kind: str, details: Mapping[str, Any]) -> None:
        """Begin the next file with a line of this kind, which has the ends of the other chains, and remove the files
        that are not kept."""
        self._number += 1
        path = self._directory / file_name(self.name, self._number)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = 0
        others = {
            name: [head.seq, head.hash]
            for name, head in heads_of(self._directory, self._keys).items()
            if name != self.name and head is not None and head.seq
        }
        first = {"at": self._clock(), "kind": kind, "details": dict(details) | ({"others": others} if others else {})}
        try:
            sync(self._directory)
            self._write([first])
        except OSError:
            # The head does not know this file yet, and each attempt would leave another one.
            self._close_file()
            path.unlink(missing_ok=True)
            self._number -= 1
            raise
        self._remove_old()

    def append(self, entries: Sequence[Entry]) -> None:
        """Append ``entries``; they are on the disk when this returns. After an OSError call :meth:`open`, whose
        :attr:`head` says how many of them are there, and :meth:`begin`."""
        self._write(entries)
        if self._size >= self._file_bytes:
            self._close_file()
            self.begin("file", {})
            log.info("audit trail", chain=self.name, seq=self.head.seq, hash=self.head.hash)

    def close(self) -> None:
        """Close the files and give the chain up; idempotent."""
        self._close_file()
        self._close_head()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _take(self) -> FileLock:
        for slot in range(MAX_SLOTS):
            self.name = f"{self._node}-{slot}"
            lock = FileLock(self._directory / f"{self.name}.lock", create_mode=0o600)
            if lock.try_acquire():
                return lock
            lock.close()
        raise OSError(f"{MAX_SLOTS} processes use it already")

    def _open_head(self, path: Path) -> None:
        """Open the head. The first one is whole and on the disk before any file of the chain is there: so files without
        a head are never the work of a crash."""
        self._close_head()
        if not self._own_files() and (not path.exists() or not path.stat().st_size):
            new = path.with_name(f"{path.name}.new")
            self._head_file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            self.head = Head()
            self._tell_head()
            os.fsync(self._head_file)
            new.replace(path)
            sync(self._directory)
        else:
            self._head_file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _own_files(self) -> list[tuple[int, Path]]:
        return files_of(self._directory).get(self.name, [])

    def _recover(self) -> dict[str, Any]:
        files = self._own_files()
        self._number = files[-1][0] if files else 0
        torn: list[dict[str, Any]] = []
        told = read_head(head_path(self._directory, self.name), self._keys)
        last: Head | None = None
        for _, path in reversed(files):
            whole, line_end, rest = path.read_bytes().rpartition(b"\n")
            if rest:
                torn.append({"file": path.name, "bytes": len(rest), "sha256": hash_of(rest)})
            if line_end:
                line = whole.rpartition(b"\n")[2]
                members = members_of(line)
                seq = members["seq"] if members is not None else (told.seq if told is not None else 0)
                last = Head(seq, hash_of(line))
                break
        self.head = last or Head()
        found: dict[str, Any] = {"torn": torn} if torn else {}
        if told is None:
            found["head"] = "gone or damaged"
            log.error("the head of the audit trail is gone or damaged", chain=self.name)
        elif told.seq > self.head.seq:
            found["missing"] = {"after": self.head.seq, "through": told.seq}
            log.error("the audit trail was cut", chain=self.name, **found["missing"])
        if found:
            log.warning("the audit trail goes on after an interruption", chain=self.name, torn=len(torn))
        return found

    def _remove_old(self) -> None:
        """Remove the files that are not kept. One that cannot be removed stays with the later ones: it is logged and
        counted, and the next file tries again."""
        try:
            old = self._old_files()
        except OSError as error:
            self._not_removed(error)
            return
        for path, removed in old:
            if path.name not in self._recorded:
                # The record comes first: after a crash between the two the next process removes the file.
                self._write([{"at": self._clock(), "kind": "retention", "details": removed}])
                self._recorded.add(path.name)
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                self._not_removed(error)
                return
            self._recorded.discard(path.name)

    def _not_removed(self, error: OSError) -> None:
        self.errors += 1
        self._throttle.warning("an old file of the audit trail cannot be removed", chain=self.name, error=error)

    def _old_files(self) -> list[tuple[Path, dict[str, Any]]]:
        """The files that are not kept, the oldest first, and what is recorded of them."""
        files = self._own_files()[:-1]
        sizes = {path: path.stat().st_size for _, path in files}
        total = self._size + sum(sizes.values())
        oldest = None if self._retention_seconds is None else time.time() - self._retention_seconds
        old = []
        for _, path in files:
            # The file that is open may grow to its full size.
            too_much = self._max_bytes is not None and total + self._file_bytes > self._max_bytes
            if not too_much and (oldest is None or path.stat().st_mtime >= oldest):
                break
            last = path.read_bytes().rpartition(b"\n")[0].rpartition(b"\n")[2]
            members = members_of(last) or {}
            old.append((path, {"file": path.name, "through": members.get("seq", 0), "hash": hash_of(last)}))
            total -= sizes[path]
        return old

    def _write(self, entries: Sequence[Entry]) -> None:
        seq, last = self.head.seq, self.head.hash
        lines = []
        for entry in entries:
            seq += 1
            line = sealed({"seq": seq, "node": self._node, **entry, "prev": last}, self._keys[0])
            last = hash_of(line)
            lines.append(line + b"\n")
        _write_all(self._file, b"".join(lines))
        os.fsync(self._file)
        self._size += sum(map(len, lines))
        self.head = Head(seq, last)
        self.written += len(lines)
        self._tell_head()

    def _tell_head(self) -> None:
        """Write the head in its place: a few hundred bytes, which no reader sees by halves. It follows the lines, so
        after a crash it may be behind them, and never ahead."""
        line = sealed({"seq": self.head.seq, "hash": self.head.hash, "chain": self.name}, self._keys[0])
        # A shorter line would leave the end of a longer one.
        os.pwrite(self._head_file, line.ljust(512) + b"\n", 0)

    def _close_head(self) -> None:
        if self._head_file >= 0:
            os.close(self._head_file)
            self._head_file = -1

    def _close_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
