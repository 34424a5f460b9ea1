"""Keeps the pauses and resumes of queues in a file, which all processes with one ``state_dir`` share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from babelgate.errors import StateUnavailable
from babelgate.gateway.pauses import PauseChange, remembered
from babelgate.jsontext import decoded
from babelgate.runtime.files import FileLock

_FILE = "pauses.json"

_changes = msgspec.json.Decoder(list[PauseChange])


class PauseFile:
    """One file in ``directory``, which the first change creates. A new version replaces it as a whole, so that no
    reader and no crash finds half of one. Every method blocks for a few file operations, and raises StateUnavailable.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / _FILE
        self._seen: tuple[int, ...] | None = None
        """What identifies the version that was read last; None: there was no file."""

    def read(self) -> list[PauseChange]:
        """All changes; none without a file."""
        with _translated():
            return self._read()

    def news(self) -> list[PauseChange]:
        """All changes if the file is not the one of the last call, else none."""
        with _translated():
            return [] if self._version() == self._seen else self._read()

    def merge(self, changes: Iterable[PauseChange]) -> list[PauseChange]:
        """Keep those of ``changes`` that count, and return all; the file is only written if one is new."""
        with _translated():
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with FileLock(self._directory) as lock:
                lock.acquire()
                known = {each.queue: each for each in self._read()}
                new = [each for each in changes if each.is_newer_than(known.get(each.queue))]
                if not new:
                    return list(known.values())
                merged = remembered((known | {each.queue: each for each in new}).values())
                self._write(merged)
                return merged

    def _read(self) -> list[PauseChange]:
        # The version comes first: a file that is replaced in between is read once more.
        version = self._version()
        try:
            found = decoded(_changes, self._path.read_bytes())
        except FileNotFoundError:
            version, found = None, []
        # What could not be read is not seen yet.
        self._seen = version
        return found

    def _write(self, changes: list[PauseChange]) -> None:
        draft = self._path.with_suffix(".part")
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(changes))
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, self._path)
        self._seen = self._version()

    def _version(self) -> tuple[int, ...] | None:
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateUnavailable(reason=error.strerror or str(error)) from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise StateUnavailable(reason=f"{_FILE} is damaged, and pauses nothing if it is removed: {error}") from error
