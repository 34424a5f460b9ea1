"""Checks that directories are writable, names them, and locks and shares files between processes of one host."""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Generic, Self, TypeVar

import msgspec

from babelgate.errors import ConfigError, StateUnavailable
from babelgate.jsontext import decoded

Content = TypeVar("Content")


def check_writable(directory: Path, key: str) -> None:
    """Raise ConfigError naming ``key`` where this process can neither write to ``directory`` nor create it.

    Writes a file without a name, which leaves nothing: permissions alone do not say what a file system refuses.
    """
    nearest = next(each for each in (directory.absolute(), *directory.absolute().parents) if os.path.lexists(each))
    if not nearest.is_dir():
        raise ConfigError(key=key, reason=f"{directory}: {nearest} is not a directory")
    try:
        with TemporaryFile(dir=nearest) as file:
            file.write(b"x")
    except OSError as error:
        raise ConfigError(key=key, reason=f"{directory}: {nearest} cannot be written: {error.strerror}") from None


def identity(directory: Path) -> str:
    """Twelve digits that name ``directory`` among those of all hosts: the same for each process of its host that
    reaches it, by whatever path. For one that does not exist: its path on this host."""
    try:
        host = _BOOT.read_text("ascii")
    except OSError:
        host = socket.gethostname()
    try:
        found = os.stat(directory)
        name = f"{found.st_dev} {found.st_ino}"
    except OSError:
        name = str(directory.absolute())
    return hashlib.blake2b(f"{host} {name}".encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()


_BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Identifies a running Linux, the same in all its containers: https://man7.org/linux/man-pages/man4/random.4.html"""


class FileLock:
    """An exclusive lock of flock(2) on a file or directory of a local disk.

    The operating system releases it when the process ends. With ``create_mode`` a missing file is created with these
    permissions. Every method raises OSError; so does the constructor, FileNotFoundError for a missing path.
    """

    def __init__(self, path: Path | str, create_mode: int | None = None) -> None:
        self.path = os.fspath(path)  # SQLite makes a lock for each transaction, and a Path takes as long as that.
        if create_mode is None:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        else:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, create_mode)

    def try_acquire(self) -> bool:
        """Take the lock; False when another process, or another FileLock of this one, has it. Never blocks."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def acquire(self) -> None:
        """Take the lock; blocks until it is free."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def is_current(self) -> bool:
        """Whether the path still leads to the locked file: it may have been removed or replaced since it was opened."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self.path))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Release the lock; called once."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class StateFile(Generic[Content]):
    """One JSON file, which all processes with one ``state_dir`` share. The first change creates it and its directory.

    Only its owner can read it. A new version replaces it as a whole, so that no reader and no crash finds half of one.
    Every method blocks for a few file operations, and raises StateUnavailable.
    """

    def __init__(
        self,
        path: Path,
        decoder: msgspec.json.Decoder[Content],
        empty: Callable[[], Content],
        damaged: str = "is damaged",
    ) -> None:
        """``empty``: the content without a file. ``damaged``: what an error says of a file that cannot be decoded."""
        self._path = path
        self._decoder = decoder
        self._empty = empty
        self._damaged = damaged
        self._seen: tuple[int, ...] | None = None
        """What identifies the version that was read last; None: there was no file."""

    def read(self) -> Content:
        """The content."""
        with self._translated():
            # The version comes first: a file that is replaced in between is read once more.
            version = self._version()
            content = self._load()
            # What could not be read is not seen yet.
            self._seen = version
            return content

    def news(self) -> Content | None:
        """The content if the file is not the one that was read last, else None."""
        with self._translated():
            return None if self._version() == self._seen else self.read()

    def change(self, change: Callable[[Content], Content]) -> Content:
        """Replace the content by what ``change`` makes of it; return it as each process reads it.

        No other process changes it meanwhile. Nothing is written if it stays equal. What ``change`` raises ends the
        call, and the file stays. The change is news, too: the call that made it may be cancelled.
        """
        with self._translated():
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with FileLock(self._path.parent) as lock:
                lock.acquire()
                before = self._load()
                after = change(before)
                if after == before:
                    return before
                self._write(msgspec.json.encode(after))
                return self._load()

    def _load(self) -> Content:
        try:
            return decoded(self._decoder, self._path.read_bytes())
        except FileNotFoundError:
            return self._empty()

    def _write(self, text: bytes) -> None:
        draft = self._path.with_suffix(".part")
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, self._path)

    def _version(self) -> tuple[int, ...] | None:
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StateUnavailable(reason=error.strerror or str(error)) from error
        except (msgspec.MsgspecError, ValueError) as error:
            raise StateUnavailable(reason=f"{self._path.name} {self._damaged}: {error}") from error
