"""Removes what later runs of ``metrics`` have superseded."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from babelgate.pipeline.metrics.parts import ENTANGLED, OPEN, parts_in
from babelgate.pipeline.storage.datasets import DatasetReader, Manifest


def remove_superseded(store: DatasetReader, datasets: Sequence[str], current: Manifest, until: int) -> list[str]:
    """Remove parts that were current at no time since ``until`` (Unix ms), leftovers of killed runs, and of all runs
    but the current one what only the next run needs.

    ``current``: the manifest of the current run. Returns the removed paths below the root. The caller owns the lock of
    ``metrics``.
    """
    kept = _kept(store, datasets, current, until)
    places = [place for dataset in datasets for place in _unused(store, dataset, kept)]
    places += _of_former_runs(store, current["run_id"], {*places})
    for place in places:
        store.files.remove(place)
    return [place.removeprefix(f"{store.root}/") for place in places]


class _KeptRuns(NamedTuple):
    """Ids of runs, and by dataset the parts that their manifests name, each with the run that wrote it."""

    runs: set[str]
    parts: dict[str, set[tuple[str, str]]]

    def add(self, manifest: Manifest) -> None:
        self.runs.add(manifest["run_id"])
        for dataset, parts in self.parts.items():
            parts.update((run, part) for part, run in manifest["parts"][dataset].items())


def _kept(store: DatasetReader, datasets: Sequence[str], current: Manifest, until: int) -> _KeptRuns:
    """The runs that were current at ``until`` or later, and the current one whatever its clock said.

    Of all the manifests only those of one moment are held at a time.
    """
    # Runs of a later time are kept: one of a clock that was set back, or one that was killed before it became current.
    until = min(until, int(current["completed_at"]))
    kept = _KeptRuns(set(), {dataset: set() for dataset in datasets})
    kept.add(current)
    first: list[Manifest] = []
    # The manifest of the last dataset is written last: a run without it never was current.
    for run in store.files.folders(store.folder(datasets[-1]), "run="):
        manifest = store.manifest(datasets[-1], run)
        if manifest is None:
            continue
        if manifest["completed_at"] > until:
            kept.add(manifest)
        elif not first or manifest["completed_at"] >= first[0]["completed_at"]:
            # Of runs completed in the same millisecond, all may have been current.
            first = [each for each in first if each["completed_at"] == manifest["completed_at"]] + [manifest]
    for each in first:
        kept.add(each)
    return kept


def _unused(store: DatasetReader, dataset: str, kept: _KeptRuns) -> Iterator[str]:
    home = store.folder(dataset)
    used = kept.parts[dataset]
    runs_in_use = {run for run, _ in used}
    for run in store.files.folders(home, "run="):
        place = f"{home}/run={run}"
        if run in kept.runs:
            continue
        if run not in runs_in_use:
            yield place
        else:
            yield from (f"{place}/date={part}" for part in parts_in(store.files, place) if (run, part) not in used)


def _of_former_runs(store: DatasetReader, current: str, gone: Collection[str]) -> Iterator[str]:
    """The files that a run keeps for the next one alone, in the folders of other runs that stay."""
    home = store.folder("lifecycle")
    for run in store.files.folders(home, "run="):
        place = f"{home}/run={run}"
        if run == current or place in gone:
            continue
        for each in store.files.list(place):
            name = each.url.rpartition("/")[2]
            if name == OPEN or name.startswith(ENTANGLED):
                yield f"{place}/{name}"
