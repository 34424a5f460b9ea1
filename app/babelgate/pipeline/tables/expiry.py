"""What the versions of a table within a retention need: the files that they name, and the part of the log that opens
them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from babelgate.pipeline.storage.arrow_files import ArrowFiles
from babelgate.pipeline.storage.datasets import folder
from babelgate.pipeline.tables.moment import TableVersion
from babelgate.pipeline.tables.publish import files_of, table_url

_ENTRY = re.compile(r"([0-9]{20})\.(json|checkpoint\.parquet)")


class _Added(msgspec.Struct):
    path: str


class _Action(msgspec.Struct):
    add: _Added | None = None


_action = msgspec.json.Decoder(_Action)


class _LogEntry(NamedTuple):
    """A file of the log: a commit, or a checkpoint with all files of that version. ``modified_at``: Unix ms."""

    version: int
    is_commit: bool
    modified_at: int
    url: str


class TableHistory:
    """The versions of a table that readers may name: the one that was current at ``until`` (Unix ms), and all newer.

    ``pinned``: a version that is kept, too, however old it is; None: no such version.
    """

    def __init__(self, files: ArrowFiles, name: str, until: int, pinned: TableVersion | None) -> None:
        self._files = files
        self._url = table_url(files.root, name)
        self._folder = folder(files.root, name)
        self._entries = sorted(self._read())
        commits = [each for each in self._entries if each.is_commit]
        older = [each.version for each in commits if each.modified_at <= until]
        oldest = max(older, default=commits[0].version if commits else 0)
        self.oldest = min(oldest, oldest if pinned is None else pinned.version)
        """The first version that is kept."""
        self.is_whole = bool(older) or bool(commits and commits[0].version > 0)
        """Whether the log tells what was current since ``until``: it may have begun later."""

    def _read(self) -> Iterator[_LogEntry]:
        for each in self._files.list(f"{self._folder}/_delta_log"):
            if found := _ENTRY.fullmatch(each.url.rpartition("/")[2]):
                yield _LogEntry(int(found[1]), found[2] == "json", each.modified_at, each.url)

    def named_files(self) -> Iterator[str]:
        """The paths, relative to the lake, of the files that these versions name. Raises DeltaError, OSError."""
        home = self._folder.removeprefix(f"{self._files.root}/")
        if not self._entries:
            return
        begin = self._opened()
        yield from (f"{home}/{path}" for path in files_of(begin))
        for each in self._entries:
            if each.is_commit and each.version > self.oldest:
                for line in (self._files.read(each.url) or b"").splitlines():
                    added = _action.decode(line).add
                    if added is not None:
                        yield f"{home}/{added.path}"

    def _opened(self) -> DeltaTable:
        """The first version. Where its log is not whole any more, the next one of which there is a checkpoint."""
        for version in (self.oldest, *(each.version for each in self._entries if not each.is_commit)):
            if version >= self.oldest:
                try:
                    return DeltaTable(self._url, version=version)
                except (DeltaError, TableNotFoundError):
                    continue
        return DeltaTable(self._url)

    def expired(self) -> list[str]:
        """The URLs of the files of the log that only older versions need, oldest first."""
        return [each.url for each in self._entries if each.version < self.oldest]

    def expire(self) -> None:
        """Remove :meth:`expired`. The caller owns the lock of the tables. Raises DeltaError, OSError.

        A process that is killed meanwhile leaves a log that opens every version that is kept.
        """
        expired = self.expired()
        if expired:
            # Also makes ``_last_checkpoint`` name it, which may have named one that is removed now.
            DeltaTable(self._url, version=self.oldest).create_checkpoint()
            for url in expired:
                self._files.remove(url)
