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

_READING_MS = 3_600_000
"""The longest time from when a reader learns the name of a checkpoint until it has read it."""
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
        """Whether the log says what was current since ``until``: it may have begun later."""

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

    def expired(self, now: int) -> list[str]:
        """The URLs of the files of the log that no reader needs at ``now`` (Unix ms), oldest first.

        They are older than a checkpoint that opens all versions that are kept, and than those with which readers may
        have begun: a reader reads the name of the newest one, and then the file.
        """
        checkpoints = {each.version: each.modified_at for each in self._entries if not each.is_commit}
        used = {version for version, at in checkpoints.items() if at > now - _READING_MS}
        former = checkpoints.keys() - used
        # Without a former one, they have begun with the first commit.
        used.add(max(former, key=lambda version: (checkpoints[version], version), default=0))
        limit = min(self.oldest, *used)
        first = max((version for version in checkpoints if version <= limit), default=0)
        return [each.url for each in self._entries if each.version < first]

    def expire(self, now: int) -> None:
        """Remove :meth:`expired`, and prepare the next time. The caller owns the lock of the tables.

        A process that is killed meanwhile leaves a log that opens all kept versions. Raises DeltaError, OSError.
        """
        for url in self.expired(now):
            self._files.remove(url)
        older = [each for each in self._entries if each.version < self.oldest]
        if older and not any(each.version == self.oldest and not each.is_commit for each in self._entries):
            DeltaTable(self._url, version=self.oldest).create_checkpoint()
