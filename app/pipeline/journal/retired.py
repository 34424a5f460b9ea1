"""What nobody reads any more: removed when those who began to read it have had the time to end."""

from __future__ import annotations

from collections.abc import Iterator

from app.pipeline.journal.reader import Snapshot, committed, folders_of, forget
from app.pipeline.storage.datasets import Store
from app.pipeline.storage.schemas import DATASETS, JOURNAL, JOURNAL_CORRUPT, JOURNAL_GAPS

_KEPT_GAPS = 2


def path(dataset: str, folder: str) -> str:
    """How a folder of a dataset is called among the retired: its place below the root."""
    return f"{dataset}/v={DATASETS[dataset].version}/{folder}"


def remove_leftovers(store: Store, current: Snapshot) -> None:
    """Remove what compactions left that were killed. The caller holds their lock."""
    used = {*_used(current), *current.compacted.retired}
    for dataset in (JOURNAL.name, JOURNAL_CORRUPT.name):
        for run in store.files.folders(store.folder(dataset), "run="):
            if not any(_is_in(inner, path(dataset, f"run={run}")) for inner in used):
                store.files.remove(store.folder(dataset, run))


def remove_retired(store: Store, current: Snapshot, until: int) -> list[str]:
    """Remove what was retired ``until`` then (Unix ms); what was removed, below the root."""
    batches = [batch for batch in committed(store) if current.compacted.merged.get(batch, until + 1) <= until]
    folders = [path(*each) for batch in batches for each in folders_of(store, batch)]
    named = [*folders, *_folders(current, until), *_gaps(store, until)]
    removed = [folder for folder in named if store.files.exists(f"{store.root}/{folder}")]
    for folder in removed:
        store.files.remove(f"{store.root}/{folder}")
    for batch in batches:
        # Last, because it is what names the folders.
        forget(store, batch)
    return removed


def _folders(current: Snapshot, until: int) -> Iterator[str]:
    retired = current.compacted.retired
    kept = {*_used(current), *(each for each, at in retired.items() if at > until)}
    for each, at in retired.items():
        if at <= until and not any(_is_in(inner, each) for inner in kept):
            yield each


def _gaps(store: Store, until: int) -> Iterator[str]:
    manifests = {run: store.manifest(JOURNAL_GAPS.name, run) or {} for run in store.runs(JOURNAL_GAPS.name)}
    runs = sorted(manifests, key=lambda run: -int(manifests[run]["completed_at"]))
    current = store.current(JOURNAL_GAPS.name)
    for run in runs[_KEPT_GAPS:]:
        if run != current and manifests[run]["completed_at"] <= until:
            yield path(JOURNAL_GAPS.name, f"run={run}")


def _used(current: Snapshot) -> Iterator[str]:
    if current.run is not None:
        yield path(JOURNAL.name, f"run={current.run}")
    for part in current.compacted.parts.values():
        yield path(JOURNAL.name, part.folder)
    for folder in current.compacted.corrupt:
        yield path(JOURNAL_CORRUPT.name, folder)


def _is_in(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith(f"{outer}/")
