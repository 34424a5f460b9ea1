"""Recognises, without Spark, that ``ingest`` has nothing to do, or little."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, partial
from pathlib import Path

from babelgate.pipeline.journal.commits import IngestedState
from babelgate.pipeline.journal.ingest_batch import LandedFile
from babelgate.pipeline.journal.reader import Snapshot, gaps, remove_leftover_batches, snapshot
from babelgate.pipeline.storage.arrow_files import ArrowFiles
from babelgate.pipeline.storage.datasets import DatasetReader, run_id, unchanged
from babelgate.pipeline.storage.files import FileStatus
from babelgate.pipeline.storage.input_files import are_small
from babelgate.pipeline.storage.nothing_new import done_under_lock, without_spark
from babelgate.pipeline.storage.schemas import JOURNAL_GAPS

ENDINGS = ".ndjson", ".ndjson.gz", ".ndjson.zst"
"""The endings of the names of segments."""


def ingested_already(landing: str, root: str) -> IngestedState | None:
    """What the journal below ``root`` has, if that is all that has landed in ``landing``. None otherwise, or unless
    both exist in a local folder or an object store that Arrow reaches; Spark then decides.

    Removes leftovers of killed attempts. Raises JobFailed if another ingest is at work.
    """
    return without_spark(root, partial(_nothing_new, landing))


def _nothing_new(landing: str, reader: DatasetReader) -> IngestedState | None:
    try:
        landed = ArrowFiles(landing)
        if not ((landed.is_local or landed.is_object_store) and landed.exists(landed.root)):
            return None
    except (OSError, ValueError):
        return None

    # What lands after it is as if it landed after this check, so it needs no second look under the lock.
    listed = cache(lambda: list(landed.walk(landed.root)))

    def read(reader: DatasetReader) -> Snapshot | None:
        journal = snapshot(reader)
        known = journal.known()
        if unchanged(reader.root, [JOURNAL_GAPS.name], run_id("gaps", list(gaps(known)), {})) is None:
            return None
        try:
            is_read = all(_is_done(known, file) for file in _landed(landed, listed()))
            return journal if is_read and not _any_damaged_is_changed(known, landed.root, listed()) else None
        except OSError:
            return None

    def tidied(reader: DatasetReader, journal: Snapshot) -> IngestedState:
        remove_leftover_batches(reader, journal)
        return journal.known()

    return done_under_lock(reader, "ingest", read, tidied)


def as_spark_spells(files: ArrowFiles, url: str) -> str:
    """``url``, of ``files``, as Spark names it."""
    return f"file:{url}" if files.is_local else url


def has_landed_little(landing: str) -> bool:
    """Whether ``landing`` is a local folder with few bytes of segments: see :func:`are_small`."""
    try:
        landed = ArrowFiles(landing)
        return landed.is_local and are_small(each.size for each in _landed(landed, landed.walk(landed.root)))
    except (OSError, ValueError):
        return False


def _landed(files: ArrowFiles, listed: Iterable[FileStatus]) -> Iterator[LandedFile]:
    """Yields the segments of ``listed``, all files below the root of ``files``, that Spark would list, as it spells
    them."""
    for each in listed:
        inner = each.url.removeprefix(files.root).split("/")
        is_hidden = any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in inner)
        if each.url.endswith(ENDINGS) and each.size and not is_hidden:
            yield LandedFile(as_spark_spells(files, each.url), each.size, each.modified_at)


def _is_done(known: IngestedState, file: LandedFile) -> bool:
    return known.has(file.url) or (file.url in known.damaged and not known.is_changed(*file))


def _any_damaged_is_changed(known: IngestedState, root: str, listed: Iterable[FileStatus]) -> bool:
    """Whether a damaged file has changed, wherever it is. One that is gone has not; one in an object store may have,
    unless it is below ``root``. ``listed``: all files there."""
    by_url = {each.url: each for each in listed} if known.damaged else {}
    for url in known.damaged:
        if url.startswith("file:/"):
            path = Path(url.removeprefix("file:"))
            if path.exists():
                status = path.stat()
                if known.is_changed(url, status.st_size, status.st_mtime_ns // 1_000_000):
                    return True
        elif url.startswith(f"{root}/"):
            found = by_url.get(url)
            if found is not None and known.is_changed(url, found.size, found.modified_at):
                return True
        else:
            return True
    return False
