"""Checks that directories are writable, names them, and locks files between processes of one host."""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Self

from babelgate.errors import ConfigError


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
