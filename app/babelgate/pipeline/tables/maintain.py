"""The job ``maintain``: removes versions of tables that are older than a retention, and files that nothing needs.

It needs no Spark. What the jobs call superseded is removed by their own functions, under their own locks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import PurePosixPath
from typing import NamedTuple

from deltalake.exceptions import DeltaError

from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.journal.compact import remove_leftovers, remove_retired
from babelgate.pipeline.journal.reader import now_ms, remove_leftover_batches, snapshot
from babelgate.pipeline.metrics.parts import parts_in
from babelgate.pipeline.metrics.stages import DATASETS as MEASURED
from babelgate.pipeline.storage.arrow_files import ArrowFiles
from babelgate.pipeline.storage.datasets import STAGING, DatasetReader, folder
from babelgate.pipeline.storage.locks import exclusive_lock
from babelgate.pipeline.storage.schemas import DATASETS, JOURNAL, JOURNAL_CORRUPT, JOURNAL_GAPS
from babelgate.pipeline.tables.current_files import TABLES, current_folders
from babelgate.pipeline.tables.expiry import TableHistory
from babelgate.pipeline.tables.moment import read_moment
from babelgate.pipeline.tables.publish import publish_tables, tables_lock
from babelgate.pipeline.validate.job import DATASETS as VALIDATED

_DAY_MS = 86_400_000
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|_commit_[0-9a-f-]+\.json\.tmp")
"""Names of the files that an atomic write makes, and renames at its end."""


class Maintained(NamedTuple):
    """The result of the job. ``removed``: folders and files, relative to the lake; ``bytes``: their size.

    ``log_files``: removed files of logs, by table; ``busy``: jobs at work, whose leftovers stay until another time.
    """

    removed: list[str]
    bytes: int
    log_files: dict[str, int]
    busy: list[str]


class _GuardedFiles(ArrowFiles):
    """Removes nothing that ``protected`` names or has a file in, and nothing at all with ``dry_run``."""

    def __init__(self, root: str, dry_run: bool) -> None:
        super().__init__(root)
        self._dry_run = dry_run
        self._protected: set[str] = set()
        self.removed: dict[str, int] = {}
        """The paths, relative to the root, with their sizes in bytes."""

    def protect(self, paths: Iterable[str]) -> None:
        """Keep these files, which are given relative to the root, and the folders that they are in."""
        for path in paths:
            self._protected.update((path, *map(str, PurePosixPath(path).parents)))

    def remove(self, url: str) -> None:
        """Remove a file, or a folder with its content, if it exists and is not protected."""
        path = url.removeprefix(f"{self.root}/")
        is_done = not self.exists(url) or any(str(each) in self.removed for each in PurePosixPath(path).parents)
        if path in self._protected or is_done:
            return
        self.removed[path] = self.size(url)
        if not self._dry_run:
            # A run that is removed in part must not be taken for a whole one.
            super().remove(f"{url}/_manifest.json")
            super().remove(url)


def maintain(root: str, retain_days: float, dry_run: bool = False) -> Maintained:
    """Run the job. A version that was current within ``retain_days``, and the current moment, stay readable.

    Blocks while another process commits to the tables, not while a job is at work. Raises JobFailed.
    """
    until = now_ms() - int(retain_days * _DAY_MS)
    if not dry_run:
        publish_tables(root)
    try:
        files = _GuardedFiles(root, dry_run)
        reader = DatasetReader(files, files.root)
        if not any(files.exists(reader.folder(name)) for name in DATASETS):
            raise JobFailed(f"{root} has no dataset: run `babelgate pipeline ingest` or `validate` first")
        busy = [job for job in _JOBS if not _tidy(job, reader, files, until)]
        logs = _expire_logs(root, until, dry_run)
    except (OSError, ValueError, DeltaError) as error:
        raise JobFailed(f"{root} could not be maintained: {error}") from error
    return Maintained(list(files.removed), sum(files.removed.values()), logs, busy)


class _Lake(NamedTuple):
    """What a job's leftovers are removed from, while no other process does that job."""

    reader: DatasetReader
    files: _GuardedFiles
    histories: Mapping[str, TableHistory]
    until: int


