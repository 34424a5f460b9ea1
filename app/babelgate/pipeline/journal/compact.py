"""The job ``compact``: merges the small files of ``journal`` into one set per date, and removes old files."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click
import msgspec

from babelgate.pipeline.errors import JobFailed
from babelgate.pipeline.journal.reader import (
    INGEST_FIRST,
    Compacted,
    CompactedDate,
    Snapshot,
    committed,
    folders_of,
    has_few_records,
    now_ms,
    remove_commit,
    require_journal,
    save,
    snapshot,
)
from babelgate.pipeline.spark.console import progress
from babelgate.pipeline.spark.launch import Launch
from babelgate.pipeline.storage.datasets import DatasetReader, DatasetStore, run_id
from babelgate.pipeline.storage.locks import exclusive_lock
from babelgate.pipeline.storage.nothing_new import done_under_lock, without_spark
from babelgate.pipeline.storage.schemas import DATASETS, JOURNAL, JOURNAL_CORRUPT, JOURNAL_GAPS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ORDER = "queue", "message_id", "at", "node", "epoch", "seq"
_MIB = 1024 * 1024
_KEPT_GAPS = 2


def compact(
    launch: Launch, root: str, target_mib: float = 128.0, retain_hours: float = 24.0, force: bool = False
) -> dict[str, Any]:
    """Run the job and print its result. Returns the facts of the summary. Raises JobFailed.

    ``target_mib``: the size of a file; ``force``: compact every date, not only those with new batches.
    """
    require_journal(root)
    began = time.monotonic()
    until = now_ms() - int(retain_hours * 3_600_000)
    done = None if force else without_spark(root, lambda store: _nothing_new(store, until))
    if done is None:
        with launch.spark("compact", short=has_few_records(root)) as spark:
            store = DatasetStore(spark, root)
            with exclusive_lock(store.files, store.lock("compact"), "compact"):
                before = snapshot(store)
                if before.run is None and not before.batches:
                    raise JobFailed(f"{root} has no dataset journal: {INGEST_FIRST}")
                removed = _tidy(store, before, until)
                with progress(spark, "compact"):
                    made = _Compaction(store, before, target_mib).run(force)
    else:
        made, removed = done
    facts = {"job": "compact", **made, "removed": removed, "seconds": round(time.monotonic() - began, 3)}
    launch.summarize(facts)
    _print_result(facts)
    return facts


def _nothing_new(store: DatasetReader, until: int) -> tuple[dict[str, Any], list[str]] | None:
    """The facts of a compaction of nothing, and what was removed; None if there is work."""

    def compacted(store: DatasetReader) -> Snapshot | None:
        before = snapshot(store)
        return None if before.run is None or before.batches else before

    def tidied(store: DatasetReader, before: Snapshot) -> tuple[dict[str, Any], list[str]]:
        return _nothing(before), _tidy(store, before, until)

    return done_under_lock(store, "compact", compacted, tidied)


def _nothing(before: Snapshot) -> dict[str, Any]:
    return {"run_id": before.run, "unchanged": True, "batches": 0, "dates": 0, "rows": 0}


def _tidy(store: DatasetReader, before: Snapshot, until: int) -> list[str]:
    remove_leftovers(store, before)
    return remove_retired(store, before, until)


class _Compaction:
    def __init__(self, store: DatasetStore, before: Snapshot, target_mib: float) -> None:
        self._store = store
        self._before = before
        self._target_mib = target_mib

    def run(self, force: bool) -> dict[str, Any]:
        """Compact the dates of new batches and publish the result. Returns facts of the summary."""
        before = self._before
        batches = sorted(each.batch for each in before.batches)
        rows = before.dates()
        touched = sorted(rows if force else {day for each in before.batches for day in each.dates})
        done = {"batches": len(batches), "dates": len(touched), "rows": sum(rows[day] for day in touched)}
        if not (batches or force):
            return _nothing(before)
        run = run_id("compact", batches, {"after": before.run, "target_mib": self._target_mib})
        parts = {day: self._write(day, rows[day], run) for day in touched}
        corrupt = self._corrupt(run)
        compacted = Compacted(
            parts=before.compacted.parts | parts,
            corrupt=corrupt,
            merged=merged_with(self._store, before, batches),
            retired=retired_by(self._store, before, parts, corrupt),
            newest_at=before.newest_at(),
            content=before.known().content(),
        )
        facts = {"job": "compact", "counts": done, "compacted": msgspec.to_builtins(compacted)}
        self._store.publish([JOURNAL.name], run, facts)
        return {"run_id": run, "unchanged": False, **done}

    def _write(self, day: str, rows: int, run: str) -> CompactedDate:
        spark, home = self._store.spark, self._store.folder(JOURNAL.name)
        folder = f"run={run}/date={day}"
        files = max(1, math.ceil(self._size(day) / (self._target_mib * _MIB)))
        records = self._before.records([day])
        spread: DataFrame = records.repartition(1) if files == 1 else records.repartitionByRange(files, *_ORDER)
        save(self._store, spread.sortWithinPartitions(*_ORDER), JOURNAL.name, folder)
        written = spark.read.schema(JOURNAL.ddl).parquet(f"{home}/{folder}").count()
        if written != rows:
            raise JobFailed(f"{day} has {rows} records, but {written} were written. Nothing was changed.")
        return CompactedDate(folder, rows)

    def _size(self, day: str) -> float:
        """An estimate of the bytes of a date: its compacted files, and its share by rows of each batch."""
        shares = {
            each.folder: each.dates[day] / sum(each.dates.values())
            for each in self._before.batches
            if day in each.dates
        }
        home = self._store.folder(JOURNAL.name)
        return sum(
            shares.get(url.removeprefix(f"{home}/"), 1.0) * sum(file.size for file in self._store.files.walk(url))
            for url in self._before.folders([day])
        )

    def _corrupt(self, run: str) -> list[str]:
        """The folders of ``journal_corrupt`` after compaction: one folder if any batch is new, else as before."""
        before = self._before
        if not any(each.corrupt_folder for each in before.batches):
            return before.compacted.corrupt
        save(self._store, before.corrupt().coalesce(1), JOURNAL_CORRUPT.name, f"run={run}")
        return [f"run={run}"]


def merged_with(store: DatasetReader, before: Snapshot, batches: Iterable[str]) -> dict[str, int]:
    """The compacted batches that still have commits, with the time of their compaction, Unix ms."""
    still = set(committed(store))
    former = {batch: at for batch, at in before.compacted.merged.items() if batch in still}
    return former | dict.fromkeys(batches, now_ms())


def retired_by(store: DatasetReader, before: Snapshot, days: Iterable[str], corrupt: Collection[str]) -> dict[str, int]:
    """The folders that are unused after a run with other ``days`` is published, with the time since when, Unix ms."""
    former = before.compacted
    folders = [dataset_path(JOURNAL.name, former.parts[day].folder) for day in days if day in former.parts]
    folders += [dataset_path(JOURNAL_CORRUPT.name, each) for each in former.corrupt if each not in corrupt]
    if before.run is not None:
        folders.append(dataset_path(JOURNAL.name, f"run={before.run}"))
    still = {each: at for each, at in former.retired.items() if store.files.exists(f"{store.root}/{each}")}
    return still | dict.fromkeys(folders, now_ms())


def dataset_path(dataset: str, folder: str) -> str:
    """The path of a folder of a dataset, relative to the root, as ``Compacted.retired`` names it."""
    return f"{dataset}/v={DATASETS[dataset].version}/{folder}"


def remove_leftovers(store: DatasetReader, current: Snapshot) -> None:
    """Remove folders left by killed compactions. The caller owns the lock of ``compact``."""
    used = {*_used(current), *current.compacted.retired}
    for dataset in (JOURNAL.name, JOURNAL_CORRUPT.name):
        for run in store.files.folders(store.folder(dataset), "run="):
            if not any(_is_in(inner, dataset_path(dataset, f"run={run}")) for inner in used):
                store.files.remove(store.folder(dataset, run))


def remove_retired(store: DatasetReader, current: Snapshot, until: int) -> list[str]:
    """Remove folders and batches retired at ``until`` (Unix ms) or before. Returns their paths below the root."""
    batches = [batch for batch in committed(store) if current.compacted.merged.get(batch, until + 1) <= until]
    folders = [dataset_path(*each) for batch in batches for each in folders_of(store, batch)]
    named = [*folders, *_folders(current, until), *_gaps(store, until)]
    removed = [folder for folder in named if store.files.exists(f"{store.root}/{folder}")]
    for folder in removed:
        store.files.remove(f"{store.root}/{folder}")
    for batch in batches:
        # The commit goes last, because it names the folders.
        remove_commit(store, batch)
    return removed


def _folders(current: Snapshot, until: int) -> Iterator[str]:
    retired = current.compacted.retired
    kept = {*_used(current), *(each for each, at in retired.items() if at > until)}
    for each, at in retired.items():
        if at <= until and not any(_is_in(inner, each) for inner in kept):
            yield each


def _gaps(store: DatasetReader, until: int) -> Iterator[str]:
    manifests = {run: store.manifest(JOURNAL_GAPS.name, run) or {} for run in store.runs(JOURNAL_GAPS.name)}
    runs = sorted(manifests, key=lambda run: -int(manifests[run]["completed_at"]))
    current = store.current(JOURNAL_GAPS.name)
    for run in runs[_KEPT_GAPS:]:
        if run != current and manifests[run]["completed_at"] <= until:
            yield dataset_path(JOURNAL_GAPS.name, f"run={run}")


def _used(current: Snapshot) -> Iterator[str]:
    if current.run is not None:
        yield dataset_path(JOURNAL.name, f"run={current.run}")
    for part in current.compacted.parts.values():
        yield dataset_path(JOURNAL.name, part.folder)
    for folder in current.compacted.corrupt:
        yield dataset_path(JOURNAL_CORRUPT.name, folder)


def _is_in(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith(f"{outer}/")


def _print_result(facts: Mapping[str, Any]) -> None:
    if facts["unchanged"]:
        click.echo("Nothing has been ingested since the last compaction.")
    else:
        click.echo(f"Compacted {facts['batches']} batches: {facts['rows']} records of {facts['dates']} dates.")
    if facts["removed"]:
        click.echo(f"Removed replaced data: {len(facts['removed'])} folders.")
