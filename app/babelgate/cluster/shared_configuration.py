"""The files by which the workers of one ``serve`` agree on a configuration.

One worker at a time has the turn. It writes a candidate, which the others read and prepare, and makes it the accepted
one by a rename: the step from which it counts. A worker that missed the call for it finds it in the file, and so does
one that starts later. The operating system ends the turn of a worker that is killed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec
from msgspec import Struct

from babelgate.cluster.sealing import PeerCipher
from babelgate.jsontext import decoded
from babelgate.runtime.files import FileLock

_ID = re.compile(r"[0-9a-f]{16}")
_ACCEPTED = "configuration"


class Proposal(Struct, frozen=True):
    """A configuration that all workers are to serve by. ``version`` counts from 1, the start. ``content``: sealed.
    ``file``: the digest of the file that it was read from. ``cause``: what asked for it, for the log."""

    id: str
    version: int
    content: str
    cause: str
    file: bytes | None = None


_decoder = msgspec.json.Decoder(Proposal)


class SharedConfiguration:
    """The candidates in ``directory``, which belongs to one gateway alone. Its methods block for a few file operations
    and raise OSError."""

    def __init__(self, directory: Path, cipher: PeerCipher) -> None:
        """``cipher``: candidates have secrets."""
        self._directory = directory
        self._cipher = cipher
        self._seen: tuple[tuple[int, int], Proposal] | None = None

    def turn(self) -> FileLock:
        """The lock of the worker that proposes a candidate, not yet taken."""
        return FileLock(self._directory / "configuration.lock", create_mode=0o600)

    def watching(self) -> FileLock:
        """The lock of the worker that watches the file, not yet taken."""
        return FileLock(self._directory / "watching.lock", create_mode=0o600)

    def is_idle(self) -> bool:
        """Whether no worker has the turn."""
        with self.turn() as turn:
            return turn.try_acquire()

    def propose(self, content: bytes, cause: str, file: bytes | None) -> Proposal:
        """Write a candidate, by which no worker serves yet."""
        before = self.accepted()
        version = 2 if before is None else before.version + 1
        candidate = Proposal(os.urandom(8).hex(), version, self._cipher.seal(content), cause, file)
        descriptor = os.open(self._path(candidate.id), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as written:
            written.write(msgspec.json.encode(candidate))
        return candidate

    def candidate(self, name: str) -> Proposal:
        """The candidate of this id. Raises FileNotFoundError where there is none, and msgspec.MsgspecError."""
        if not _ID.fullmatch(name):
            raise FileNotFoundError(name)
        return decoded(_decoder, self._path(name).read_bytes())

    def accept(self, candidate: Proposal) -> None:
        """Make ``candidate`` the accepted one."""
        os.replace(self._path(candidate.id), self._directory / _ACCEPTED)

    def withdraw(self, candidate: Proposal) -> None:
        """Remove ``candidate``; idempotent."""
        self._path(candidate.id).unlink(missing_ok=True)

    def accepted(self) -> Proposal | None:
        """The candidate that counts; None: that of the start does. Raises msgspec.MsgspecError."""
        try:
            found = os.stat(self._directory / _ACCEPTED)
            state = (found.st_ino, found.st_mtime_ns)
            if self._seen is None or self._seen[0] != state:
                self._seen = state, decoded(_decoder, (self._directory / _ACCEPTED).read_bytes())
        except FileNotFoundError:
            return None
        return self._seen[1]

    def opened(self, candidate: Proposal) -> bytes:
        """The content. Raises ValueError for what no holder of the token keys has sealed."""
        return self._cipher.open(candidate.content)

    def _path(self, name: str) -> Path:
        return self._directory / f"configuration-{name}"
