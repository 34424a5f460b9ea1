"""Keeps the results of a batch until its answer: a few in memory, more in an unlinked temporary file."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO, FileIO
from tempfile import TemporaryFile
from typing import ClassVar, Self

from babelgate.http.parts import PART_BYTES

MEMORY_BYTES = 1_048_576
"""Results up to this size stay in memory; larger ones go to the file."""

MAX_BYTES = 536_870_912
"""Maximum results of all uploads of a process together. The result of an accepted entry has 130 bytes, so those of one
upload with 2,500,000 entries take 325 MB. The Helm chart gives ``/tmp`` twice this space."""


class Spool:
    """The texts that were appended, as one text. A context manager that frees the space.

    ``size``: in bytes. ``failure``: what the file system said when it refused a text. Nothing more is kept then.
    """

    kept: ClassVar[int] = 0
    """The bytes of all spools of the process."""

    def __init__(self, most: int = MAX_BYTES) -> None:
        """``most``: the maximum of ``kept``."""
        self.size = 0
        self.failure: str | None = None
        self._most = most
        self._full = False
        self._store: BytesIO | FileIO = BytesIO()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        Spool.kept -= self.size
        self.size = 0
        self._store.close()

    @property
    def is_full(self) -> bool:
        """Whether something could not be kept. Nothing more is kept then, so that no text is missing in between."""
        return self._full

    def append(self, text: bytes) -> bool:
        """Keep ``text``; False: there is no space for it."""
        if self._full or Spool.kept + len(text) > self._most:
            self._full = True
            return False
        try:
            if isinstance(self._store, BytesIO) and self.size + len(text) > MEMORY_BYTES:
                self._store = _file_with(self._store.getvalue())
            _write(self._store, text)
        except OSError as error:
            self._full, self.failure = True, error.strerror or type(error).__name__
            return False
        self.size += len(text)
        Spool.kept += len(text)
        return True

    def parts(self) -> Iterator[bytes]:
        """Read everything that was kept, in parts. The rest of a failed write is not read."""
        self._store.seek(0)
        left = self.size
        while left and (part := self._store.read(min(left, PART_BYTES))):
            left -= len(part)
            yield part


def _file_with(text: bytes) -> FileIO:
    file = TemporaryFile(buffering=0)  # noqa: SIM115  # the spool closes it
    try:
        _write(file, text)
    except OSError:
        file.close()
        raise
    return file


def _write(store: BytesIO | FileIO, text: bytes) -> None:
    """Write all of ``text``. A full file system takes a part of it; writing the rest then raises the error."""
    rest = memoryview(text)
    while rest:
        rest = rest[store.write(rest) :]
