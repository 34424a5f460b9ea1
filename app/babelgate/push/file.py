"""Keeps the pushes that were set by calls in a file, which all processes with one ``state_dir`` share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from babelgate.errors import StateUnavailable
from babelgate.jsontext import decoded
from babelgate.push.targets import PushTarget
from babelgate.runtime.files import FileLock

_FILE = "pushes.json"


class StoredPush(Struct, frozen=True):
    """What calls have set for a queue. ``target`` None: that of the configuration, which is only paused."""

    target: PushTarget | None = None
    paused: bool = False


Stored = dict[str, StoredPush]
"""By queue."""

_decoder = msgspec.json.Decoder(Stored)


class PushFile:
    """One file in ``directory``, which the first change creates; only its owner can read it, because it has secrets.

    A new version replaces the file as a whole, so that no reader and no crash finds half of one. Every method blocks
    for a few file operations, and raises StateUnavailable.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / _FILE
        self._seen: tuple[int, ...] | None = None
        """What identifies the version that was read last; None: there was no file."""

    def read(self) -> Stored:
        """All that is stored."""
        with _translated():
            # The version comes first: a file that is replaced in between is read once more.
            self._seen = self._version()
            try:
                return decoded(_decoder, self._path.read_bytes())
            except FileNotFoundError:
                return {}

    def news(self) -> Stored | None:
        """All that is stored, if the file is not the one of the last call, else None."""
        with _translated():
            return None if self._version() == self._seen else self.read()

    def change(self, change: Callable[[Stored], None]) -> Stored:
        """Let ``change`` modify what is stored, and return it. No other process changes it meanwhile. What ``change``
        raises ends the call, and the file stays."""
        with _translated():
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with FileLock(self._directory) as lock:
                lock.acquire()
                stored = self.read()
                change(stored)
                draft = self._path.with_suffix(".part")
                with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                    file.write(msgspec.json.encode(stored))
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(draft, self._path)
                seen = self._seen
                # As every other process reads it: targets are compared.
                stored = self.read()
                # The change is news, too: the call that made it may be cancelled.
                self._seen = seen
                return stored

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
        raise StateUnavailable(reason=f"{_FILE} is damaged: {error}") from error
