"""What runs of measured datasets left that nobody reads any more: dates that others stated again, and halves."""

from __future__ import annotations

from collections.abc import Sequence

from app.pipeline.storage.datasets import Manifest, Store


def remove_superseded(store: Store, datasets: Sequence[str], current: Manifest, until: int) -> list[str]:
    """Remove what no reader has begun to read since ``until`` (Unix ms), and what killed runs left; ``current`` is the
    manifest that readers read. What was removed, below the root. The caller holds the lock of those who write."""
    removed: list[str] = []
    for dataset in datasets:
        removed += _Runs(store, dataset, current, until).remove()
    return removed


class _Runs:
    """Those of one dataset. A date of a run is out of use since the run that states it now was complete."""

    def __init__(self, store: Store, dataset: str, current: Manifest, until: int) -> None:
        self._store = store
        self._home = store.folder(dataset)
        self._current: str = current["run_id"]
        self._stated_by: dict[str, str] = current["parts"][dataset]
        self._until = until
        self._completed = {run: self._completed_at(dataset, run) for run in store.files.folders(self._home, "run=")}

    def remove(self) -> list[str]:
        """Remove them; what was removed."""
        gone = []
        for run, completed_at in self._completed.items():
            if run == self._current:
                continue
            place = f"{self._home}/run={run}"
            days = self._store.files.folders(place, "date=")
            unused = [day for day in days if self._is_unused(run, day)]
            if completed_at is None or (len(unused) == len(days) and self._is_past(self._current)):
                gone.append(place)
            else:
                gone += [f"{place}/date={day}" for day in unused]
        for place in gone:
            self._store.files.remove(place)
        return [place.removeprefix(f"{self._store.root}/") for place in gone]

    def _is_unused(self, run: str, day: str) -> bool:
        stated_by = self._stated_by.get(day, self._current)
        return stated_by != run and self._is_past(stated_by)

    def _is_past(self, run: str) -> bool:
        completed_at = self._completed.get(run)
        return completed_at is not None and completed_at <= self._until

    def _completed_at(self, dataset: str, run: str) -> int | None:
        manifest = self._store.manifest(dataset, run)
        return None if manifest is None else int(manifest["completed_at"])