def _tidy(job: str, reader: DatasetReader, files: _GuardedFiles, until: int) -> bool:
    """Remove what ``job`` has left and superseded. Whether it could be done: not while the job is at work."""
    left = _JOBS[job]
    if not any(files.exists(reader.folder(name)) for name in left.datasets):
        return True
    with ExitStack() as held:
        try:
            # The lock itself is removed at the end, also in a dry run.
            held.enter_context(exclusive_lock(ArrowFiles(files.root), reader.lock(job), job))
        except JobFailed:
            return False
        histories = _histories(files, left.datasets, until)
        for each in histories.values():
            files.protect(each.named_files())
        left.remove(_Lake(reader, files, histories, until))
        _remove_temporary(files, *(f"{reader.folder(name)}{inner}" for name, inner in left.writes_small_files_in))
    return True


def _histories(files: ArrowFiles, names: Iterable[str], until: int) -> dict[str, TableHistory]:
    moment = read_moment(files)
    pinned = {} if moment is None else moment.tables
    return {name: TableHistory(files, name, until, pinned.get(name)) for name in names if name in TABLES}


def _compacted(lake: _Lake) -> None:
    before = snapshot(lake.reader)
    remove_leftovers(lake.reader, before)
    remove_retired(lake.reader, before, lake.until)


def _ingested(lake: _Lake) -> None:
    remove_leftover_batches(lake.reader, snapshot(lake.reader))
    _superseded(lake, [JOURNAL_GAPS.name])


def _superseded(lake: _Lake, names: Sequence[str]) -> None:
    """Remove runs and dates that are not current, and half-made ones. ``names``: the datasets of one job."""
    reader = lake.reader
    folders = current_folders(reader, names)
    run = reader.current(names[0])
    if folders is None or any(reader.current(name) != run for name in names):
        # A run was killed while its datasets became current. The job completes them first.
        return
    for name, current in folders.items():
        home = reader.folder(name).removeprefix(f"{reader.root}/")
        lake.files.protect([f"{home}/run={run}/_manifest.json", *(f"{home}/{each}" for each in current)])
    for name in names:
        began = None if run is None else _completed_at(reader, name, run)
        for each in reader.files.folders(reader.folder(name), "run="):
            at = _completed_at(reader, name, each)
            if at is not None and not lake.histories[name].is_whole:
                # It may have been current until this run was: the log does not say.
                at = max(at, began or at)
            if at is None or at <= lake.until:
                place = reader.folder(name, each)
                reader.files.remove(place)
                for part in parts_in(reader.files, place):
                    reader.files.remove(f"{place}/date={part}")


def _completed_at(reader: DatasetReader, name: str, run: str) -> int | None:
    manifest = reader.manifest(name, run)
    return None if manifest is None else int(manifest["completed_at"])


def _measured(lake: _Lake) -> None:
    _superseded(lake, MEASURED)


def _validated(lake: _Lake) -> None:
    _superseded(lake, VALIDATED)
    lake.files.remove(f"{lake.reader.root}/{STAGING}")


def _remove_temporary(files: ArrowFiles, *folders: str) -> None:
    for place in folders:
        for each in files.list(place):
            if _TEMPORARY.fullmatch(each.url.rpartition("/")[2]):
                files.remove(each.url)


def _expire_logs(root: str, until: int, dry_run: bool) -> dict[str, int]:
    """Remove the parts of logs that only older versions need. Returns the number of their files, by table."""
    files = ArrowFiles(root)
    removed = {}
    with nullcontext() if dry_run else tables_lock(files):
        now = now_ms()
        for name, history in _histories(files, TABLES, until).items():
            if expired := history.expired(now):
                removed[name] = len(expired)
            if not dry_run:
                history.expire(now)
        if files.is_local and not dry_run:
            _remove_temporary(files, files.root, *(f"{folder(files.root, name)}/_delta_log" for name in TABLES))
    return removed


class _Left(NamedTuple):
    """What a job leaves behind: its datasets, how that is removed under its lock, and where its small files are."""

    datasets: tuple[str, ...]
    remove: Callable[[_Lake], None]
    writes_small_files_in: tuple[tuple[str, str], ...]


_JOURNALS = (JOURNAL.name, JOURNAL_CORRUPT.name, JOURNAL_GAPS.name)
_JOBS = {
    "compact": _Left(_JOURNALS, _compacted, ((JOURNAL.name, ""),)),
    "ingest": _Left(_JOURNALS, _ingested, ((JOURNAL.name, "/_batches"), (JOURNAL_GAPS.name, ""))),
    "metrics": _Left(tuple(MEASURED), _measured, tuple((name, "") for name in MEASURED)),
    "validate": _Left(tuple(VALIDATED), _validated, tuple((name, "") for name in VALIDATED)),
}
