"""Removes what later runs of ``metrics`` have superseded."""

from __future__ import annotations

from collections.abc import Sequence

from babelgate.pipeline.metrics.parts import day_of_part, parts_in, parts_of_days
from babelgate.pipeline.storage.datasets import DatasetReader, Manifest


def remove_superseded(store: DatasetReader, datasets: Sequence[str], current: Manifest, until: int) -> list[str]:
    """Remove parts superseded at ``until`` (Unix ms) or before, and leftovers of killed runs.

    ``current``: the manifest of the current run. Returns the removed paths below the root. The caller owns the lock of
    ``metrics``.
    """
    removed: list[str] = []
    for dataset in datasets:
        removed += _DatasetRuns(store, dataset, current, until).remove()
    return removed


class _DatasetRuns:
    """The runs of one dataset. A part of a run is unused since a later run that has its rows was completed."""

    def __init__(self, store: DatasetReader, dataset: str, current: Manifest, until: int) -> None:
        self._store = store
        self._dataset = dataset
        self._home = store.folder(dataset)
        self._current: str = current["run_id"]
        self._current_run_of: dict[str, str] = current["parts"][dataset]
        self._until = until
        self._completed: dict[str, int | None] = {}

    def remove(self) -> list[str]:
        """Remove unused folders. Returns their paths below the root."""
        used = set(self._current_run_of.values())
        runs = [run for run in self._store.files.folders(self._home, "run=") if run != self._current]
        # Manifests of runs with current parts are not read: of a large lake there are many.
        times = [at for run in {*runs, self._current} - used | {self._current} if (at := self._at(run)) is not None]
        gone = []
        for run in runs:
            place = f"{self._home}/run={run}"
            parts = list(parts_in(self._store.files, place))
            unused = [part for part in parts if self._is_unused(run, part)]
            if run not in used and (self._at(run) is None or (len(unused) == len(parts) and self._is_old(run, times))):
                gone.append(place)
            else:
                gone += [f"{place}/date={part}" for part in unused]
        for place in gone:
            self._store.files.remove(place)
        return [place.removeprefix(f"{self._store.root}/") for place in gone]

    def _is_old(self, run: str, times: Sequence[int]) -> bool:
        """Whether a run that has no current part was replaced long ago: by the next one of those at ``times``."""
        completed_at = self._at(run) or 0
        return min((at for at in times if at > completed_at), default=self._until + 1) <= self._until

    def _is_unused(self, run: str, part: str) -> bool:
        by = self._current_run_of.get(part) or self._divided_by(run, part)
        return by != run and self._is_past(by)

    def _divided_by(self, run: str, part: str) -> str:
        """The run that wrote the date of a part anew, whole or in slices. The current one, if that is not known."""
        parts = parts_of_days(self._current_run_of, [day_of_part(part)])
        if "/" in part and part.partition("/")[0] not in parts:
            # All rows of this slice have moved to others.
            return self._current
        since = self._at(run) or 0
        later = [(at, by) for by in set(parts.values()) if (at := self._at(by)) is not None and at > since]
        return min(later, default=(0, self._current))[1]

    def _is_past(self, run: str) -> bool:
        completed_at = self._at(run)
        return completed_at is not None and completed_at <= self._until

    def _at(self, run: str) -> int | None:
        """When a run was completed, Unix ms; None if it was not."""
        if run not in self._completed:
            manifest = self._store.manifest(self._dataset, run)
            self._completed[run] = None if manifest is None else int(manifest["completed_at"])
        return self._completed[run]
